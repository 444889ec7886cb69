"""CREATE, ALTER and DROP of materialized views. Nothing is changed before everything that can be refused has been."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.catalog import KEPT_DELTA
from deltaic.app.refresh.contest import again_if_beaten, contested
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.stored import own_properties
from deltaic.app.statements.altering import alteration, altered_definition
from deltaic.app.statements.making import check_circle, check_policy, materialize, new_definition
from deltaic.app.statements.programs import with_query
from deltaic.errors import ConcurrentRefresh, DependencyError, ExistsError, MissingError, SourceError
from deltaic.sql.statements import AlterView, CreateView, DropView
from deltaic.store.own_table import TRY_AGAIN

_WAS_VIEW = "It was a materialized view: deltaic repair brings it back, DROP MATERIALIZED VIEW takes it away."


def check_readers(engine: Engine, full_name: str) -> None:
    """What a view reads stays."""
    key = full_name if full_name.startswith("delta.`") else full_name.lower()
    readers, ref = engine.readers(key), engine.source_ref(key)
    if ref is not None and ref.path is not None:  # they may know it by its folder
        readers |= engine.readers(f"delta.{quote(ref.path)}")
    if readers:
        raise DependencyError(
            f"{full_name} is read by {', '.join(readers)}", hint="Drop those materialized views first."
        )


class ViewStatements:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.catalog = engine, engine.catalog

    def create(self, statement: CreateView) -> None:
        own = self.catalog.qualified(statement.name)
        try:
            again_if_beaten(lambda: self._created(statement))
        except ExistsError:
            if not statement.if_not_exists or self.catalog.is_gone(*own):
                raise  # else somebody was faster

    def _created(self, statement: CreateView) -> None:
        with self.engine.lock():
            schema, name = self.catalog.qualified(statement.name)
            self.catalog.let_go_if_lost(schema, name)
            there = self.catalog.exists(schema, name)
            if there is not None and statement.if_not_exists:
                return
            if there is not None and not (statement.or_replace and there == "a materialized view"):
                hint = "Use IF NOT EXISTS, or CREATE OR REPLACE for a materialized view."
                if there != "a materialized view" and self.catalog.is_lost_view(schema, name):
                    hint = _WAS_VIEW
                raise ExistsError(f"{schema}.{name} is already {there}", hint=hint)
            self.catalog.check_seen(schema, name)
            definition = new_definition(self.engine, with_query(self.engine, statement))
            try:
                materialize(self.engine, definition, statement.properties, replacing=there is not None)
            except (MissingError, SourceError) as problem:
                if there is None or not self.catalog.is_gone(schema, name):
                    raise
                raise ConcurrentRefresh(f"{schema}.{name} was dropped meanwhile", hint=TRY_AGAIN) from problem

    def alter(self, statement: AlterView, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        """`properties` are told to the view's table by the same commit."""
        contested(self.catalog, self.catalog.qualified(statement.name), lambda: self._altered(statement, properties))

    def _altered(self, statement: AlterView, properties: Mapping[str, str]) -> None:
        with self.engine.lock():
            statement = with_query(self.engine, statement)
            schema, name = self.catalog.qualified(statement.name)
            old = self.catalog.definition(schema, name)
            altering = alteration(self.engine, old, statement.query, properties)
            check_policy(altering.new)
            check_circle(self.engine, altering.new)
            if not altering.run():
                definition = altered_definition(old, statement.query)
                told = {**own_properties(self.engine.view_table(old)), **properties}
                materialize(self.engine, definition, told, replacing=True, old=old)

    def drop(self, statement: DropView) -> None:
        with self.engine.lock():
            schema, name = self.catalog.qualified(statement.name)
            self.catalog.let_go_if_lost(schema, name)
            try:
                schema, name = self.catalog.found(schema, name)
            except MissingError:
                if not self.catalog.is_lost_view(schema, name):  # a damaged one can be dropped
                    if statement.if_exists:
                        return
                    raise
            check_readers(self.engine, f"{schema}.{name}")
            self.catalog.unregister(schema, name)
            # The view itself goes last: killed before, it is still there, and without a kept delta begins one anew.
            self.catalog.discard_hidden(KEPT_DELTA, schema, name)
            self.catalog.remove(schema, name)
            # Whoever refreshed or propagated it meanwhile may have made these anew.
            self.catalog.discard_hidden(KEPT_DELTA, schema, name)
            self.catalog.register(schema, name)
            self.engine.forget(f"{schema}.{name}")
