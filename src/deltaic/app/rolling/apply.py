"""Apply: folds a kept delta into the view, up to any time until its high-water mark, in one commit."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.reasons import Code, Reason
from deltaic.app.refresh.decide import Plan, Planner
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.refresh.run import timed
from deltaic.app.refresh.upkeep import Upkeep, is_vacuumed_by, tried
from deltaic.app.refresh.why_full import view_reasons
from deltaic.app.rolling.clock import AsOf, Clock, Standing
from deltaic.app.rolling.kept import Kept, KeptDelta, body_for, kept_body
from deltaic.app.values.definition import Definition
from deltaic.app.values.report import Report
from deltaic.app.values.settings import Settings
from deltaic.delta.timed import TIME
from deltaic.errors import ConcurrentRefresh, NotIncremental, TimeError
from deltaic.plan.kept import KEPT, Body, interval_sql
from deltaic.plan.steps import SourceRead
from deltaic.store.log import OwnCommit
from deltaic.store.own_table import TRY_AGAIN, OwnTable
from deltaic.store.progress import Progress
from deltaic.store.state import why_no_rs_state


@dataclass(frozen=True)
class Roll:
    """What applying does, and the time that it gets to."""

    plan: Plan
    standing: Standing
    upto: int


class Applier:
    """`looking`: nothing will be written."""

    def __init__(self, engine: Engine, definition: Definition, *, looking: bool = False) -> None:
        self.engine, self.definition = engine, definition
        self.clock, self.planner = Clock(engine), Planner(engine, looking=looking)

    def reaches(self, standing: Standing, at: int) -> bool:
        """Whether the kept delta goes from where the view is to a time."""
        body = kept_body(self.planner.compiled(self.definition))
        kept = None if isinstance(body, str) else KeptDelta(self.engine, self.definition).of(body, standing)
        if kept is None or at > standing.still(kept.mark):
            return False
        return self.edit_of(*self.planner.looked_at(self.definition)) is None

    def edit_of(self, table: OwnTable, marked: OwnCommit | None) -> Reason | None:
        """What somebody else did to the view's table: the kept delta does not fit it any more."""
        last = Progress.of(marked.commit) if marked else None
        reasons = view_reasons(self.definition, marked, last, False, table.id)
        return next((reason for reason in reasons if reason.code is Code.VIEW_EDITED), None)

    def apply(self, to: AsOf | None) -> Report:
        started, refresher = time.perf_counter(), Refresher(self.engine)
        with self.engine.lock():
            roll = self.roll(to)
            pins = roll.standing.versions(roll.upto)
            with refresher.telling(self.definition, pins):
                report = refresher.made(roll.plan, started, full=False, pins=pins)
            timings = dict(report.timings)
            if report.mode != "noop":
                with timed(timings, "upkeep"):
                    self.prune(roll.standing.since(roll.upto), roll.plan.progress)
        return replace(report, time=roll.upto, seconds=time.perf_counter() - started, timings=timings)

    def prune(self, own: int, progress: Progress | None) -> None:
        """What the view is past, where that is much."""
        keeping, settings = KeptDelta(self.engine, self.definition), Settings.of(self.engine.spark)

        def prune() -> None:
            kept = keeping.now()
            if kept is None:
                return
            with self.engine.session_for(self.definition) as session:
                if (kept.table.log.snapshot().files or 0) > settings.kept_files:
                    keeping.prune(kept, min(own, kept.mark), session)
                vacuum = progress is not None and is_vacuumed_by(progress)
                Upkeep(settings).look_after(kept.table, session, kept.number, vacuum=vacuum)

        tried(self.definition.full_name, "its kept delta", prune)

    def roll(self, to: AsOf | None) -> Roll:
        compiled = self.planner.compiled(self.definition)
        body = body_for(self.definition, compiled)
        standing, name = self.clock.standing(self.definition), self.definition.full_name
        kept, own = KeptDelta(self.engine, self.definition).of(body, standing), standing.view_time
        if kept is None or own is None:
            raise TimeError(f"{name} has no kept delta from where it is", hint=f'propagate("{name}") begins one.')
        mark = standing.still(kept.mark)
        reached = mark if to is None else self.clock.time_meant(standing, to)
        if reached > mark:
            told = f"{name}: time {standing.told(reached)} is after the high-water mark, {standing.told(mark)}"
            raise TimeError(told, hint=f'propagate("{name}") moves the mark.')
        pins = self.clock.pins(standing, reached)
        states = self.planner.states(compiled, pins)
        used = compiled.used_columns
        reads = {
            key: self.planner.still(key, compiled.sources[key], now, used.get(key, [])) for key, now in states.items()
        }
        table, marked = self.planner.looked_at(self.definition)
        if marked is None or Progress.of(marked.commit) != standing.last:
            raise ConcurrentRefresh(f"{name} was refreshed meanwhile", hint=TRY_AGAIN)
        edited = self.edit_of(table, marked)
        if edited is not None:
            raise NotIncremental(f"{name}: {edited}", hint="Refresh it: it is computed anew.")
        if pins == standing.versions(own):
            nothing = Plan(self.definition, compiled, "noop", "none", (), reads, [], table, standing.last)
            return Roll(nothing, standing, reached)
        reads[KEPT] = self.kept_read(kept, body, own, reached)
        plan = self.planner.decided(self.definition, compiled, table, standing.last, reads, [], states)
        technique = f"{plan.technique}, kept delta" if plan.mode == "incremental" else plan.technique
        return Roll(replace(plan, kept=(kept.table.ref, kept.version), technique=technique), standing, reached)

    def kept_read(self, kept: Kept, body: Body, after: int, upto: int) -> SourceRead:
        log, columns = kept.table.log, [f.name for f in body.columns]
        rows = kept.rows_since(after)
        sql: str | None = interval_sql(log.ref.relation, kept.version, after, upto, columns)
        if self.planner.use_rs and why_no_rs_state(log, kept.version, [*columns, WEIGHT, TIME]) is None:
            sql = None
        return SourceRead(
            KEPT, log.ref.relation, after, upto, "kept", sql, rows, f"times {after} to {upto}", after, upto, rows=rows
        )
