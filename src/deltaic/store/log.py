"""Reading a table's log: its newest version, a snapshot, the commits between two versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from deltaic.errors import HistoryGone, SourceError
from deltaic.store.commit import Commit, FileAction
from deltaic.store.log_readers import LocalReader, SparkReader, Statistics
from deltaic.store.table import Snapshot, TableRef, data_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PLANNED_AT = "at"
"""Among the figures of a commit of Deltaic's: the version that was looked at when it was planned."""


@dataclass(frozen=True)
class ForeignCommit:
    """A commit that Deltaic did not make. It is harmful if it may have changed rows or columns."""

    commit: Commit
    harmful: bool


@dataclass(frozen=True)
class OwnCommit:
    """A view's newest commit by Deltaic, and what others committed after it."""

    commit: Commit
    later: tuple[ForeignCommit, ...]
    version: int
    """The newest one, when this was looked at."""

    @property
    def harmed(self) -> bool:
        return any(foreign.harmful for foreign in self.later)


class _Reader(Protocol):
    """Where the log comes from."""

    def newest(self) -> int: ...
    def commit(self, version: int) -> Commit: ...
    def commits(self, after: int, upto: int) -> list[Commit]: ...
    def snapshot(self, version: int) -> Snapshot: ...
    def statistics(self, paths: Sequence[str], version: int) -> dict[str, Statistics]: ...


class Log:
    """The log of one table. It keeps nothing that can go stale, so it may live as long as one likes."""

    def __init__(self, ref: TableRef, spark: SparkSession | None = None) -> None:
        self.ref = ref
        self._reader: _Reader
        if ref.path is not None:
            self._reader = LocalReader(ref, ref.path, spark)
        elif spark is not None:
            self._reader = SparkReader(ref, spark)
        else:
            raise SourceError(f"{ref.name} is not on this machine, and there is no session to read it through")

    def version(self) -> int:
        """The newest version."""
        return self._reader.newest()

    def snapshot(self, version: int | None = None) -> Snapshot:
        return self._reader.snapshot(self.version() if version is None else version)

    def commit(self, version: int) -> Commit:
        return self._reader.commit(version)

    def commits(self, after: int, upto: int) -> list[Commit]:
        """The commits after+1..upto in order; HistoryGone if the log no longer holds one of them."""
        return self._reader.commits(after, upto)

    def fingerprint(self, version: int) -> str | None:
        """Of the commit that made a version; None if it was cleaned up."""
        try:
            return self.commit(version).fingerprint
        except HistoryGone:
            return None

    def described(self, files: Sequence[FileAction], version: int) -> tuple[FileAction, ...]:
        """These files of a version with their statistics, where they can be had: a removal does not tell them."""
        lacking = [file.path for file in files if file.stats is None]
        found = self._reader.statistics(lacking, version) if lacking else {}
        return tuple(replace(file, **found[file.path]._asdict()) if file.path in found else file for file in files)


def last_commit_with_marker(log: Log) -> OwnCommit | None:
    """The newest commit that Deltaic made, with the later ones of others; None if the log holds none."""
    later: list[Commit] = []
    newest = log.version()
    for version in range(newest, -1, -1):
        try:
            commit = log.commit(version)
        except HistoryGone:
            return None
        if commit.marker is not None:
            return OwnCommit(commit, (*_overtaken(log, commit), *_judged(log, commit, later)), newest)
        later.insert(0, commit)
    return None


def _overtaken(log: Log, own: Commit) -> list[ForeignCommit]:
    """What others committed while ours was written: Delta lets an append pass by most others."""
    figures = (own.marker or {}).get("figures")
    planned = figures.get(PLANNED_AT) if isinstance(figures, dict) else None
    if not isinstance(planned, int) or not 0 <= planned < own.version - 1:
        return []
    try:
        between = log.commits(planned, own.version - 1)
    except HistoryGone:
        return []
    return [ForeignCommit(commit, True) for commit in between if commit.marker is None and commit.data_change]


def _judged(log: Log, own: Commit, later: list[Commit]) -> list[ForeignCommit]:
    """Rows changed, or columns did: both make the view something else than what our commit left."""
    if not any(commit.metadata for commit in later):
        return [ForeignCommit(commit, commit.data_change) for commit in later]
    ours = json.loads(log.snapshot(own.version).schema_json)
    return [
        ForeignCommit(commit, commit.data_change or (commit.metadata is not None and not _same(commit, ours)))
        for commit in later
    ]


def _same(commit: Commit, schema: Any) -> bool:
    """The same columns, whatever is said of them."""
    if commit.metadata is None:
        return False
    both = (json.loads(commit.metadata.schema_json), schema)
    one, other = ([(field["name"], *data_of(field), field["nullable"]) for field in told["fields"]] for told in both)
    return one == other
