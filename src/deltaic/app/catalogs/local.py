"""The catalog of a local warehouse: its folders, and the names that Spark's catalog is given of them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.errors import PySparkException

from deltaic.algebra.nodes import RESERVED
from deltaic.algebra.quoting import quote, text_literal
from deltaic.app.catalogs.catalog import CAPTURED
from deltaic.app.catalogs.folders import is_table, put_back, set_aside
from deltaic.app.catalogs.live import ENDING, LiveTable
from deltaic.app.catalogs.on_folders import LINK, FolderCatalog
from deltaic.app.catalogs.unfinished import Notes, drop_unknown_capture, sweep, write_whole
from deltaic.errors import (
    ConfigurationError,
    DependencyError,
    ExistsError,
    HistoryGone,
    NameProblem,
    SourceError,
)
from deltaic.store.lock import refresh_lock
from deltaic.store.log import Log
from deltaic.store.table import first_line, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_TYPE = re.compile(r"^Type: (\w+)", re.MULTILINE)


class LocalCatalog(FolderCatalog):
    """Makes, shows and takes away what is in the folders; Spark's catalog is filled from them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark, root)
        self.notes = Notes(root / ".deltaic" / "begun", self.settle)
        self.told = root / ".deltaic" / "names"
        """Written anew whenever a name comes, goes, or is that of something else: other processes look at it."""
        self.known: object = None
        self.keeping_up = RLock()
        self.attached: dict[tuple[str, str], str] = {}
        """The names that Spark's catalog was given, and how."""

    def open(self) -> None:
        (self.root / "default").mkdir(parents=True, exist_ok=True)
        (self.root / ".deltaic").mkdir(exist_ok=True)
        put_back(self.root)
        sweep(self)
        self.place_schema("default", self.root / "default")
        self.known = self.stamp()
        self.show_all()

    def stamp(self) -> object:
        try:
            status = self.told.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def tell(self) -> None:
        """That names have changed. Under the warehouse's lock."""
        alone = self.stamp() == self.known
        write_whole(self.told, uuid4().hex)
        if alone:
            self.known = self.stamp()

    def keep_up(self) -> None:
        """Other processes make, alter and drop tables and views too, and Spark's catalog is this process's own."""
        if self.stamp() == self.known:
            return
        with self.keeping_up:
            now, before = self.stamp(), set(self.attached)
            if now == self.known:
                return  # another thread has just done it
            gone = before - self.show_all()  # what a thread of this process makes meanwhile is none of these
            for own in gone:
                self.attached.pop(own, None)
            self.known = now
        for own in gone - set(self.attached):  # not in there: it may wait for a refresh, which waits to keep up
            self.hide_gone(*own)

    def hide_gone(self, schema: str, name: str) -> None:
        try:
            self.hide(schema, name)
        except Exception as problem:  # Spark lets some of Delta's errors through as they are
            self.attached[schema, name] = ""  # it is tried again
            _log.warning("the name of %s.%s stays: %s", schema, name, first_line(problem))

    def show_all(self) -> set[tuple[str, str]]:
        """The tables and views that are there."""
        found = set[tuple[str, str]]()
        for schema in self.schemas():
            location = text_literal(str(self.root / schema))
            self.run(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)} LOCATION {location}")
            for name, folder in self.tables(schema):
                self.attach(schema, name, folder)
                found.add(_key(schema, name))
            for file in (self.root / schema).glob(f"*{ENDING}"):
                self.show_live(schema, file.name.removesuffix(ENDING))
        return found

    def add_live(self, schema: str, name: str, live: LiveTable) -> None:
        write_whole(self.schema_folder(schema) / f"{name}{ENDING}", live.to_json())
        self.show_live(schema, name)
        self.tell()

    def remove_live(self, schema: str, name: str) -> None:
        self.spark.sql(f"DROP VIEW IF EXISTS {quote(schema)}.{quote(name)}")
        (self.schema_folder(schema) / f"{name}{ENDING}").unlink()
        self.discard_hidden(CAPTURED, schema, name)
        self.tell()

    def show_live(self, schema: str, name: str) -> None:
        """So that Spark knows its columns; whoever reads it by its name is told where it is."""
        try:
            live = self.live(schema, name)
            fields = Log(live.ref).snapshot().fields if live else []
        except (ConfigurationError, SourceError, HistoryGone) as problem:  # whoever reads it is told again
            _log.warning("%s.%s cannot be read: %s", schema, name, problem.what)
            return
        if live is None:
            return  # it was detached meanwhile
        told = text_literal(f"{schema}.{name} is in {live.table.server}: read it there, or by a materialized view")
        own = [f for f in fields if not f["name"].startswith(RESERVED)]
        columns = ", ".join(f"CAST(NULL AS {f['type']}) AS {quote(f['name'])}" for f in own)
        view = f"SELECT {columns} FROM range(1) WHERE raise_error({told}) IS NULL"
        self.run(f"CREATE OR REPLACE VIEW {quote(schema)}.{quote(name)} AS {view}")

    def attach(self, schema: str, name: str, folder: Path) -> None:
        """Without one that cannot be read, the others are as good as ever."""
        try:
            self.show_table(schema, name, folder)
        except Exception as problem:  # Spark lets some of Delta's errors through as they are
            _log.warning("%s.%s cannot be read: %s", schema, name, first_line(problem))

    def show_table(self, schema: str, name: str, folder: Path) -> None:
        own, before = _key(schema, name), self.attached.get(_key(schema, name))
        if self.is_own_view(schema, name, folder):
            naming = self._naming(schema, name)
            if naming is not None and before != naming:
                if before is not None and Path(before).is_absolute():  # it was a table
                    self.hide(schema, name)
                self.register(schema, name)
                self.attached[own] = naming
            return
        if before == str(folder):
            return
        if before is not None and not Path(before).is_absolute():  # it was a view
            self.unregister(schema, name)
        self.attached[own] = str(folder)
        location = text_literal(str(folder))
        self.run(f"CREATE TABLE IF NOT EXISTS {quote(schema)}.{quote(name)} USING delta LOCATION {location}")

    def close(self) -> None:
        """Empties Spark's catalog; tables are attached by LOCATION, so their data stays."""
        for schema in self.schemas():
            shown = self.shown(schema)
            for name, folder in self.tables(schema):
                kind = shown.pop(name.lower(), None)
                if self.is_own_view(schema, name, folder):
                    self.unregister(schema, name)
                else:
                    self.hide(schema, name, kind)
            # views of Spark's own and live sources, other tables, folders that are gone
            for name, kind in shown.items():
                if kind == "VIEW":
                    self.spark.sql(f"DROP VIEW IF EXISTS {quote(schema)}.{quote(name)}")
                elif kind == "EXTERNAL":
                    self.hide(schema, name, kind)
            if schema != "default":
                self.drop_schema_name(schema)

    def drop_schema_name(self, schema: str) -> None:
        """Out of Spark's catalog, which deletes the folder that it takes for the schema's, with all that is in it."""
        try:
            if self.spark.catalog.databaseExists(quote(schema)):
                self.place_schema(schema, self.root / ".deltaic" / "nowhere")
                self.spark.sql(f"DROP SCHEMA IF EXISTS {quote(schema)} RESTRICT")
        except PySparkException as problem:  # a table of Spark's own, which is no Delta table, is in it
            _log.warning("%s stays in Spark's catalog: %s", schema, first_line(problem))
            self.place_schema(schema, self.root / schema)

    def place_schema(self, schema: str, folder: Path) -> None:
        self.run(f"ALTER DATABASE {quote(schema)} SET LOCATION {text_literal(str(folder))}")

    def shown(self, schema: str) -> dict[str, str]:
        """The names in Spark's catalog, in lower case, and what each is there."""
        if not self.spark.catalog.databaseExists(quote(schema)):
            return {}
        told = self.spark.sql(f"SHOW TABLE EXTENDED IN {quote(schema)} LIKE '*'").collect()
        kinds = {
            str(row["tableName"]).lower(): _TYPE.search(row["information"]) for row in told if not row["isTemporary"]
        }
        return {name: kind[1] for name, kind in kinds.items() if kind is not None}

    def lost_its_folder(self, schema: str, name: str) -> bool:
        if schema.lower() not in map(str.lower, self.schemas()) or is_table(self.folder(schema, name)):
            return False
        if _key(schema, name) in self.attached:
            return not self.folder(schema, name).exists()
        try:
            self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}")
        except PySparkException as problem:
            return "DELTA_PATH_DOES_NOT_EXIST" in str(problem)
        return False

    def let_go_if_lost(self, schema: str, name: str, *, linked: bool = False) -> None:
        link = self.link_of(schema, name)
        if (link is not None and not linked) or not self.lost_its_folder(schema, name):
            return  # what is elsewhere may come back
        self.hide(schema, name)
        self.attached.pop(_key(schema, name), None)
        if link is not None:
            link.unlink()

    def show_again(self, schema: str, name: str) -> None:
        """A table that is partitioned otherwise than it was: what Delta leaves of it in Spark's catalog is out of order
        there, and the next change of its columns would fail once it is committed."""
        self.hide(schema, name)
        self.attached.pop(_key(schema, name), None)
        self.attach(schema, name, self.folder(schema, name))

    def hide(self, schema: str, name: str, kind: str | None = None) -> None:
        """Takes a name out of Spark's catalog, whatever it is there: a view that lost its definition is still one.
        Files stay: those of a table that Spark made by itself (saveAsTable) are away while it drops the name."""
        folder = self.schema_folder(schema) / name
        with suppress(NameProblem):  # its schema may be gone, too
            folder = self.folder(schema, name)
        if (kind or self.shown(schema).get(name.lower())) != "MANAGED" or not folder.is_dir():
            self.drop_name(schema, name)
            return
        with refresh_lock(self.root / ".deltaic" / "lock"):
            with set_aside(self.root, folder, broken=False):
                self.drop_name(schema, name)
            self.tell()

    def drop_name(self, schema: str, name: str) -> None:
        try:
            self.run(f"DROP TABLE IF EXISTS {quote(schema)}.{quote(name)}")
        except Exception:  # Spark lets some of Delta's errors through as they are
            self.unregister(schema, name)

    def remove(self, schema: str, name: str) -> None:
        self.discard(self.folder(schema, name))
        self.tell()

    def register(self, schema: str, name: str) -> None:
        self.attached[_key(schema, name)] = ""
        super().register(schema, name)

    def unregister(self, schema: str, name: str) -> None:
        super().unregister(schema, name)
        self.attached.pop(_key(schema, name), None)

    @contextmanager
    def held(self, schema: str, name: str) -> Iterator[None]:
        with super().held(schema, name):
            yield
        self.tell()

    @contextmanager
    def making(self, schema: str, name: str) -> Iterator[None]:
        folder = self.folder(schema, name)
        if folder.exists() and any(folder.iterdir()):
            raise ExistsError(f"{folder} is there and is no table", hint="Move it away, or take another name.")
        with self.making_table(schema, name):
            yield

    @contextmanager
    def making_table(self, schema: str, name: str) -> Iterator[None]:
        """A table may be made over files that are there; these stay."""
        folder = self.folder(schema, name)
        if folder.exists() and any(folder.iterdir()):
            yield
        else:
            with self.notes.noted({"table": str(folder.relative_to(self.root))}):
                yield
        if is_table(folder):
            self.attached[_key(schema, name)] = str(folder)
        self.tell()

    @contextmanager
    def attaching(self, schema: str, name: str, live: LiveTable, capture: str) -> Iterator[None]:
        self.notes.settle_all()
        with self.notes.noted({"schema": schema, "name": name, "live": live.to_json(), "capture": capture}):
            yield

    def settle(self, told: Mapping[str, str]) -> None:
        """Take away what a note tells of, unless it was finished."""
        if "table" in told:
            folder = self.root / told["table"]
            if len(Path(told["table"]).parts) != 2 or not folder.resolve().is_relative_to(self.root.resolve()):
                raise NameProblem(f"{told['table']} is no table of this warehouse")
            if folder.exists() and not is_table(folder):
                self.discard(folder)
        elif self.live(told["schema"], told["name"]) is None:
            ref, _ = self.hidden(CAPTURED, told["schema"], told["name"])
            drop_unknown_capture(LiveTable.parse(told["live"], "", str(ref.path)), told["capture"])
            self.discard_hidden(CAPTURED, told["schema"], told["name"])

    def forget(self, schema: str, name: str) -> None:
        """After DROP TABLE: a linked table stays where it is, any other goes with its folder."""
        self.attached.pop(_key(schema, name), None)
        link = self.link_of(schema, name)
        if link is not None:
            link.unlink()
            self.tell()
            return
        folder = self.folder(schema, name)
        inside = folder.parent == self.root / folder.parent.name
        if inside and (folder / "_delta_log").is_dir():
            self.discard(folder)
            self.tell()

    def move(self, schema: str, name: str, location: str) -> None:
        """A linked table is elsewhere from now on. Spark's own statement would want it at the old place too."""
        folder = Path(location.removeprefix("file:"))
        if not folder.is_absolute() or not is_table(folder):
            raise SourceError(f"there is no Delta table in {location}", hint="Copy or move its folder there first.")
        self.hide(schema, name)
        self.attached.pop(_key(schema, name), None)
        self.link(schema, name, str(folder))
        self.show_table(schema, name, folder)

    def make_schema(self, name: str) -> None:
        """Spark's names ignore case: two folders whose names differ in it only would be one schema."""
        folder = self.schema_folder(name)
        self.place_schema(name, folder)
        if not folder.is_dir():
            folder.mkdir()
            self.tell()

    def check_empty(self, name: str) -> None:
        """Spark would delete the folder with whatever is in it: live sources and files of the user's own, too."""
        folder = self.schema_folder(name)
        if folder.is_dir() and any(folder.iterdir()):
            raise DependencyError(
                f"the schema {name} is not empty: there is {next(folder.iterdir()).name} in {folder}",
                hint="Drop its tables and views, detach its live sources, and move other files away first.",
            )

    def drop_schema(self, name: str) -> None:
        for there in self.schemas():
            if there.lower() == name.lower() and there != "default":
                self.discard(self.root / there)
                self.tell()

    def spark_location(self, schema: str, name: str) -> str:
        ref = table_named(self.spark, (schema, name))
        return ref.place

    def link(self, schema: str, name: str, location: str) -> None:
        write_whole(
            self.link_of(schema, name) or self.schema_folder(schema) / f"{name}{LINK}",
            json.dumps({"location": location}),
        )
        self.tell()


def _key(schema: str, name: str) -> tuple[str, str]:
    """Spark's names ignore case."""
    return schema.lower(), name.lower()
