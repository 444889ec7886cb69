"""Where a log is read from: the files of this machine, or Spark.

A table on this machine is read without Spark, in milliseconds: commits as the JSON lines they are, snapshots
by delta-rs. Any other table is read through Spark, at the price of a job or two.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.errors import HistoryGone, SourceError
from deltaic.store import rs
from deltaic.store.commit import Commit, parse_commit
from deltaic.store.gone import is_history_gone, is_nothing_there
from deltaic.store.table import (
    NOT_DELTA,
    SMALL_FILE,
    Snapshot,
    TableRef,
    describe_detail,
    features,
    first_line,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMIT_FILE = re.compile(r"(\d{20})(?:(\.json)|\.checkpoint\..*parquet|\.checkpoint\..*json)")


class Statistics(NamedTuple):
    """Of one file: how many rows it has at most, and the ranges of its columns as the log writes them."""

    rows: int | None
    stats: str


class LocalReader:
    def __init__(self, ref: TableRef, path: str, spark: SparkSession | None) -> None:
        self._ref, self._path, self._spark = ref, path, spark
        self._folder = Path(path) / "_delta_log"

    def newest(self) -> int:
        try:
            found = newest_in(self._path)
        except OSError:
            found = -1
        if found < 0:
            raise SourceError(f"{self._ref.name} is not a Delta table: no log in {self._folder}", hint=NOT_DELTA)
        return found

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
            return SparkReader(self._ref, self._spark).snapshot(version)
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
            if is_history_gone(error):
                raise _gone(self._ref, version, error) from error
            hint = "RESTORE the table to a version before it. A view can be made anew: deltaic repair."
            what = f"{self._ref.name}: version {version} cannot be read ({first_line(error)})"
            raise SourceError(what, hint=hint) from error

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
        small_files=_small_files(actions),
    )


def _small_files(actions: pa.Table) -> int:
    small = actions.filter(pc.less(actions["size_bytes"], SMALL_FILE))
    parted = "partition" in small.column_names
    parts = len(set(map(repr, small["partition"].to_pylist()))) if parted else 1
    return max(0, int(small.num_rows) - parts)


def newest_in(path: str) -> int:
    """The newest version of a table's log; -1 if it has none."""
    names = os.listdir(Path(path) / "_delta_log")
    return max((int(match[1]) for name in names if (match := _COMMIT_FILE.fullmatch(name))), default=-1)


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


class SparkReader:
    def __init__(self, ref: TableRef, spark: SparkSession) -> None:
        self._ref, self._spark = ref, spark

    def newest(self) -> int:
        try:
            history = self._spark.sql(f"DESCRIBE HISTORY {self._ref.relation} LIMIT 1").collect()
        except Exception as error:
            if not is_nothing_there(error):
                raise
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
            if not is_nothing_there(error):
                raise
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
            if not is_nothing_there(error):
                raise
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
