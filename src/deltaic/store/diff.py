"""Which files two versions of a table do not share, and a condition that reads only those."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltaic.algebra.quoting import quote, text_literal
from deltaic.store.commit import Commit, FileAction
from deltaic.store.partitions import WRITTEN_ALIKE
from deltaic.store.table import Snapshot, physical_name


@dataclass(frozen=True)
class Difference:
    """The files to read in the old and in the new version.

    A file may stand in both: under another deletion vector, or because the log does not tell that it did not
    change. Its rows are netted.
    """

    old: tuple[FileAction, ...]
    new: tuple[FileAction, ...]


def differing_files(commits: Sequence[Commit]) -> Difference:
    """The net difference of all the commits together."""
    touched = _touched(commits)
    old: dict[str, FileAction] = {}
    new: dict[str, FileAction] = {}
    seen: set[str] = set()
    for commit in commits:
        adds = {file.path: file for file in commit.adds if file.path in touched}
        removes = {file.path: file for file in commit.removes if file.path in touched}
        for path in adds.keys() | removes.keys():
            # An add that changes no data may repeat a file that is there already, with better statistics,
            # say.
            if path not in seen and (path in removes or not adds[path].data_change):
                old[path] = removes.get(path) or adds[path]
            seen.add(path)
            new.pop(path, None)
        new.update(adds)
    return Difference(tuple(old.values()), tuple(new.values()))


def _touched(commits: Sequence[Commit]) -> set[str]:
    """The paths that matter.

    A commit without change of data (OPTIMIZE) replaces files by others with the same rows. It drops out as a
    whole unless one of its files also belongs to a change; then all of them stay, since which rows went where
    is unknown.
    """
    touched = {path for commit in commits if commit.data_change for path in _paths(commit)}
    rewrites = [set(_paths(commit)) for commit in commits if not commit.data_change]
    grew = True
    while grew:
        joined = [paths for paths in rewrites if paths & touched and not paths <= touched]
        for paths in joined:
            touched |= paths
        grew = bool(joined)
    return touched


def _paths(commit: Commit) -> Iterator[str]:
    return (file.path for file in (*commit.adds, *commit.removes))


# --- a condition that reads them ------------------------------------------------------------------

# Spark shows a file's name decoded, the log holds it encoded; these characters look the same in both.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NAME_OF_ONE = re.compile(r"[A-Za-z0-9._-]*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[A-Za-z0-9._-]*")
"""With a UUID in it, as Spark and delta-rs name files; those of others may stand in several folders."""
_PRUNED_FILES = 32
_PRUNED_COLUMNS = 3


def reads_only(files: Sequence[FileAction], snapshots: Sequence[Snapshot]) -> str:
    """A condition that holds for all rows of these files, those of an old and of a new version, and for few others.

    The law: both versions are read under the same condition, so what more it reads is read on both sides, as a file
    that did not change has the same rows in both, and is netted. Under one of its own each side would have to read its
    files exactly, and names do not tell them: folders may have files of the same name.

    Delta opens every file to learn its name. So partition values and the ranges of the log's statistics stand beside
    the names: by those it skips files.
    """
    parts = [_by_name(files, snapshots)]
    before, now = snapshots[0], snapshots[-1]
    if (before.fields, before.partition_columns) == (now.fields, now.partition_columns):  # else a name may be another's
        parts += [*_by_partition(files, now), *_by_range(files, now)]
    return " AND ".join(part for part in parts if part) or "true"


def are_told_by_name(files: Sequence[FileAction], snapshots: Sequence[Snapshot]) -> bool:
    """Whether that condition reads these files and no others, so that a version without any need not be read."""
    return _by_name(files, snapshots) is not None and all(_NAME_OF_ONE.fullmatch(_name(file)) for file in files)


def _name(file: FileAction) -> str:
    return file.path.rsplit("/", 1)[-1]


def _by_name(files: Sequence[FileAction], snapshots: Sequence[Snapshot]) -> str | None:
    names = set(map(_name, files))
    hidden = any(column.lower() == "_metadata" for snapshot in snapshots for column in snapshot.columns)
    if hidden or not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return None
    return f"_metadata.file_name IN ({', '.join(text_literal(name) for name in sorted(names))})"


_SQL_NAMES = {"integer": "INT", "long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}


def _by_partition(files: Sequence[FileAction], snapshot: Snapshot) -> Iterator[str]:
    """One conjunct per partition column: Delta uses those that name nothing but partition columns."""
    for field in snapshot.fields:
        name, kind, key = field["name"], field["type"], physical_name(field)
        if name not in snapshot.partition_columns or kind not in WRITTEN_ALIKE:
            continue
        if not all(file.partition is not None and key in file.partition for file in files):
            continue
        values = {(file.partition or {})[key] for file in files}
        if len(values) <= _PRUNED_FILES:
            yield _any_of(f"{quote(name)} <=> {_partition_literal(value, kind)}" for value in sorted(values, key=str))


def _partition_literal(value: str | None, kind: str) -> str:
    if value is None:
        return "NULL"
    return f"CAST({text_literal(value)} AS {_SQL_NAMES.get(kind, kind.upper())})"


def _any_of(conditions: Iterable[str]) -> str:
    return f"({' OR '.join(conditions)})"


def _by_range(files: Sequence[FileAction], snapshot: Snapshot) -> Iterator[str]:
    """For a few files, the ranges of a few whole numbers and dates, whose statistics are exact."""
    if len(files) > _PRUNED_FILES:
        return
    stats = [json.loads(file.stats) if file.stats else {} for file in files]
    found = 0
    for field in snapshot.fields:
        ranges = [_range(field, one) for one in stats]
        if found < _PRUNED_COLUMNS and ranges and all(ranges):
            found += 1
            name = quote(field["name"])
            within = [f"{name} BETWEEN {low} AND {high}" for low, high in _known(ranges)]
            yield _any_of([f"{name} IS NULL", *within])


def _known(ranges: Iterable[tuple[str, str] | None]) -> list[tuple[str, str]]:
    return sorted({one for one in ranges if one is not None})


def _range(field: Mapping[str, Any], stats: Mapping[str, Any]) -> tuple[str, str] | None:
    key, kind = physical_name(field), field["type"]
    low, high = stats.get("minValues", {}).get(key), stats.get("maxValues", {}).get(key)
    if kind in ("byte", "short", "integer", "long") and isinstance(low, int) and isinstance(high, int):
        return str(low), str(high)
    if kind == "date" and isinstance(low, str) and isinstance(high, str):
        return f"DATE{text_literal(low)}", f"DATE{text_literal(high)}"
    return None
