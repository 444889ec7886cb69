"""EXPLAIN of what is there, and of statements that are not run."""

from __future__ import annotations

from deltaic.app.refresh.decide import Planner
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.explain import explain_alter, explain_create, explain_refresh
from deltaic.app.statements.altering import alteration
from deltaic.app.statements.making import new_definition
from deltaic.app.statements.programs import with_query
from deltaic.errors import ConfigurationError
from deltaic.sql.parse_statement import parse_statement
from deltaic.sql.statements import AlterView, CreateView


def is_statement(name_or_sql: str) -> bool:
    """Whether a text is more than a name."""
    return " " in name_or_sql.strip() and not name_or_sql.strip().startswith("`")


def explained(engine: Engine, name_or_sql: str) -> str:
    """What a refresh of the view would do now, or how a CREATE MATERIALIZED VIEW would be kept."""
    if not is_statement(name_or_sql):
        return refresh_explained(engine, engine.split(name_or_sql))
    statement = parse_statement(name_or_sql)
    if isinstance(statement, CreateView):
        return create_explained(engine, statement)
    if isinstance(statement, AlterView):
        return alter_explained(engine, statement)
    raise ConfigurationError("explain takes a view's name, or a CREATE or ALTER MATERIALIZED VIEW statement")


def create_explained(engine: Engine, create: CreateView) -> str:
    return explain_create(engine.compile_new(new_definition(engine, with_query(engine, create))))


def alter_explained(engine: Engine, alter: AlterView) -> str:
    query = with_query(engine, alter).query
    altering = alteration(engine, engine.catalog.definition(*engine.catalog.qualified(alter.name)), query)
    return explain_alter(altering.plan(), altering.new)


def refresh_explained(engine: Engine, name: tuple[str, str]) -> str:
    plan = Planner(engine).plan(engine.catalog.definition(*name))
    return explain_refresh(plan, engine.compiled(plan.definition))
