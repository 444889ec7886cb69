"""Propagate: computes a view's timed delta in bounded steps, each one job and one commit, and keeps it.

Sources whose past can be read are read at the times wanted, so that no compensation is needed. By default a step takes
an interval of all sources (`Propagate`, figure 5), all of whose terms are one query. A view whose sources have
intervals of their own (`deltaic.interval.<source>`) is rolled (`RollingPropagate`, figure 10): a step is one term.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.reasons import Code
from deltaic.algebra.trees import sources
from deltaic.app.catalogs.catalog import KEPT_DELTA
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.decide import Plan, Planner
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.explain import explain_propagation
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.refresh.run import Run, timed
from deltaic.app.refresh.shared import Shared
from deltaic.app.refresh.sources import Source
from deltaic.app.refresh.stored import used_columns
from deltaic.app.refresh.upkeep import Upkeep
from deltaic.app.refresh.why_full import recoverable, source_reasons
from deltaic.app.rolling.clock import AsOf, Clock, Standing
from deltaic.app.rolling.kept import Kept, KeptDelta, body_for
from deltaic.app.values.definition import Definition
from deltaic.app.values.report import Report
from deltaic.app.values.settings import Settings
from deltaic.delta.timed import TIME, apart
from deltaic.errors import DeltaicError, HistoryGone, MissingError, NotIncremental
from deltaic.plan.kept import Body
from deltaic.plan.program import ARTIFACT, OP
from deltaic.plan.refreshing import known_of, propagation_steps
from deltaic.plan.rolling import Rolling, Span, Term
from deltaic.plan.steps import ComputeDelta, SourceRead, StoredView, Write, WriteView
from deltaic.spark.telling import told_of
from deltaic.store.change import plan_change
from deltaic.store.log import Log
from deltaic.store.rs import is_not_text

Versions = Sequence[tuple[int, int]]
"""Versions of a source that changed rows, and their times."""


@dataclass(frozen=True)
class Next:
    """What a step does: the state after it, the reads by the names that scans have, and of one term its sign."""

    rolling: Rolling
    reads: Mapping[str, SourceRead]
    body: Body
    sources: Mapping[str, Source]
    sign: int | None = None
    technique: str = "propagate"


class Propagator:
    def __init__(self, engine: Engine, definition: Definition) -> None:
        self.engine, self.definition = engine, definition
        self.clock, self.planner = Clock(engine), Planner(engine)
        self.compiled: Compiled
        self.standing: Standing
        self._rows: dict[tuple[str, int], int | None] = {}

    def propagate(self, upto: AsOf | None, steps: int | None) -> Iterator[Report]:
        """One report for each step: it may be stopped after any, and gone on with by another process. It ends with what
        was there when it began, however much is written meanwhile."""
        done = 0
        if upto is None:
            with self.engine.lock():
                upto = self.clock.standing(self.definition).order.newest
        while steps is None or done < steps:
            with self.engine.lock():
                report = self.step(upto)
            if report is None:
                return
            done += 1
            yield report

    def step(self, upto: AsOf) -> Report | None:
        """The next one; None if there is none."""
        started = time.perf_counter()
        self.compiled = self.planner.compiled(self.definition)
        body = body_for(self.definition, self.compiled)
        self.standing = self.clock.standing(self.definition)
        kept = KeptDelta(self.engine, self.definition).of(body, self.standing) or self.begun(body)
        end = self.clock.time_meant(self.standing, upto)
        following = self.following(body, kept, end)
        if following is None:
            return None
        plan = self.plan(kept, following)
        try:
            with self.engine.session_for(self.definition) as session:
                if not any(read.changed for read in following.reads.values()):  # commits that changed no rows
                    assert plan.progress is not None
                    kept.table.commit_progress_only(plan.progress, session)
                    return Report(self.definition.full_name, "propagated", "none", time=following.rolling.mark)
                compiled = replace(self.compiled, sources=following.sources)
                outcome = Propagating(
                    session, compiled, plan, self.planner.use_rs, Shared(), self.engine.captures
                ).walk()
                with timed(outcome.timings, "upkeep"):
                    upkeep = Upkeep(Settings.of(self.engine.spark))
                    upkeep.look_after(kept.table, session, kept.number + 1, vacuum=False)
        except Exception as error:  # Spark, Connect and delta-rs share no class; what is not known is raised again
            if not self.planner.odd_texts and is_not_text(error):
                self.planner = Planner(self.engine, odd_texts=True)
                return self.step(upto)
            reason = None if isinstance(error, DeltaicError) else recoverable(error)
            if reason is None:
                with told_of(self.definition.full_name):
                    raise
            kind = HistoryGone if reason.code is Code.HISTORY_GONE else NotIncremental
            what = f"{self.definition.full_name} cannot be propagated: {reason}"
            raise kind(what, hint="Refresh the view: its kept delta begins anew.") from error
        self.check_there()
        report = Refresher(self.engine).report(plan, outcome, time.perf_counter() - started, outcome.timings)
        return replace(report, mode="propagated", time=following.rolling.mark)

    def check_there(self) -> None:
        """Without a lock the view may be dropped while its delta is kept: then that goes after it."""
        own = self.definition.schema, self.definition.name
        if self.engine.lock_file is None and self.engine.catalog.is_gone(*own):
            self.engine.catalog.discard_hidden(KEPT_DELTA, *own)
            raise MissingError(f"{self.definition.full_name} was dropped meanwhile")

    def explained(self) -> str:
        """What the next step would do. Commits that are new get their times; the kept delta stays as it is."""
        with self.engine.lock():
            self.compiled = self.planner.compiled(self.definition)
            body, keeping = body_for(self.definition, self.compiled), KeptDelta(self.engine, self.definition)
            self.standing = self.clock.standing(self.definition)
            own, kept = self.standing.view_time, keeping.of(body, self.standing)
            if kept is None and own is None:
                told = "The view is at no recorded time: it is refreshed first, and its kept delta begins there."
                return explain_propagation(self.compiled, told, None)
            if kept is None:
                assert own is not None
                kept = keeping.empty(body, relations_of(body), own)
            following = self.following(body, kept, self.standing.order.newest)
            told = f"High-water mark: {self.standing.told(kept.mark)}"
            plan = self.plan(kept, following) if following is not None else None
            return explain_propagation(self.compiled, told, plan)

    def following(self, body: Body, kept: Kept, end: int) -> Next | None:
        return self.next_term(body, kept, end) if self.definition.intervals else self.interval(body, kept, end)

    def begun(self, body: Body) -> Kept:
        """A kept delta from where the view is."""
        if self.standing.view_time is None:
            # of its sources' versions some were never there at once: the newest state is a recorded one
            pins = self.standing.versions(self.standing.order.newest)
            Refresher(self.engine).refresh(self.definition, full=False, pins=pins)
            self.standing = self.clock.standing(self.definition)
        own = self.standing.view_time
        assert own is not None
        with self.engine.session_for(self.definition) as session:
            begun = KeptDelta(self.engine, self.definition).begin(body, relations_of(body), own, session)
        self.check_there()
        return begun

    # one interval for all sources

    def interval(self, body: Body, kept: Kept, end: int) -> Next | None:
        """Commits from the mark on, until they have as many rows as a step is to have."""
        after, rolling = kept.mark, kept.rolling
        if end <= self.standing.still(after):
            return None
        target = Settings.of(self.engine.spark).propagate_rows
        keys = {table: key for key, table in self.standing.ids.items()}
        upto, total = after, 0
        for unit in self.standing.order.units:
            if unit.source not in keys or not after < unit.time <= end:
                continue
            rows = self.rows_of(keys[unit.source], unit.version) or 0
            if upto > after and total + rows > target:
                break
            upto, total = unit.time, total + rows
        reads = {key: self.changed(key, key, Span(after, upto)) for key in self.compiled.sources}
        done = replace(rolling, forward=(kept.mark,) * len(rolling.forward), lists=((),) * len(rolling.lists))
        return Next(done.at_once(upto), reads, body, self.compiled.sources)

    # an interval of its own for each source

    def next_term(self, body: Body, kept: Kept, end: int) -> Next | None:
        found = apart(body.node)
        if found is None:
            raise NotIncremental(
                f"{self.definition.full_name} cannot be rolled by intervals of its sources: it is no join of tables",
                hint="Without deltaic.interval.<source> it is propagated by one interval for all.",
            )
        node, leaves = found
        rolling = kept.rolling
        while True:
            if not rolling.pending:
                source = rolling.next_source
                upto = self.forward_upto(leaves[source][1], rolling.forward[source], end)
                if upto <= rolling.forward[source]:
                    return None
                term = rolling.forward_term(source, upto)
                if self.is_empty(term, leaves):
                    rolling = rolling.passed(source, upto)
                    continue
                return self.of_term(replace(body, node=node), term, leaves, rolling.rolled(term, term.at_least))
            term = rolling.pending[0]
            if not self.is_empty(term, leaves):
                after = rolling.compensated(term.at_least)
                return self.of_term(replace(body, node=node), term, leaves, after)
            rolling = rolling.skipped()

    def forward_upto(self, source: str, after: int, end: int) -> int:
        """As many commits of a source as its interval has; all there are, where it has none."""
        named = {name.lower(): commits for name, commits in self.definition.intervals.items()}
        commits = named.get(source) or named.get(source.split(".", 1)[-1])
        units = self.standing.order.between(self.standing.ids[source], after, end)
        return units[commits - 1].time if commits and len(units) > commits else end

    def is_empty(self, term: Term, leaves: Sequence[tuple[str, str]]) -> bool:
        return any(not self.versions_in(leaves[place][1], span) for place, span in term.spans.items())

    def of_term(self, body: Body, term: Term, leaves: Sequence[tuple[str, str]], rolling: Rolling) -> Next:
        reads: dict[str, SourceRead] = {}
        for place, (name, source) in enumerate(leaves):
            part = term.parts[place]
            wanted = Span(term.wanted[place], term.wanted[place])
            reads[name] = self.changed(name, source, part or wanted)
        origins = {name: self.compiled.sources[source] for name, source in leaves}
        kind = "forward" if len(term.spans) == 1 else "overlap, taken back" if term.sign < 0 else "overlap, put back"
        return Next(rolling, reads, body, origins, term.sign, f"roll ({kind})")

    # reading

    def versions_in(self, source: str, span: Span) -> Versions:
        """The commits of a source in a span that changed rows."""
        units = self.standing.order.between(self.standing.ids[source], span.after, span.upto)
        return [(u.version, u.time) for u in units if self.rows_of(source, u.version) is not None]

    def rows_of(self, source: str, version: int) -> int | None:
        """How many rows a commit changed, about; None if it changed none."""
        if (source, version) not in self._rows:
            self._rows[source, version] = self.count_rows(source, version)
        return self._rows[source, version]

    def count_rows(self, source: str, version: int) -> int | None:
        live = self.compiled.sources[source].live
        if live is not None:
            return live.changed_rows(version - 1, version) or None
        log, used = Log(self.compiled.sources[source].ref, self.engine.spark), self.used(source)
        names = [name for name, _ in used]
        change = plan_change(log, version - 1, version, names, allow_rs=self.planner.use_rs)
        return None if change.kind == "none" else change.rows or 1

    def used(self, source: str) -> list[tuple[str, str]]:
        return self.compiled.used_columns.get(source, [])

    def changed(self, name: str, key: str, span: Span) -> SourceRead:
        """How a source is read: its changes in a span, and its state at the end of it."""
        source = self.compiled.sources[key]
        old, new = (self.standing.versions(at)[key] for at in (span.after, span.upto))
        log = Log(source.ref, self.engine.spark)
        snapshot = log.snapshot(new)
        before, used = self.standing.last.sources[key], used_columns(self.compiled, key, snapshot)
        problems = [str(reason) for reason in source_reasons(source, before, snapshot, used, log)]
        lost = source.live.lost(old) if source.live is not None else None
        if lost is not None:
            problems.append(str(lost))
        if problems:
            raise NotIncremental(
                f"{self.definition.full_name} cannot be propagated: {'; '.join(problems)}",
                hint="Refresh the view: it is recomputed, and its kept delta begins anew.",
            )
        recorded = [u.version for u in self.standing.order.between(self.standing.ids[key], span.after, span.upto)]
        if recorded != list(range(old + 1, new + 1)):  # some were cleaned out of the log before anybody saw them
            raise HistoryGone(
                f"{self.definition.full_name} cannot be propagated: commits of {key} after version {old} are gone",
                hint="Refresh the view: its kept delta begins anew.",
            )
        versions = self.versions_in(key, span)
        return SourceRead(
            name, source.relation, old, new,
            change_kind="timed" if versions else "none",
            change_rows=sum(self.rows_of(key, version) or 0 for version, _ in versions),
            change_note=f"{len(versions)} commits, timed",
            change_from=old, change_upto=new,
            rs_states=self.planner.small_states(source, old, new, self.used(key)),
            shown=snapshot.shown, rows=source.live.rows() if source.live else snapshot.rows, files=snapshot.files,
            rs_finds=self.planner.can_find(source, new, self.used(key)), times=tuple(versions),
            by_files=self.planner.odd_texts, live=source.live is not None,
        )  # fmt: skip

    def plan(self, kept: Kept, following: Next) -> Plan:
        known = known_of(following.reads, StoredView("", None, {}))
        steps = propagation_steps(following.body, following.reads, known, following.sign)
        columns = [*(f.name for f in following.body.columns), WEIGHT, TIME]
        write = WriteView("append to the kept delta", kept.table.append_sql(ARTIFACT, columns), kind=Write.APPEND)
        paths = {s.ref.place: key for key, s in self.compiled.sources.items()}
        return Plan(
            self.definition, self.compiled, "incremental", following.technique, (), following.reads, [*steps, write],
            kept.table, kept.progress(following.rolling), paths, known, "delta-rs",
        )  # fmt: skip


def relations_of(body: Body) -> int:
    """How many sources a propagation has forward marks of."""
    found = apart(body.node)
    return len(found[1]) if found else len(set(sources(body.node)))


class Propagating(Run):
    """A run whose delta is appended as it is."""

    def compute(self, step: ComputeDelta, small: bool) -> None:
        frame = self.session.sql(step.sql)
        if not small:
            self.desk.keep(frame.selectExpr(f"1 AS `{OP}`", "*")).createOrReplaceTempView(ARTIFACT)
            self.outcome.delta_rows = None
            return
        rows = self.desk.collected(frame)
        self.outcome.delta_rows = rows.num_rows
        self.arrow = rows.add_column(0, OP, pa.array([1] * rows.num_rows, pa.int32()))
