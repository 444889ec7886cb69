"""The catalog of a session of the user's own: views and their tables stand in it beside everything else."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from deltaic.algebra.nodes import RESERVED
from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.catalog import Catalog, is_plain, reader
from deltaic.app.catalogs.folders import is_table
from deltaic.app.catalogs.unfinished import litter_of, take_away
from deltaic.errors import DeltaicError, ExistsError, NameProblem, SourceError
from deltaic.spark.metrics import normal_path
from deltaic.store.log import Log, last_commit_with_marker
from deltaic.store.table import TableRef, first_line, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
BACKING = f"{RESERVED}mv_"
_ABANDONED = 3600.0
"""Seconds after which a folder that nothing was written into is nobody's."""
_LEFT = 24 * _ABANDONED
"""The same of what was written for a commit: Spark may take long over one."""
_PINNED = re.compile(r" VERSION AS OF (\d+)( WHERE `[^`]+`)?\s*$")


class SessionCatalog(Catalog):
    """The session's own catalog. A view's table stands beside it under a reserved name."""

    def __init__(self, spark: SparkSession, path: str | None) -> None:
        super().__init__(spark)
        self.path = path

    def view_names(self) -> list[tuple[str, str]]:
        schemas = [str(row[0]) for row in self.spark.sql("SHOW SCHEMAS").collect()]
        return [(schema, name) for schema in schemas for name in self._views_in(schema, "*")]

    def view_called(self, schema: str, name: str) -> tuple[str, str] | None:
        """A catalog may have thousands of schemas: one of them is asked."""
        if not is_plain(schema, name):
            return None
        found = (view for view in self._views_in(schema, name) if view.lower() == name.lower())
        return next(((schema, view) for view in found), None)

    def _views_in(self, schema: str, like: str) -> list[str]:
        try:
            rows = self.spark.sql(f"SHOW TABLES IN {quote(schema)} LIKE '{BACKING}{like}'").collect()
        except PySparkException:
            if self.spark.catalog.databaseExists(quote(schema)):
                raise
            return []  # there is none, or it was dropped meanwhile
        return [str(row["tableName"]).removeprefix(BACKING) for row in rows]

    def register_odd_names(self, session: SparkSession) -> None:
        """There are none in a session's catalog."""

    def check_seen(self, schema: str, name: str) -> None:
        """The view's table stands in Spark's catalog too, which would notice after the table was made."""
        if not is_plain(schema, name):
            raise NameProblem(
                f"{schema}.{name}: Spark's catalog takes names of letters, digits and underscores only",
                hint="Take another name. A local warehouse, deltaic.open(path), takes any.",
            )

    def view_ref(self, schema: str, name: str) -> TableRef:
        parts = (schema, BACKING + name)
        relation = ".".join(quote(part) for part in parts)
        try:
            if not self.spark.catalog.tableExists(relation):
                return TableRef(f"{schema}.{name}", relation, None)
            ref = table_named(self.spark, parts)
        except PySparkException as problem:  # the catalog has its name, and its folder is gone
            raise SourceError(f"the table of {schema}.{name} cannot be read: {first_line(problem)}") from problem
        except SourceError:
            if self.spark.catalog.tableExists(relation):
                raise
            return TableRef(f"{schema}.{name}", relation, None)  # it was dropped meanwhile
        return TableRef(f"{schema}.{name}", ref.relation, ref.path)

    def location(self, schema: str, name: str) -> str | None:
        return f"{self.path.rstrip('/')}/{schema}/{BACKING}{name}" if self.path else None

    def table_ref(self, schema: str, name: str) -> TableRef | None:
        try:
            if not self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}"):
                return None
        except PySparkException as problem:  # the catalog has its name, and its folder is gone
            raise SourceError(f"{schema}.{name} cannot be read: {first_line(problem)}") from problem
        return table_named(self.spark, (schema, name))

    def hidden(self, kind: str, schema: str = "", name: str = "") -> tuple[TableRef, str | None]:
        place, table = schema or "default", f"{RESERVED}{kind}_{name}" if name else f"{RESERVED}{kind}"
        relation = f"{quote(place)}.{quote(table)}"
        location = f"{self.path.rstrip('/')}/{place}/{table}" if self.path else None
        told = f"{schema}.{name}'s {kind}" if name else kind
        if not self.spark.catalog.tableExists(relation):
            return TableRef(told, relation, None), location
        return TableRef(told, relation, table_named(self.spark, (place, table)).path), location

    def discard_hidden(self, kind: str, schema: str, name: str) -> None:
        ref = self.hidden(kind, schema, name)[0]
        self._drop(ref.relation, ref.path)

    def remove(self, schema: str, name: str) -> None:
        try:
            path = self.view_ref(schema, name).path
        except SourceError:  # its files are gone, and its name is not
            path = None
        self._drop(f"{quote(schema)}.{quote(BACKING + name)}", path)

    def _drop(self, relation: str, path: str | None) -> None:
        """Of a table with a place of its own Spark leaves the files."""
        self.spark.sql(f"DROP TABLE IF EXISTS {relation}")
        if self.path is not None and path is not None:
            shutil.rmtree(path, ignore_errors=True)
        elif self.path is not None and "://" in self.path:
            _log.warning("the files of %s stay under %s, and are in the way of a new one", relation, self.path)

    def open(self) -> None:
        """A process may have been killed between making a view's table and its name, or taking them away; while it held
        the name; and while it wrote."""
        for schema, name in self.view_names():
            if not is_plain(schema, name):
                continue
            try:
                self.put_right(schema, name)
            except (PySparkException, DeltaicError, OSError) as problem:  # it may be damaged, or others at work
                _log.warning("%s.%s was not looked after: %s", schema, name, first_line(problem))

    def put_right(self, schema: str, name: str) -> None:
        if self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}"):
            self.unpin(schema, name)
        else:
            self.register(schema, name)
        folder = self.place(schema, name)
        for left in litter_of(folder) if folder is not None else ():
            if _is_old(left, _LEFT):
                take_away(left)

    def unpin(self, schema: str, name: str) -> None:
        pinned = self.pinned_to(schema, name)
        if pinned is None:
            return
        own = last_commit_with_marker(Log(self.view_ref(schema, name), self.spark))
        # who held it has lost, or is done; or it is held anew
        if own is not None and own.commit.version > pinned == self.pinned_to(schema, name):
            self.register(schema, name)

    def pinned_to(self, schema: str, name: str) -> int | None:
        """The version that people see by the name, if that does not change."""
        told = self.spark.sql(f"SHOW CREATE TABLE {reader(schema, name)[1]}").first()
        found = _PINNED.search(str(told[0])) if told is not None else None
        return None if found is None else int(found[1])

    @contextmanager
    def making(self, schema: str, name: str) -> Iterator[None]:
        folder = self.place(schema, name)
        if folder is None:
            yield
            return
        if folder.is_dir() and not is_table(folder) and _is_old(folder):
            shutil.rmtree(folder)
        if not folder.parent.is_dir():  # nothing was ever made there, or it is another machine's
            yield
            return
        try:
            folder.mkdir()
        except FileExistsError:
            hint = "Another process may be making the view. If none is, the folder is free in an hour; or take it away."
            raise ExistsError(f"{schema}.{name} cannot be made: {folder} is there already", hint=hint) from None
        try:  # whoever made the folder is the only one who writes in it
            yield
        except BaseException:
            if not is_table(folder):
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def place(self, schema: str, name: str) -> Path | None:
        """The folder of this machine that a new view's table goes into, if it is one."""
        location = self.location(schema, name)
        if location is None:
            told = {row[0]: row[1] for row in self.spark.sql(f"DESCRIBE SCHEMA {quote(schema)}").collect()}
            location = f"{told.get('Location', '')}/{BACKING}{name}"
        local = normal_path(location)
        return Path(local) if local.startswith("/") else None


def _is_old(folder: Path, seconds: float = _ABANDONED) -> bool:
    """Whether nobody can be at work in there: what is younger may be another process's view that is being made."""
    newest = max((file.stat().st_mtime for file in folder.rglob("*")), default=folder.stat().st_mtime)
    return time.time() - newest > seconds
