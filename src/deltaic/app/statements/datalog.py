"""Datalog programs to materialized views. Everything is checked before the first view is made; if one cannot be made
after all, those made or altered before it are put back."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.stored import own_properties
from deltaic.app.statements.making import materialize, new_definition
from deltaic.app.statements.programs import by_rule, check_query, read_program
from deltaic.app.statements.views import ViewStatements
from deltaic.app.values.definition import Definition
from deltaic.errors import ExistsError
from deltaic.sql.datalog.to_sql import ViewQuery, view_queries, view_query
from deltaic.sql.statements import AlterView, CreateView, DropView

PROPERTY = "deltaic.datalog"
"""The text of the program that a view was made of: only such a view may be altered by another program."""


def make_views(engine: Engine, text: str) -> list[str]:
    """A view for each predicate that the program asks for; their names, each after those that it reads."""
    with engine.lock():
        program = read_program(engine, text)
        for key in program.asked:
            check_query(engine, view_query(program, key))
        views = [_View.of(engine, query) for query in view_queries(program)]
        with ExitStack() as undo:
            for view in views:
                with by_rule(view.query):
                    view.make(text, undo)
            undo.pop_all()
    return [view.query.name for view in views]


@dataclass(frozen=True)
class _View:
    """What is to be made, and what has its name now."""

    engine: Engine
    query: ViewQuery
    new: Definition
    old: Definition | None = None

    @staticmethod
    def of(engine: Engine, query: ViewQuery) -> _View:
        new = new_definition(engine, CreateView((query.name,), query.sql))
        view = _View(engine, query, new)
        there = engine.catalog.exists(new.schema, new.name)
        if there is None:
            engine.catalog.check_seen(new.schema, new.name)
            return view
        if there != "a materialized view":
            raise ExistsError(f"{new.full_name} is already {there}", at=query.at)
        view = replace(view, old=engine.catalog.definition(new.schema, new.name))
        if PROPERTY not in view.properties:
            hint = "Drop it, or give the predicate another name."
            raise ExistsError(f"{new.full_name} is a view that no Datalog program made", at=query.at, hint=hint)
        return view

    @property
    def properties(self) -> dict[str, str]:
        """Of the view that is there."""
        return own_properties(self.engine.view_table(self.new))

    def make(self, text: str, undo: ExitStack) -> None:
        if self.old is None:
            materialize(self.engine, self.new, {PROPERTY: text}, replacing=False)
            undo.callback(ViewStatements(self.engine).drop, DropView((self.new.schema, self.new.name)))
        elif self.old.query != self.query.sql:
            before = self.properties[PROPERTY]
            self.alter(self.query.sql, text)
            undo.callback(self.alter, self.old.query, before)

    def alter(self, query: str, text: str) -> None:
        ViewStatements(self.engine).alter(AlterView((self.new.schema, self.new.name), query), {PROPERTY: text})
