"""Values of partition columns: they stand in the log, as text, and in no file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.errors import HistoryGone
from deltaic.store.files import Entry, entries_of
from deltaic.store.table import Snapshot, physical_name

_KINDS = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
}
WRITTEN_ALIKE = frozenset({*_KINDS, "boolean"})
"""Types of partition columns of which delta-rs and Spark write and read the same texts. Of the others delta-rs writes
-1.50 as '-1.-50', an instant without its zone, and bytes as the text of their escapes."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

Texts = Mapping[str, str | None]
"""By the names that columns have in files."""


def why_not(path: str, snapshot: Snapshot) -> str | None:
    """What about the partitions of a table forbids that their values are told here; None if nothing does."""
    for field in snapshot.fields:
        if field["name"] in snapshot.partition_columns and field["type"] not in _KINDS:
            return f"partitions by a column of type {field['type']}"
    columns = Partitions.of(snapshot)
    try:
        for entry in entries_of(path, snapshot.version) if columns.kinds else ():
            columns.values(entry)
    except (pa.ArrowInvalid, HistoryGone) as problem:  # a date after 9999, or a log of a form that is not known here
        return f"partitions whose values are not known here: {problem}"
    return None


def told_otherwise(fields: Iterable[Mapping[str, Any]], partitioned: Container[str]) -> str | None:
    """Which of these is a partition column whose values delta-rs and Spark do not tell alike; None if none is."""
    odd = (field for field in fields if field["name"] in partitioned and field["type"] not in WRITTEN_ALIKE)
    return next((f"partitions by a column of type {field['type']}" for field in odd), None)


@dataclass(frozen=True)
class Partitions:
    """The partition columns of a table, by the names that they have in files."""

    kinds: Mapping[str, pa.DataType]

    @staticmethod
    def of(snapshot: Snapshot) -> Partitions:
        fields = {field["name"]: field for field in snapshot.fields}
        return Partitions({physical_name(fields[n]): _KINDS[fields[n]["type"]] for n in snapshot.partition_columns})

    def values(self, entry: Entry) -> dict[str, pa.Scalar]:
        """What all rows of a file have. An empty text is NULL."""
        told = entry.get("partitionValues") or {}
        return {name: pa.scalar(told.get(name) or None, pa.string()).cast(kind) for name, kind in self.kinds.items()}

    def parts(self, rows: pa.Table) -> Iterator[tuple[Texts, pa.Table]]:
        """Rows by their partition, without the columns that all of a partition have alike."""
        if not self.kinds:
            yield {}, rows
            return
        for chosen in rows.select(list(self.kinds)).group_by(list(self.kinds)).aggregate([]).to_batches():
            for number in range(chosen.num_rows):
                values = {name: chosen[name][number] for name in self.kinds}
                own = rows.filter(matching(rows, values)).drop_columns(list(self.kinds))
                yield {name: value.cast(pa.string()).as_py() or None for name, value in values.items()}, own


def matching(rows: pa.Table, values: Mapping[str, pa.Scalar]) -> pa.ChunkedArray:
    """Which rows have these values; NULL equals NULL."""
    masks = [
        pc.equal(rows[name].cast(value.type), value).fill_null(False) if value.is_valid else pc.is_null(rows[name])
        for name, value in values.items()
    ]
    found = masks[0]
    for mask in masks[1:]:
        found = pc.and_(found, mask)
    return found


def of_folder(path: PurePath) -> Texts:
    """The values in the names of the folders that Spark writes a partition to."""
    parts = [part.partition("=") for part in path.parts if "=" in part]
    return {unquote(name): None if text == _NULL_FOLDER else unquote(text) for name, _, text in parts}
