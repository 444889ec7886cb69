"""Upkeep of a table of Deltaic's own: quick to open, in few files, and without what nobody can ask for any more.

No row changes by it. A checkpoint says what the commits before it say; compacted files have the rows of those that they
replace, in a commit that says so (`dataChange` is false); what is vacuumed belongs to no version within the table's
retention. Spark does the latter two: delta-rs refuses to compact a table with column mapping, and takes the files of
deletion vectors for strangers when it vacuums a table whole.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from deltaic.store import marks, rs, rs_write
from deltaic.store.own_table import PLAIN_TIMESTAMPS, OwnTable, with_settings
from deltaic.store.table import SMALL_FILE, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_FILE = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")
_SUM = re.compile(r"\.?(\d{20})\..*crc")
"""Of a commit: what Spark and Hadoop write beside it."""


def small_files(snapshot: Snapshot) -> int:
    """Files that could be put together with others; where the log tells no sizes, those that are too many."""
    if snapshot.small_files is not None:
        return snapshot.small_files
    return (snapshot.files or 0) - (snapshot.bytes or 0) // SMALL_FILE


def compact(table: OwnTable, session: SparkSession) -> None:
    """Put small files together, and write files anew that lost many of their rows."""
    settings = "optimize.minFileSize", "optimize.clustering.mergeStrategy.minCubeSize.threshold"
    small = {f"spark.databricks.delta.{name}": str(SMALL_FILE) for name in settings}
    with with_settings(session, {**PLAIN_TIMESTAMPS, **small}):
        session.sql(f"OPTIMIZE {table.ref.relation}")


def vacuum(table: OwnTable, session: SparkSession) -> None:
    """Take away files of versions older than the table's `delta.deletedFileRetentionDuration`, and files that no
    version has: a killed process may have left them."""
    settings = {
        # It lists folders in as many tasks; the default is 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": session.conf.get("spark.sql.shuffle.partitions"),
        # Its own commits would only stand between ours.
        "spark.databricks.delta.vacuum.logging.enabled": "false",
    }
    with with_settings(session, {name: value for name, value in settings.items() if value}):
        session.sql(f"VACUUM {table.ref.relation}")


def checkpoint(table: OwnTable, commits: int) -> bool:
    """A checkpoint, if there were so many commits since the last; then the log loses what is past its retention.

    delta-rs writes one every 100 commits, Spark every 10 of its own. Every open reads the commits since.
    """
    path = table.ref.path
    if path is None or not commits or _since_checkpoint(path) < commits:
        return False
    snapshot = table.log.snapshot()
    if "v2Checkpoint" in snapshot.features or rs_write.why_not_table(path, snapshot, marks.KNOWN_FEATURES) is not None:
        return False  # Spark writes this table, and its checkpoints
    opened = rs.opened(path)
    opened.create_checkpoint()
    if snapshot.properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true":
        opened.cleanup_metadata()
        _sweep_sums(Path(path) / "_delta_log")
    return True


def _since_checkpoint(path: str) -> int:
    found = [match for name in os.listdir(Path(path) / "_delta_log") if (match := _LOG_FILE.fullmatch(name))]
    newest = max((int(match[1]) for match in found), default=-1)
    return newest - max((int(match[1]) for match in found if match[2] != "json"), default=-1)


def _sweep_sums(log: Path) -> None:
    """delta-rs leaves the checksums of commits that it takes away."""
    names = os.listdir(log)
    oldest = min((int(match[1]) for name in names if (match := _LOG_FILE.fullmatch(name))), default=0)
    for name in names:
        match = _SUM.fullmatch(name)
        if match and int(match[1]) < oldest:
            (log / name).unlink(missing_ok=True)
