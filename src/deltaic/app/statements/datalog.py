"""Datalog programs to materialized views. Everything is checked before the first view is made; if one cannot be made
after all, those made or altered before it are put back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException

from deltaic.app.refresh.sources import SourceCatalog
from deltaic.app.refresh.stored import own_properties
from deltaic.app.statements.altering import altered_definition
from deltaic.app.statements.executor import Executor
from deltaic.app.values.definition import Definition
from deltaic.errors import (
    ComputeError,
    DatalogError,
    DeltaicError,
    ExistsError,
    MissingError,
    NameProblem,
    ParseError,
    TypeNotStorable,
    UnsupportedError,
)
from deltaic.spark.analyzer import query_error
from deltaic.spark.session import forked
from deltaic.sql.datalog.check import Checked, Table, checked
from deltaic.sql.datalog.parse import parse_program
from deltaic.sql.datalog.to_sql import ViewQuery, view_queries, view_query
from deltaic.sql.statements import AlterView, CreateView, DropView
from deltaic.store.quoting import text_literal

if TYPE_CHECKING:
    from deltaic.app.warehouse import Warehouse

PROPERTY = "deltaic.datalog"
"""The text of the program that a view was made of: only such a view may be altered by another program."""


def program_in(text_or_path: str | os.PathLike[str]) -> str:
    """The text of a program, which may be in a file."""
    if not isinstance(text_or_path, str):
        return _read(Path(text_or_path))
    named = text_or_path.endswith(".dl") and "\n" not in text_or_path
    return _read(Path(text_or_path)) if named else text_or_path


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise MissingError(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise ParseError(f"{file} is not a text in UTF-8: {problem.reason}, {problem.start} bytes in") from None


def make_views(warehouse: Warehouse, text: str) -> list[str]:
    """A view for each predicate that the program asks for; their names, each after those that it reads."""
    with warehouse.lock():
        program = read_program(warehouse, text)
        for key in program.asked:
            _check_query(warehouse, view_query(program, key))
        views = [_View.of(warehouse, query) for query in view_queries(program)]
        with ExitStack() as undo:
            for view in views:
                with _by_rule(view.query):
                    view.make(text, undo)
            undo.pop_all()
    return [view.query.name for view in views]


FromProgram = TypeVar("FromProgram", CreateView, AlterView)


def with_query(warehouse: Warehouse, statement: FromProgram) -> FromProgram:
    """CREATE or ALTER MATERIALIZED VIEW ... FROM 'file.dl' as ... AS query, with all that this needs inside."""
    if statement.program is None:
        return statement
    there = isinstance(statement, AlterView)
    old = warehouse.catalog.definition(*warehouse.catalog.qualified(statement.name)) if there else None
    text = _read(Path(statement.program))
    try:
        query = _query_of(warehouse, text, statement.name[-1], old)
    except DeltaicError as problem:
        if problem.at is None:
            raise
        raise type(problem)(f"{statement.program}: {problem.what}", at=problem.at, hint=problem.hint) from None
    return replace(statement, query=query.sql, program=None)


def _query_of(warehouse: Warehouse, text: str, name: str, old: Definition | None) -> ViewQuery:
    """A view that is there keeps the settings that it was made under, and so the meaning of names."""
    program = read_program(warehouse, text, old.current_schema if old else None)
    if name.lower() not in program.derived:
        known = ", ".join(derived.name for derived in program.derived.values())
        raise NameProblem(f"the program has no rule for {name}", hint=f"It has rules for {known}.")
    query = view_query(program, name.lower())
    _check_query(warehouse, query, old)
    return query


def read_program(warehouse: Warehouse, text: str, schema: str | None = None) -> Checked:
    with forked(warehouse.spark) as session:
        session.catalog.setCurrentDatabase(schema or warehouse.catalog.current_schema())
        world = SourceCatalog(warehouse.catalog, session, lambda schema, name: ())

        def table(name: str) -> Table | None:
            source = world.source(tuple(name.split(".")))
            if source is None:
                return None
            return Table(tuple((f.name, f.type) for f in source.columns), source.is_view)

        return checked(parse_program(text), table)


def _check_query(warehouse: Warehouse, query: ViewQuery, old: Definition | None = None) -> None:
    """With all that it needs inside: the views that it is to read are not there yet."""
    with _by_rule(query):
        created = CreateView((query.name,), query.sql)
        warehouse.compile_new(altered_definition(old, query.sql) if old else warehouse.new_definition(created))


@contextmanager
def _by_rule(query: ViewQuery) -> Iterator[None]:
    """What is wrong with a query is told by the rule that it was made of."""
    try:
        yield
    except (ParseError, NameProblem, TypeNotStorable, UnsupportedError) as problem:
        clause = query.clause_at(problem.at.line) if problem.at else None
        what = f"{problem.what}, in {clause.told}" if clause else f"{query.name}: {problem.what}"
        raise type(problem)(what, at=clause.at if clause else query.at, hint=_hint(problem.hint)) from None
    except ComputeError as problem:
        raise DatalogError(f"{query.name}: {problem.told}", at=query.at, hint=problem.hint) from problem
    except PySparkException as problem:
        raise DatalogError(f"{query.name}: {query_error(problem, '').what}", at=query.at) from problem


def _hint(hint: str | None) -> str | None:
    """Types are declared in Datalog."""
    return "Declare its types, as in: .decl path(x: number, cost: float)" if hint and "CAST" in hint else hint


@dataclass(frozen=True)
class _View:
    """What is to be made, and what has its name now."""

    executor: Executor
    query: ViewQuery
    new: Definition
    old: Definition | None = None

    @staticmethod
    def of(warehouse: Warehouse, query: ViewQuery) -> _View:
        new = warehouse.new_definition(CreateView((query.name,), query.sql))
        view = _View(Executor(warehouse), query, new)
        there = warehouse.catalog.exists(new.schema, new.name)
        if there is None:
            return view
        if there != "a materialized view":
            raise ExistsError(f"{new.full_name} is already {there}", at=query.at)
        view = replace(view, old=warehouse.catalog.definition(new.schema, new.name))
        if PROPERTY not in view.properties:
            hint = "Drop it, or give the predicate another name."
            raise ExistsError(f"{new.full_name} is a view that no Datalog program made", at=query.at, hint=hint)
        return view

    @property
    def properties(self) -> dict[str, str]:
        """Of the view that is there."""
        return own_properties(self.executor.warehouse.view_table(self.new))

    def make(self, text: str, undo: ExitStack) -> None:
        if self.old is None:
            self.executor.materialize(self.new, {PROPERTY: text}, replacing=False)
            undo.callback(self.executor.drop, DropView((self.new.schema, self.new.name)))
        elif self.old.query != self.query.sql:
            before = self.properties[PROPERTY]
            self.alter(self.query.sql, text)
            undo.callback(self.alter, self.old.query, before)

    def alter(self, query: str, text: str) -> None:
        self.executor.alter(AlterView((self.new.schema, self.new.name), query))
        warehouse = self.executor.warehouse
        relation = warehouse.view_table(self.new).ref.relation
        told = f"{text_literal(PROPERTY)} = {text_literal(text)}"
        warehouse.spark.sql(f"ALTER TABLE {relation} SET TBLPROPERTIES ({told})")
