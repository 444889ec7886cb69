"""One refresh of one view: decide, run the steps, commit, report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from deltaic.algebra.reasons import Reason
from deltaic.app.refresh.decide import Plan, Planner, makes_anew
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.run import Outcome, Run, timed
from deltaic.app.refresh.shared import Shared
from deltaic.app.refresh.upkeep import Upkeep, is_vacuumed_by, prune_passed, tried
from deltaic.app.refresh.why_full import TABLE, recoverable
from deltaic.app.values.definition import Definition
from deltaic.app.values.report import Report
from deltaic.app.values.settings import Settings
from deltaic.errors import ComputeError, HistoryGone, NotIncremental
from deltaic.plan.kept import KEPT
from deltaic.spark.analyzer import enough_stack
from deltaic.spark.lost import again_if_lost
from deltaic.spark.telling import told_of
from deltaic.sql.statements import Policy
from deltaic.store.gone import is_history_gone
from deltaic.store.log import Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.rs import is_not_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Refresher:
    """`odd_texts`: some text is not UTF-8, so all is read by Spark, and out of the tables' files."""

    def __init__(self, engine: Engine, shared: Shared | None = None, *, odd_texts: bool = False) -> None:
        self.engine, self.shared, self.odd_texts = engine, shared or Shared(), odd_texts
        self.planner = Planner(engine, odd_texts=odd_texts, together=self.shared.together)

    def refresh(self, definition: Definition, *, full: bool, pins: Mapping[str, int] | None = None) -> Report:
        started = time.perf_counter()
        with self.telling(definition, pins or {}), self.engine.lock():
            plan = self.planner.plan(definition, full=full, pins=pins)
            return self.made(plan, started, full=full, pins=pins)

    @contextmanager
    def telling(self, definition: Definition, pins: Mapping[str, int]) -> Iterator[None]:
        try:
            with told_of(definition.full_name):
                yield
        except ComputeError as problem:
            if not is_history_gone(problem) or not self.are_past(pins):
                raise
            raise HistoryGone(
                f"{definition.full_name}: the versions of its sources that it is refreshed to are vacuumed",
                hint="Refresh it to the newest. A longer delta.deletedFileRetentionDuration of the sources keeps them.",
            ) from problem

    def are_past(self, pins: Mapping[str, int]) -> bool:
        """Whether the sources have gone on since."""
        refs = {key: self.engine.source_ref(key) for key in pins}
        return any(ref and Log(ref, self.engine.spark).version() > pins[key] for key, ref in refs.items())

    def made(self, plan: Plan, started: float, *, full: bool, pins: Mapping[str, int] | None) -> Report:
        """A plan carried out; by another one, where it turns out that this one cannot be."""
        planned = time.perf_counter() - started
        if plan.mode == "noop":
            return self.noop_report(plan, planned)
        try:
            outcome = self.execute(plan)
        except Exception as error:  # Spark, Connect and delta-rs share no class; what is not known is raised again
            assert plan.progress is not None
            plan.table.check_not_lost(plan.progress)  # then it failed for that, whatever it says
            if not self.odd_texts and is_not_text(error):
                report = Refresher(self.engine, odd_texts=True).refresh(plan.definition, full=full, pins=pins)
                return replace(report, seconds=time.perf_counter() - started)
            reason = recoverable(error)
            if reason is None or plan.mode != "incremental":
                with enough_stack():
                    raise
            plan = self.fall_back(plan, reason)
            with enough_stack():
                outcome = self.execute(plan)
        timings = {"plan": planned, **outcome.timings}
        return self.report(plan, outcome, time.perf_counter() - started, timings)

    def fall_back(self, plan: Plan, reason: Reason) -> Plan:
        """What is done instead, if it turned out while running that the incremental way is closed.

        What that one was chosen by is no price of this one, and is not told: nothing was left to choose from."""
        assert plan.compiled is not None
        if plan.definition.policy is Policy.STRICT:
            raise NotIncremental(f"{plan.definition.full_name} cannot be refreshed incrementally: {reason}")
        assert plan.progress is not None
        steps = self.planner.full_steps(plan.compiled, plan.reads, plan.table)
        left = {"prices", "predicted", *([TABLE] if makes_anew(steps) else [])}
        figures = {key: figure for key, figure in plan.progress.figures.items() if key not in left}
        figures |= {"mode": "full", "reasons": [str(reason)]}
        progress = replace(plan.progress, technique="recompute", figures=figures)
        return replace(
            plan, mode="full", technique="recompute", reasons=(reason,), steps=steps, progress=progress,
            known=None, writer="spark", choice=None,
        )  # fmt: skip

    def execute(self, plan: Plan) -> Outcome:
        own = plan.definition.schema, plan.definition.name
        with self.engine.catalog.held(*own) if makes_anew(plan.steps) else nullcontext():
            return again_if_lost(lambda: self.executed(plan), plan.definition.full_name)

    def executed(self, plan: Plan) -> Outcome:
        assert plan.compiled is not None
        assert plan.progress is not None
        with self.engine.session_for(plan.definition) as session:
            outcome = Run(session, plan.compiled, plan, self.planner.use_rs, self.shared, self.engine.captures).walk()
            with timed(outcome.timings, "upkeep"):
                self.look_after(plan.table, session, plan.progress)
                if not makes_anew(plan.steps):
                    own = plan.definition.schema, plan.definition.name
                    tried(plan.definition.full_name, "its name", lambda: self.engine.catalog.unpin(*own))
        prune_passed(self.engine, plan.compiled.sources)
        return outcome

    def look_after(self, table: OwnTable, session: SparkSession, progress: Progress) -> None:
        """The refresh is made, whatever becomes of this."""
        upkeep = Upkeep(Settings.of(self.engine.spark))
        upkeep.look_after(table, session, progress.refresh, vacuum=is_vacuumed_by(progress))

    def report(self, plan: Plan, outcome: Outcome, seconds: float, timings: dict[str, float]) -> Report:
        return Report(
            view=plan.definition.full_name,
            mode=plan.mode,
            technique=plan.technique,
            reasons=tuple(str(reason) for reason in plan.reasons),
            rows_read=_by_name(plan, outcome.rows_by_path),
            files_read=_by_name(plan, outcome.files_by_path),
            change_rows={k: r.change_rows for k, r in plan.reads.items() if r.changed},
            delta_rows=outcome.delta_rows,
            rows_changed=outcome.rows_changed,
            jobs=outcome.jobs,
            seconds=seconds,
            versions={key: r.new for key, r in plan.reads.items() if key != KEPT},
            timings=timings,
            written_by=outcome.written_by,
            predicted=plan.choice.seconds if plan.choice else {},
            rows_there={key: read.rows for key, read in plan.reads.items()},
            files_there={key: read.files for key, read in plan.reads.items()},
            stages=tuple(outcome.stages),
            rounds=tuple(map(str, outcome.rounds)),
        )

    def noop_report(self, plan: Plan, seconds: float) -> Report:
        versions = {key: read.new for key, read in plan.reads.items()}
        return Report(plan.definition.full_name, "noop", "none", versions=versions, seconds=seconds)


def _by_name(plan: Plan, by_path: Mapping[str, int] | None) -> dict[str, int] | None:
    """Figures under the names of the view and its sources."""
    if by_path is None:
        return None
    own = plan.table.ref.place
    names = {**plan.tables, own: plan.definition.full_name}
    read = dict.fromkeys(plan.reads, 0)
    for path, count in by_path.items():
        name = names.get(path, path)
        read[name] = read.get(name, 0) + count
    return read
