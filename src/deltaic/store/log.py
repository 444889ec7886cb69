"""Reading a table's log: its newest version, a snapshot, the commits between two versions.

A table on this machine is read without Spark, in milliseconds: commits as the JSON lines they are, snapshots
by delta-rs. Any other table is read through Spark, at the price of a job or two.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.errors import HistoryGone, SourceError
from deltaic.store import rs
from deltaic.store.table import (
    NOT_DELTA,
    Snapshot,
    TableRef,
    describe_detail,
    features,
    feed_on,
    first_line,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER = "deltaic"
"""The key under which a commit's userMetadata holds what Deltaic says about it."""

_COMMIT_FILE = re.compile(r"(\d{20})(?:(\.json)|\.checkpoint\..*parquet|\.checkpoint\..*json)")


@dataclass(frozen=True)
class FileAction:
    """One file that a commit adds, removes or, as a part of the change feed, adds beside the table.

    A table's rows are those of its (path, dv) pairs: the same file under another deletion vector `dv` has
    other rows. `rows` is what the pair holds, where the log says so.
    """

    path: str
    dv: str | None
    data_change: bool
    rows: int | None
    size: int | None
    partition: Mapping[str, str | None] | None
    stats: str | None


@dataclass(frozen=True)
class MetadataAction:
    """What a commit says the table is from now on."""

    table_id: str
    schema_json: str
    properties: Mapping[str, str]
    partition_columns: tuple[str, ...]

    @property
    def change_feed(self) -> bool:
        return feed_on(self.properties)


@dataclass(frozen=True)
class Commit:
    """One commit. `user_metadata` is a dictionary if Deltaic wrote it, else the text that is there."""

    version: int
    timestamp: int | None
    operation: str
    user_metadata: dict[str, Any] | str | None
    adds: tuple[FileAction, ...]
    removes: tuple[FileAction, ...]
    cdc: tuple[FileAction, ...]
    metadata: MetadataAction | None
    operation_metrics: Mapping[str, Any]
    features: frozenset[str] | None = None
    """Of the protocol from now on, if it is another one."""

    @property
    def data_change(self) -> bool:
        """Whether rows may have changed: OPTIMIZE, VACUUM and new properties say that none did."""
        return bool(self.cdc) or any(file.data_change for file in (*self.adds, *self.removes))

    @property
    def mark(self) -> str:
        """Tells the commit from any other of the same number: names of files are never given twice."""
        files = [file.path for file in (*self.adds, *self.removes)]
        told = repr((self.timestamp, self.operation, files, self.metadata, self.user_metadata))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def marker(self) -> dict[str, Any] | None:
        """What Deltaic said of this commit; None for a commit of anyone else."""
        return self.user_metadata[MARKER] if isinstance(self.user_metadata, dict) else None


@dataclass(frozen=True)
class ForeignCommit:
    """A commit that Deltaic did not make. It is harmful if it may have changed rows or columns."""

    commit: Commit
    harmful: bool


@dataclass(frozen=True)
class Marked:
    """A view's newest commit by Deltaic, and what others committed after it."""

    commit: Commit
    later: tuple[ForeignCommit, ...]

    @property
    def harmed(self) -> bool:
        return any(foreign.harmful for foreign in self.later)


class Statistics(NamedTuple):
    """Of one file: how many rows it has at most, and the ranges of its columns as the log writes them."""

    rows: int | None
    stats: str


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
            self._reader = _LocalReader(ref, ref.path, spark)
        elif spark is not None:
            self._reader = _SparkReader(ref, spark)
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

    def mark(self, version: int) -> str | None:
        """Of the commit that made a version; None if it was cleaned up."""
        try:
            return self.commit(version).mark
        except HistoryGone:
            return None

    def described(self, files: Sequence[FileAction], version: int) -> tuple[FileAction, ...]:
        """These files of a version with their statistics, where they can be had: a removal does not tell them."""
        lacking = [file.path for file in files if file.stats is None]
        found = self._reader.statistics(lacking, version) if lacking else {}
        return tuple(replace(file, **found[file.path]._asdict()) if file.path in found else file for file in files)


def last_commit_with_marker(log: Log) -> Marked | None:
    """The newest commit that Deltaic made, with the later ones of others; None if the log holds none."""
    later: list[Commit] = []
    for version in range(log.version(), -1, -1):
        try:
            commit = log.commit(version)
        except HistoryGone:
            return None
        if commit.marker is not None:
            return Marked(commit, tuple(_judged(log, commit, later)))
        later.insert(0, commit)
    return None


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
    return commit.metadata is not None and json.loads(commit.metadata.schema_json) == schema


# --- a table on this machine ----------------------------------------------------------------------


class _LocalReader:
    def __init__(self, ref: TableRef, path: str, spark: SparkSession | None) -> None:
        self._ref, self._path, self._spark = ref, path, spark
        self._folder = Path(path) / "_delta_log"

    def newest(self) -> int:
        try:
            found = [int(match[1]) for name in os.listdir(self._folder) if (match := _COMMIT_FILE.fullmatch(name))]
        except OSError:
            found = []
        if not found:
            raise SourceError(f"{self._ref.name} is not a Delta table: no log in {self._folder}", hint=NOT_DELTA)
        return max(found)

    def commit(self, version: int) -> Commit:
        file = self._folder / f"{version:020}.json"
        try:
            return _parsed_file(str(file), version, _fingerprint(file))
        except FileNotFoundError:
            raise _gone(self._ref, version) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{self._ref.name}: commit {version} of its log is damaged ({first_line(error)})"
            raise SourceError(what, hint=f"See {file}.") from None

    def commits(self, after: int, upto: int) -> list[Commit]:
        return [self.commit(version) for version in range(after + 1, upto + 1)]

    def snapshot(self, version: int) -> Snapshot:
        if not rs.can_open(self._path):
            if self._spark is None:
                raise SourceError(f"{self._ref.name}: a folder with a percent sign can be read through Spark only")
            return _SparkReader(self._ref, self._spark).snapshot(version)
        try:
            mark = _fingerprint(self._folder / f"{version:020}.json")
        except FileNotFoundError:
            mark = None  # cleaned up, but a checkpoint may still hold the version
        try:
            return _rs_snapshot(self._path, version, mark)
        except HistoryGone:
            raise
        except Exception as error:
            self.newest()  # no table at all is another error than a lost version
            raise _gone(self._ref, version, error) from error

    def statistics(self, paths: Sequence[str], version: int) -> dict[str, Statistics]:
        try:
            return _rs_statistics(self._path, version, paths) if rs.can_open(self._path) else {}
        except Exception:  # they only spare reading: whoever reads will see what is wrong
            return {}


def _gone(ref: TableRef, version: int, error: Exception | None = None) -> HistoryGone:
    why = f" ({first_line(error)})" if error else ""
    return HistoryGone(
        f"{ref.name}: version {version} is no longer in the log{why}",
        hint="delta.logRetentionDuration says how long a table keeps its log; a full refresh starts anew.",
    )


def _fingerprint(file: Path) -> tuple[int, int, int]:
    """A table may be dropped and made anew in the same folder, with the same version numbers."""
    status = file.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=256)
def _parsed_file(file: str, version: int, fingerprint: tuple[int, int, int]) -> Commit:
    return parse_commit(version, Path(file).read_text("utf-8"))


@functools.lru_cache(maxsize=256)
def _rs_snapshot(path: str, version: int, fingerprint: tuple[int, int, int] | None) -> Snapshot:
    missing = gap_in(path, version)
    if missing is not None:  # delta-rs may not notice, and read a part of the table
        raise HistoryGone(
            f"{path}: version {missing} is missing in its log",
            hint="Bring the file back from a copy. A view can be made anew: deltaic repair.",
        )
    table = rs.opened(path, version)
    metadata, protocol = table.metadata(), table.protocol()
    actions = pa.table(table.get_add_actions())
    known = actions["num_records"].null_count == 0
    return Snapshot(
        version=version,
        table_id=str(metadata.id),
        schema_json=table.schema().to_json(),
        properties=dict(metadata.configuration),
        partition_columns=tuple(metadata.partition_columns),
        features=features(
            protocol.min_reader_version,
            protocol.min_writer_version,
            [*(protocol.reader_features or ()), *(protocol.writer_features or ())],
        ),
        rows=(pc.sum(actions["num_records"]).as_py() or 0) if known else None,
        bytes=pc.sum(actions["size_bytes"]).as_py() or 0,
        files=actions.num_rows,
    )


def gap_in(path: str, version: int) -> int | None:
    """A commit that is not there and that a version needs: all are needed that come after its newest checkpoint."""
    found = [match for name in os.listdir(Path(path) / "_delta_log") if (match := _COMMIT_FILE.fullmatch(name))]
    commits = {int(match[1]) for match in found if match[2]}
    checkpoints = {int(match[1]) for match in found if not match[2]}
    last = max((number for number in checkpoints if number <= version), default=-1)
    return next((number for number in range(last + 1, version + 1) if number not in commits), None)


def _rs_statistics(path: str, version: int, wanted: Sequence[str]) -> dict[str, Statistics]:
    actions = pa.table(rs.opened(path, version).get_add_actions())
    actions = actions.filter(pc.is_in(actions["path"].cast(pa.string()), pa.array(wanted, pa.string())))
    found = {}
    for file in actions.to_pylist():
        ranges = {"minValues": file.get("min") or {}, "maxValues": file.get("max") or {}}
        found[file["path"]] = Statistics(file["num_records"], json.dumps(ranges, default=str))
    return found


# --- a table that only Spark can reach ------------------------------------------------------------


class _SparkReader:
    def __init__(self, ref: TableRef, spark: SparkSession) -> None:
        self._ref, self._spark = ref, spark

    def newest(self) -> int:
        try:
            history = self._spark.sql(f"DESCRIBE HISTORY {self._ref.relation} LIMIT 1").collect()
        except Exception as error:  # classic and Connect sessions raise from different class trees
            raise SourceError(f"{self._ref.name} has no Delta log: {first_line(error)}", hint=NOT_DELTA) from error
        version: int = history[0]["version"]
        return version

    def commit(self, version: int) -> Commit:
        return self.commits(version - 1, version)[0]

    def commits(self, after: int, upto: int) -> list[Commit]:
        if after >= upto:
            return []
        location = describe_detail(self._spark, self._ref.name, self._ref.relation)["location"]
        names = [f"{version:020}.json" for version in range(after + 1, upto + 1)]
        try:
            rows = self._spark.read.text([f"{location}/_delta_log/{name}" for name in names]).selectExpr(
                "_metadata.file_name", "value"
            )
            lines = rows.collect()  # one read for them all: each costs a job
        except Exception as error:
            raise _gone(self._ref, after + 1, error) from error
        texts: dict[str, list[str]] = {name: [] for name in names}
        for name, line in lines:
            texts[name].append(line)
        return [parse_commit(int(name[:20]), "\n".join(text)) for name, text in texts.items()]

    def snapshot(self, version: int) -> Snapshot:
        """Properties and sizes are the newest version's: Spark tells them of no other.

        The schema is the asked version's. It lacks the metadata of column mapping, which Spark keeps to
        itself.
        """
        detail = describe_detail(self._spark, self._ref.name, self._ref.relation)
        try:
            schema = self._spark.sql(f"SELECT * FROM {self._ref.as_of(version)}").schema
        except Exception as error:
            raise _gone(self._ref, version, error) from error
        return Snapshot(
            version=version,
            table_id=detail["id"],
            schema_json=schema.json(),
            properties=dict(detail["properties"]),
            partition_columns=tuple(detail["partitionColumns"]),
            features=features(
                detail["minReaderVersion"], detail["minWriterVersion"], detail.get("tableFeatures") or ()
            ),
            rows=None,
            bytes=detail["sizeInBytes"],
            files=detail["numFiles"],
        )

    def statistics(self, paths: Sequence[str], version: int) -> dict[str, Statistics]:
        return {}


# --- a commit's text ------------------------------------------------------------------------------


def parse_commit(version: int, text: str) -> Commit:
    """A commit file: one JSON object a line, each with the kind of its action as its only key."""
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in text.split("\n"):  # other ends of lines may stand inside a string
        if line.strip():
            for kind, action in json.loads(line).items():
                actions.setdefault(kind, []).append(action)
    info = (actions.get("commitInfo") or [{}])[0]
    metadata, protocol = actions.get("metaData"), actions.get("protocol")
    return Commit(
        version=version,
        timestamp=info.get("inCommitTimestamp", info.get("timestamp")),
        operation=info.get("operation", ""),
        user_metadata=_user_metadata(info.get("userMetadata")),
        adds=tuple(_file(action) for action in actions.get("add", ())),
        removes=tuple(_file(action) for action in actions.get("remove", ())),
        cdc=tuple(_file(action) for action in actions.get("cdc", ())),
        metadata=_metadata(metadata[-1]) if metadata else None,
        operation_metrics=info.get("operationMetrics") or {},
        features=_features(protocol[-1]) if protocol else None,
    )


def _user_metadata(text: str | None) -> dict[str, Any] | str | None:
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return text
    ours = isinstance(parsed, dict) and isinstance(parsed.get(MARKER), dict)
    return parsed if ours else text


def _file(action: dict[str, Any]) -> FileAction:
    vector, stats = action.get("deletionVector"), action.get("stats")
    count = json.loads(stats).get("numRecords") if stats else None
    return FileAction(
        path=action["path"],
        dv=_vector_id(vector) if vector else None,
        data_change=action.get("dataChange", True),
        rows=count - (vector["cardinality"] if vector else 0) if count is not None else None,
        size=action.get("size"),
        partition=action.get("partitionValues"),
        stats=stats,
    )


def _features(action: dict[str, Any]) -> frozenset[str]:
    named = (*(action.get("readerFeatures") or ()), *(action.get("writerFeatures") or ()))
    return features(action["minReaderVersion"], action["minWriterVersion"], named)


def _vector_id(vector: dict[str, Any]) -> str:
    """The id that Delta's protocol defines for a deletion vector."""
    offset = vector.get("offset")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}" + (f"@{offset}" if offset is not None else "")


def _metadata(action: dict[str, Any]) -> MetadataAction:
    return MetadataAction(
        table_id=action["id"],
        schema_json=action["schemaString"],
        properties=action.get("configuration") or {},
        partition_columns=tuple(action.get("partitionColumns") or ()),
    )
