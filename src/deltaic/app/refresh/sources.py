"""What a query reads: tables, views and live sources, as the catalog and Spark know them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltaic.algebra.nodes import Field
from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.catalog import Catalog, path_source
from deltaic.app.catalogs.live import LiveTable
from deltaic.app.values.definition import PROPERTY
from deltaic.errors import NameProblem, SourceError
from deltaic.spark.analyzer import Analyzer, fields_of
from deltaic.sql.scope import SourceInfo
from deltaic.store.log import Log
from deltaic.store.table import NOT_DELTA, TableRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


UniqueOf = Callable[[str, str], tuple[frozenset[str], ...]]
"""The keys of a view, by its schema and name."""


@dataclass(frozen=True)
class Source:
    """A table or view that a query reads."""

    key: str
    ref: TableRef
    columns: tuple[Field, ...]
    is_view: bool
    keys: tuple[frozenset[str], ...] = ()
    """Of a view, as its query tells."""
    live: LiveTable | None = None
    """Of a source that can be read only now: its table is the captured log."""
    form: object = None
    """Its table and columns, as they were before Spark was asked for them: if these change, so may the answer."""

    @property
    def relation(self) -> str:
        return self.live.relation if self.live else self.ref.relation


def form_of(log: Log) -> object:
    """Which table it is, and its columns."""
    snapshot = log.snapshot()
    return snapshot.table_id, json.loads(snapshot.schema_json)


class SourceCatalog:
    """Answers the lowering's questions: tables from the catalog, types from Spark."""

    def __init__(self, catalog: Catalog, spark: SparkSession, unique_of: UniqueOf) -> None:
        self.catalog, self.analyzer, self.unique_of = catalog, Analyzer(spark), unique_of
        self.sources: dict[str, Source] = {}

    def source(self, parts: tuple[str, ...]) -> Source | None:
        by_path = path_source(parts)
        if by_path is not None:
            Log(by_path, self.analyzer.spark).version()
            return self._known(by_path.name, by_path, by_path.relation, False)
        if len(parts) == 2 and "/" in parts[1]:
            raise SourceError(f"{parts[0]}.{quote(parts[1])} is not a Delta table", hint=NOT_DELTA)
        if len(parts) == 3 and parts[0].lower() != "spark_catalog":
            raise SourceError(f"{'.'.join(parts)} is in another catalog than the session's own")
        schema = parts[-2] if len(parts) > 1 else self.analyzer.spark.catalog.currentDatabase()
        schema, name = schema.lower(), parts[-1]
        view = self.catalog.view_called(schema, name)
        if view is not None:
            ref = self.catalog.view_ref(*view)
            columns = ", ".join(quote(c) for c in self.catalog.read_definition(*view).columns)
            relation = f"(SELECT {columns} FROM {ref.relation})"
            return self._known(f"{schema}.{name.lower()}", ref, relation, True, self.unique_of(*view))
        live = self.catalog.live(schema, name)
        if live is not None:
            shown = f"{quote(schema)}.{quote(name)}"
            self.analyzer.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {live.relation} AS SELECT * FROM {shown}")
            return self._known(live.key, live.ref, shown, False, live=live)
        table = self.catalog.table_ref(schema, name)
        return None if table is None else self._known(f"{schema}.{name.lower()}", table, table.relation, False)

    def _known(
        self,
        key: str,
        ref: TableRef,
        relation: str,
        is_view: bool,
        unique: tuple[frozenset[str], ...] = (),
        live: LiveTable | None = None,
    ) -> Source:
        if key not in self.sources:
            log = Log(ref, self.analyzer.spark)
            if not is_view:
                self._check_no_view(key, log)
            form = form_of(log)
            schema = self.analyzer.schema(f"SELECT * FROM {relation}")
            self.sources[key] = Source(key, ref, fields_of(schema), is_view, unique, live, form)
        return self.sources[key]

    def _check_no_view(self, key: str, log: Log) -> None:
        """A view of this catalog by its own name only: else nobody would know that it is to be refreshed first, and
        rows would be read that it does not show. Another's is a table here, if it has no such rows."""
        snapshot = log.snapshot()
        if PROPERTY not in snapshot.properties:
            return
        view = self.catalog.view_at(log.ref)
        if view is not None:
            raise NameProblem(
                f"{key} is the table of the materialized view {'.'.join(view)}", hint="Read it by its name."
            )
        if snapshot.shown is not None:
            raise NameProblem(
                f"{key} is the table of a materialized view, with rows that are not shown",
                hint="Read the view by its name, in its own warehouse.",
            )

    def table(self, parts: tuple[str, ...]) -> SourceInfo | None:
        found = self.source(parts)
        if found is None:
            return None
        qualifier = ("spark_catalog", *found.key.split(".", 1)) if len(parts) < 3 else parts
        return SourceInfo(found.key, parts if path_source(parts) else qualifier, found.columns)

    def types(self, sql: str) -> tuple[Field, ...]:
        return self.analyzer.types(sql)

    def is_builtin(self, function: str) -> bool:
        return self.analyzer.is_builtin(function)
