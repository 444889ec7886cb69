"""Datalog programs as queries: read, checked against the tables that are there, and told by rule what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pyspark.errors import PySparkException

from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.sources import SourceCatalog
from deltaic.app.statements.altering import altered_definition
from deltaic.app.statements.making import new_definition
from deltaic.app.values.definition import Definition
from deltaic.app.values.texts import text_in
from deltaic.errors import (
    ComputeError,
    DatalogError,
    DeltaicError,
    NameProblem,
    ParseError,
    TypeNotStorable,
    UnsupportedError,
)
from deltaic.spark.analyzer import query_error
from deltaic.spark.session import forked
from deltaic.sql.datalog.check import Checked, Table, checked
from deltaic.sql.datalog.parse import parse_program
from deltaic.sql.datalog.to_sql import ViewQuery, view_query
from deltaic.sql.statements import AlterView, CreateView


def program_in(text_or_path: str | os.PathLike[str]) -> str:
    """The text of a program, which may be in a file."""
    if not isinstance(text_or_path, str):
        return text_in(Path(text_or_path))
    named = text_or_path.endswith(".dl") and "\n" not in text_or_path
    return text_in(Path(text_or_path)) if named else text_or_path


FromProgram = TypeVar("FromProgram", CreateView, AlterView)


def with_query(engine: Engine, statement: FromProgram) -> FromProgram:
    """CREATE or ALTER MATERIALIZED VIEW ... FROM 'file.dl' as ... AS query, with all that this needs inside."""
    if statement.program is None:
        return statement
    there = isinstance(statement, AlterView)
    old = engine.catalog.definition(*engine.catalog.qualified(statement.name)) if there else None
    text = text_in(Path(statement.program))
    try:
        query = _query_of(engine, text, statement.name[-1], old)
    except DeltaicError as problem:
        if problem.at is None:
            raise
        raise type(problem)(f"{statement.program}: {problem.what}", at=problem.at, hint=problem.hint) from None
    return replace(statement, query=query.sql, program=None)


def _query_of(engine: Engine, text: str, name: str, old: Definition | None) -> ViewQuery:
    """A view that is there keeps the settings that it was made under, and so the meaning of names."""
    program = read_program(engine, text, old.current_schema if old else None)
    if name.lower() not in program.derived:
        known = ", ".join(derived.name for derived in program.derived.values())
        raise NameProblem(f"the program has no rule for {name}", hint=f"It has rules for {known}.")
    query = view_query(program, name.lower())
    check_query(engine, query, old)
    return query


def read_program(engine: Engine, text: str, schema: str | None = None) -> Checked:
    with forked(engine.spark) as session:
        session.catalog.setCurrentDatabase(schema or engine.catalog.current_schema())
        world = SourceCatalog(engine.catalog, session, lambda schema, name: ())

        def table(name: str) -> Table | None:
            source = world.source(tuple(name.split(".")))
            if source is None:
                return None
            return Table(tuple((f.name, f.type) for f in source.columns), source.is_view)

        return checked(parse_program(text), table)


def check_query(engine: Engine, query: ViewQuery, old: Definition | None = None) -> None:
    """With all that it needs inside: the views that it is to read are not there yet."""
    with by_rule(query):
        created = CreateView((query.name,), query.sql)
        engine.compile_new(altered_definition(old, query.sql) if old else new_definition(engine, created))


@contextmanager
def by_rule(query: ViewQuery) -> Iterator[None]:
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
