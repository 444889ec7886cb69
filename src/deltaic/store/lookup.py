"""Rows of a large table by the values of some columns, without Spark: of other columns only what is there is kept.

Columns that are looked at are decoded for the row groups whose ranges may hold a value, other columns for those that
do. A file's deletion vector is taken into account.
"""

from __future__ import annotations

import array
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap
from pyspark.sql.types import StructType

from deltaic.store.arrow import arrow_type, without_views
from deltaic.store.files import Entry, entries_of
from deltaic.store.partitions import Partitions, matching
from deltaic.store.table import Snapshot, physical_name
from deltaic.store.vectors import read_vector


@dataclass(frozen=True)
class InFile:
    """What one file has: the places of its rows, and the columns that were asked for, in their order."""

    entry: Entry
    places: BitMap
    rows: pa.Table | None
    looked_at: int
    """Rows whose keys were decoded; 0 if the file's ranges told that it has none of them."""


@dataclass(frozen=True)
class Nearby:
    """The rows that were looked for, and what had to be read for them."""

    rows: pa.Table
    looked_at: int
    files: int


def look_up(path: str, snapshot: Snapshot, keys: pa.Table, columns: Sequence[str]) -> Iterator[InFile]:
    """The rows whose columns named as those of `keys` have, together, the values of one of its rows; NULL equals NULL.

    Every file is told of, also one that has no such row. Columns are top-level ones, partitions of a kind that is
    known (`partitions.why_not`).
    """
    if not keys.num_rows:
        return
    physical = {f["name"]: physical_name(f) for f in snapshot.fields}
    wanted = keys.rename_columns([physical[name] for name in keys.column_names])
    others = [physical[name] for name in columns]
    partitions = Partitions.of(snapshot)

    def look(entry: Entry) -> InFile:
        values = partitions.values(entry)
        asked = {name: value for name, value in values.items() if name in wanted.column_names}
        here = wanted.filter(matching(wanted, asked)).drop_columns(list(asked)) if asked else wanted
        if not here.num_rows:
            return InFile(entry, BitMap(), None, 0)
        vector = entry.get("deletionVector")
        gone = read_vector(path, vector) if vector else None
        stored = [name for name in others if name not in values]
        found = _in_file(entry, Path(path) / unquote(entry["path"]), here, stored, gone)
        if not found.places or not others:
            return found
        count = len(found.places)
        rows = found.rows
        columns = {n: pa.repeat(values[n], count) if n in values else _of(rows, n) for n in others}
        return replace(found, rows=pa.table(columns))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(look, entries_of(path, snapshot.version))


def find_rows(
    path: str, snapshot: Snapshot, keys: pa.Table, columns: Mapping[str, str], shown: str | None, most: int
) -> Nearby | None:
    """These columns, each under the name beside it, of the rows with one of the keys; None if there are too many."""
    names = [*columns, *([shown] if shown else [])]
    found, count, seen, looked_at, files = list[pa.Table](), 0, 0, 0, 0
    for each in look_up(path, snapshot, keys, names):
        looked_at, files = looked_at + each.looked_at, files + bool(each.looked_at)
        seen += json.loads(each.entry["stats"])["numRecords"]
        if each.rows is None:
            continue
        rows = each.rows.rename_columns(names)
        found.append(rows.filter(rows[shown]).drop_columns([shown]) if shown else rows)
        count += found[-1].num_rows
        if count > most or (count > most / 10 and count / seen * (snapshot.rows or 0) > 2 * most):
            return None  # there are, or by the files seen so far there will be, too many
    schema = StructType.fromJson(json.loads(snapshot.schema_json))
    none = pa.schema([pa.field(name, arrow_type(schema[name].dataType)) for name in columns]).empty_table()
    rows = pa.concat_tables([none, *found], promote_options="permissive").rename_columns(list(columns.values()))
    return Nearby(rows, looked_at, files)


def _in_file(entry: Entry, file: Path, wanted: pa.Table, others: Sequence[str], gone: BitMap | None) -> InFile:
    opened, places, found = pq.ParquetFile(file, memory_map=True), BitMap(), list[pa.Table]()
    lacking = {*wanted.column_names, *others} - set(opened.schema_arrow.names)
    if lacking:
        raise LookupError(f"{file.name} is older than some columns: {', '.join(sorted(lacking))}")
    first = looked_at = 0
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        if _may_hold(group, wanted):
            looked_at += group.num_rows
            rows = _group(opened, number, wanted.column_names)
            at = _matches(rows, wanted) if wanted.column_names else pa.array(range(group.num_rows), pa.uint64())
            here = _places(at, first)
            here -= gone or BitMap()
            places |= here
            if here and others:
                found.append(_picked(opened, number, rows, others, pa.array(here.to_array(), pa.uint32()), first))
        first += group.num_rows
    return InFile(entry, places, pa.concat_tables(found) if found else None, looked_at)


def _of(rows: pa.Table | None, name: str) -> pa.ChunkedArray:
    assert rows is not None
    return rows[name]


def _group(opened: pq.ParquetFile, number: int, names: Sequence[str]) -> pa.Table:
    return without_views(opened.read_row_group(number, columns=list(names), use_threads=False))


def _picked(
    opened: pq.ParquetFile, number: int, rows: pa.Table, names: Sequence[str], places: pa.Array, first: int
) -> pa.Table:
    """Columns of some rows of a group; those that were looked at are in `rows`."""
    at = pc.subtract(places, pa.scalar(first, pa.uint32()))
    missing = [name for name in names if name not in rows.column_names]
    more = _group(opened, number, missing) if missing else rows
    return pa.table({name: (rows if name in rows.column_names else more)[name].take(at) for name in names})


def _places(at: pa.Array, first: int) -> BitMap:
    moved = pc.add(at, pa.scalar(first, at.type)).cast(pa.uint32())
    numbers = array.array("I")
    numbers.frombytes(memoryview(moved.buffers()[1])[: len(moved) * numbers.itemsize])
    return BitMap(numbers)


def _matches(rows: pa.Table, wanted: pa.Table) -> pa.Array:
    """The numbers of the rows that have one of these keys; NULL is equal to NULL."""
    masks = [pc.is_in(rows[name], _unique(wanted[name], rows[name].type)) for name in wanted.column_names]
    at = pc.indices_nonzero(reduce(pc.and_, masks))
    if len(masks) == 1 or not len(at):
        return at
    keys = set(_tuples(wanted.cast(rows.select(wanted.column_names).schema)))
    each = enumerate(_tuples(rows.select(wanted.column_names).take(at)))
    return at.take(pa.array([n for n, row in each if row in keys], pa.int64()))


def _unique(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return pc.unique(values.cast(kind))


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Dates as numbers: Python has none after 9999."""
    columns = [column.cast(pa.int32()) if pa.types.is_date32(column.type) else column for column in rows.columns]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _may_hold(group: Any, wanted: pa.Table) -> bool:
    """By the ranges of its columns; a NULL that is wanted may be anywhere."""
    names = {group.column(n).path_in_schema: n for n in range(group.num_columns)}
    for name in wanted.column_names:
        told = group.column(names[name]).statistics
        plain = pa.types.is_integer(wanted[name].type) or pa.types.is_string(wanted[name].type)
        if not plain or told is None or not told.has_min_max or wanted[name].null_count:
            continue
        ends = pc.min_max(wanted[name]).as_py()
        try:
            if ends["max"] < told.min or ends["min"] > told.max:
                return False
        except UnicodeDecodeError:  # a text that is not UTF-8
            continue
    return True
