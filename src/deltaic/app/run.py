"""Walks the steps of a refresh: Spark computes, and one commit of Spark's or delta-rs's ends it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from deltaic.algebra.expr import quote
from deltaic.algebra.nodes import WEIGHT, Apply, Node, Scan, walk
from deltaic.app.compile import Compiled
from deltaic.app.reach import reach
from deltaic.app.shared import Shared
from deltaic.errors import HistoryGone
from deltaic.plan.cost import WHOLE_ROWS
from deltaic.plan.maintain import VIEW, Maintenance, Way
from deltaic.plan.program import AGAIN, AGAIN_KEYS, ARTIFACT, DELTA, OP
from deltaic.plan.steps import (
    Compute,
    ComputeAgain,
    ComputeDelta,
    FindRows,
    MarkRows,
    Only,
    ReadChange,
    ReadCounts,
    ReadState,
    SourceRead,
    Step,
    WriteView,
    relation_name,
)
from deltaic.spark.metrics import Measurement, measure
from deltaic.spark.session import spare_subqueries
from deltaic.store.arrow import arrow_to_spark, has_arrow_types, without_views
from deltaic.store.change import RS_ROWS
from deltaic.store.literals import among
from deltaic.store.log import Commit, Log
from deltaic.store.lookup import find_rows
from deltaic.store.marks import Found
from deltaic.store.progress import Progress
from deltaic.store.state import STATE_ROWS, read_counts_rs
from deltaic.store.table import TableRef
from deltaic.store.view import ViewTable, plain_timestamps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltaic.app.refresh import Plan


DELTA_ROWS = 1_000_000
"""A delta that is thought to have more rows stays in Spark."""


@dataclass
class Outcome:
    """What a walk did, as far as it could be measured."""

    delta_rows: int | None = 0
    rows_changed: int | None = 0
    jobs: int | None = None
    rows_by_path: dict[str, int] | None = None
    files_by_path: dict[str, int] | None = None
    written_by: str = ""
    timings: dict[str, float] = field(default_factory=dict)


class Run:
    """One walk over the steps, in a session of its own."""

    def __init__(
        self,
        session: SparkSession,
        compiled: Compiled,
        table: ViewTable,
        progress: Progress,
        use_rs: bool,
        shared: Shared,
    ) -> None:
        self.session, self.compiled, self.table = session, compiled, table
        self.progress, self.use_rs, self.shared = progress, use_rs, shared
        self.outcome = Outcome()
        self.kept: list[DataFrame] = []
        self.rs_rows: dict[str, int] = {}
        self.rs_files: dict[str, int] = {}
        self.held: dict[str, pa.Table] = {}
        """What was read into this process, under the names of the relations that Spark has it by."""
        self.nodes: dict[str, Node] = {}
        self.near: dict[str, pa.Table] = {}
        """Relations that are here, for reads to be narrowed by."""
        self.arrow: pa.Table | None = None
        """The rows to apply, where they are few enough to be here and not in Spark."""
        self.found: Found | None = None
        """Where in the view the rows are that go, if it is known."""
        self.seen = {Only.DELETES: True, Only.EQUALS: True, Only.AGAIN: False}
        """What steps wait for, as far as it is known yet."""
        self.delta_schema: StructType
        self.few = True
        self.commit: Commit
        self.plan: Plan
        self.measured: Measurement

    def walk(self, plan: Plan) -> Outcome:
        self.plan = plan
        self.few = few(plan.reads)
        small = self.is_small(plan)
        if self.compiled.node is not None and any(isinstance(node, Apply) for node in walk(self.compiled.node)):
            spare_subqueries(self.session)
        try:
            with measure(self.session) as measured:
                self.measured = measured
                for step in plan.steps:
                    with self.timed(_stage(step)):
                        self.take(step, small)
        finally:
            for frame in self.kept:
                frame.unpersist()
        self.count(measured)
        return self.outcome

    def is_small(self, plan: Plan) -> bool:
        """Whether the delta may come through this process, to be written without Spark."""
        if plan.mode != "incremental" or not self.use_rs:
            return False
        fits = plan.choice is None or plan.choice.incremental.delta_rows <= DELTA_ROWS
        return plan.writer != "spark" and self.few and fits

    def take(self, step: Step, small: bool) -> None:
        if step.only is not None and not self.seen[step.only]:
            return
        match step:
            case ReadChange():
                self.read_change(step)
            case ReadState():
                self.read_state(step)
            case ReadCounts():
                self.read_counts(step)
            case Compute(asked=True):
                self.compute_keys(step)
            case Compute():
                self.named(self.keep(self.session.sql(step.sql)), step)
            case ComputeDelta():
                self.compute(step, small)
            case ComputeAgain():
                self.compute_again(step)
            case MarkRows():
                self.mark_rows(step, small)
            case FindRows():
                self.compute_artifact(step, small)
            case WriteView():
                self.write(step)
            case _:
                raise TypeError(f"the run has no case for {type(step).__name__}")

    def named(self, frame: DataFrame, step: Step) -> None:
        assert step.relation is not None
        frame.createOrReplaceTempView(step.relation)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cached lazily: computed inside the first job that needs it, and by no other."""
        self.kept.append(frame.persist())
        return frame

    def read_change(self, step: ReadChange) -> None:
        if step.sql:
            rows = self.session.sql(step.sql)
            self.named(self.keep(rows) if self.uses(step) > 1 else rows, step)
            return
        source, read = self.compiled.sources[step.source], self.plan.reads[step.source]
        assert read.change_from is not None
        assert read.change_upto is not None
        # A step may want the keys only. Were the change netted over those, an update of another column would vanish.
        used = [name for name, _ in self.compiled.used_columns[step.source]]
        rows, fresh = self.shared.change(source.ref, read.change_kind, read.change_from, read.change_upto, used)
        wanted = self.schema(source.ref, read.new, [(name, name) for name in step.columns])
        self.named_arrow(rows, fresh, wanted.add(StructField(WEIGHT, LongType(), False)), source.ref, step)

    def uses(self, step: Step) -> int:
        """How often the steps look at what this one leaves behind."""
        name = rf"\b{step.relation}\b"
        return sum(len(re.findall(name, other.sql)) for other in self.plan.steps)

    def compute_keys(self, step: Compute) -> None:
        """A relation whose values another read is narrowed by; into this process, if it is as small as was thought."""
        assert step.relation is not None
        assert step.node is not None
        frame = self.session.sql(step.sql)
        asked = {
            s.near.value
            for s in self.plan.steps
            if isinstance(s, ReadState) and s.near and s.near.binding == step.relation
        }
        self.nodes[step.relation] = step.node
        told = reach(step.node, frozenset(asked), self.here, self.nodes)
        if told is not None and told.num_rows <= RS_ROWS:
            self.near[step.relation] = told
            self.named(self.keep(frame) if self.uses(step) > 1 else frame, step)
            return
        if not self.few or not has_arrow_types(frame.schema):
            # counted, so that Spark knows its size when it plans a join with it
            self.keep(frame).count()
            self.named(frame, step)
            return
        rows = self.collected(frame.limit(RS_ROWS + 1))
        if rows.num_rows > RS_ROWS:
            self.named(self.keep(frame), step)
            return
        self.near[step.relation] = rows
        self.named(arrow_to_spark(self.session, rows, frame.schema), step)

    def read_state(self, step: ReadState) -> None:
        if self.find_rows(step):
            return
        if step.sql:
            self.named(self.session.sql(step.sql + self.near_only(step)), step)
            return
        assert step.version is not None
        ref = self.table.ref if step.source == VIEW else self.compiled.sources[step.source].ref
        rows, fresh = self.shared.state(ref, step.version, dict(step.columns), step.shown)
        files = Log(ref).snapshot(step.version).files if fresh else 0
        self.named_arrow(rows, fresh, self.schema(ref, step.version, step.columns), ref, step, files)

    def find_rows(self, step: ReadState) -> bool:
        """Find the rows that a read is narrowed to in the files; False if Spark must."""
        rows = self.near.get(step.near.binding) if step.near else None
        if rows is None or step.near is None or step.version is None or not step.rs_finds:
            return False
        ref = self.table.ref if step.source == VIEW else self.compiled.sources[step.source].ref
        values = rows[step.near.value].unique()
        keys = pa.table({step.near.column: values if step.near.nulls else pc.drop_null(values)})
        snapshot = Log(ref).snapshot(step.version)
        try:
            found = find_rows(str(ref.path), snapshot, keys, dict(step.columns), step.shown, STATE_ROWS)
        except (LookupError, HistoryGone, FileNotFoundError):  # of a form that only Spark reads, or gone
            found = None
        if found is None:
            return False
        self.scanned(ref, found.looked_at, found.files)
        assert step.relation is not None
        self.held[step.relation] = found.rows
        self.named(arrow_to_spark(self.session, found.rows, self.schema(ref, step.version, step.columns)), step)
        return True

    def near_only(self, step: ReadState) -> str:
        """The condition, with its values written out, that keeps Spark from reading what no join will meet."""
        rows = self.near.get(step.near.binding) if step.near else None
        if rows is None or step.near is None:
            return ""
        condition = among(step.near.column, rows[step.near.value], step.near.nulls)
        return f"{' AND' if step.shown else ' WHERE'} {condition}"

    def read_counts(self, step: ReadCounts) -> None:
        rows, counts, ref = None, step.counts, self.table.ref
        assert counts is not None
        assert step.version is not None
        if step.by_rs:
            rows = read_counts_rs(ref, step.version, counts.marker, counts.keys, step.names, counts.only_true)
        if rows is None:
            self.named(self.session.sql(step.sql), step)
            return
        there = self.table.log.snapshot(step.version)
        self.scanned(ref, there.rows, there.files)
        fields = self.schema(ref, step.version, zip(counts.keys, step.names, strict=False)).fields
        keys = fields or [StructField(step.names[0], IntegerType(), False)]
        wanted = StructType([*keys, *(StructField(name, LongType(), False) for name in step.names[-2:])])
        self.named(arrow_to_spark(self.session, rows, wanted), step)

    def schema(self, ref: TableRef, version: int, columns: Iterable[tuple[str, str]]) -> StructType:
        """The log's own schema, which is Spark's: asking Spark would cost as much as the read."""
        stored = StructType.fromJson(json.loads(Log(ref).snapshot(version).schema_json))
        return StructType([StructField(given, stored[name].dataType, stored[name].nullable) for name, given in columns])

    def named_arrow(
        self, rows: pa.Table, fresh: bool, schema: StructType, ref: TableRef, step: Step, files: int | None = 0
    ) -> None:
        self.scanned(ref, rows.num_rows if fresh else 0, files)
        assert step.relation is not None
        self.held[step.relation] = without_views(rows)
        self.named(arrow_to_spark(self.session, rows, schema), step)

    def here(self, scan: Scan) -> pa.Table | None:
        return self.held.get(relation_name(scan, {name: n for n, name in enumerate(self.plan.reads)}))

    def scanned(self, ref: TableRef, rows: int | None, files: int | None) -> None:
        """Count what was read without Spark."""
        path = ref.path or ref.relation
        self.rs_rows[path] = self.rs_rows.get(path, 0) + (rows or 0)
        self.rs_files[path] = self.rs_files.get(path, 0) + (files or 0)

    # the delta

    @property
    def way(self) -> Maintenance:
        assert isinstance(self.compiled.way, Maintenance)
        return self.compiled.way

    def compute(self, step: ComputeDelta, small: bool) -> None:
        if self.way.way is not Way.ROWS:
            self.compute_artifact(step, small)
            return
        frame = self.session.sql(step.sql)
        if small:
            delta = self.collected(frame)
            self.seen[Only.DELETES] = bool(pc.any(pc.less(delta[WEIGHT], 0)).as_py())
            self.outcome.delta_rows = delta.num_rows
            self.arrow, self.delta_schema = delta, frame.schema
            self.seen[Only.EQUALS] = self.seen[Only.DELETES]
            if not self.seen[Only.DELETES]:
                self.arrow = self.inserted(delta)
            elif self.plan.writer != "marks":
                self.look_for(delta, frame.schema)
        else:
            self.keep(frame).createOrReplaceTempView(DELTA)
            self.outcome.delta_rows = None

    def look_for(self, delta: pa.Table, schema: StructType) -> None:
        """Let Spark find what is in the view of the rows that go."""
        self.arrow, self.near[DELTA] = None, delta.filter(pc.less(delta[WEIGHT], 0))
        arrow_to_spark(self.session, delta, schema).createOrReplaceTempView(DELTA)

    def mark_rows(self, step: MarkRows, small: bool) -> None:
        """Find the rows that go, and see whether their hashes tell them from all that stay."""
        columns = [self.way.key[0], WEIGHT]
        delta = self.arrow if small else self.session.table(DELTA)
        assert delta is not None
        weights = self.collected(delta.select(*columns)) if not isinstance(delta, pa.Table) else delta.select(columns)
        gone = weights.filter(pc.less(weights[WEIGHT], 0))
        hashes = pa.table({self.compiled.stored[columns[0]]: gone[columns[0]]})
        found = self.table.find(hashes)
        self.scanned(self.table.ref, found.looked_at, found.files)
        self.seen[Only.EQUALS] = not _same_rows(found, weights, gone, columns[0])
        if self.seen[Only.EQUALS]:
            if isinstance(delta, pa.Table):
                self.look_for(delta, self.delta_schema)
            return
        self.found = found
        if isinstance(delta, pa.Table):
            self.arrow = self.inserted(delta.filter(pc.greater(delta[WEIGHT], 0)))
        else:
            self.named(self.session.sql(step.sql), step)

    def compute_artifact(self, step: Step, small: bool) -> None:
        frame = self.session.sql(step.sql)
        if small:
            self.arrow = self.collected(frame)
            if step.relation == ARTIFACT and self.outcome.delta_rows == 0:
                self.outcome.delta_rows = self.arrow.num_rows
        else:
            frame = self.keep(frame)
            frame.createOrReplaceTempView(ARTIFACT)
            self.outcome.delta_rows = None
        if AGAIN in frame.columns:
            self.part_with_marked(frame)

    def part_with_marked(self, frame: DataFrame) -> None:
        """Take out the rows whose groups must be computed again, and name their keys."""
        key = {self.compiled.stored[name]: f"{name}_again" for name in self.way.key}
        if self.arrow is not None:
            marked = pc.and_(self.arrow[AGAIN], pc.equal(self.arrow[OP], 1))
            lost = self.arrow.filter(marked).select(list(key))
            self.arrow = self.arrow.filter(pc.invert(marked)).drop_columns([AGAIN])
            self.seen[Only.AGAIN] = lost.num_rows > 0
            if not lost.num_rows:
                return
            keys = arrow_to_spark(self.session, lost, StructType([frame.schema[name] for name in key]))
        else:
            marked_rows = f"`{AGAIN}` AND `{OP}` = 1"
            keys = frame.filter(marked_rows).select(*(frame[f"`{name}`"] for name in map(_escaped, key)))
            self.seen[Only.AGAIN] = not keys.isEmpty()
            frame.filter(f"NOT ({marked_rows})").drop(AGAIN).createOrReplaceTempView(ARTIFACT)
        if self.seen[Only.AGAIN]:
            keys.toDF(*key.values()).createOrReplaceTempView(AGAIN_KEYS)

    def compute_again(self, step: ComputeAgain) -> None:
        frame = self.session.sql(step.sql)
        if self.arrow is not None:
            self.arrow = pa.concat_tables([self.arrow, self.collected(frame)], promote_options="permissive")
        else:
            told = self.session.table(ARTIFACT)
            self.keep(told.unionByName(frame)).createOrReplaceTempView(ARTIFACT)

    def collected(self, frame: DataFrame) -> pa.Table:
        rows = frame.toArrow()
        self.measured.note(frame)
        return rows

    def inserted(self, delta: pa.Table) -> pa.Table:
        """A delta without deletions as the rows to append, equal rows repeated by their count."""
        counts = delta[WEIGHT].to_numpy()
        places = pa.array([n for n, count in enumerate(counts) for _ in range(int(count))], pa.int64())
        rows = delta.drop_columns([WEIGHT]).take(places)
        rows = rows.rename_columns([self.compiled.stored[name] for name in rows.column_names])
        return rows.add_column(0, OP, pa.array([1] * rows.num_rows, pa.int32()))

    # the commit

    def write(self, step: WriteView) -> None:
        if self.plan.mode == "incremental" and self.plan.writer == "marks":
            self.commit = self.write_marked(step)
            return
        if self.plan.mode == "incremental" and self.arrow is not None:
            self.commit = self.write_arrow(self.arrow, step)
            return
        if step.query is not None and self.table.can_use_rs(self.table.log.snapshot()):
            rows = self.collected(self.session.sql(f"SELECT * FROM (\n{step.query}\n) LIMIT {WHOLE_ROWS + 1}"))
            if rows.num_rows <= WHOLE_ROWS:
                self.outcome.written_by, self.outcome.delta_rows = "delta-rs", rows.num_rows
                self.commit = self.table.overwrite_rs(rows, self.progress)
                return
        self.commit = self.write_spark(step)

    def write_spark(self, step: WriteView) -> Commit:
        self.outcome.written_by = "spark"
        if self.plan.mode != "incremental":
            return self.table.apply_spark(self.session, step.sql, self.progress)
        missing = " OR ".join(f"`{_escaped(name)}` IS NULL" for name in step.key) or "FALSE"
        counts = self.session.table(ARTIFACT).selectExpr("count(*)", f"count_if(`{OP}` = -1 AND ({missing}))").first()
        assert counts is not None
        if not counts[0]:
            return self.table.commit_progress_only(self.progress, self.session)
        vectors = step.all_there or not counts[1]
        return self.table.apply_spark(self.session, step.sql, self.progress, vectors=vectors)

    def write_marked(self, step: WriteView) -> Commit:
        """Rows that go are marked in their files, rows that come are new files."""
        self.outcome.written_by = "deletion vectors"
        rows = self.arrow if self.arrow is not None else self.session.table(ARTIFACT)
        found = self.found or self.find(rows, step.key)
        if isinstance(rows, pa.Table):
            rows = rows.filter(pc.equal(rows[OP], 1)).drop_columns([OP])
            if not found.rows and not rows.num_rows:
                return self.table.commit_progress_only(self.progress, self.session)
            return self.table.apply_marked(found, rows, self.progress)
        names = self.table.physical_names
        new = rows.filter(f"`{OP}` = 1").selectExpr(*(f"{quote(name)} AS {quote(names[name])}" for name in names))

        partitions = [names[name] for name in self.table.partition_columns]

        def write(folder: str) -> None:
            with plain_timestamps(self.session):
                new.write.parquet(folder, compression="snappy", partitionBy=partitions or None)

        return self.table.apply_marked(found, write, self.progress)

    def find(self, artifact: pa.Table | DataFrame, key: tuple[str, ...]) -> Found:
        """Where the rows are that an artifact takes out."""
        if isinstance(artifact, pa.Table):
            gone = artifact.filter(pc.equal(artifact[OP], -1)).select(list(key))
        else:
            gone = self.collected(artifact.filter(f"`{OP}` = -1").selectExpr(*map(quote, key)))
        found = self.table.find(gone)
        self.scanned(self.table.ref, found.looked_at, found.files)
        return found

    def write_arrow(self, rows: pa.Table, step: WriteView) -> Commit:
        """By delta-rs, unless something about these very rows forbids it."""
        key = list(step.key)
        self.outcome.written_by = "delta-rs"
        if rows.num_rows == 0:
            return self.table.commit_progress_only(self.progress, self.session)
        if self.table.why_not_rs(rows, key) is None:
            return self.table.apply_rs(rows, key, self.progress)
        schema = self.session.sql(f"SELECT * FROM {self.table.ref.relation}").schema
        wanted = StructType([StructField(OP, IntegerType(), False), *schema.fields])
        arrow_to_spark(self.session, rows, wanted).createOrReplaceTempView(ARTIFACT)
        return self.write_spark(step)

    def count(self, measured: Measurement) -> None:
        self.outcome.jobs = measured.jobs
        self.outcome.rows_by_path = _added(measured.rows_by_relation(), self.rs_rows)
        self.outcome.files_by_path = _added(measured.files_by_relation(), self.rs_files)
        self.outcome.rows_changed = _changed(self.commit)
        if self.outcome.delta_rows is None:
            self.outcome.delta_rows = _number(self.commit, "numSourceRows", "numOutputRows")

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.outcome.timings[stage] = self.outcome.timings.get(stage, 0.0) + spent


def _same_rows(found: Found, weights: pa.Table, gone: pa.Table, key: str) -> bool:
    """Whether the rows that were found are the ones that go.

    They are if the view has exactly as many rows of each hash as go, and none of that hash comes."""
    if pc.any(pc.is_in(weights.filter(pc.greater(weights[WEIGHT], 0))[key], gone[key].unique())).as_py():
        return False
    lost = pa.table({"key": gone[key], "rows": pc.negate(gone[WEIGHT])})
    there = pa.table({"key": found.values, "rows": pa.repeat(-1, found.rows)})
    both = pa.concat_tables([lost, there]).group_by("key").aggregate([("rows", "sum")])
    return not pc.any(pc.not_equal(both["rows_sum"], 0)).as_py()


def few(reads: Mapping[str, SourceRead]) -> bool:
    """Whether no source changed so much that the change is Spark's to read."""
    return all(r.change_rows is not None and r.change_rows <= RS_ROWS for r in reads.values() if r.changed)


def _added(measured: dict[str, int] | None, more: Mapping[str, int]) -> dict[str, int] | None:
    if measured is None:
        return None
    return {path: measured.get(path, 0) + more.get(path, 0) for path in {**measured, **more}}


def _escaped(name: str) -> str:
    return name.replace("`", "``")


def _number(commit: Commit, *names: str) -> int | None:
    """The first of these metrics that a commit tells; Spark and delta-rs name them differently."""
    for name in names:
        if commit.operation_metrics.get(name) is not None:
            return int(commit.operation_metrics[name])
    return None


def _changed(commit: Commit) -> int | None:
    """Rows deleted and inserted, as the commit counts them."""
    deleted = _number(commit, "numTargetRowsDeleted", "num_target_rows_deleted")
    inserted = _number(commit, "numTargetRowsInserted", "num_target_rows_inserted", "numOutputRows", "num_added_rows")
    if deleted is None and inserted is None:
        rows = [file.rows for file in commit.adds]
        return None if None in rows else sum(count or 0 for count in rows)
    return (deleted or 0) + (inserted or 0)


def _stage(step: Step) -> str:
    match step:
        case ReadChange() | ReadState() | ReadCounts():
            return "read"
        case WriteView():
            return "write"
    return "compute"
