"""The two halves of a refresh: propagate computes a view's timed delta and keeps it, apply folds some of it in."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltaic.algebra.nodes import WEIGHT, is_groupable, is_storable, sources
from deltaic.algebra.reasons import Reason
from deltaic.app.clock import KEPT_DELTA, AsOf, Clock, Moment
from deltaic.app.compile import Compiled, Source
from deltaic.app.decide import Plan, Planner
from deltaic.app.definition import Definition
from deltaic.app.refresh import Refresher
from deltaic.app.report import Report
from deltaic.app.run import Run
from deltaic.app.settings import Settings
from deltaic.app.shared import Shared
from deltaic.app.stored import used_columns
from deltaic.app.why_full import source_reasons
from deltaic.delta.timed import TIME
from deltaic.errors import NotIncremental, TimeError
from deltaic.plan.kept import KEPT, Body, body_of, interval_sql
from deltaic.plan.maintain import Maintenance
from deltaic.plan.program import ARTIFACT
from deltaic.plan.rolling import Rolling
from deltaic.plan.steps import ComputeDelta, SourceRead, StoredView, WriteView, known_of, propagation_steps
from deltaic.store.change import plan_change
from deltaic.store.log import Log, last_commit_with_marker
from deltaic.store.progress import Progress
from deltaic.store.state import why_no_rs_state
from deltaic.store.view import ViewTable
from deltaic.store.write_sql import OP

if TYPE_CHECKING:
    from deltaic.app.warehouse import Warehouse

ROLLING, BODY, SINCE, BATCH_ROWS = "rolling", "body", "since", "rows"
"""What a commit of a kept delta says: how far it has come, of what, since when, and how many rows it appends."""


@dataclass(frozen=True)
class Kept:
    """The kept delta of a view: complete from `since` up to `rolling.mark`."""

    table: ViewTable
    rolling: Rolling
    since: int
    body: str
    number: int

    @property
    def mark(self) -> int:
        return self.rolling.mark


def digest_of(body: Body) -> str:
    return hashlib.sha256(body.text.encode()).hexdigest()[:16]


class Propagator:
    """Works on one view. `moment` is where its sources and itself are now."""

    def __init__(self, warehouse: Warehouse, definition: Definition, *, looking: bool = False) -> None:
        self.warehouse, self.definition = warehouse, definition
        self.clock = Clock(warehouse)
        self.planner = Planner(warehouse, looking=looking)

    # the kept delta

    @property
    def table(self) -> ViewTable:
        ref, _ = self.warehouse.catalog.hidden(KEPT_DELTA, self.definition.schema, self.definition.name)
        return ViewTable(ref, self.warehouse.lock_file, self.warehouse.spark)

    def kept(self) -> Kept | None:
        """What the newest commit of the kept delta says."""
        table = self.table
        marked = last_commit_with_marker(table.log) if table.exists else None
        last = Progress.of(marked.commit) if marked else None
        if last is None:
            return None
        told = last.figures
        return Kept(table, Rolling.from_json(told[ROLLING]), told[SINCE], told[BODY], last.refresh)

    def body(self, compiled: Compiled) -> Body:
        """What of the view has a timed delta; refused with the reason if nothing has."""
        name = self.definition.full_name
        hint = "Its refreshes are incremental or full as ever; only propagate and apply are not for it."
        if isinstance(compiled.way, Reason):
            raise NotIncremental(f"{name} has no kept delta: {compiled.way}", hint=hint)
        body = body_of(compiled.way)
        if isinstance(body, str):
            raise NotIncremental(f"{name} has no kept delta: {body}", hint=hint)
        for column in body.columns:
            if not is_groupable(column.type) or not is_storable(column.type):
                what = f"a value of type {column.type} would have to be kept, and cannot be compared or stored"
                raise NotIncremental(f"{name} has no kept delta: {what}", hint=hint)
        return body

    def begun(self, compiled: Compiled, body: Body, moment: Moment) -> tuple[Kept, Moment]:
        """The kept delta, begun anew where there is none that goes on from where the view is."""
        kept = self.kept()
        own = moment.view_time
        if kept is not None and kept.body == digest_of(body) and own is not None and kept.since <= own <= kept.mark:
            return kept, moment
        if own is None:  # of its sources' versions some were never there at once: the next state is a recorded one
            Refresher(self.warehouse).refresh(self.definition, full=False, pins=moment.versions(moment.order.newest))
            moment = self.clock.moment(self.definition)
            own = moment.view_time
        assert own is not None
        table, number = self.table, kept.number + 1 if kept else 1
        fields = [(f.name, f.type) for f in body.columns] + [(WEIGHT, "bigint"), (TIME, "bigint")]
        empty = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in fields)
        _, location = self.warehouse.catalog.hidden(KEPT_DELTA, self.definition.schema, self.definition.name)
        sql = table.create_sql(f"SELECT {empty} WHERE FALSE", replace=table.exists, location=location)
        rolling = Rolling.start(len(set(sources(body.node))), own)
        progress = _progress(number, rolling, own, digest_of(body), 0)
        with self.warehouse.session_for(self.definition) as session:
            table.apply_spark(session, sql, progress)
        return Kept(self.table, rolling, own, digest_of(body), number), moment

    # propagate

    def propagate(self, upto: AsOf | None, steps: int | None) -> Iterator[Report]:
        """One report for each step, each of which is a commit: it may be stopped after any."""
        done = 0
        while steps is None or done < steps:
            with self.warehouse.lock():
                report = self.step(upto)
            if report is None:
                return
            done += 1
            yield report

    def step(self, upto: AsOf | None) -> Report | None:
        """The next interval; None if there is none."""
        started = time.perf_counter()
        compiled = self.planner.compiled(self.definition)
        body = self.body(compiled)
        kept, moment = self.begun(compiled, body, self.clock.moment(self.definition))
        end = moment.order.newest if upto is None else self.clock.time_meant(moment, upto)
        if end <= moment.still(kept.mark):
            return None
        reads, reached = self.next_interval(compiled, moment, kept.mark, end)
        plan = self.plan(compiled, body, kept, reads, reached)
        with self.warehouse.session_for(self.definition) as session:
            if not any(read.changed for read in reads.values()):  # commits that changed no rows
                assert plan.progress is not None
                kept.table.commit_progress_only(plan.progress, session)
                return Report(self.definition.full_name, "propagated", "none", time=reached)
            outcome = Propagating(session, compiled, plan, self.planner.use_rs, Shared()).walk()
        report = Refresher(self.warehouse).report(plan, outcome, time.perf_counter() - started, outcome.timings)
        return replace(report, mode="propagated", time=reached)

    def next_interval(
        self, compiled: Compiled, moment: Moment, after: int, end: int
    ) -> tuple[dict[str, SourceRead], int]:
        """The reads of a step, and the time it gets to: commits from a time on, until they have as many rows as a step
        is to have."""
        target = Settings.of(self.warehouse.spark).propagate_rows
        ids = {table: key for key, table in moment.ids.items()}
        units = [u for u in moment.order.units if after < u.time <= end and u.source in ids]
        taken: dict[str, list[tuple[int, int]]] = {key: [] for key in compiled.sources}
        rows: dict[str, int] = dict.fromkeys(compiled.sources, 0)
        upto = after
        for unit in units:
            key = ids[unit.source]
            count = self.rows_of(compiled, compiled.sources[key], unit.version)
            if count is not None and upto > after and sum(rows.values()) + count > target:
                break
            upto = unit.time
            if count is not None:
                taken[key].append((unit.version, unit.time))
                rows[key] += count
        reads = {k: self.read(compiled, moment, k, after, upto, taken[k], rows[k]) for k in compiled.sources}
        return reads, upto

    def rows_of(self, compiled: Compiled, source: Source, version: int) -> int | None:
        """How many rows a commit changed, about; None if it changed none."""
        log, used = Log(source.ref, self.warehouse.spark), dict(compiled.used_columns.get(source.key, []))
        change = plan_change(log, version - 1, version, list(used), allow_rs=self.planner.use_rs)
        return None if change.kind == "none" else change.rows or 1

    def read(
        self,
        compiled: Compiled,
        moment: Moment,
        key: str,
        after: int,
        upto: int,
        times: list[tuple[int, int]],
        rows: int,
    ) -> SourceRead:
        source = compiled.sources[key]
        log = Log(source.ref, self.warehouse.spark)
        old, new = moment.versions(after)[key], moment.versions(upto)[key]
        snapshot, used = log.snapshot(new), compiled.used_columns.get(key, [])
        problems = list(
            source_reasons(source, moment.last.sources[key], snapshot, used_columns(compiled, key, snapshot))
        )
        if problems:
            raise NotIncremental(
                f"{self.definition.full_name} cannot be propagated: {'; '.join(map(str, problems))}",
                hint="Refresh the view: it is recomputed, and its kept delta begins anew.",
            )
        return SourceRead(
            key, source.ref.relation, old, new,
            change_kind="timed" if times else "none", change_rows=rows, change_note=f"{len(times)} commits, timed",
            change_from=old, change_upto=new, rs_states=self.planner.small_states(source, old, new, used),
            shown=snapshot.shown, rows=snapshot.rows, files=snapshot.files,
            rs_finds=self.planner.can_find(source, new, used), times=tuple(times),
        )  # fmt: skip

    def plan(self, compiled: Compiled, body: Body, kept: Kept, reads: dict[str, SourceRead], upto: int) -> Plan:
        """One job and one commit: what all terms of the interval bring."""
        known = known_of(reads, StoredView("", None, {}))
        steps = propagation_steps(body, reads, known)
        columns = [*(f.name for f in body.columns), WEIGHT, TIME]
        write = WriteView("append to the kept delta", kept.table.append_sql(ARTIFACT, columns))
        rolling = finished(kept.rolling.propagated(upto))
        rows = sum(read.change_rows or 0 for read in reads.values())
        progress = _progress(kept.number + 1, rolling, kept.since, kept.body, rows)
        paths = {s.ref.path or s.ref.relation: key for key, s in compiled.sources.items()}
        return Plan(
            self.definition, compiled, "incremental", "propagate", (), reads, [*steps, write], kept.table, progress,
            paths, known, "delta-rs",
        )  # fmt: skip

    # apply

    def reaches(self, moment: Moment, at: int) -> bool:
        """Whether the kept delta goes from where the view is to a time."""
        kept, own = self.kept(), moment.view_time
        there = kept is not None and own is not None and kept.since <= own <= kept.mark
        return there and kept is not None and at <= moment.still(kept.mark)

    def apply(self, to: AsOf | None) -> Report:
        """Rolls the view to a time up to the high-water mark, in one commit."""
        started = time.perf_counter()
        with self.warehouse.lock():
            plan, reached = self.apply_plan(to)
            refresher = Refresher(self.warehouse)
            if plan.mode == "noop":
                return replace(refresher.noop_report(plan, time.perf_counter() - started), time=reached)
            planned = time.perf_counter() - started
            outcome = refresher.execute(plan)
        timings = {"plan": planned, **outcome.timings}
        report = refresher.report(plan, outcome, time.perf_counter() - started, timings)
        return replace(report, time=reached)

    def apply_plan(self, to: AsOf | None) -> tuple[Plan, int]:
        compiled = self.planner.compiled(self.definition)
        body = self.body(compiled)
        moment, kept = self.clock.moment(self.definition), self.kept()
        name, own = self.definition.full_name, moment.view_time
        if kept is None or kept.body != digest_of(body) or own is None or not kept.since <= own <= kept.mark:
            raise TimeError(f"{name} has no kept delta from where it is", hint=f'Call propagate("{name}") first.')
        mark = moment.still(kept.mark)
        reached = mark if to is None else self.clock.time_meant(moment, to)
        if reached > mark:
            told = f"{name}: time {moment.told(reached)} is after the high-water mark, {moment.told(mark)}"
            raise TimeError(told, hint=f'propagate("{name}") moves the mark.')
        self.clock.pins(moment, reached)
        table = self.warehouse.view_table(self.definition)
        pins = moment.versions(reached)
        states = self.planner.states(compiled, pins)
        reads = {
            key: replace(self.read(compiled, moment, key, own, reached, [], 0), change_kind="none")
            for key in compiled.sources
        }
        if pins == moment.versions(own):
            return Plan(self.definition, compiled, "noop", "none", (), reads, [], table, moment.last), reached
        reads[KEPT] = self.kept_read(kept, body, own, reached)
        plan = self.planner.decided(self.definition, compiled, table, moment.last, reads, [], states)
        return replace(plan, kept=kept.table.ref), reached

    def kept_read(self, kept: Kept, body: Body, after: int, upto: int) -> SourceRead:
        log, columns = kept.table.log, [f.name for f in body.columns]
        version, rows = log.version(), self.rows_kept(kept, after)
        sql: str | None = interval_sql(log.ref.relation, version, after, upto, columns)
        if self.planner.use_rs and why_no_rs_state(log, version, [*columns, WEIGHT, TIME]) is None:
            sql = None
        return SourceRead(
            KEPT, log.ref.relation, after, upto, "kept", sql, rows, f"times {after} to {upto}", after, upto, rows=rows
        )

    def rows_kept(self, kept: Kept, after: int) -> int:
        """About how many rows were kept since a time, as the commits tell."""
        total, log = 0, kept.table.log
        for version in range(log.version(), -1, -1):
            commit = log.commit(version)
            told = Progress.of(commit)
            if told is None:
                continue
            total += sum(file.rows or 0 for file in commit.adds)
            if told.figures[ROLLING]["mark"] <= after:
                break
        return total


def finished(rolling: Rolling) -> Rolling:
    """After a step over sources that are read at the times wanted, whose terms are one query: nothing is pending."""
    while rolling.pending:
        rolling = rolling.compensated(rolling.pending[0].at_least)
    return rolling


def _progress(number: int, rolling: Rolling, since: int, body: str, rows: int) -> Progress:
    figures = {ROLLING: rolling.to_json(), SINCE: since, BODY: body, BATCH_ROWS: rows}
    return Progress(number, {}, "propagate", figures)


class Propagating(Run):
    """A run whose delta is appended as it is."""

    def compute(self, step: ComputeDelta, small: bool) -> None:
        frame = self.session.sql(step.sql)
        if not small:
            kept = self.desk.keep(frame.selectExpr(f"1 AS `{OP}`", "*"))
            kept.createOrReplaceTempView(ARTIFACT)
            self.outcome.delta_rows = None
            return
        rows = self.desk.collected(frame)
        self.outcome.delta_rows = rows.num_rows
        self.arrow = rows.add_column(0, OP, pa.array([1] * rows.num_rows, pa.int32()))


def body_or_reason(way: Maintenance | Reason) -> str | None:
    """Why a view has no kept delta; None if it may have one."""
    if isinstance(way, Reason):
        return str(way)
    body = body_of(way)
    return body if isinstance(body, str) else None
