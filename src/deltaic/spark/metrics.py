"""Measure what a block of Spark work really did: its jobs, and the rows and files each scan read.

    with measure(session) as measured:
        ...                                  # any Spark work of this thread: actions, writes, MERGE
    measured.jobs, measured.scans            # None where it could not be measured, never a guess

On a classic session both come from Spark's own status store, which keeps the plan and the metrics of every
SQL execution whether or not the UI runs. The block's jobs carry a tag, and the executions that own those
jobs are the block's executions. That holds for actions (`collect`, `toArrow`), DataFrame writes, INSERT and
MERGE alike, for work in Spark's own threads, and with other threads busy in the same Spark.

Over Spark Connect there is no status store. A query that ran as a DataFrame tells its own metrics, so pass
the DataFrame to `Measurement.note` after its action. Commands (INSERT, MERGE) tell nothing there, and none
of them gives jobs: `jobs` is None, and so is `scans` unless something was noted.

What the numbers mean: `rows` are the rows a scan handed up, after skipped files, pages and deletion
vectors and before the filter. Reads of Delta's own log are left out. A count that Delta answers from
statistics reads nothing. A persisted plan is counted in the block that filled the cache, not in later ones.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltaic.spark.session import is_connect

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScanRead:
    """What one scan read."""

    relation: str
    """The table's path, spelt as by `normal_path`; where the plan shows none, the table's name or ''."""
    rows: int
    files: int | None = None
    changes: bool = False
    """Whether the table's change feed was read, not the table."""


@dataclass
class Measurement:
    """The figures of one block, filled when the block ends."""

    jobs: int | None = None
    scans: list[ScanRead] | None = None
    _noted: list[ScanRead] = field(default_factory=list)

    def note(self, frame: DataFrame) -> None:
        """Over Connect: count what `frame` read in its last action. Elsewhere that is counted anyway."""
        if is_connect(frame.sparkSession):
            read = _told_by_connect(frame)
            if read is not None:
                self._noted += read
                self.scans = self._noted

    def rows_by_relation(self) -> dict[str, int] | None:
        """Rows read per table, summed over its scans; the change feed of a table counts as that table."""
        if self.scans is None:
            return None
        totals: dict[str, int] = {}
        for scan in self.scans:
            totals[scan.relation] = totals.get(scan.relation, 0) + scan.rows
        return totals

    def files_by_relation(self) -> dict[str, int] | None:
        """Files of each table that were read, as often as they were; a change feed tells none."""
        if self.scans is None:
            return None
        totals: dict[str, int] = {}
        for scan in self.scans:
            totals[scan.relation] = totals.get(scan.relation, 0) + (scan.files or 0)
        return totals


@contextmanager
def measure(session: SparkSession) -> Iterator[Measurement]:
    """Measure the Spark work that this thread does in the block; of nested blocks the outer counts all."""
    measured = Measurement()
    if is_connect(session):
        yield measured
        return
    context, tag = session.sparkContext, f"deltaic-{uuid.uuid4().hex}"
    before = _measured_or_none(_last_execution, session)
    context.addJobTag(tag)
    try:
        yield measured
    finally:
        context.removeJobTag(tag)
        found = None if before is None else _measured_or_none(_read_status_store, session, tag, before)
        if found is not None:
            measured.jobs = len(found.jobs)
            measured.scans = [scan for node in found.nodes if (scan := _scan_of(*node)) is not None]


def normal_path(location: str) -> str:
    """One spelling for one place: a local path without its scheme, others as they are, no trailing slash."""
    local = re.sub(r"^file:/+", "/", location)
    return local.rstrip("/") or "/"


# What a plan's node shows: its name, its description, its metrics by Spark's display names.
_Node = tuple[str, str, dict[str, str]]
_ROWS, _FILES = "number of output rows", "number of files read"
_LOCATION = re.compile(r"Location: \w+ ?\(\d+ paths\)\[(?P<path>.*?)\](?:, [A-Z]\w+: |$)")
_CHANGES = re.compile(r"Scan DeltaCDFRelation\(.*?Snapshot\(path=(?P<path>.*?)/_delta_log", re.DOTALL)
_TABLE_NAME = re.compile(r"(?:Batch)?Scan (?:parquet|orc|json|csv|text|avro)? ?(?P<table>.*)", re.DOTALL)
_IN_MEMORY = ("Scan ExistingRDD", "Scan OneRowRelation")


def _scan_of(name: str, description: str, metrics: dict[str, str]) -> ScanRead | None:
    """The read that a node stands for, or None: not a scan, a scan of Delta's log, one a cache answered."""
    changes, location = _CHANGES.match(name), _LOCATION.search(description)
    if changes:
        relation = normal_path(changes["path"])
    elif "_delta_log" in (location["path"] if location else name):
        return None
    elif location:
        relation = normal_path(location["path"])
    else:
        table = _TABLE_NAME.match(name)
        relation = table["table"].strip() if table else name
    files = _number(metrics.get(_FILES))
    rows = _number(metrics.get(_ROWS))
    if not rows and not files:
        return None
    return ScanRead(relation, rows or 0, files, changes is not None)


def _number(shown: str | None) -> int | None:
    """Spark shows a sum as '12,345'."""
    digits = (shown or "").replace(",", "").strip()
    return int(digits) if digits.isdigit() else None


def _is_table_scan(name: str) -> bool:
    return name.startswith(("Scan ", "BatchScan ")) and not name.startswith(_IN_MEMORY)


@dataclass(frozen=True)
class _Found:
    jobs: frozenset[int]
    nodes: list[_Node]


def _measured_or_none(ask: Any, *args: Any) -> Any:
    """Figures are a service to the reader: where a Spark lacks what is asked, the work must not fail."""
    try:
        return ask(*args)
    except Exception as problem:
        _log.debug("not measured: %s", problem)
        return None


# The probe, the only code of Deltaic that asks the JVM past PySpark's public API: the functions from here to `_each`.


def _last_execution(session: SparkSession) -> int:
    """The newest SQL execution that the store knows, or -1."""
    store: Any = session._jsparkSession.sharedState().statusStore()
    count = store.executionsCount()
    return int(store.executionsList(count - 1, 1).head().executionId()) if count else -1


def _read_status_store(session: SparkSession, tag: str, before: int) -> _Found:
    """The jobs with this tag, and the scans in the plans of the executions that ran them."""
    context: Any = session.sparkContext._jsc.sc()
    store: Any = session._jsparkSession.sharedState().statusStore()
    context.listenerBus().waitUntilEmpty()  # the store is filled from events; those of the block must be in
    jobs = frozenset(context.statusTracker().getJobIdsForTag(tag))
    nodes: list[_Node] = []
    # Executions are numbered without gaps, so no more than this many are new.
    new, count = _last_execution(session) - before, store.executionsCount()
    for execution in _each(store.executionsList(max(0, count - new), new)) if new else ():
        ran = execution.jobs().keySet().mkString(",")
        if execution.executionId() <= before or jobs.isdisjoint(int(job) for job in ran.split(",") if job):
            continue
        values = store.executionMetrics(execution.executionId())
        counted: set[frozenset[int]] = set()
        for node in _each(store.planGraph(execution.executionId()).allNodes()):
            name = node.name()
            if _is_table_scan(name):
                metrics = {each.name(): int(each.accumulatorId()) for each in _each(node.metrics())}
                if frozenset(metrics.values()) in counted:  # a persisted plan is shown at each use
                    continue
                counted.add(frozenset(metrics.values()))
                known = {metric: values.get(number) for metric, number in metrics.items()}
                shown = {metric: value.get() for metric, value in known.items() if value.isDefined()}
                nodes.append((name, node.desc(), shown))
    return _Found(jobs, nodes)


def _each(sequence: Any) -> Iterator[Any]:
    """A Scala sequence, which Python cannot iterate."""
    return (sequence.apply(place) for place in range(sequence.size()))


def _told_by_connect(frame: DataFrame) -> list[ScanRead] | None:
    """The scans of a DataFrame's last action. Only for a change feed does this plan show the path."""
    info = _measured_or_none(lambda: frame.executionInfo)
    if info is None or info.metrics is None:
        return None
    found = []
    _, plan = info.metrics.extract_graph()
    for node in plan.values():
        values = {metric.name: str(metric.value) for metric in node.metrics}
        shown = {_ROWS: values.get("numOutputRows", ""), _FILES: values.get("numFiles", "")}
        if _is_table_scan(node.name) and (scan := _scan_of(node.name, "", shown)) is not None:
            found.append(scan)
    return found
