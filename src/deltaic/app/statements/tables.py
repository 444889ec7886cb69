"""Spark's own statements, and what those about tables mean where tables are folders."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deltaic.algebra.quoting import quote, text_literal
from deltaic.app.catalogs.catalog import path_source
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.refresh.engine import Engine
from deltaic.app.statements.views import check_readers
from deltaic.app.values.names import check_name
from deltaic.errors import DependencyError, ExistsError, NameProblem, SourceError, UnsupportedError
from deltaic.sql.statements import ChangePlainView, ChangeSchema, CreateTable, DropTable, MoveTable, RenameTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READING = frozenset(
    ["SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "SET", "RESET", "USE", "VALUES", "FROM", "TABLE", "LIST"]
)
_WRITES = re.compile(r"\b(INSERT|MERGE|UPDATE|DELETE)\b", re.IGNORECASE)
"""What may follow WITH or FROM and writes. In a name or a text it takes the lock in vain."""


def is_elsewhere(name: tuple[str, ...]) -> bool:
    """Whether a name with all its parts is in another catalog than the session's own: that is Spark's alone."""
    return len(name) == 3 and name[0].lower() != "spark_catalog"


class TableStatements:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.catalog = engine, engine.catalog

    def drop(self, statement: DropTable) -> DataFrame:
        if is_elsewhere(statement.name):
            return self.spark(statement.sql)
        schema, name = self._place(statement.name)
        if self.catalog.is_view_name(schema, name):
            raise NameProblem(f"{schema}.{name} is a materialized view", hint="DROP MATERIALIZED VIEW takes it away.")
        self._check_not_live(schema, name)
        by_path = path_source(statement.name)
        if statement.kind == "VIEW":
            return self.spark(statement.sql)
        with self.engine.lock():
            check_readers(self.engine, by_path.name if by_path else f"{schema}.{name}")
            if by_path is not None:
                return self.spark(statement.sql)
            if not isinstance(self.catalog, LocalCatalog):
                return self.spark(statement.sql)
            result = self.engine.spark.sql(statement.sql)
            # Of a name that is also a temporary view's, Spark takes that away, and leaves the table.
            if not self.engine.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}"):
                self.catalog.forget(schema, name)
        return result

    def change_schema(self, statement: ChangeSchema) -> DataFrame:
        name = statement.name[-1]
        if statement.name[:-1] not in ((), ("spark_catalog",)):
            return self.spark(statement.sql)
        if not isinstance(self.catalog, LocalCatalog):
            with self.engine.lock():
                if statement.drop:
                    self._check_nobody_reads_in(name)
                return self.engine.spark.sql(statement.sql)
        check_name(name, "a schema")
        if statement.has_location:
            raise UnsupportedError(
                "a schema of a local warehouse is a folder of it, and has no other location",
                hint="Tables may be elsewhere: CREATE TABLE ... USING delta LOCATION.",
            )
        with self.engine.lock():
            if statement.drop:
                self.catalog.check_empty(name)
            result = self.engine.spark.sql(statement.sql)
            if statement.drop:
                self.catalog.drop_schema(name)
            else:
                self.catalog.make_schema(name)
        return result

    def _check_nobody_reads_in(self, schema: str) -> None:
        """CASCADE would take the tables of views, and tables that views read. Without it nothing is dropped that has
        any."""
        spark = self.engine.spark
        if not spark.catalog.databaseExists(quote(schema)):
            return
        for row in spark.sql(f"SHOW TABLES IN {quote(schema)}").collect():
            name = row["tableName"]
            if row["isTemporary"]:
                continue
            if self.catalog.is_view_name(schema, name):
                raise DependencyError(
                    f"the schema {schema} has the materialized view {name}", hint="Drop its materialized views first."
                )
            check_readers(self.engine, f"{schema}.{name}")

    def change_plain_view(self, statement: ChangePlainView) -> DataFrame:
        schema, name = self._place(statement.name)
        if self.catalog.is_view_name(schema, name):
            hint = "ALTER MATERIALIZED VIEW ... AS changes its query."
            raise NameProblem(f"{schema}.{name} is a materialized view", hint=hint)
        self._check_not_live(schema, name)
        return self.spark(statement.sql)

    def rename(self, statement: RenameTable) -> DataFrame:
        if is_elsewhere(statement.name):
            return self.spark(statement.sql)
        schema, name = self._place(statement.name)
        if self.catalog.is_view_name(schema, name):
            hint = "CREATE it under the other name, and DROP MATERIALIZED VIEW this one."
            raise NameProblem(f"{schema}.{name} is a materialized view, and cannot be renamed", hint=hint)
        with self.engine.lock():
            check_readers(self.engine, f"{schema}.{name}")
            if isinstance(self.catalog, LocalCatalog):
                raise UnsupportedError(
                    "a table of a local warehouse is named by its folder and cannot be renamed",
                    hint="CREATE TABLE new AS SELECT * FROM old, then DROP TABLE old.",
                )
            return self.engine.spark.sql(statement.sql)

    def move(self, statement: MoveTable) -> None:
        if not isinstance(self.catalog, LocalCatalog):
            self.spark(statement.sql)
            return
        schema, name = self._place(statement.name)
        if not self.catalog.is_linked(schema, name):
            raise UnsupportedError(
                f"{schema}.{name} is a folder of the warehouse, and has no other location",
                hint="Close the warehouse, move the folder, open it again and CREATE TABLE ... USING delta LOCATION.",
            )
        with self.engine.lock():
            self.catalog.move(schema, name, statement.location)

    def create(self, statement: CreateTable) -> DataFrame:
        if is_elsewhere(statement.name):
            return self.spark(statement.before + statement.after)
        sql = statement.before + statement.after
        if path_source(statement.name) is not None:
            return self.spark(sql)
        schema, name = self._place(statement.name)
        check_name(schema, "a schema")
        check_name(name, "a table")
        if self.catalog.is_view_name(schema, name):
            raise ExistsError(f"{schema}.{name} is already a materialized view")
        if not isinstance(self.catalog, LocalCatalog):
            return self.spark(sql)
        with self.engine.lock():
            self.catalog.let_go_if_lost(schema, name, linked=True)
            if statement.has_location:
                result = self.engine.spark.sql(sql)
                with suppress(SourceError):  # one that is not Delta's is in Spark's catalog only
                    place = self.catalog.spark_location(schema, name)
                    if Path(place) != self.catalog.folder(schema, name):  # IF NOT EXISTS, and it was there
                        self.catalog.link(schema, name, place)
                return result
            location = text_literal(str(self.catalog.folder(schema, name)))
            with self.catalog.making_table(schema, name):
                result = self.engine.spark.sql(f"{statement.before} LOCATION {location} {statement.after}")
            if "PARTITIONED" in statement.after.upper():
                self.catalog.show_again(schema, name)
            return result

    def spark(self, sql: str) -> DataFrame:
        """Spark's own statement; one that may write holds the lock while it does."""
        word = sql.lstrip(" \t\r\n(").split(None, 1)[0].upper() if sql.strip() else ""
        if word in _READING and not (word in ("WITH", "FROM") and _WRITES.search(sql)):
            return self.engine.spark.sql(sql)
        with self.engine.lock():
            return self.engine.spark.sql(sql)

    def _check_not_live(self, schema: str, name: str) -> None:
        if self.catalog.live(schema, name) is not None:
            raise NameProblem(f"{schema}.{name} is a live source", hint="Warehouse.detach(name) takes it away.")

    def _place(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Schema and name of a table; a name that would climb out of its folder is refused."""
        schema, name = (parts[-2] if len(parts) > 1 else self.catalog.current_schema()), parts[-1]
        if path_source(parts) is None and any(c in schema + name for c in "/\\\0"):
            raise NameProblem(f"{name!r} cannot be the name of a table")
        return schema, name
