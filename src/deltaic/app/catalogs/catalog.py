"""Where tables and views are found: the folders of a local warehouse, or a session's own catalog."""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from deltaic.algebra.nodes import RESERVED
from deltaic.algebra.quoting import quote, text_literal
from deltaic.app.catalogs.live import LiveTable
from deltaic.app.values.definition import Definition, definition_in
from deltaic.app.values.names import check_name
from deltaic.errors import (
    DefinitionDamaged,
    DeltaicError,
    ExistsError,
    MissingError,
    NameProblem,
    SourceError,
)
from deltaic.spark.session import literally
from deltaic.store.log import Log
from deltaic.store.own_table import with_settings
from deltaic.store.table import TableRef, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
TIMES, KEPT_DELTA, CAPTURED = "times", "kept", "captured"
"""Kinds of hidden tables: the order of commits, what is kept of a view's delta, what is captured of a live source."""


class Catalog(ABC):
    """Names to Delta tables. A view's own table is found by the view's name."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._running = RLock()

    def current_schema(self) -> str:
        return self.spark.catalog.currentDatabase()

    def qualified(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Schema and name of a view; a name the catalog cannot hold is refused."""
        *prefix, name = parts
        if len(prefix) > 1 and prefix[0].lower() != "spark_catalog":
            raise NameProblem(f"views live in the session's catalog, not in {prefix[0]}")
        schema = prefix[-1] if prefix else self.current_schema()
        check_name(schema, "a schema")
        check_name(name, "a view")
        return schema, name

    @abstractmethod
    def view_names(self) -> list[tuple[str, str]]:
        """Schema and name of every view."""

    def view_called(self, schema: str, name: str) -> tuple[str, str] | None:
        """Schema and name of the view of that name, whatever its letters' case, as they are written there."""
        wanted = schema.lower(), name.lower()
        return next((found for found in self.view_names() if (found[0].lower(), found[1].lower()) == wanted), None)

    @abstractmethod
    def view_ref(self, schema: str, name: str) -> TableRef:
        """The table of a view, there or not."""

    def view_at(self, ref: TableRef) -> tuple[str, str] | None:
        """The view that a table is of, whatever name that is reached by."""
        place = os.path.realpath(ref.path) if ref.path else ref.place
        for own in self.view_names():
            table = self.view_ref(*own)
            if place == (os.path.realpath(table.path) if table.path else table.place):
                return own
        return None

    @abstractmethod
    def table_ref(self, schema: str, name: str) -> TableRef | None:
        """A table that is no view; None if there is none. A source that is not Delta is refused."""

    def exists(self, schema: str, name: str) -> str | None:
        """What has that name, if anything has."""
        if self.is_view_name(schema, name):
            return "a materialized view"
        try:
            found = self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}")
        except PySparkException:
            found = False
        return "a table or view" if found else None

    def found(self, schema: str, name: str) -> tuple[str, str]:
        """Schema and name of a view as they are written there."""
        found = self.view_called(schema, name)
        if found is not None:
            return found
        there = self.exists(schema, name)
        told = f"It is {there}." if there else None
        if self.is_lost_view(schema, name):
            told = f"It is {there}, and was a materialized view: deltaic repair brings it back."
        raise MissingError(f"there is no materialized view {schema}.{name}", hint=told)

    def definition(self, schema: str, name: str) -> Definition:
        """What the view of that name is, as its newest properties say."""
        return self.read_definition(*self.found(schema, name))

    def damaged(self) -> dict[tuple[str, str], DeltaicError]:
        """Views that cannot even be asked what they are, with what stands against it."""
        problems = {name: self.problem_with(*name) for name in self.view_names()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def without_definition(self) -> dict[tuple[str, str], DefinitionDamaged]:
        """Views that somebody took the definition from: they are none any more, by their names."""
        return {}

    def is_lost_view(self, schema: str, name: str) -> bool:
        """Whether it is a view that lost its definition not long ago, or that cannot be read."""
        return False

    def lost_its_folder(self, schema: str, name: str) -> bool:
        """Whether Spark still has a name whose table is gone."""
        return False

    def let_go_if_lost(self, schema: str, name: str, *, linked: bool = False) -> None:
        """So that such a name can be given again; that of a table elsewhere only if it is told so."""
        return

    def problem_with(self, schema: str, name: str) -> DeltaicError | None:
        try:
            self.read_definition(schema, name)
        except DeltaicError as problem:
            return problem
        return None

    def read_definition(self, schema: str, name: str) -> Definition:
        snapshot = Log(self.view_ref(schema, name), self.spark).snapshot()
        return definition_in(snapshot.properties, schema, name)

    def is_view_name(self, schema: str, name: str) -> bool:
        """Whether there is a view of that name, which can be read."""
        return self.view_called(schema, name) is not None

    def check_seen(self, schema: str, name: str) -> None:
        """An odd name is a temporary view's, which has no schema: two of them would be one."""
        for other in self.view_names():
            if not is_plain(schema, name) and other[1].lower() == name.lower() and other[0].lower() != schema.lower():
                raise ExistsError(
                    f"{'.'.join(other)} has that name already, and Spark's catalog takes such a name once only",
                    hint="Names of plain letters, digits and underscores may be in several schemas.",
                )

    def is_gone(self, schema: str, name: str) -> bool:
        """Whether a view that was there is not there any more."""
        return not self.is_view_name(schema, name)

    def register(self, schema: str, name: str) -> None:
        """Lets people read the view by its name: a Spark VIEW that shows the user's columns only.

        Others may alter or drop the view meanwhile, and give its name another meaning: whoever did so last looks at
        the view after that, so in the end the name is that of the view as it is, or of none."""
        told: str | None = ""
        while told != (now := self._naming(schema, name)):
            told = now
            if told is not None:
                self.run(told)
            else:
                self.unregister(schema, name)

    def _naming(self, schema: str, name: str) -> str | None:
        """The statement that gives a view its name; None if there is no view."""
        try:
            return self._shown(schema, name).naming()
        except SourceError:
            if self.is_gone(schema, name):
                return None
            raise

    @contextmanager
    def held(self, schema: str, name: str) -> Iterator[None]:
        """Whoever reads the view by its name in this block sees it as it was at the beginning. What it is made into may
        have other columns, or rows that are not to be shown."""
        self.run(self._shown(schema, name).naming(pinned=True))
        try:
            yield
        finally:
            self.register(schema, name)

    def unpin(self, schema: str, name: str) -> None:
        """Whoever held the name of a view may have been killed since. One that ends with its process needs no care."""
        return

    def reading(self, schema: str, name: str, *, pinned: bool = False) -> str:
        """The SELECT that gives what people see: the query's columns, and only the rows that are shown; `pinned`, of
        the view as it is now, whatever becomes of it."""
        return self._shown(schema, name).select(pinned)

    def _shown(self, schema: str, name: str) -> Shown:
        """What a view holds can be read, whatever became of its definition."""
        ref = self.view_ref(schema, name)
        snapshot = Log(ref, self.spark).snapshot()
        comment: str | None = None
        columns: Sequence[str] = [c for c in snapshot.columns if not c.lower().startswith(RESERVED)]
        try:
            definition = definition_in(snapshot.properties, schema, name)
            columns = [c for c in definition.columns if c in columns] or columns  # somebody may have dropped some
            comment = definition.comment
        except DefinitionDamaged as problem:
            _log.warning("%s", problem.what)
        return Shown(schema, name, ref, tuple(columns), snapshot.shown, snapshot.version, comment)

    def register_odd_names(self, session: SparkSession) -> None:
        """Temporary readers are one session's own; another that runs a view's query needs them too."""
        for schema, name in self.view_names():
            if not is_plain(schema, name):
                session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quote(name)} AS {self.reading(schema, name)}")

    def run(self, sql: str) -> None:
        """A statement of Deltaic's own in the user's session: what is quoted in it stays as it is."""
        with self._running, with_settings(self.spark, literally(self.spark)):
            self.spark.sql(sql)

    def unregister(self, schema: str, name: str) -> None:
        self.run(f"DROP VIEW IF EXISTS {reader(schema, name)[1]}")

    def location(self, schema: str, name: str) -> str | None:
        """Where a new view's table goes, if the catalog does not decide it."""
        return None

    def live(self, schema: str, name: str) -> LiveTable | None:
        """The live source of that name, if there is one."""
        return None

    @abstractmethod
    def hidden(self, kind: str, schema: str = "", name: str = "") -> tuple[TableRef, str | None]:
        """A table of Deltaic's own, of a view or of the warehouse, there or not; and where it is to be made, if the
        catalog does not decide it."""

    @abstractmethod
    def discard_hidden(self, kind: str, schema: str, name: str) -> None:
        """Deletes such a table of a view, if it is there."""

    @abstractmethod
    def remove(self, schema: str, name: str) -> None:
        """Deletes a view's table."""

    @abstractmethod
    def making(self, schema: str, name: str) -> AbstractContextManager[None]:
        """A new view's table is made in this block; if that is never finished, nothing stays of it."""

    def keep_up(self) -> None:
        """Lets people see by name what others made since; a session's catalog knows that by itself."""
        return

    @abstractmethod
    def open(self) -> None:
        """Lets people see by name the tables that are there, and takes away what killed processes left."""


@dataclass(frozen=True)
class Shown:
    """What people see of a view: these columns of its table, and of its rows those that are shown."""

    schema: str
    name: str
    ref: TableRef
    columns: tuple[str, ...]
    where: str | None
    version: int
    comment: str | None

    def select(self, pinned: bool = False) -> str:
        relation = self.ref.as_of(self.version) if pinned else self.ref.relation
        where = f" WHERE {quote(self.where)}" if self.where else ""
        return f"SELECT {', '.join(map(quote, self.columns))} FROM {relation}{where}"

    def naming(self, pinned: bool = False) -> str:
        """The statement that lets them see it by its name."""
        told = f" COMMENT {text_literal(self.comment)}" if self.comment else ""
        kind, name = reader(self.schema, self.name)
        return f"CREATE OR REPLACE {kind} {name}{told} AS {self.select(pinned)}"


def is_plain(*names: str) -> bool:
    """Whether Spark's catalog takes them."""
    return re.fullmatch(r"\w+", "".join(names), re.ASCII) is not None


def reader(schema: str, name: str) -> tuple[str, str]:
    """Spark's catalog takes names of plain letters only; a temporary view takes any."""
    if is_plain(schema, name):
        return "VIEW", f"{quote(schema)}.{quote(name)}"
    return "TEMPORARY VIEW", quote(name)


def path_source(parts: tuple[str, ...]) -> TableRef | None:
    """delta.`/a/path` names a table by its folder."""
    if len(parts) == 2 and parts[0].lower() == "delta" and ("/" in parts[1] or os.sep in parts[1]):
        if "://" in parts[1] and not parts[1].startswith("file:"):
            return TableRef(f"delta.{quote(parts[1])}", f"delta.{quote(parts[1])}", None)
        return table_at(parts[1].removeprefix("file:"), f"delta.{quote(parts[1])}")
    return None
