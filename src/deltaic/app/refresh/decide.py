"""What a refresh will do: looks at the sources and the view, and decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltaic.algebra.nodes import State
from deltaic.algebra.reasons import Code, NotLowered, Reason, too_deep
from deltaic.algebra.size import why_delta_too_large
from deltaic.app.catalogs.live import LiveTable
from deltaic.app.refresh.choice import Choice, learnt_from
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.sources import Source
from deltaic.app.refresh.stored import (
    create_sql,
    definition_moves,
    depth_of,
    may_be_looked_up,
    progress_of,
    recompute_sql,
    same_columns,
    stored_columns,
    stored_view,
    used_columns,
    write_step,
)
from deltaic.app.refresh.upkeep import with_vacuum
from deltaic.app.refresh.why_full import source_reasons, view_reasons
from deltaic.app.rounds.coded import rounds_run_here
from deltaic.app.values.definition import Definition, definition_in
from deltaic.app.values.settings import Settings
from deltaic.delta.common import Columns, Shape, shapes
from deltaic.delta.sets import ALGORITHMS
from deltaic.errors import ConcurrentRefresh, DeltaicError, HistoryGone, NotIncremental
from deltaic.plan.cost import WHOLE_ROWS, delta_rows, price_of_full, price_of_steps, price_of_write
from deltaic.plan.iterating import evaluation_steps, fixpoints
from deltaic.plan.maintain import Known, Maintenance, Way
from deltaic.plan.program import Program, program_for
from deltaic.plan.recursion_cost import Reach
from deltaic.plan.refreshing import known_of, refresh_steps
from deltaic.plan.steps import RS_ROWS, SourceRead, Step, StoredView, Write, WriteView
from deltaic.sql.statements import Policy
from deltaic.store.change import ChangePlan, plan_change
from deltaic.store.log import Log, OwnCommit
from deltaic.store.own_table import TRY_AGAIN, OwnTable
from deltaic.store.progress import Progress
from deltaic.store.state import why_no_rs_state
from deltaic.store.table import Snapshot, TableRef, padded_type

if TYPE_CHECKING:
    from deltaic.app.refresh.shared import Together


_STAYS = "The view stays as it was. Bring back what it reads, or change its query: ALTER MATERIALIZED VIEW ... AS."


@dataclass(frozen=True)
class Plan:
    """What a refresh will do. Explain prints it, `execute` walks it; where it cannot be done, there is another."""

    definition: Definition
    compiled: Compiled | None
    mode: str
    technique: str
    reasons: tuple[Reason, ...]
    reads: Mapping[str, SourceRead]
    steps: list[Step]
    table: OwnTable
    progress: Progress | None
    tables: Mapping[str, str] = field(default_factory=dict)
    """A source's path to its name, to say whose rows were read."""
    known: Known | None = None
    """What an incremental refresh was planned by."""
    writer: str = "spark"
    """What an incremental refresh is written by: spark, delta-rs, or marks (deletion vectors)."""
    choice: Choice | None = None
    """What an incremental refresh and a recompute were predicted to take, where there was a choice."""
    kept: tuple[TableRef, int] | None = None
    """The kept delta that is applied, if one is, and its version that was looked at."""
    properties: Mapping[str, str] | None = None
    """What the view's table is told of itself, in the commit of its rows."""


def makes_anew(steps: Sequence[Step]) -> bool:
    """Whether the view's table is replaced by another, which may have other columns."""
    return any(isinstance(step, WriteView) and step.kind is Write.ANEW for step in steps)


@dataclass(frozen=True)
class Incremental:
    """How a view would be refreshed by what changed, and what that would take."""

    known: Known
    writer: str
    choice: Choice
    steps: list[Step]


class Planner:
    """Decides, and changes nothing but captured logs, which it has brought up to now first."""

    def __init__(
        self,
        engine: Engine,
        *,
        odd_texts: bool = False,
        together: Together | None = None,
        looking: bool = False,
    ) -> None:
        """`looking`: nothing will be written, and so nothing marked in the view's files."""
        self.engine, self.odd_texts, self.together, self.looking = engine, odd_texts, together, looking
        self.use_rs = engine.use_rs and not odd_texts

    def plan(self, definition: Definition, *, full: bool = False, pins: Mapping[str, int] | None = None) -> Plan:
        """Everything a refresh would do, without doing it."""
        self.engine.capture(definition)
        table, marked = self.looked_at(definition)
        last = Progress.of(marked.commit) if marked else None
        reasons = list(view_reasons(definition, marked, last, full, table.id))
        if last is not None and not reasons and not definition_moves(last):
            reads = self.unchanged(last, pins or {})
            if reads is not None:
                return Plan(definition, None, "noop", "none", (), reads, [], table, last)
        compiled = self.compiled(definition)
        states = self.states(compiled, _not_back(pins or {}, last))
        reads = self.reads(compiled, states, last, reasons)
        if isinstance(compiled.way, Reason):
            reasons.append(compiled.way)
        elif not reasons and not same_columns(table, compiled):
            reasons.append(Reason(Code.DEFINITION_CHANGED, "the view is to be stored in another way than it is"))
        try:
            return self.decided(definition, compiled, table, last, reads, reasons, states)
        except RecursionError:
            reasons.append(too_deep())
        except NotLowered as large:
            reasons.append(large.reason)
        return self.decided(definition, compiled, table, last, reads, reasons, states)

    def looked_at(self, definition: Definition) -> tuple[OwnTable, OwnCommit | None]:
        """The view's table and its newest refresh, as of one version, at which the view is what it is thought to be."""
        table = self.engine.view_table(definition)
        marked = table.last_refresh()
        now = definition_in(table.log.snapshot(table.at).properties, definition.schema, definition.name)
        if now != definition:
            raise ConcurrentRefresh(f"{definition.full_name} was given another query meanwhile", hint=TRY_AGAIN)
        return table, marked

    def compiled(self, definition: Definition) -> Compiled:
        """A query that was right when the view was made can be wrong now: the error then says whose it is."""
        try:
            return self.engine.compiled(definition)
        except DeltaicError as error:
            hint = error.hint or _STAYS
            raise type(error)(f"{definition.full_name}: {error.what}", at=error.at, hint=hint) from error

    def unchanged(self, last: Progress, pins: Mapping[str, int]) -> dict[str, SourceRead] | None:
        """The reads of a view whose sources have not moved: milliseconds, and no Spark."""
        found: dict[str, SourceRead] = {}
        for key, state in last.sources.items():
            now = self.engine.source_log(key)
            if now is None or now[0].ref.path is None:
                return None
            live = self.engine.live(key)
            if live is not None and live.lost(state.version) is not None:
                return None
            log, newest = now
            version = max(pins.get(key, 0), state.version) if key in pins else newest
            if version < state.version or log.snapshot(version).table_id != state.table_id or not state.is_of(log):
                return None
            try:
                commits = log.commits(state.version, version)
            except HistoryGone:
                return None
            if any(commit.data_change or commit.metadata is not None for commit in commits):
                return None
            found[key] = SourceRead(key, log.ref.relation, state.version, version)
        return found

    def states(self, compiled: Compiled, pins: Mapping[str, int]) -> dict[str, Snapshot]:
        """Of a table that is named in two ways there is one state: a writer may be at work."""
        found, newest = {}, dict[str, int]()
        for key, source in compiled.sources.items():
            log = Log(source.ref, self.engine.spark)
            version = pins[key] if key in pins else newest.setdefault(source.ref.place, log.version())
            found[key] = replace(log.snapshot(version), fingerprint=log.fingerprint(version))
        return found

    def reads(
        self,
        compiled: Compiled,
        states: Mapping[str, Snapshot],
        last: Progress | None,
        reasons: list[Reason],
    ) -> dict[str, SourceRead]:
        """How each source will be read; what stands against reading its change is added to the reasons."""
        used = self.used_columns(compiled)
        reads: dict[str, SourceRead] = {}
        for key, source in compiled.sources.items():
            snapshot, log = states[key], Log(source.ref, self.engine.spark)
            before = last.sources.get(key) if last else None
            used_now = used_columns(compiled, key, snapshot)
            own = list(source_reasons(source, before, snapshot, used_now, log)) if last is not None else []
            lost = source.live.lost(before.version) if before is not None and source.live is not None else None
            own += [lost] if lost is not None else []
            reasons.extend(own)
            if before is None or own or reasons:
                reads[key] = _whole(key, source, snapshot)
                continue
            try:
                change = self.change(source, before.version, snapshot.version, used.get(key, []))
            except HistoryGone as gone:
                reasons.append(Reason(Code.HISTORY_GONE, gone.what))
                reads[key] = _whole(key, source, snapshot)
                continue
            reads[key] = SourceRead(
                key, source.relation, before.version, snapshot.version, change.kind, change.sql,
                change.rows, change.reason, change.after, change.upto,
                self.small_states(source, before.version, snapshot.version, used.get(key, [])), snapshot.shown,
                change.appends, source.live.rows() if source.live else snapshot.rows, snapshot.files,
                self.can_find(source, snapshot.version, used.get(key, [])), live=source.live is not None,
            )  # fmt: skip
        return reads

    def used_columns(self, compiled: Compiled) -> dict[str, list[tuple[str, str]]]:
        """Name and type of the columns of each source that may be read: those of joins in common are for all."""
        used = {key: dict(columns) for key, columns in compiled.used_columns.items()}
        own = {shaped.shape for shaped in shapes(compiled.way.root)} if isinstance(compiled.way, Maintenance) else ()
        for shape, columns in self.common(compiled.definition).items():
            for place, column in columns if shape in own else ():
                used[shape.tables[place]][column.origin] = column.field.type
        return {key: sorted(columns.items()) for key, columns in used.items()}

    def common(self, definition: Definition) -> Mapping[Shape, Columns]:
        """The joins that views refreshed together with this one have too."""
        return self.together.common.get(evaluated_under(definition), {}) if self.together else {}

    def small_states(self, source: Source, old: int, new: int, used: list[tuple[str, str]]) -> frozenset[State]:
        """The states of a source that are cheaper read by delta-rs."""
        if not self.use_rs or source.live:
            return frozenset()
        log, columns = Log(source.ref, self.engine.spark), [name for name, _ in used]
        versions = ((State.OLD, old), (State.NEW, new))
        return frozenset(state for state, version in versions if why_no_rs_state(log, version, columns) is None)

    def can_find(self, source: Source, version: int, used: list[tuple[str, str]]) -> bool:
        """Whether rows may be looked for in the files of a source, of any size."""
        log, columns = Log(source.ref, self.engine.spark), [name for name, _ in used]
        return self.use_rs and source.live is None and may_be_looked_up(log, version, columns)

    def still(self, key: str, source: Source, now: Snapshot, used: list[tuple[str, str]]) -> SourceRead:
        """A source that is read as it is at a version; what changed of it, if anything did, comes another way."""
        return replace(
            _whole(key, source, now),
            old=now.version,
            rs_states=self.small_states(source, now.version, now.version, used),
            rs_finds=self.can_find(source, now.version, used),
        )

    def change(self, source: Source, old: int, new: int, used: list[tuple[str, str]]) -> ChangePlan:
        log = Log(source.ref, self.engine.spark)
        columns = [name for name, _ in used]
        if source.live is not None:
            return live_change(source.live, old, new, columns)
        return plan_change(log, old, new, columns, allow_rs=self.use_rs, allow_feed=not self.odd_texts)

    def decided(
        self,
        definition: Definition,
        compiled: Compiled,
        table: OwnTable,
        last: Progress | None,
        reads: dict[str, SourceRead],
        reasons: list[Reason],
        states: Mapping[str, Snapshot],
    ) -> Plan:
        forced = any(r.code is Code.POLICY for r in reasons)
        if reasons and definition.policy is Policy.STRICT and not forced:
            raise NotIncremental(
                f"{definition.full_name} cannot be refreshed incrementally: {'; '.join(map(str, reasons))}",
                hint="REFRESH MATERIALIZED VIEW ... FULL recomputes it once, whatever the policy.",
            )
        paths = {s.ref.place: key for key, s in compiled.sources.items()}
        settings = Settings.of(self.engine.spark)
        way = None if reasons else self.incremental(compiled, table, last, reads, settings)
        if not reasons and way is None:
            return Plan(definition, compiled, "noop", "none", (), reads, [], table, last, paths)
        dearer = way.choice.why_full(definition, reads, settings) if way else None
        why = (*reasons, *([dearer] if dearer else []))
        mode, technique, steps = "full", "recompute", list[Step]()
        if way is not None and not why:
            mode, technique, steps = "incremental", way.choice.technique, way.steps
        else:
            steps = self.full_steps(compiled, reads, table)
        progress = progress_of(
            compiled, states, last.refresh + 1 if last else table.next_refresh(), mode=mode, technique=technique,
            reasons=why, prices=way.choice.recorded() if way else None, depth=depth_of(last),
            table=None if makes_anew(steps) else table.id, at=table.at,
        )  # fmt: skip
        progress = with_vacuum(progress, last, settings.vacuum_hours)
        plan = Plan(definition, compiled, mode, technique, why, reads, steps, table, progress, paths)
        return replace(plan, known=way.known, writer=way.writer, choice=way.choice) if way else plan

    def incremental(
        self,
        compiled: Compiled,
        table: OwnTable,
        last: Progress | None,
        reads: dict[str, SourceRead],
        settings: Settings,
    ) -> Incremental | None:
        """The steps by the cheapest writer, and what they and a recompute are thought to take; None if nothing is to
        be done."""
        way = compiled.way
        assert isinstance(way, Maintenance)
        stored = stored_view(compiled, table, self.use_rs)
        known = replace(known_of(reads, stored), common=self.common(compiled.definition))
        program = self.program(way, known)
        if program is None:
            return None
        reach = self.reach(way, reads, stored, last, known, settings)
        writers = self.writers(compiled, table, reads, stored, program, known, settings, reach)
        writer = min(writers, key=writers.__getitem__)
        stored = replace(stored, marked=writer == "marks")
        steps = [*refresh_steps(way, reads, stored, known), write_step(compiled, table, known)]
        price = price_of_steps(steps, reads, stored, program, known, writers[writer], reach)
        full = price_of_full(way, reads, stored, reach)
        choice = Choice(technique_name(way, known), price, full, learnt_from(table.log), writers)
        return Incremental(known, writer, choice, steps)

    def program(self, way: Maintenance, known: Known) -> Program | None:
        """What an incremental refresh computes, if it is not too much to plan."""
        program = program_for(way, known)
        large = why_delta_too_large(binding.node for binding in program.bindings) if program else None
        if large is not None:
            raise NotLowered(large)
        return program

    def writers(
        self,
        compiled: Compiled,
        table: OwnTable,
        reads: Mapping[str, SourceRead],
        stored: StoredView,
        program: Program,
        known: Known,
        settings: Settings,
        reach: Reach | None = None,
    ) -> dict[str, float]:
        """Who could write the delta, and what it would take. delta-rs writes the files anew that have a row to replace,
        marks only say which rows are gone; Spark does what neither can."""
        way, snapshot = compiled.way, table.log.snapshot()
        assert isinstance(way, Maintenance)
        key = [compiled.stored[name] for name in way.replaced(known)]
        possible = ["spark"]
        if self.use_rs and few(reads) and table.can_use_rs(snapshot):
            possible.append("delta-rs")
        if self.use_rs and not self.looking and table.why_not_marked(key) is None:
            possible.append("marks")
        if settings.writer in possible:
            possible = [settings.writer]
        delta = delta_rows(program, known, reach)
        return {name: price_of_write(name, way, delta, stored, snapshot.bytes or 0) for name in possible}

    def reach(
        self,
        way: Maintenance,
        reads: Mapping[str, SourceRead],
        stored: StoredView,
        last: Progress | None,
        known: Known,
        settings: Settings,
    ) -> Reach | None:
        """How far a change goes in the recursion of a view that has one."""
        if way.recursion is None:
            return None
        rows = [read.rows for key, read in reads.items() if key in way.recursion.reads]
        small = all(count is not None and count <= settings.rounds_here for count in (*rows, stored.rows))
        here = self.use_rs and small and all(map(rounds_run_here, fixpoints(way, known)))
        return Reach.of(way.recursion, reads, stored.rows, depth_of(last), here=here)

    def full_steps(self, compiled: Compiled, reads: Mapping[str, SourceRead], table: OwnTable) -> list[Step]:
        evaluate = evaluation_steps(compiled.recursion.components, reads)
        return [*evaluate, self.full_step(compiled, reads, table)]

    def full_step(self, compiled: Compiled, reads: Mapping[str, SourceRead], table: OwnTable) -> WriteView:
        query = recompute_sql(compiled, reads)
        columns = stored_columns(compiled)
        # a CHAR is stored as one, and would pad the texts of a column that is none any more
        if same_columns(table, compiled) and not any(map(padded_type, table.log.snapshot(table.at).fields)):
            rows = table.log.snapshot().rows
            small = self.use_rs and rows is not None and rows <= WHOLE_ROWS
            overwrite = table.overwrite_sql(query, columns)
            return WriteView(
                "recompute the whole view", overwrite, kind=Write.OVERWRITE, query=query if small else None
            )
        title = "recompute the whole view, whose columns may have changed"
        return WriteView(title, create_sql(compiled, table, query), kind=Write.ANEW)


def live_change(live: LiveTable, old: int, new: int, columns: Sequence[str]) -> ChangePlan:
    """The captured changes of a live source."""
    rows = live.changed_rows(old, new) if new > old else 0
    if not rows:
        return ChangePlan("none", old, new, None, 0, f"{new - old} commits of its log, none with rows")
    return ChangePlan("feed", old, new, live.change_sql(old, new, columns), rows, "captured changes, read by Spark")


def evaluated_under(definition: Definition) -> tuple[object, ...]:
    """What the same expression must have in common to have the same value in two views."""
    return (definition.current_schema, *sorted(definition.settings.items()))


def technique_name(way: Maintenance, known: Known) -> str:
    if way.recursion is not None:
        return "dred"
    if way.way is Way.SETS:
        return Way.SETS.value if way.technique == "auto" else way.technique
    if way.technique not in ("auto", "base", *ALGORITHMS):
        return way.technique
    if way.preserved:
        return f"{Way.CHANGES.value} (outer joins)"
    if way.by_groups(known):
        return f"base ({Way.KEYS.value})"
    if way.bags:
        return f"{Way.CHANGES.value} (multiplicities)"
    return way.way.value if way.way is Way.CHANGES else f"base ({way.way.value})"


def few(reads: Mapping[str, SourceRead]) -> bool:
    """Whether no source changed so much that the change is Spark's to read."""
    return all(r.change_rows is not None and r.change_rows <= RS_ROWS for r in reads.values() if r.changed)


def first_reads(compiled: Compiled, states: Mapping[str, Snapshot]) -> dict[str, SourceRead]:
    """The reads of a view that is computed whole."""
    return {key: _whole(key, source, states[key]) for key, source in compiled.sources.items()}


def _whole(key: str, source: Source, now: Snapshot) -> SourceRead:
    rows = source.live.rows() if source.live else now.rows
    missing = frozenset[str]() if source.live else {f.name for f in source.columns} - set(now.columns)
    return SourceRead(
        key, source.relation, None, now.version, shown=now.shown, rows=rows, files=now.files, live=bool(source.live),
        missing=frozenset(missing),
    )  # fmt: skip


def _not_back(pins: Mapping[str, int], last: Progress | None) -> dict[str, int]:
    """A view that another refresh brought further meanwhile stays where it is."""
    done = last.sources if last else {}
    return {key: max(pin, done[key].version) if key in done else pin for key, pin in pins.items()}
