"""The data files of a table at one version, each with what the log says of it, word for word.

delta-rs does not tell a file's deletion vector, and its statistics only as values; a commit that gives a file another
vector has to repeat the rest of its entry. So the log is replayed here: the newest checkpoint, then the commits after.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from deltaic.errors import HistoryGone

Entry = Mapping[str, Any]
"""An "add" of the log."""

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")


def entries_of(table: str, version: int) -> list[Entry]:
    """The entries of all files of a version; HistoryGone if its log has a form that is not known here."""
    log = Path(table) / "_delta_log"
    start, parts = _newest_checkpoint(log, version)
    live: dict[str, Entry] = {}
    for part in parts:
        status = part.stat()
        live.update(_checkpointed(str(part), status.st_ino, status.st_mtime_ns))
    for number in range(start + 1, version + 1):
        try:
            text = (log / f"{number:020}.json").read_text("utf-8")
        except FileNotFoundError:
            raise HistoryGone(f"{table}: version {number} is no longer in the log") from None
        _replay(text, live)
    return list(live.values())


def metadata_of(table: str, version: int) -> Entry:
    """What the log says that the table is, word for word: its columns, its properties."""
    log = Path(table) / "_delta_log"
    start, parts = _newest_checkpoint(log, version)
    for number in range(version, start, -1):
        lines = (log / f"{number:020}.json").read_text("utf-8").split("\n")
        found = [json.loads(line)["metaData"] for line in lines if line.startswith('{"metaData"')]
        if found:
            return {"configuration": {}, **found[-1]}
    for part in parts:
        rows = [row for row in pq.read_table(part, columns=["metaData"])["metaData"].to_pylist() if row is not None]
        if rows:
            entry = {name: value for name, value in rows[0].items() if value is not None}
            entry["configuration"] = dict(entry.get("configuration") or ())
            entry["format"] = {**entry["format"], "options": dict(entry["format"].get("options") or ())}
            return entry
    raise HistoryGone(f"{table}: its log does not say what version {version} is")


def _replay(text: str, live: dict[str, Entry]) -> None:
    """A file under a new vector is removed and added in one commit, in any order."""
    actions = [json.loads(line) for line in text.split("\n") if line.strip()]
    for action in actions:
        if "remove" in action:
            live.pop(action["remove"]["path"], None)
    live.update({action["add"]["path"]: action["add"] for action in actions if "add" in action})


def _newest_checkpoint(log: Path, version: int) -> tuple[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    parts: dict[int, int] = {}
    for file in log.iterdir():
        match = _CHECKPOINT.fullmatch(file.name)
        if match and int(match[1]) <= version:
            found.setdefault(int(match[1]), []).append(file)
            parts[int(match[1])] = int(match[3] or 1)
    whole = [number for number, files in found.items() if len(files) == parts[number]]
    return (max(whole), found[max(whole)]) if whole else (-1, [])


@functools.lru_cache(maxsize=16)
def _checkpointed(file: str, *_fingerprint: int) -> dict[str, Entry]:
    rows = pq.read_table(file, columns=["add"])["add"].to_pylist()
    entries = [_plain(row) for row in rows if row is not None]
    if any(entry.get("stats") is None for entry in entries):
        raise HistoryGone(f"{file} has no statistics as text")
    return {entry["path"]: entry for entry in entries}


def _plain(row: Mapping[str, Any]) -> Entry:
    """As JSON has it: maps are pairs in Parquet, and what is absent is NULL."""
    entry = {name: value for name, value in row.items() if value is not None and not name.endswith("_parsed")}
    for name in ("partitionValues", "tags"):
        if name in entry:
            entry[name] = dict(entry[name])
    if "deletionVector" in entry:
        entry["deletionVector"] = {name: value for name, value in row["deletionVector"].items() if value is not None}
    return entry
