"""Replacing rows of a view of any size without writing its files anew: rows that go are marked by deletion vectors,
rows that come are new files, and one commit has both.

Spark and delta-rs take seconds for that in a view of some million rows: they read, match and write whole rows. Here
only the key's columns are read. The commit is a file of the log that must not be there yet, so this is for tables in a
folder of this machine; what is written are values that Spark computed.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from deltaic.errors import ConcurrentRefresh
from deltaic.store import partitions, rs, rs_write
from deltaic.store.arrow import conform
from deltaic.store.files import Entry, entries_of, metadata_of
from deltaic.store.lookup import look_up
from deltaic.store.rs_write import Transaction
from deltaic.store.table import Snapshot, physical_name
from deltaic.store.vectors import new_vectors, read_vector

_ODD_KEYS = ("float", "double", "binary", "timestamp", "timestamp_ntz")
"""Of which Arrow has other equals than Spark, or files that Spark wrote hold as something else."""
_TOLD_TEXT = 32
"""A longer text is cut in a file's statistics, as Delta does it."""
_LAST = chr(0x10FFFF)
SCRATCH = "deltaic-"
"""How the folders begin that Spark writes new files into."""
_TEMPORARY = "_temporary"
"""Where Spark's tasks write, inside of such a folder: one that was thought lost may go on there."""
_TOLD = ("byte", "short", "integer", "long", "date", "string")
"""The types whose ranges new files tell; Delta wants those of the columns that a table is clustered by."""
KNOWN_FEATURES = rs_write.KNOWN_FEATURES | {"clustering", "domainMetadata"}


@dataclass(frozen=True)
class Found:
    """Where rows are: per file the places of those that are there, and how often each key was met."""

    version: int
    places: Mapping[str, BitMap]
    values: pa.ChunkedArray
    """The key of each row that was found; none where the key has several columns."""
    looked_at: int = 0
    files: int = 0
    """Rows and files that were looked at."""

    @property
    def rows(self) -> int:
        return sum(map(len, self.places.values()))

    @staticmethod
    def nothing(version: int) -> Found:
        return Found(version, {}, pa.chunked_array([], pa.null()))


# --- when not -------------------------------------------------------------------------------------


def why_not(path: str | None, snapshot: Snapshot, key: Sequence[str], clustered: Sequence[str] = ()) -> str | None:
    """What about a table forbids it; None if nothing does."""
    reason = rs_write.why_not_table(path, snapshot, KNOWN_FEATURES)
    if reason is not None:
        return reason
    if snapshot.properties.get("delta.enableDeletionVectors", "").lower() != "true":
        return "no deletion vectors"
    if snapshot.properties.get("delta.columnMapping.mode", "none").lower() == "id":
        return "columns found by their ids"
    if snapshot.rows is None:
        return "files without statistics"
    if "v2Checkpoint" in snapshot.features:
        return "checkpoints of the second kind"
    if any(isinstance(f["type"], dict) and "struct" in json.dumps(f["type"]) for f in snapshot.fields):
        return "structs, whose fields have other names in the files"
    kinds = {f["name"]: f["type"] for f in snapshot.fields}
    untold = [name for name in clustered if kinds.get(name) not in _TOLD]
    if untold:
        return f"clustered by {untold[0]}, of a type whose ranges Spark must tell"
    odd = [name for name in key if isinstance(kinds[name], dict) or kinds[name] in _ODD_KEYS]
    return f"a key of type {kinds[odd[0]]}" if odd else partitions.why_not(str(path), snapshot)


# --- finding --------------------------------------------------------------------------------------


def find(path: str, snapshot: Snapshot, keys: pa.Table) -> Found:
    """The rows whose key is one of these. Only the columns of the key are read."""
    one = keys.column_names if keys.num_columns == 1 else []
    found = list(look_up(path, snapshot, keys, one))
    kind = keys.column(0).type
    values = [chunk.cast(kind) for each in found if each.rows is not None for chunk in each.rows.column(0).chunks]
    return Found(
        snapshot.version,
        {each.entry["path"]: each.places for each in found if each.places},
        pa.chunked_array(values, kind),
        sum(each.looked_at for each in found),
        sum(bool(each.looked_at) for each in found),
    )


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewFile:
    """A file that no commit knows yet, and the partition that its rows are of."""

    file: Path
    values: partitions.Texts


def new_files(path: str, snapshot: Snapshot, rows: pa.Table) -> list[NewFile]:
    """Rows with the view's columns, a file for each partition."""
    schema = pa.schema([pa.field(f.name, f.type) for f in pa.schema(rs.opened(path).schema().to_arrow())])
    rows = conform(rows, schema).rename_columns([physical_name(f) for f in snapshot.fields])
    found = []
    for values, own in partitions.Partitions.of(snapshot).parts(rows) if rows.num_rows else ():
        found.append(NewFile(Path(path) / _new_name(), values))
        pq.write_table(own, found[-1].file, compression="snappy", store_decimal_as_integer=True)
    return found


def written_by(path: str, write: Callable[[str], None]) -> list[NewFile]:
    """The files that a function writes into a folder of the table, moved to where data files are."""
    folder, found = Path(path) / f"{SCRATCH}{uuid.uuid4()}", []
    try:
        write(str(folder))
        for file in sorted(folder.rglob("*.parquet")):
            if _TEMPORARY not in file.parts and pq.ParquetFile(file).metadata.num_rows:
                values = partitions.of_folder(file.relative_to(folder).parent)
                found.append(NewFile(Path(path) / _new_name(), values))
                file.rename(found[-1].file)
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_name() -> str:
    return f"part-00000-{uuid.uuid4()}.snappy.parquet"


def apply(
    path: str,
    found: Found,
    files: Iterable[NewFile],
    transaction: Transaction,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Take out the rows that were found and put in those files, in one commit, which may also set properties."""
    now = int(time.time() * 1000)
    entries = {entry["path"]: entry for entry in entries_of(path, found.version) if entry["path"] in found.places}
    actions: list[dict[str, Any]] = []
    if properties:
        metadata = metadata_of(path, found.version)
        actions.append({"metaData": {**metadata, "configuration": {**metadata["configuration"], **properties}}})
    kept: list[Entry] = []
    left: list[BitMap] = []
    for name, entry in entries.items():
        old = entry.get("deletionVector")
        gone = found.places[name] | read_vector(path, old) if old else found.places[name]
        actions.append({"remove": _removed(entry, now)})
        if len(gone) < json.loads(entry["stats"])["numRecords"]:
            kept.append(entry)
            left.append(gone)
    vectors = new_vectors(left)
    if vectors.file is not None:
        _written(Path(path) / vectors.file, vectors.content)
    for entry, vector in zip(kept, vectors.descriptions, strict=True):
        actions.append({"add": _marked(entry, vector)})
    added = [_added(file, now) for file in files]
    actions.extend({"add": entry} for entry in added)
    inserted = sum(json.loads(entry["stats"])["numRecords"] for entry in added)
    metrics = {"numTargetRowsDeleted": str(found.rows), "numTargetRowsInserted": str(inserted)}
    _commit(path, found.version + 1, transaction, metrics, actions, now)


def _removed(entry: Entry, now: int) -> dict[str, Any]:
    kept = {
        name: entry[name] for name in ("path", "partitionValues", "size", "deletionVector", "tags") if name in entry
    }
    return {"deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True, **kept}


def _marked(entry: Entry, vector: Mapping[str, Any]) -> dict[str, Any]:
    """Ranges of values stay true of fewer rows, but are no longer tight. An end that Python would round, as it stands
    there of a wide DECIMAL, is left out: Spark would pass over a file that has the row."""
    stats: dict[str, Any] = {**json.loads(entry["stats"], parse_float=_exactly), "tightBounds": False}
    for ends in ("minValues", "maxValues"):
        stats[ends] = {name: value for name, value in stats.get(ends, {}).items() if value is not None}
    told = json.dumps(stats, separators=(",", ":"))
    return {**entry, "dataChange": True, "stats": told, "deletionVector": vector}


def _exactly(digits: str) -> float | None:
    number = float(digits)
    return number if Decimal(digits) == Decimal(repr(number)) else None


def _added(new: NewFile, now: int) -> dict[str, Any]:
    return {
        "path": quote(new.file.name),
        "partitionValues": new.values,
        "size": new.file.stat().st_size,
        "modificationTime": now,
        "dataChange": True,
        "stats": json.dumps(_statistics(pq.ParquetFile(new.file).metadata), separators=(",", ":")),
    }


def _statistics(footer: Any) -> dict[str, Any]:
    """How many rows a new file has, and the ranges of columns where JSON can tell them exactly."""
    stats: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    for number in range(footer.num_columns if groups else 0):
        columns = [group.column(number) for group in groups]
        name, told = columns[0].path_in_schema, [column.statistics for column in columns]
        if any(each is None or not each.has_null_count for each in told):
            continue
        if "." in name:
            continue
        stats["nullCount"][name] = sum(each.null_count for each in told)
        ends = [_ends(each) for each in told if each.has_min_max]
        some = [each for each, column in zip(told, columns, strict=True) if each.null_count < column.num_values]
        if ends and len(ends) >= len(some) and all(_is_told(value) for pair in ends for value in pair):
            stats["minValues"][name] = _lower(min(low for low, _ in ends))
            stats["maxValues"][name] = _upper(max(high for _, high in ends))
    return {**stats, "tightBounds": True}


def _ends(told: Any) -> tuple[Any, Any]:
    """None for what Python has no value for: a date after 9999, a text that is not UTF-8."""
    try:
        return told.min, told.max
    except (OverflowError, ValueError):
        return None, None


def _is_told(value: Any) -> bool:
    exact = isinstance(value, int) and not isinstance(value, bool)
    text = isinstance(value, str) and value[_TOLD_TEXT : _TOLD_TEXT + 1] != _LAST
    return exact or type(value) is date or text


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TOLD_TEXT]
    return value.isoformat() if isinstance(value, date) else value


def _upper(value: Any) -> Any:
    cut = isinstance(value, str) and len(value) > _TOLD_TEXT
    return value[:_TOLD_TEXT] + _LAST if cut else _lower(value)


def _commit(
    path: str,
    version: int,
    transaction: Transaction,
    metrics: Mapping[str, str],
    actions: list[dict[str, Any]],
    now: int,
) -> None:
    info = {
        "timestamp": now,
        "operation": "MERGE",
        "operationParameters": {"by": "deletion vectors"},
        "readVersion": version - 1,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": metrics,
        "userMetadata": transaction.metadata,
        "engineInfo": "Deltaic",
    }
    number = {"appId": transaction.app, "version": transaction.number, "lastUpdated": now}
    lines = [{"commitInfo": info}, {"txn": number}, *actions]
    log = Path(path) / "_delta_log"
    draft = log / f".{uuid.uuid4()}.tmp"
    try:
        _written(draft, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        os.link(draft, log / f"{version:020}.json")  # fails if it is there: of two writers one wins
    except FileExistsError:
        raise ConcurrentRefresh(f"version {version} of {path} was written by another process") from None
    finally:
        draft.unlink(missing_ok=True)


def _written(file: Path, content: bytes) -> None:
    with file.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
