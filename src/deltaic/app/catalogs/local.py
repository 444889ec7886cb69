"""The catalog of a local warehouse: its folders, `<warehouse>/<schema>/<table>`, from which Spark's is filled."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.errors import PySparkException

from deltaic.algebra.expr import quote
from deltaic.app.catalogs.catalog import CAPTURED, KEPT_DELTA, TIMES, Catalog
from deltaic.app.catalogs.folders import discard, is_table, put_back, set_aside
from deltaic.app.catalogs.live import ENDING, LiveTable
from deltaic.app.catalogs.unfinished import Notes, drop_unknown_capture, sweep, write_whole
from deltaic.app.values.definition import PROPERTY, Definition, definition_in
from deltaic.app.values.names import RESERVED
from deltaic.errors import (
    ConfigurationError,
    DeltaicError,
    DependencyError,
    ExistsError,
    MissingError,
    NameProblem,
    SourceError,
)
from deltaic.store.lock import refresh_lock
from deltaic.store.log import Log
from deltaic.store.log_readers import gap_in
from deltaic.store.quoting import text_literal
from deltaic.store.table import TableRef, first_line, table_at, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
LINK = ".link"
_TYPE = re.compile(r"^Type: (\w+)", re.MULTILINE)


class LocalCatalog(Catalog):
    """`<warehouse>/<schema>/<table>`: the folders are the catalog, and Spark's is filled from them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark)
        self.root = root
        self.notes = Notes(root / ".deltaic" / "begun", self.settle)
        self.told = root / ".deltaic" / "names"
        """Written anew whenever a name comes, goes, or is that of something else: other processes look at it."""
        self.known: object = None
        self.attached: dict[tuple[str, str], str] = {}
        """The names that Spark's catalog was given, and how."""

    def open(self) -> None:
        (self.root / "default").mkdir(parents=True, exist_ok=True)
        (self.root / ".deltaic").mkdir(exist_ok=True)
        put_back(self.root)
        sweep(self)
        self.run(f"ALTER DATABASE default SET LOCATION {text_literal(str(self.root / 'default'))}")
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
        now = self.stamp()
        if now == self.known:
            return
        self.known = now
        there = self.show_all()
        for own in set(self.attached) - there:
            self.attached.pop(own, None)
            self.hide(*own)

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

    def live(self, schema: str, name: str) -> LiveTable | None:
        file = self.root / schema / f"{name}{ENDING}"
        if file.parent.parent != self.root or file.name != f"{name}{ENDING}" or not file.is_file():
            return None
        return LiveTable.read(file, f"{schema}.{name}".lower(), str(self.hidden(CAPTURED, schema, name)[0].path))

    def add_live(self, schema: str, name: str, live: LiveTable) -> None:
        write_whole(self.root / schema / f"{name}{ENDING}", live.to_json())
        self.show_live(schema, name)
        self.tell()

    def remove_live(self, schema: str, name: str) -> None:
        self.spark.sql(f"DROP VIEW IF EXISTS {quote(schema)}.{quote(name)}")
        (self.root / schema / f"{name}{ENDING}").unlink()
        self.discard_hidden(CAPTURED, schema, name)
        self.tell()

    def show_live(self, schema: str, name: str) -> None:
        """So that Spark knows its columns; whoever reads it by its name is told where it is."""
        try:
            live = self.live(schema, name)
        except ConfigurationError as problem:  # whoever reads it is told again
            _log.warning("%s", problem.what)
            return
        assert live is not None
        told = text_literal(f"{schema}.{name} is in {live.table.server}: read it there, or by a materialized view")
        fields = [f for f in Log(live.ref).snapshot().fields if not f["name"].startswith(RESERVED)]
        columns = ", ".join(f"CAST(NULL AS {f['type']}) AS {quote(f['name'])}" for f in fields)
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
        if self.is_view(table_at(folder, f"{schema}.{name}")):
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
                if self.is_view(table_at(folder, f"{schema}.{name}")):
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
                try:
                    self.spark.sql(f"DROP SCHEMA IF EXISTS {quote(schema)} RESTRICT")
                except PySparkException as problem:  # a table of Spark's own, which is no Delta table, is in it
                    _log.warning("%s stays in Spark's catalog: %s", schema, first_line(problem))

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
        if is_table(self.folder(schema, name)):
            return False
        try:
            self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}")
        except PySparkException as problem:
            return "DELTA_PATH_DOES_NOT_EXIST" in str(problem)
        return False

    def let_go(self, schema: str, name: str) -> None:
        """So that a name whose folder is gone can be given again."""
        self.hide(schema, name)
        link = self.link_of(schema, name)
        if link is not None:
            link.unlink()

    def hide(self, schema: str, name: str, kind: str | None = None) -> None:
        """Takes a name out of Spark's catalog, whatever it is there: a view that lost its definition is still one.
        Files stay: those of a table that Spark made by itself (saveAsTable) are away while it drops the name."""
        folder = self.folder(schema, name)
        if (kind or self.shown(schema).get(name.lower())) != "MANAGED" or not folder.is_dir():
            self.drop_name(schema, name)
            return
        with refresh_lock(self.root / ".deltaic" / "lock"):
            with set_aside(self.root, folder):
                self.drop_name(schema, name)
            self.tell()

    def drop_name(self, schema: str, name: str) -> None:
        try:
            self.spark.sql(f"DROP TABLE IF EXISTS {quote(schema)}.{quote(name)}")
        except Exception:  # Spark lets some of Delta's errors through as they are
            self.unregister(schema, name)

    def schemas(self) -> list[str]:
        return sorted(
            entry.name for entry in os.scandir(self.root) if entry.is_dir() and not entry.name.startswith(".")
        )

    def tables(self, schema: str) -> Iterator[tuple[str, Path]]:
        """Name and folder of each Delta table; a link names a folder elsewhere."""
        try:
            entries = sorted(os.scandir(self.root / schema), key=lambda e: e.name)
        except FileNotFoundError:  # the schema was dropped meanwhile
            return
        for entry in entries:
            if entry.name.endswith(LINK) and entry.is_file():
                target = _linked(Path(entry.path))
                if target is not None and is_table(target):
                    yield entry.name.removesuffix(LINK), target
            elif entry.is_dir() and is_table(Path(entry.path)):
                yield entry.name, Path(entry.path)

    def folder(self, schema: str, name: str) -> Path:
        """The folder of a table; Spark's names ignore case, folders may not."""
        for there in self.schemas():
            if there.lower() == schema.lower():
                for found, folder in self.tables(there):
                    if found.lower() == name.lower():
                        return folder
                return self.root / there / name
        raise NameProblem(f"there is no schema {schema}", hint=f"CREATE SCHEMA {schema} makes one.")

    def exists(self, schema: str, name: str) -> str | None:
        found = super().exists(schema, name)
        return found or ("a table that cannot be read" if self.is_there(schema, name) else None)

    def is_view(self, ref: TableRef) -> bool:
        """What cannot be read is none: nobody else is to stumble over it."""
        try:
            return PROPERTY in Log(ref, self.spark).snapshot().properties
        except DeltaicError:
            return False

    def problem_of(self, schema: str, name: str, folder: Path) -> DeltaicError | None:
        """Why a table, or the definition of the view that it is, cannot be read."""
        try:
            properties = Log(table_at(folder, f"{schema}.{name}"), self.spark).snapshot().properties
            if PROPERTY in properties:
                definition_in(properties, schema, name)
        except DeltaicError as problem:
            return problem
        return None

    def damaged(self) -> dict[tuple[str, str], DeltaicError]:
        """Tables, too: what cannot be read does not say which of the two it is."""
        folders = {(schema, name): folder for schema in self.schemas() for name, folder in self.tables(schema)}
        problems = {
            name: self.gap(table_at(folder, ".".join(name))) or self.problem_of(*name, folder)
            for name, folder in folders.items()
        }
        return {name: problem for name, problem in problems.items() if problem is not None}

    def gap(self, ref: TableRef) -> SourceError | None:
        """A commit that is gone since the log was read last."""
        try:
            missing = gap_in(str(ref.path), Log(ref, self.spark).version())
        except SourceError as problem:
            return problem
        return None if missing is None else SourceError(f"{ref.name}: version {missing} is missing in its log")

    def definition(self, schema: str, name: str) -> Definition:
        """Of one that cannot be read, why."""
        try:
            return super().definition(schema, name)
        except MissingError as missing:
            there = self.is_there(schema, name)
            problem = self.problem_of(schema, name, self.folder(schema, name)) if there else None
            raise problem or missing from None

    def is_gone(self, schema: str, name: str) -> bool:
        """One that cannot be read is there."""
        return super().is_gone(schema, name) and not self.is_there(schema, name)

    def is_there(self, schema: str, name: str) -> bool:
        """Whether a table has that name, readable or not."""
        return any(there.lower() == schema.lower() for there in self.schemas()) and is_table(self.folder(schema, name))

    def view_names(self) -> list[tuple[str, str]]:
        return [
            (schema, name)
            for schema in self.schemas()
            for name, folder in self.tables(schema)
            if self.is_view(table_at(folder))
        ]

    def view_ref(self, schema: str, name: str) -> TableRef:
        return table_at(self.folder(schema, name), f"{schema}.{name}")

    def table_ref(self, schema: str, name: str) -> TableRef | None:
        folder = self.folder(schema, name)
        if is_table(folder):
            problem = self.problem_of(folder.parent.name, folder.name, folder)
            if problem is not None:
                raise SourceError(problem.what, hint=problem.hint)
            return table_at(folder, f"{folder.parent.name}.{folder.name}".lower())
        if self.exists(schema, name):
            return table_named(self.spark, (schema, name))
        return None

    def hidden(self, kind: str, schema: str = "", name: str = "") -> tuple[TableRef, str | None]:
        parts = [part.lower() for part in (kind, schema, name) if part]
        return table_at(self.root.joinpath(".deltaic", *parts), f"{schema}.{name}'s {kind}" if name else kind), None

    def discard_hidden(self, kind: str, schema: str, name: str) -> None:
        folder = Path(str(self.hidden(kind, schema, name)[0].path))
        if folder.exists():
            self.discard(folder)

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

    def discard(self, folder: Path) -> None:
        discard(self.root, folder)

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
        self.attached[_key(schema, name)] = str(folder)
        self.tell()

    @contextmanager
    def attaching(self, schema: str, name: str, live: LiveTable) -> Iterator[None]:
        self.notes.settle_all()
        with self.notes.noted({"schema": schema, "name": name, "capture": live.to_json()}):
            yield

    def settle(self, told: Mapping[str, str]) -> None:
        """Take away what a note tells of, unless it was finished."""
        if "table" in told:
            folder = self.root / told["table"]
            if folder.exists() and not is_table(folder):
                self.discard(folder)
        elif self.live(told["schema"], told["name"]) is None:
            ref, _ = self.hidden(CAPTURED, told["schema"], told["name"])
            drop_unknown_capture(LiveTable.parse(told["capture"], "", str(ref.path)))
            self.discard_hidden(CAPTURED, told["schema"], told["name"])

    def hidden_folders(self) -> list[Path]:
        """Those of Deltaic's own tables: of the warehouse, and of its views and live sources."""
        own = self.root / ".deltaic"
        return [*own.glob(TIMES), *own.glob(f"{KEPT_DELTA}/*/*"), *own.glob(f"{CAPTURED}/*/*")]

    def is_abandoned(self, folder: Path) -> bool:
        """Whether such a table was never made, or what it belongs to is gone."""
        if not is_table(folder):
            return True
        schema, name = folder.parent.name, folder.name
        if folder.parent.parent.name == CAPTURED:
            return self.live(schema, name) is None
        return folder.parent.parent.name == KEPT_DELTA and (schema, name) not in {
            (there.lower(), table.lower()) for there in self.schemas() for table, _ in self.tables(there)
        }

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

    def is_linked(self, schema: str, name: str) -> bool:
        """Whether the table is elsewhere."""
        return self.link_of(schema, name) is not None

    def link_of(self, schema: str, name: str) -> Path | None:
        links = (self.root / schema).glob(f"*{LINK}")
        return next((link for link in links if link.name.removesuffix(LINK).lower() == name.lower()), None)

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
        if not any(there.lower() == name.lower() for there in self.schemas()):
            (self.root / name).mkdir(exist_ok=True)
            self.tell()

    def check_empty(self, name: str) -> None:
        if any(there.lower() == name.lower() and list(self.tables(there)) for there in self.schemas()):
            raise DependencyError(f"the schema {name} holds tables or views", hint="Drop them first.")

    def drop_schema(self, name: str) -> None:
        for there in self.schemas():
            if there.lower() == name.lower() and there != "default":
                self.discard(self.root / there)
                self.tell()

    def spark_location(self, schema: str, name: str) -> str:
        ref = table_named(self.spark, (schema, name))
        return ref.path or ref.relation

    def link(self, schema: str, name: str, location: str) -> None:
        write_whole(
            self.link_of(schema, name) or self.root / schema / f"{name}{LINK}", json.dumps({"location": location})
        )
        self.tell()


def _key(schema: str, name: str) -> tuple[str, str]:
    """Spark's names ignore case."""
    return schema.lower(), name.lower()


def _linked(file: Path) -> Path | None:
    """Where a table elsewhere is; None if the file does not tell."""
    try:
        return Path(json.loads(file.read_text("utf-8"))["location"])
    except (ValueError, KeyError, TypeError):
        _log.warning("%s does not say where its table is", file)
        return None
