"""Where tables and views are found: the folders of a local warehouse, or a session's own catalog."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from deltaic.algebra.expr import quote
from deltaic.app.aside import discard, is_table, put_back
from deltaic.app.definition import PROPERTY, Definition, definition_in
from deltaic.app.live import ENDING, LiveTable
from deltaic.errors import DeltaicError, DependencyError, MissingError, NameProblem, SourceError
from deltaic.store.log import Log, gap_in
from deltaic.store.quoting import text_literal
from deltaic.store.table import TableRef, first_line, table_at, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESERVED = "__deltaic_"
_log = logging.getLogger(__name__)
CAPTURED = "captured"
"""The kind of hidden table that a live source is captured into."""


class Catalog(ABC):
    """Names to Delta tables. A view's own table is found by the view's name."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def current_schema(self) -> str:
        return self.spark.catalog.currentDatabase()

    def qualified(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Schema and name of a view; a name the catalog cannot hold is refused."""
        *prefix, name = parts
        if len(prefix) > 1 and prefix[0].lower() != "spark_catalog":
            raise NameProblem(f"views live in the session's catalog, not in {prefix[0]}")
        schema = prefix[-1] if prefix else self.current_schema()
        if name.lower().startswith(RESERVED) or schema.lower().startswith(RESERVED):
            raise NameProblem(f"names that begin with {RESERVED} are Deltaic's own")
        if not name.strip() or any(c in name for c in "/\\\0") or name in (".", ".."):
            raise NameProblem(f"{name!r} cannot be the name of a view")
        return schema, name

    @abstractmethod
    def view_names(self) -> list[tuple[str, str]]:
        """Schema and name of every view."""

    @abstractmethod
    def view_ref(self, schema: str, name: str) -> TableRef:
        """The table of a view, there or not."""

    @abstractmethod
    def table_ref(self, schema: str, name: str) -> TableRef | None:
        """A table that is no view; None if there is none. A source that is not Delta is refused."""

    def exists(self, schema: str, name: str) -> str | None:
        """What has that name, if anything has."""
        if (schema.lower(), name.lower()) in {(s.lower(), n.lower()) for s, n in self.view_names()}:
            return "a materialized view"
        try:
            found = self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}")
        except PySparkException:
            found = False
        return "a table or view" if found else None

    def definition(self, schema: str, name: str) -> Definition:
        """What the view of that name is, as its newest properties say."""
        for found in self.view_names():
            if (found[0].lower(), found[1].lower()) == (schema.lower(), name.lower()):
                return self.read_definition(self.view_ref(*found))
        raise MissingError(f"there is no materialized view {schema}.{name}")

    def read_definition(self, ref: TableRef) -> Definition:
        return definition_in(Log(ref, self.spark).snapshot().properties, ref.name)

    def damaged(self) -> dict[tuple[str, str], DeltaicError]:
        """Views that cannot even be asked what they are, with what stands against it."""
        problems = {name: self.problem_with(*name) for name in self.view_names()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def problem_with(self, schema: str, name: str) -> DeltaicError | None:
        try:
            self.read_definition(self.view_ref(schema, name))
        except DeltaicError as problem:
            return problem
        return None

    def register(self, definition: Definition) -> None:
        """Lets people read the view by its name: a Spark VIEW that shows the user's columns only."""
        comment = f" COMMENT {text_literal(definition.comment)}" if definition.comment else ""
        kind, name = _reader(definition.schema, definition.name)
        self.spark.sql(f"CREATE OR REPLACE {kind} {name}{comment} AS {self.reading(definition)}")

    def reading(self, definition: Definition) -> str:
        """The SELECT that gives what people see: the query's columns, and only the rows that are shown."""
        ref = self.view_ref(definition.schema, definition.name)
        columns = ", ".join(quote(column) for column in definition.columns)
        shown = Log(ref, self.spark).snapshot().shown
        return f"SELECT {columns} FROM {ref.relation}" + (f" WHERE {quote(shown)}" if shown else "")

    def register_odd_names(self, session: SparkSession) -> None:
        """Temporary readers are one session's own; another that runs a view's query needs them too."""
        for schema, name in self.view_names():
            if not _is_plain(schema, name):
                definition = self.definition(schema, name)
                session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quote(name)} AS {self.reading(definition)}")

    def unregister(self, schema: str, name: str) -> None:
        self.spark.sql(f"DROP VIEW IF EXISTS {_reader(schema, name)[1]}")

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
    def remove(self, definition: Definition) -> None:
        """Deletes a view's table."""

    @abstractmethod
    def prepare(self, schema: str, name: str) -> None:
        """Makes room for a view's table: what an interrupted CREATE left is taken away."""


def _is_plain(schema: str, name: str) -> bool:
    return re.fullmatch(r"\w+", schema + name, re.ASCII) is not None


def _reader(schema: str, name: str) -> tuple[str, str]:
    """Spark's catalog takes names of plain letters only; a temporary view takes any."""
    if _is_plain(schema, name):
        return "VIEW", f"{quote(schema)}.{quote(name)}"
    return "TEMPORARY VIEW", quote(name)


class LocalCatalog(Catalog):
    """`<warehouse>/<schema>/<table>`: the folders are the catalog, and Spark's is filled from them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark)
        self.root = root

    def open(self) -> None:
        (self.root / "default").mkdir(parents=True, exist_ok=True)
        (self.root / ".deltaic").mkdir(exist_ok=True)
        shutil.rmtree(self.root / ".deltaic" / "trash", ignore_errors=True)
        put_back(self.root)
        self.spark.sql(f"ALTER DATABASE default SET LOCATION {text_literal(str(self.root / 'default'))}")
        for schema in self.schemas():
            location = text_literal(str(self.root / schema))
            self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)} LOCATION {location}")
            for name, folder in self.tables(schema):
                self.attach(schema, name, folder)
            for file in (self.root / schema).glob(f"*{ENDING}"):
                self.show_live(schema, file.name.removesuffix(ENDING))

    def live(self, schema: str, name: str) -> LiveTable | None:
        file = self.root / schema / f"{name}{ENDING}"
        if not file.is_file():
            return None
        return LiveTable.read(file, f"{schema}.{name}".lower(), str(self.hidden(CAPTURED, schema, name)[0].path))

    def add_live(self, schema: str, name: str, live: LiveTable) -> None:
        (self.root / schema / f"{name}{ENDING}").write_text(live.to_json())
        self.show_live(schema, name)

    def remove_live(self, schema: str, name: str) -> None:
        self.spark.sql(f"DROP VIEW IF EXISTS {quote(schema)}.{quote(name)}")
        (self.root / schema / f"{name}{ENDING}").unlink()
        self.discard_hidden(CAPTURED, schema, name)

    def show_live(self, schema: str, name: str) -> None:
        """So that Spark knows its columns; whoever reads it by its name is told where it is."""
        live = self.live(schema, name)
        assert live is not None
        told = text_literal(f"{schema}.{name} is in {live.table.server}: read it there, or by a materialized view")
        fields = [f for f in Log(live.ref).snapshot().fields if not f["name"].startswith(RESERVED)]
        columns = ", ".join(f"CAST(NULL AS {f['type']}) AS {quote(f['name'])}" for f in fields)
        view = f"SELECT {columns} FROM range(1) WHERE raise_error({told}) IS NULL"
        self.spark.sql(f"CREATE OR REPLACE VIEW {quote(schema)}.{quote(name)} AS {view}")

    def attach(self, schema: str, name: str, folder: Path) -> None:
        """Without one that cannot be read, the others are as good as ever."""
        try:
            self.show_table(schema, name, folder)
        except Exception as problem:  # Spark lets some of Delta's errors through as they are
            _log.warning("%s.%s cannot be read: %s", schema, name, first_line(problem))

    def show_table(self, schema: str, name: str, folder: Path) -> None:
        ref = table_at(folder, f"{schema}.{name}")
        properties = Log(ref, self.spark).snapshot().properties
        if PROPERTY in properties:
            self.register(definition_in(properties, ref.name))
            return
        location = text_literal(str(folder))
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {quote(schema)}.{quote(name)} USING delta LOCATION {location}")

    def close(self) -> None:
        """Empties Spark's catalog; tables are attached by LOCATION, so their data stays."""
        for schema in self.schemas():
            for name, folder in self.tables(schema):
                if self.is_view(table_at(folder, f"{schema}.{name}")):
                    self.unregister(schema, name)
                else:
                    self.hide(schema, name)
            for file in (self.root / schema).glob(f"*{ENDING}"):
                self.spark.sql(f"DROP VIEW IF EXISTS {quote(schema)}.{quote(file.name.removesuffix(ENDING))}")
            if schema != "default":
                self.spark.sql(f"DROP SCHEMA IF EXISTS {quote(schema)} RESTRICT")

    def hide(self, schema: str, name: str) -> None:
        """Takes a name out of Spark's catalog, whatever it is there: a view that lost its definition is still one."""
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
        for entry in sorted(os.scandir(self.root / schema), key=lambda e: e.name):
            if entry.name.endswith(LINK) and entry.is_file():
                target = Path(json.loads(Path(entry.path).read_text())["location"])
                if is_table(target):
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
        """A view that cannot be read is none: nobody else is to stumble over it."""
        return self.problem_of(ref) is None and PROPERTY in Log(ref, self.spark).snapshot().properties

    def problem_of(self, ref: TableRef) -> DeltaicError | None:
        """Why a table, or the definition of the view that it is, cannot be read."""
        try:
            properties = Log(ref, self.spark).snapshot().properties
            if PROPERTY in properties:
                definition_in(properties, ref.name)
        except DeltaicError as problem:
            return problem
        return None

    def damaged(self) -> dict[tuple[str, str], DeltaicError]:
        """Tables, too: what cannot be read does not say which of the two it is."""
        folders = {(schema, name): folder for schema in self.schemas() for name, folder in self.tables(schema)}
        refs = {name: table_at(folder, ".".join(name)) for name, folder in folders.items()}
        problems = {name: self.gap(ref) or self.problem_of(ref) for name, ref in refs.items()}
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
            problem = self.problem_of(table_at(self.folder(schema, name), f"{schema}.{name}")) if there else None
            raise problem or missing from None

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
            ref = table_at(folder, f"{folder.parent.name}.{folder.name}".lower())
            problem = self.problem_of(ref)
            if problem is not None:
                raise SourceError(problem.what, hint=problem.hint)
            return ref
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

    def remove(self, definition: Definition) -> None:
        self.discard(self.folder(definition.schema, definition.name))

    def discard(self, folder: Path) -> None:
        discard(self.root, folder)

    def prepare(self, schema: str, name: str) -> None:
        folder = self.folder(schema, name)
        if folder.exists() and not (folder / "_delta_log" / f"{0:020}.json").exists():
            self.discard(folder)

    def forget(self, schema: str, name: str) -> None:
        """After DROP TABLE: a linked table stays where it is, any other goes with its folder."""
        for link in (self.root / schema).glob(f"*{LINK}"):
            if link.name.removesuffix(LINK).lower() == name.lower():
                link.unlink()
                return
        folder = self.folder(schema, name)
        inside = folder.parent == self.root / folder.parent.name
        if inside and (folder / "_delta_log").is_dir():
            self.discard(folder)

    def make_schema(self, name: str) -> None:
        (self.root / name).mkdir(exist_ok=True)

    def check_empty(self, name: str) -> None:
        if any(there.lower() == name.lower() and list(self.tables(there)) for there in self.schemas()):
            raise DependencyError(f"the schema {name} holds tables or views", hint="Drop them first.")

    def drop_schema(self, name: str) -> None:
        for there in self.schemas():
            if there.lower() == name.lower() and there != "default":
                self.discard(self.root / there)

    def spark_location(self, schema: str, name: str) -> str:
        ref = table_named(self.spark, (schema, name))
        return ref.path or ref.relation

    def link(self, schema: str, name: str, location: str) -> None:
        target = self.root / schema / f"{name}{LINK}"
        target.write_text(json.dumps({"location": location}))


LINK = ".link"
BACKING = f"{RESERVED}mv_"


class SessionCatalog(Catalog):
    """The session's own catalog. A view's table stands beside it under a reserved name."""

    def __init__(self, spark: SparkSession, path: str | None) -> None:
        super().__init__(spark)
        self.path = path

    def view_names(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for database in self.spark.sql("SHOW SCHEMAS").collect():
            schema = str(database[0])
            rows = self.spark.sql(f"SHOW TABLES IN {quote(schema)} LIKE '{BACKING}*'").collect()
            found.extend((schema, str(row["tableName"]).removeprefix(BACKING)) for row in rows)
        return found

    def view_ref(self, schema: str, name: str) -> TableRef:
        parts = (schema, BACKING + name)
        relation = ".".join(quote(part) for part in parts)
        if not self.spark.catalog.tableExists(relation):
            return TableRef(f"{schema}.{name}", relation, None)
        ref = table_named(self.spark, parts)
        return TableRef(f"{schema}.{name}", ref.relation, ref.path)

    def location(self, schema: str, name: str) -> str | None:
        return f"{self.path.rstrip('/')}/{schema}/{BACKING}{name}" if self.path else None

    def table_ref(self, schema: str, name: str) -> TableRef | None:
        if not self.spark.catalog.tableExists(f"{quote(schema)}.{quote(name)}"):
            return None
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
        self.spark.sql(f"DROP TABLE IF EXISTS {self.hidden(kind, schema, name)[0].relation}")

    def remove(self, definition: Definition) -> None:
        relation = f"{quote(definition.schema)}.{quote(BACKING + definition.name)}"
        self.spark.sql(f"DROP TABLE IF EXISTS {relation}")

    def prepare(self, schema: str, name: str) -> None:
        return


def path_source(parts: tuple[str, ...]) -> TableRef | None:
    """delta.`/a/path` names a table by its folder."""
    if len(parts) == 2 and parts[0].lower() == "delta" and ("/" in parts[1] or os.sep in parts[1]):
        if "://" in parts[1] and not parts[1].startswith("file:"):
            return TableRef(f"delta.{quote(parts[1])}", f"delta.{quote(parts[1])}", None)
        return table_at(parts[1].removeprefix("file:"), f"delta.{quote(parts[1])}")
    return None
