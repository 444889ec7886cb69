"""What the folders of a local warehouse tell: `<warehouse>/<schema>/<table>`, links and live sources."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deltaic.app.catalogs.catalog import CAPTURED, KEPT_DELTA, TIMES, Catalog, is_plain
from deltaic.app.catalogs.folders import discard, is_table
from deltaic.app.catalogs.live import ENDING, LiveTable
from deltaic.app.values.definition import PROPERTY, Definition, definition_in
from deltaic.errors import (
    DefinitionDamaged,
    DeltaicError,
    HistoryGone,
    MissingError,
    NameProblem,
    SourceError,
)
from deltaic.store.damage import properties_in
from deltaic.store.log import Log
from deltaic.store.log_readers import gap_in
from deltaic.store.progress import Progress
from deltaic.store.table import TableRef, table_at, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
LINK = ".link"
_LOOKED_BACK = 20
_REFRESHED: dict[tuple[str, int, str], bool] = {}
_MOST = 10_000
"""What was found of tables that are listed again and again, and how many of them are remembered."""


class FolderCatalog(Catalog):
    """Which tables and views there are. The folders are the catalog: nothing else has to be asked, or kept."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark)
        self.root = root

    def live(self, schema: str, name: str) -> LiveTable | None:
        name = name.lower()
        file = self.schema_folder(schema) / f"{name}{ENDING}"
        if file.parent.parent != self.root or file.name != f"{name}{ENDING}" or not file.is_file():
            return None
        return LiveTable.read(file, f"{schema}.{name}".lower(), str(self.hidden(CAPTURED, schema, name)[0].path))

    def schemas(self) -> list[str]:
        """Folders whose names Spark's catalog takes; others may be there too (lost+found)."""
        return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir() and is_plain(entry.name))

    def schema_folder(self, schema: str) -> Path:
        """There or not; Spark's names ignore case, folders may not."""
        there = next((each for each in self.schemas() if each.lower() == schema.lower()), schema)
        return self.root / there

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
            if PROPERTY in properties and folder == self.root / schema / name:
                definition_in(properties, schema, name)
        except DeltaicError as problem:
            return problem
        return None

    def damaged(self) -> dict[tuple[str, str], DeltaicError]:
        """Tables, too: what cannot be read does not say which of the two it is."""
        folders = {(schema, name): folder for schema in self.schemas() for name, folder in self.tables(schema)}
        problems = {
            name: self.gap(table_at(folder, ".".join(name)))
            or self.problem_of(*name, folder)
            or self.lost_definition(*name, folder)
            for name, folder in folders.items()
        }
        return {name: problem for name, problem in problems.items() if problem is not None}

    def without_definition(self) -> dict[tuple[str, str], DefinitionDamaged]:
        folders = {(schema, name): folder for schema in self.schemas() for name, folder in self.tables(schema)}
        problems = {name: self.lost_definition(*name, folder) for name, folder in folders.items()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def lost_definition(self, schema: str, name: str, folder: Path) -> DefinitionDamaged | None:
        """Of a table that was a view when Deltaic last wrote into it, not long ago."""
        if folder != self.root / schema / name or self.is_own_view(schema, name, folder):
            return None
        log = Log(table_at(folder, f"{schema}.{name}"), self.spark)
        try:
            newest = log.version()
            own = _was_refreshed(log, newest, log.commit(newest).fingerprint)
        except (SourceError, HistoryGone):
            return None
        return lost(schema, name) if own and self.was_view(schema, name) else None

    def is_lost_view(self, schema: str, name: str) -> bool:
        if not self.is_there(schema, name):
            return False
        folder = self.folder(schema, name)
        unreadable = self.problem_of(folder.parent.name, folder.name, folder) is not None
        lost = self.lost_definition(folder.parent.name, folder.name, folder) is not None
        return lost or (unreadable and self.was_view(schema, name))

    def was_view(self, schema: str, name: str) -> bool:
        """Whether a table was a view, as far as its log tells. One elsewhere may be another warehouse's."""
        own = not self.is_linked(schema, name) and self.is_there(schema, name)
        return own and any(PROPERTY in properties for properties in properties_in(self.folder(schema, name)))

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
            if self.is_own_view(schema, name, folder)
        ]

    def is_own_view(self, schema: str, name: str, folder: Path) -> bool:
        """Whether a table is a view of this warehouse. One elsewhere, by a link, may be another warehouse's view, and
        is a table here: who drops its name, or refreshes all views, leaves it alone."""
        return folder == self.root / schema / name and self.is_view(table_at(folder, f"{schema}.{name}"))

    def view_ref(self, schema: str, name: str) -> TableRef:
        return table_at(self.folder(schema, name), f"{schema}.{name}")

    def table_ref(self, schema: str, name: str) -> TableRef | None:
        folder = self.folder(schema, name)
        if is_table(folder):
            problem = self.problem_of(folder.parent.name, folder.name, folder)
            if problem is not None:
                raise SourceError(problem.what, hint=problem.hint)
            return table_at(folder, f"{folder.parent.name}.{folder.name}".lower())
        if not self.lost_its_folder(schema, name) and self.exists(schema, name):
            return table_named(self.spark, (schema, name))
        return None

    def link_of(self, schema: str, name: str) -> Path | None:
        links = self.schema_folder(schema).glob(f"*{LINK}")
        return next((link for link in links if link.name.removesuffix(LINK).lower() == name.lower()), None)

    def is_linked(self, schema: str, name: str) -> bool:
        """Whether the table is elsewhere."""
        return self.link_of(schema, name) is not None

    def hidden(self, kind: str, schema: str = "", name: str = "") -> tuple[TableRef, str | None]:
        parts = [part.lower() for part in (kind, schema, name) if part]
        return table_at(self.root.joinpath(".deltaic", *parts), f"{schema}.{name}'s {kind}" if name else kind), None

    def hidden_folders(self) -> list[Path]:
        """Those of Deltaic's own tables: of the warehouse, and of its views and live sources."""
        own = self.root / ".deltaic"
        found = [*own.glob(TIMES), *own.glob(f"{KEPT_DELTA}/*/*"), *own.glob(f"{CAPTURED}/*/*")]
        return [folder for folder in found if folder.resolve().is_relative_to(own.resolve())]

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

    def discard_hidden(self, kind: str, schema: str, name: str) -> None:
        folder = Path(str(self.hidden(kind, schema, name)[0].path))
        if folder.exists():
            self.discard(folder)

    def discard(self, folder: Path) -> None:
        discard(self.root, folder)


def _was_refreshed(log: Log, newest: int, fingerprint: str) -> bool:
    """Whether one of the newest commits is a refresh."""
    key = (log.ref.place, newest, fingerprint)
    if key not in _REFRESHED:
        if len(_REFRESHED) > _MOST:
            _REFRESHED.clear()
        versions = range(newest, max(-1, newest - _LOOKED_BACK), -1)
        _REFRESHED[key] = any(Progress.of(log.commit(version)) for version in versions)
    return _REFRESHED[key]


def lost(schema: str, name: str) -> DefinitionDamaged:
    return DefinitionDamaged(
        f"{schema}.{name} has lost the property {PROPERTY}, which holds its query",
        hint="deltaic repair takes it from the table's log; DROP MATERIALIZED VIEW takes the view away.",
    )


def _linked(file: Path) -> Path | None:
    """Where a table elsewhere is; None if the file does not tell."""
    try:
        return Path(json.loads(file.read_text("utf-8"))["location"])
    except (ValueError, KeyError, TypeError):
        _log.warning("%s does not say where its table is", file)
        return None
