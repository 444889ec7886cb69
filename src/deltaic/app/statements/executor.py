"""What each statement does. Nothing is changed before everything that can be refused has been."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from deltaic.algebra.expr import quote
from deltaic.algebra.reasons import Reason
from deltaic.app.catalogs.catalog import KEPT_DELTA, path_source
from deltaic.app.catalogs.live import LiveStates
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.refresh.choice import first_price
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.contest import again_if_beaten, contested
from deltaic.app.refresh.decide import Planner, first_reads
from deltaic.app.refresh.here import evaluated
from deltaic.app.refresh.stored import create_sql, progress_of, recompute_sql, with_depth
from deltaic.app.refresh.upkeep import with_last_vacuum
from deltaic.app.statements.altering import altered_definition
from deltaic.app.values.definition import Definition
from deltaic.app.values.names import check_name
from deltaic.app.values.settings import Settings
from deltaic.errors import (
    ConcurrentRefresh,
    DependencyError,
    ExistsError,
    MissingError,
    NameProblem,
    NotIncremental,
    SourceError,
    UnsupportedError,
)
from deltaic.plan.maintain import Maintenance
from deltaic.spark.analyzer import enough_stack
from deltaic.spark.lost import again_if_lost
from deltaic.spark.telling import told_of
from deltaic.sql.statements import (
    AlterView,
    ChangePlainView,
    ChangeSchema,
    CreateTable,
    CreateView,
    DescribeHistory,
    DropTable,
    DropView,
    ExplainAlter,
    ExplainCreate,
    ExplainRefresh,
    MoveTable,
    Policy,
    RefreshView,
    RenameTable,
    ShowViews,
    SparkStatement,
    Statement,
)
from deltaic.store.quoting import text_literal
from deltaic.store.view import TRY_AGAIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from deltaic.app.warehouse import Warehouse

_READING = frozenset(
    [
        "SELECT",
        "WITH",
        "SHOW",
        "DESCRIBE",
        "DESC",
        "EXPLAIN",
        "SET",
        "RESET",
        "USE",
        "VALUES",
        "FROM",
        "TABLE",
        "LIST",
    ]
)


class Executor:
    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.catalog = warehouse.catalog

    def run(self, statement: Statement) -> DataFrame:
        match statement:
            case CreateView():
                return self.create(statement)
            case RefreshView():
                report = self.warehouse.refresh(_dotted(statement.name), full=statement.full, as_of=statement.as_of)
                return self.rows([{"result": line} for line in str(report).splitlines()])
            case ExplainCreate():
                return self.lines(self.warehouse.explain_create(statement.create))
            case ExplainRefresh():
                return self.lines(self.warehouse.explain_refresh(_dotted(statement.name)))
            case ExplainAlter():
                return self.lines(self.warehouse.explain_alter(statement.alter))
            case AlterView():
                return self.alter(statement)
            case DropView():
                return self.drop(statement)
            case ShowViews():
                return self.show(statement)
            case DescribeHistory():
                return self.history(statement)
            case DropTable():
                return self.drop_table(statement)
            case ChangeSchema():
                return self.change_schema(statement)
            case RenameTable():
                return self.rename(statement)
            case MoveTable():
                return self.move(statement)
            case ChangePlainView():
                return self.change_plain_view(statement)
            case CreateTable():
                return self.create_table(statement)
            case SparkStatement():
                return self.spark(statement.sql)

    # results

    def rows(self, rows: list[dict[str, Any]], columns: str | None = None) -> DataFrame:
        names = columns or ", ".join(f"`{name}` string" for name in (rows[0] if rows else {"result": ""}))
        data = [tuple(None if v is None else str(v) for v in row.values()) for row in rows]
        return self.warehouse.spark.createDataFrame(data, names)

    def lines(self, text: str) -> DataFrame:
        return self.rows([{"plan": line} for line in text.splitlines()], "plan string")

    def nothing(self) -> DataFrame:
        return self.rows([], "result string")

    # views

    def create(self, statement: CreateView) -> DataFrame:
        own = self.catalog.qualified(statement.name)
        try:
            return again_if_beaten(lambda: self.created(statement))
        except ExistsError:
            if statement.if_not_exists and not self.catalog.is_gone(*own):  # somebody else was faster
                return self.nothing()
            raise

    def created(self, statement: CreateView) -> DataFrame:
        with self.warehouse.lock():
            schema, name = self.catalog.qualified(statement.name)
            there = self.catalog.exists(schema, name)
            if there is not None and statement.if_not_exists:
                return self.nothing()
            if there is not None and not (statement.or_replace and there == "a materialized view"):
                raise ExistsError(
                    f"{schema}.{name} is already {there}",
                    hint="Use IF NOT EXISTS, or CREATE OR REPLACE for a materialized view.",
                )
            self.catalog.check_seen(schema, name)
            definition = self.warehouse.new_definition(self.warehouse.with_query(statement))
            try:
                self.materialize(definition, statement.properties, replacing=there is not None)
            except (MissingError, SourceError) as problem:
                if there is None or not self.catalog.is_gone(schema, name):
                    raise
                raise ConcurrentRefresh(f"{schema}.{name} was dropped meanwhile", hint=TRY_AGAIN) from problem
        return self.nothing()

    def alter(self, statement: AlterView) -> DataFrame:
        return contested(self.catalog, self.catalog.qualified(statement.name), lambda: self.altered(statement))

    def altered(self, statement: AlterView) -> DataFrame:
        with self.warehouse.lock():
            statement = self.warehouse.with_query(statement)
            schema, name = self.catalog.qualified(statement.name)
            old = self.catalog.definition(schema, name)
            alteration = self.warehouse.alteration(old, statement.query)
            self.check_policy(alteration.new)
            self.check_circle(alteration.new)
            if not alteration.run():
                self.materialize(altered_definition(old, statement.query), None, replacing=True, old=old)
        return self.nothing()

    def materialize(
        self,
        definition: Definition,
        properties: dict[str, str] | None,
        *,
        replacing: bool,
        old: Definition | None = None,
    ) -> None:
        """Computes a new view and makes it visible, in one commit; in the place of what it is, which may have to be
        `old`."""
        compiled = self.warehouse.compile_new(definition)
        self.check_policy(compiled)
        self.check_circle(compiled)
        definition = compiled.definition
        for source in compiled.sources.values():
            if source.live is not None:
                self.warehouse.captures.step(source.live)
        # Its number comes before the sources' versions: whoever brings the view to later ones meanwhile takes it.
        planner = Planner(self.warehouse)
        table = planner.looked_at(old)[0] if old else self.warehouse.view_table(definition)
        last = table.newest_progress() if replacing else None
        number = table.next_refresh() if replacing else 1
        states = planner.states(compiled, {})
        reads = first_reads(compiled, states)
        priced = isinstance(compiled.way, Maintenance) and compiled.way.recursion is None
        prices = first_price(compiled.way, reads) if priced and isinstance(compiled.way, Maintenance) else None
        progress = progress_of(compiled, states, number, mode="full", technique="recompute", reasons=(), prices=prices)
        progress = with_last_vacuum(progress, last)
        sql = create_sql(
            compiled,
            table,
            recompute_sql(compiled, reads),
            replacing=replacing,
            properties=None if properties is None else {**Settings.of(self.warehouse.spark).retention, **properties},
            location=self.catalog.location(definition.schema, definition.name),
        )

        def write() -> None:
            with (
                (self.catalog.held if replacing else self.catalog.making)(definition.schema, definition.name),
                self.warehouse.session_for(definition) as session,
                closing(LiveStates(self.warehouse.captures, session)) as live,
            ):
                live.name_all(compiled.live, reads)
                with evaluated(session, compiled, reads) as told, enough_stack():
                    table.apply_spark(session, sql, with_depth(progress, told))

        with told_of(definition.full_name):
            again_if_lost(write, definition.full_name)
        self.catalog.register(definition.schema, definition.name)

    def check_policy(self, compiled: Compiled) -> None:
        if isinstance(compiled.way, Reason) and compiled.definition.policy is Policy.STRICT:
            raise NotIncremental(
                f"{compiled.definition.full_name} cannot be kept incrementally: {compiled.way}",
                at=compiled.way.at,
                hint="REFRESH POLICY AUTO lets it be recomputed.",
            )

    def check_circle(self, compiled: Compiled) -> None:
        """A view may not read itself through other views either."""
        own = compiled.definition.full_name.lower()
        waiting, seen = [key for key, s in compiled.sources.items() if s.is_view], set[str]()
        while waiting:
            key = waiting.pop()
            if key == own:
                raise DependencyError(f"{compiled.definition.full_name} would read itself through other views")
            if key not in seen:
                seen.add(key)
                last = self.warehouse.progress_at(*self.catalog.found(*key.split(".", 1)))
                views = {f"{s}.{n}".lower() for s, n in self.catalog.view_names()}
                waiting.extend(source for source in (last.sources if last else ()) if source in views)

    def drop(self, statement: DropView) -> DataFrame:
        with self.warehouse.lock():
            schema, name = self.catalog.qualified(statement.name)
            try:
                schema, name = self.catalog.found(schema, name)
            except MissingError:
                if statement.if_exists:
                    return self.nothing()
                raise
            self.check_readers(f"{schema}.{name}")
            self.catalog.unregister(schema, name)
            # The view itself goes last: killed before, it is still there, and without a kept delta begins one anew.
            self.catalog.discard_hidden(KEPT_DELTA, schema, name)
            self.catalog.remove(schema, name)
            # Whoever refreshed or propagated it meanwhile may have made these anew.
            self.catalog.discard_hidden(KEPT_DELTA, schema, name)
            self.catalog.register(schema, name)
            self.warehouse.forget(f"{schema}.{name}")
        return self.nothing()

    def check_readers(self, full_name: str) -> None:
        readers = self.warehouse.readers(full_name.lower())
        if readers:
            raise DependencyError(
                f"{full_name} is read by {', '.join(readers)}", hint="Drop those materialized views first."
            )

    def show(self, statement: ShowViews) -> DataFrame:
        views = self.warehouse.views()
        if statement.schema:
            views = [v for v in views if v["view"].split(".")[0].lower() == statement.schema[-1].lower()]
        return self.rows(views, ", ".join(f"{n} string" for n in _SHOWN))

    def history(self, statement: DescribeHistory) -> DataFrame:
        name = _dotted(statement.name)
        if path_source(statement.name) is not None:
            return self.spark(f"DESCRIBE HISTORY {name}")
        schema, plain = self.catalog.qualified(statement.name)
        if not self.catalog.is_view_name(schema, plain):
            return self.spark(f"DESCRIBE HISTORY {name}")
        return self.rows(self.warehouse.history(name))

    # tables and everything else

    def drop_table(self, statement: DropTable) -> DataFrame:
        schema, name = self._place(statement.name)
        if self.catalog.is_view_name(schema, name):
            raise NameProblem(f"{schema}.{name} is a materialized view", hint="DROP MATERIALIZED VIEW takes it away.")
        by_path = path_source(statement.name)
        if statement.kind == "VIEW":
            return self.spark(statement.sql)
        with self.warehouse.lock():
            self.check_readers(by_path.name if by_path else f"{schema}.{name}")
            if by_path is not None:
                return self.spark(statement.sql)
            if not isinstance(self.catalog, LocalCatalog):
                return self.spark(statement.sql)
            result = self.warehouse.spark.sql(statement.sql)
            self.catalog.forget(schema, name)
        return result

    def change_schema(self, statement: ChangeSchema) -> DataFrame:
        if not isinstance(self.catalog, LocalCatalog):
            return self.spark(statement.sql)
        name = statement.name[-1]
        check_name(name, "a schema")
        if statement.has_location:
            raise UnsupportedError(
                "a schema of a local warehouse is a folder of it, and has no other location",
                hint="Tables may be elsewhere: CREATE TABLE ... USING delta LOCATION.",
            )
        with self.warehouse.lock():
            if statement.drop:
                self.catalog.check_empty(name)
            result = self.warehouse.spark.sql(statement.sql)
            if statement.drop:
                self.catalog.drop_schema(name)
            else:
                self.catalog.make_schema(name)
        return result

    def change_plain_view(self, statement: ChangePlainView) -> DataFrame:
        schema, name = self._place(statement.name)
        if self.catalog.is_view_name(schema, name):
            hint = "ALTER MATERIALIZED VIEW ... AS changes its query."
            raise NameProblem(f"{schema}.{name} is a materialized view", hint=hint)
        return self.spark(statement.sql)

    def rename(self, statement: RenameTable) -> DataFrame:
        schema, name = self._place(statement.name)
        self.check_readers(f"{schema}.{name}")
        if isinstance(self.catalog, LocalCatalog):
            raise UnsupportedError(
                "a table of a local warehouse is named by its folder and cannot be renamed",
                hint="CREATE TABLE new AS SELECT * FROM old, then DROP TABLE old.",
            )
        return self.spark(statement.sql)

    def move(self, statement: MoveTable) -> DataFrame:
        if not isinstance(self.catalog, LocalCatalog):
            return self.spark(statement.sql)
        schema, name = self._place(statement.name)
        if not self.catalog.is_linked(schema, name):
            raise UnsupportedError(
                f"{schema}.{name} is a folder of the warehouse, and has no other location",
                hint="Close the warehouse, move the folder, open it again and CREATE TABLE ... USING delta LOCATION.",
            )
        with self.warehouse.lock():
            self.catalog.move(schema, name, statement.location)
        return self.nothing()

    def create_table(self, statement: CreateTable) -> DataFrame:
        schema, name = self._place(statement.name)
        if path_source(statement.name) is None:
            check_name(schema, "a schema")
            check_name(name, "a table")
        if self.catalog.is_view_name(schema, name):
            raise ExistsError(f"{schema}.{name} is already a materialized view")
        sql = statement.before + statement.after
        if not isinstance(self.catalog, LocalCatalog):
            return self.spark(sql)
        with self.warehouse.lock():
            if self.catalog.lost_its_folder(schema, name):
                self.catalog.let_go(schema, name)
            if statement.has_location:
                result = self.warehouse.spark.sql(sql)
                with suppress(SourceError):  # one that is not Delta's is in Spark's catalog only
                    self.catalog.link(schema, name, self.catalog.spark_location(schema, name))
                return result
            location = text_literal(str(self.catalog.folder(schema, name)))
            with self.catalog.making_table(schema, name):
                return self.warehouse.spark.sql(f"{statement.before} LOCATION {location} {statement.after}")

    def spark(self, sql: str) -> DataFrame:
        """Spark's own statement; one that may write holds the lock while it does."""
        word = sql.lstrip(" \t\r\n(").split(None, 1)[0].upper() if sql.strip() else ""
        if word in _READING and not (word in ("WITH", "FROM") and _WRITES.search(sql)):
            return self.warehouse.spark.sql(sql)
        with self.warehouse.lock():
            return self.warehouse.spark.sql(sql)

    def _place(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Schema and name of a table; a name that would climb out of its folder is refused."""
        schema, name = (parts[-2] if len(parts) > 1 else self.catalog.current_schema()), parts[-1]
        if path_source(parts) is None and any(c in schema + name for c in "/\\\0"):
            raise NameProblem(f"{name!r} cannot be the name of a table")
        return schema, name


_WRITES = re.compile(r"\b(INSERT|MERGE|UPDATE|DELETE)\b", re.IGNORECASE)
"""What may follow WITH or FROM and writes. In a name or a text it takes the lock in vain."""
_SHOWN = (
    "view",
    "policy",
    "refreshes",
    "technique",
    "sources",
    "commits_behind",
    "materialized_at",
    "high_water_mark",
    "lag_seconds",
    "commits_waiting",
    "comment",
)


def _dotted(parts: tuple[str, ...]) -> str:
    return ".".join(quote(part) for part in parts)
