"""What of a table on this machine is broken: files that its log names and that are not there as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deltaic.errors import HistoryGone
from deltaic.store.files import Entry, entries_of
from deltaic.store.log import Log
from deltaic.store.vectors import read_vector


def damaged_files(log: Log, version: int) -> list[str]:
    """The files of a version that are gone or of another size, each with what is wrong; nothing is known of a table
    elsewhere, or in a form that is not known here."""
    if log.ref.path is None:
        return []
    try:
        entries = entries_of(log.ref.path, version)
    except HistoryGone:
        return []
    table = Path(log.ref.path)
    return [problem for entry in entries for problem in _problems(table, entry)]


def _problems(table: Path, entry: Entry) -> Iterator[str]:
    name = unquote(entry["path"])
    file = Path("/" + name.removeprefix("file:").lstrip("/")) if name.startswith(("file:", "/")) else table / name
    try:
        size = file.stat().st_size
    except OSError:
        yield f"{name} is gone"
        return
    if size != entry["size"]:
        yield f"{name} has {size:,} bytes and not {entry['size']:,}"
    if entry.get("deletionVector"):
        try:
            read_vector(str(table), entry["deletionVector"])
        except FileNotFoundError:
            yield f"the deletion vector of {name} is gone"
        except ValueError as problem:
            yield f"{name}: {problem}"


def properties_in(table: str | Path) -> Iterator[dict[str, str]]:
    """The table's properties as its log states them, newest first, as far as it can be read."""
    log = Path(table) / "_delta_log"
    read = {".json": _committed, ".parquet": _checkpointed, ".crc": _summed}
    files = (*log.glob("[0-9]*.json"), *log.glob("[0-9]*.checkpoint*.parquet"), *log.glob("[0-9]*.crc"))
    for file in sorted(files, reverse=True):
        yield from read[file.suffix](file)


def _committed(file: Path) -> Iterator[dict[str, str]]:
    for line in file.read_text("utf-8", errors="replace").split("\n"):
        if line.startswith('{"metaData"'):
            try:
                yield json.loads(line)["metaData"].get("configuration") or {}
            except (ValueError, AttributeError):
                continue


def _checkpointed(file: Path) -> list[dict[str, str]]:
    try:
        rows = pq.read_table(file, columns=["metaData"])["metaData"].to_pylist()
        return [dict(row["configuration"]) for row in rows if row is not None and row["configuration"]]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return []


def _summed(file: Path) -> list[dict[str, str]]:
    """Beside a commit stands what the table is after it, though the commit itself may be gone."""
    try:
        return [json.loads(file.read_text("utf-8"))["metadata"]["configuration"]]
    except (ValueError, KeyError, TypeError):
        return []
