"""Walks the steps of a refresh: Spark computes, and one commit of Spark's or delta-rs's ends it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaic.algebra.nodes import WEIGHT, Apply
from deltaic.algebra.quoting import quote
from deltaic.algebra.trees import walk
from deltaic.app.catalogs.live import Captures, LiveStates
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.decide import Plan, few
from deltaic.app.refresh.desk import Desk
from deltaic.app.refresh.here import EvaluatedHere, Here, MaintainedHere
from deltaic.app.refresh.reading import Reading
from deltaic.app.refresh.shared import Shared
from deltaic.app.refresh.writing import Writing, number_in, rows_changed
from deltaic.app.rounds.fixpoint import Limits, iterate
from deltaic.app.values.report import Reduced
from deltaic.app.values.settings import Settings
from deltaic.plan.maintain import Maintenance, Way
from deltaic.plan.program import AGAIN, AGAIN_KEYS, ARTIFACT, DELTA, OP
from deltaic.plan.rounds import RoundsFound
from deltaic.plan.steps import (
    Compute,
    ComputeAgain,
    ComputeDelta,
    FindRows,
    Iterate,
    MarkRows,
    Only,
    ReadChange,
    ReadCounts,
    ReadState,
    Step,
    WriteView,
)
from deltaic.spark.metrics import measure
from deltaic.spark.session import spare_subqueries
from deltaic.sql.statements import Policy
from deltaic.store.arrow import arrow_to_spark, repeated
from deltaic.store.commit import Commit
from deltaic.store.marks import Found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    stages: list[Reduced] = field(default_factory=list)
    rounds: list[RoundsFound] = field(default_factory=list)


class Run:
    """One walk over the steps, in a session of its own."""

    def __init__(
        self,
        session: SparkSession,
        compiled: Compiled,
        plan: Plan,
        use_rs: bool,
        shared: Shared,
        captures: Captures,
    ) -> None:
        self.session, self.compiled, self.plan, self.captures = session, compiled, plan, captures
        self.use_rs, self.shared = use_rs, shared
        self.outcome = Outcome()
        self.arrow: pa.Table | None = None
        """The rows to apply, where they are few enough to be here and not in Spark."""
        self.found: Found | None = None
        """Where in the view the rows are that go, if it is known."""
        self.seen = {Only.DELETES: True, Only.EQUALS: True, Only.AGAIN: False, Only.CANDIDATES: True}
        """What steps wait for, as far as it is known yet."""
        self.over: set[int] = set()
        """The phases of a reducing algorithm that have no candidates left."""
        self.delta_schema: StructType
        self.commit: Commit
        self.desk: Desk
        self.reading: Reading
        self.writing: Writing

    def walk(self) -> Outcome:
        small = self.is_small()
        if self.compiled.node is not None and any(isinstance(node, Apply) for node in walk(self.compiled.node)):
            spare_subqueries(self.session)
        assert self.plan.progress is not None
        with measure(self.session) as measured:
            live = LiveStates(self.captures, self.session)
            self.desk = Desk(self.session, self.compiled, self.plan, measured, live, use_rs=self.use_rs)
            self.reading = Reading(self.desk, self.shared)
            self.writing = Writing(self.desk, self.plan.progress)
            try:
                for step in self.in_time(self.reading.steps()):
                    with timed(self.outcome.timings, _stage(step)):
                        self.take(step, small)
            finally:
                self.desk.clear()
        self.count()
        return self.outcome

    def is_small(self) -> bool:
        """Whether the delta may come through this process, to be written without Spark."""
        plan = self.plan
        if plan.mode != "incremental" or not self.use_rs:
            return False
        fits = plan.choice is None or plan.choice.incremental.delta_rows <= DELTA_ROWS
        return plan.writer != "spark" and few(plan.reads) and fits

    def in_time(self, steps: list[Step]) -> Iterator[Step]:
        """The steps; where some may be left out because no candidates are left, one that serves others stands before
        the first that uses it, and is left out with them."""
        if not any(isinstance(step, Compute) and step.stage for step in steps):
            yield from steps
            return
        waiting: dict[str, Step] = {}
        for step in steps:
            serves = isinstance(step, ReadChange | ReadState) or (isinstance(step, Compute) and step.stage is None)
            if serves and step.relation is not None:
                waiting[step.relation] = step
                continue
            if not self.is_over(step):
                yield from self.served_by(step, waiting)
            yield step

    def served_by(self, step: Step, waiting: dict[str, Step]) -> Iterator[Step]:
        """The waiting steps that a step needs, in order."""
        near = step.near.binding if isinstance(step, ReadState) and step.near else ""
        for name in [name for name in waiting if re.search(rf"\b{name}\b", f"{step.sql} {near}")]:
            if name in waiting:
                needed = waiting.pop(name)
                yield from self.served_by(needed, waiting)
                yield needed

    def is_over(self, step: Step) -> bool:
        """Whether nothing is left that may come or go before this step."""
        stage = step.stage if isinstance(step, Compute) else None
        return stage is not None and (stage.phase in self.over or (bool(stage.after) and stage.after <= self.over))

    def reduce(self, step: Compute) -> None:
        stage = step.stage
        assert stage is not None
        if self.is_over(step):
            self.over.add(stage.phase)
            self.desk.named(self.session.sql(step.nothing), step)
            return
        if stage.last:
            frame = self.session.sql(step.sql)
            self.desk.named(self.desk.keep(frame) if self.desk.uses(step) > 1 else frame, step)
            return
        comes, goes, stays = self.reading.reduce(step)
        self.outcome.stages.append(Reduced(stage.changed, stage.joined, stage.number, comes, goes, stays))
        if not comes and not goes:
            self.over.add(stage.phase)

    def take(self, step: Step, small: bool) -> None:
        if step.only is not None and not self.seen[step.only]:
            return
        match step:
            case ReadChange():
                self.reading.read_change(step)
            case ReadState():
                self.reading.read_state(step)
            case ReadCounts():
                self.reading.read_counts(step)
            case Compute() if step.stage is not None:
                self.reduce(step)
            case Compute(asked=True):
                self.reading.compute_keys(step)
            case Compute():
                self.desk.named(self.desk.keep(self.reading.frame_of(step)), step)
            case Iterate():
                self.iterate(step)
            case ComputeDelta():
                self.compute(step, small)
            case ComputeAgain():
                self.compute_again(step)
            case MarkRows():
                self.mark_rows(step, small)
            case FindRows():
                self.compute_artifact(step, small)
            case WriteView():
                if self.plan.mode == "full":
                    self.desk.live.name_all(self.compiled.live, self.plan.reads)
                self.writing.tell(self.outcome.stages, self.outcome.rounds)
                self.commit = self.writing.write(step, self.arrow, self.found)
            case _:
                raise TypeError(f"the run has no case for {type(step).__name__}")

    # the delta

    def iterate(self, step: Iterate) -> None:
        if self.plan.mode == "full":
            self.desk.live.name_all(self.compiled.live, self.plan.reads)
        rows = self.desk.table.log.snapshot().rows if self.plan.definition.policy is Policy.AUTO else None
        limits = Limits.of(Settings.of(self.session), self.plan.reads, rows)
        here: Here = MaintainedHere(self.desk, self.reading, limits)
        if self.plan.mode == "full":
            here = EvaluatedHere(self.session, limits, self.desk.keep)
        told = here.iterate(step) if self.use_rs else None
        self.outcome.rounds.extend(iterate(self.session, step, limits, self.desk.keep) if told is None else told)

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
            delta = self.desk.collected(frame)
            self.seen[Only.DELETES] = bool(pc.any(pc.less(delta[WEIGHT], 0)).as_py())
            self.outcome.delta_rows = delta.num_rows
            self.arrow, self.delta_schema = delta, frame.schema
            self.seen[Only.EQUALS] = self.seen[Only.DELETES]
            if not self.seen[Only.DELETES]:
                self.arrow = self.inserted(delta)
            elif self.plan.writer != "marks":
                self.look_for(delta, frame.schema)
        else:
            self.desk.keep(frame).createOrReplaceTempView(DELTA)
            self.outcome.delta_rows = None

    def look_for(self, delta: pa.Table, schema: StructType) -> None:
        """Let Spark find what is in the view of the rows that go."""
        self.arrow, self.desk.near[DELTA] = None, delta.filter(pc.less(delta[WEIGHT], 0))
        arrow_to_spark(self.session, delta, schema).createOrReplaceTempView(DELTA)

    def mark_rows(self, step: MarkRows, small: bool) -> None:
        """Find the rows that go, and see whether their hashes tell them from all that stay."""
        columns = [self.way.key[0], WEIGHT]
        delta = self.arrow if small else self.session.table(DELTA)
        assert delta is not None
        here = isinstance(delta, pa.Table)
        weights = delta.select(columns) if here else self.desk.collected(delta.select(*columns))
        gone = weights.filter(pc.less(weights[WEIGHT], 0))
        hashes = pa.table({self.compiled.stored[columns[0]]: gone[columns[0]]})
        found = self.desk.table.find(hashes)
        self.desk.scanned(self.desk.table.ref, found.looked_at, found.files)
        self.seen[Only.EQUALS] = not _same_rows(found, weights, gone, columns[0])
        if self.seen[Only.EQUALS]:
            if isinstance(delta, pa.Table):
                self.look_for(delta, self.delta_schema)
            return
        self.found = found
        if isinstance(delta, pa.Table):
            self.arrow = self.inserted(delta.filter(pc.greater(delta[WEIGHT], 0)))
        else:
            self.desk.named(self.session.sql(step.sql), step)

    def compute_artifact(self, step: Step, small: bool) -> None:
        frame = self.session.sql(step.sql)
        if small:
            self.arrow = self.desk.collected(frame)
            if step.relation == ARTIFACT and self.outcome.delta_rows == 0:
                self.outcome.delta_rows = self.arrow.num_rows
        else:
            frame = self.desk.keep(frame)
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
            keys = frame.filter(marked_rows).select(*(frame[name] for name in map(quote, key)))
            self.seen[Only.AGAIN] = not keys.isEmpty()
            frame.filter(f"NOT ({marked_rows})").drop(AGAIN).createOrReplaceTempView(ARTIFACT)
        if self.seen[Only.AGAIN]:
            keys.toDF(*key.values()).createOrReplaceTempView(AGAIN_KEYS)

    def compute_again(self, step: ComputeAgain) -> None:
        frame = self.session.sql(step.sql)
        if self.arrow is not None:
            self.arrow = pa.concat_tables([self.arrow, self.desk.collected(frame)], promote_options="permissive")
        else:
            told = self.session.table(ARTIFACT)
            self.desk.keep(told.unionByName(frame)).createOrReplaceTempView(ARTIFACT)

    def inserted(self, delta: pa.Table) -> pa.Table:
        """A delta without deletions as the rows to append, equal rows repeated by their count."""
        rows = repeated(delta.drop_columns([WEIGHT]), delta[WEIGHT])
        rows = rows.rename_columns([self.compiled.stored[name] for name in rows.column_names])
        return rows.add_column(0, OP, pa.array([1] * rows.num_rows, pa.int32()))

    def count(self) -> None:
        self.outcome.jobs = self.desk.measured.jobs
        self.outcome.rows_by_path = self.desk.rows_by_path()
        self.outcome.files_by_path = self.desk.files_by_path()
        self.outcome.rows_changed = rows_changed(self.commit)
        self.outcome.written_by = self.writing.by
        if self.writing.whole_rows is not None:
            self.outcome.delta_rows = self.writing.whole_rows
        if self.outcome.delta_rows is None:
            self.outcome.delta_rows = number_in(self.commit, "numSourceRows", "numOutputRows")


@contextmanager
def timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        timings[stage] = timings.get(stage, 0.0) + time.perf_counter() - started


def _same_rows(found: Found, weights: pa.Table, gone: pa.Table, key: str) -> bool:
    """Whether the rows that were found are the ones that go.

    They are if the view has exactly as many rows of each hash as go, and none of that hash comes."""
    if pc.any(pc.is_in(weights.filter(pc.greater(weights[WEIGHT], 0))[key], gone[key].unique())).as_py():
        return False
    lost = pa.table({"key": gone[key], "rows": pc.negate(gone[WEIGHT])})
    there = pa.table({"key": found.values, "rows": pa.repeat(-1, found.rows)})
    both = pa.concat_tables([lost, there]).group_by("key").aggregate([("rows", "sum")])
    return not pc.any(pc.not_equal(both["rows_sum"], 0)).as_py()


def _stage(step: Step) -> str:
    match step:
        case ReadChange() | ReadState() | ReadCounts():
            return "read"
        case WriteView():
            return "write"
    return "compute"
