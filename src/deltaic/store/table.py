"""Which table is meant, and what its log says about one version of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltaic.algebra.nodes import SHOWN
from deltaic.algebra.quoting import quote
from deltaic.errors import SourceError
from deltaic.store import rs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FILE = 16_000_000
"""Of fewer bytes."""
PLAIN_VIEW = "Put its query in the place of its name, or make it a materialized view."
NOT_DELTA = "Deltaic reads Delta tables. CONVERT TO DELTA makes one of a Parquet table."


@dataclass(frozen=True)
class TableRef:
    """A Delta table: how people call it, how Spark SQL does, and its folder if it is on this machine."""

    name: str
    relation: str
    path: str | None = None

    @property
    def place(self) -> str:
        """Where it is: tables of several names may be one."""
        return self.path or self.relation

    def as_of(self, version: int) -> str:
        """SQL text that reads the table as it was at `version`."""
        return f"{self.relation} VERSION AS OF {version}"


@dataclass(frozen=True)
class Snapshot:
    """A table at one version, as its log describes it.

    `rows` counts the rows of the files, and so is an upper bound where deletion vectors hide some of them.
    `features` holds what the protocol allows, named or implied by its version, used or not.
    """

    version: int
    table_id: str
    schema_json: str
    properties: Mapping[str, str]
    partition_columns: tuple[str, ...]
    features: frozenset[str]
    rows: int | None
    bytes: int | None
    files: int | None
    small_files: int | None = None
    """Files that could be put together with others: small ones, but one of each partition."""
    fingerprint: str | None = None
    """Of the commit that made it, where it was asked for."""

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The top-level columns as Delta's JSON has them."""
        fields: list[dict[str, Any]] = json.loads(self.schema_json)["fields"]
        return fields

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field["name"] for field in self.fields)

    @property
    def change_feed(self) -> bool:
        return feed_on(self.properties)

    @property
    def shown(self) -> str | None:
        """The column that says which rows count, in the table of a view that hides some."""
        return SHOWN if SHOWN in self.columns else None


def feed_on(properties: Mapping[str, str]) -> bool:
    return properties.get("delta.enableChangeDataFeed", "").lower() == "true"


def physical_name(field: Mapping[str, Any]) -> str:
    """What the column is called in files and statistics: another name under column mapping."""
    name: str = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
    return name


def data_of(field: Mapping[str, Any]) -> tuple[Any, str]:
    """What makes two columns the same data: comments and defaults do not."""
    return padded_type(field) or field["type"], physical_name(field)


def padded_type(field: Mapping[str, Any]) -> str | None:
    """The type of a column with a CHAR in it, which Spark pads when it reads: the schema has a STRING for it."""
    told = str(field.get("metadata", {}).get("__CHAR_VARCHAR_TYPE_STRING", ""))
    return told if re.search(r"(?<!var)char\(", told) else None


def stored_as(field: Mapping[str, Any]) -> str | list[Any]:
    """Where a column is in the files: its name there and, if they have other ones there, those of the fields inside."""
    name, inner = physical_name(field), _stored_inside(field["type"])
    return [name, *inner] if inner else name


def _stored_inside(kind: Any) -> list[Any]:
    if not isinstance(kind, dict):
        return []
    if kind["type"] == "struct":
        fields = [stored_as(field) for field in kind["fields"]]
        return fields if fields != [field["name"] for field in kind["fields"]] else []
    parts = [_stored_inside(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind]
    return parts if any(parts) else []


# What a protocol version allows before protocols began to list their features by name.
_WRITER_IMPLIES = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def features(min_reader: int, min_writer: int, named: Sequence[str]) -> frozenset[str]:
    """All features of a protocol: those it names, and those its version numbers imply."""
    implied = {name for least, names in _WRITER_IMPLIES.items() if least <= min_writer < 7 for name in names}
    if min_reader == 2:
        implied.add("columnMapping")
    return frozenset(implied.union(named))


def table_at(path: str | Path, name: str | None = None) -> TableRef:
    """The Delta table in a folder of this machine; it need not exist yet."""
    absolute = str(Path(path).absolute())
    return TableRef(name or absolute, f"delta.{quote(absolute)}", absolute)


def table_named(spark: SparkSession, parts: Sequence[str]) -> TableRef:
    """A table of the session's catalog.

    Its folder is taken as local only if the log found there is that table's: the session may run on
    another machine that has a folder of the same name.
    """
    relation = ".".join(quote(part) for part in parts)
    name = ".".join(parts)
    detail = describe_detail(spark, name, relation)
    path = _local_folder(detail["location"], detail["id"])
    if "catalogManaged" in (detail.get("tableFeatures") or ()):
        path = None  # its newest commits are known to the catalog only
    return TableRef(name, relation, path)


def describe_detail(spark: SparkSession, name: str, relation: str) -> dict[str, Any]:
    """DESCRIBE DETAIL as a dictionary, or an error that says what is wrong with the source."""
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {relation}").collect()[0].asDict()
    except Exception as error:  # classic and Connect sessions raise from different class trees
        if "EXPECT_TABLE_NOT_VIEW" in str(error):
            raise SourceError(f"{name} is a view of Spark's, not a table", hint=PLAIN_VIEW) from None
        raise SourceError(f"{name} cannot be read as a table: {first_line(error)}", hint=NOT_DELTA) from error
    if detail.get("format") != "delta":
        raise SourceError(f"{name} is not a Delta table but {detail.get('format')}", hint=NOT_DELTA)
    return detail


def first_line(told: object) -> str:
    """Of an error or its text, what says what is wrong: Spark goes on for a page."""
    if isinstance(told, Exception):
        told = getattr(told, "java_exception", told)  # py4j only says that a call failed
    return str(told).strip().split("\n", 1)[0].rstrip()


def _local_folder(location: str | None, table_id: str) -> str | None:
    """The folder of this machine that a location names; Spark gives it decoded, catalogs may not."""
    if not location or not location.startswith(("file:", "/")):
        return None
    raw = "/" + location.removeprefix("file:").lstrip("/")
    return next((folder for folder in (raw, unquote(raw)) if _holds(folder, table_id)), None)


def _holds(folder: str, table_id: str) -> bool:
    log = Path(folder) / "_delta_log"
    return log.is_dir() and table_id == _id_in(log)


def _id_in(log: Path) -> str | None:
    """The table's id by the newest commit that states it, or by delta-rs if those are cleaned up."""
    for commit in sorted(log.glob("*.json"), reverse=True):
        for line in commit.read_text("utf-8").split("\n"):
            if line.startswith('{"metaData"'):
                found: str = json.loads(line)["metaData"]["id"]
                return found
    return str(rs.opened(str(log.parent)).metadata().id) if rs.can_open(str(log.parent)) else None
