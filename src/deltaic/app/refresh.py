"""One refresh of one view: look at the sources, decide, run the steps, commit."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from deltaic.algebra.nodes import State
from deltaic.algebra.reasons import Code, Reason
from deltaic.app.choice import Choice, learnt_from
from deltaic.app.compile import Compiled, Source, pinned_text
from deltaic.app.definition import PROPERTY, Definition
from deltaic.app.report import Report
from deltaic.app.run import Outcome, Run, few
from deltaic.app.settings import Settings
from deltaic.app.shared import Shared
from deltaic.app.why_full import digest, recoverable, source_reasons, view_reasons
from deltaic.errors import DeltaicError, HistoryGone, NotIncremental
from deltaic.plan.cost import WHOLE_ROWS, delta_rows, price_of_full, price_of_steps, price_of_write
from deltaic.plan.maintain import Known, Maintenance, Way
from deltaic.plan.program import ARTIFACT, Program, program_for
from deltaic.plan.steps import SourceRead, Step, StoredView, WriteView, full_query, known_of, refresh_steps
from deltaic.sql.statements import Policy
from deltaic.store import partitions
from deltaic.store.change import ChangePlan, plan_change
from deltaic.store.log import Log, last_commit_with_marker
from deltaic.store.progress import Progress, SourceState
from deltaic.store.state import SCANNED_BYTES, why_no_rs_state
from deltaic.store.table import Snapshot, first_line, physical_name
from deltaic.store.view import ViewTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaic.app.warehouse import Warehouse

_log = logging.getLogger(__name__)


@dataclass
class Plan:
    """What a refresh will do. Explain prints it, `execute` walks it."""

    definition: Definition
    compiled: Compiled | None
    mode: str
    technique: str
    reasons: tuple[Reason, ...]
    reads: Mapping[str, SourceRead]
    steps: list[Step]
    table: ViewTable
    progress: Progress | None
    tables: Mapping[str, str] = field(default_factory=dict)
    """A source's path to its name, to say whose rows were read."""
    known: Known | None = None
    """What an incremental refresh was planned by."""
    writer: str = "spark"
    """What an incremental refresh is written by: spark, delta-rs, or marks (deletion vectors)."""
    choice: Choice | None = None
    """What an incremental refresh and a recompute were predicted to take, where there was a choice."""


class Refresher:
    def __init__(self, warehouse: Warehouse, shared: Shared | None = None) -> None:
        self.warehouse, self.shared = warehouse, shared or Shared()

    def refresh(self, definition: Definition, *, full: bool, pins: Mapping[str, int] | None = None) -> Report:
        started = time.perf_counter()
        with self.warehouse.lock():
            plan = self.plan(definition, full=full, pins=pins)
            if plan.mode == "noop":
                return self.noop_report(plan, time.perf_counter() - started)
            planned = time.perf_counter() - started
            try:
                outcome = self.execute(plan)
            except Exception as error:  # Spark, Connect and delta-rs share no class; what is not known is raised again
                reason = recoverable(error)
                if reason is None or plan.mode != "incremental":
                    raise
                plan = self.fall_back(plan, reason)
                outcome = self.execute(plan)
        timings = {"plan": planned, **outcome.timings}
        return self.report(plan, outcome, time.perf_counter() - started, timings)

    # deciding

    def plan(self, definition: Definition, *, full: bool = False, pins: Mapping[str, int] | None = None) -> Plan:
        """Everything a refresh would do, without doing it."""
        table = self.warehouse.view_table(definition)
        marked = last_commit_with_marker(table.log)
        last = Progress.of(marked.commit) if marked else None
        reasons = list(view_reasons(definition, marked, last, full))
        if last is not None and not reasons and not definition_moves(last):
            reads = self.unchanged(last, pins or {})
            if reads is not None:
                return Plan(definition, None, "noop", "none", (), reads, [], table, last)
        compiled = self.compiled(definition)
        states = self.states(compiled, _not_back(pins or {}, last))
        reads = self.reads(compiled, states, last, reasons)
        if isinstance(compiled.way, Reason):
            reasons.append(compiled.way)
        elif not reasons and not _same_columns(table, compiled):
            reasons.append(Reason(Code.DEFINITION_CHANGED, "the view is to be stored in another way than it is"))
        return self.decided(definition, compiled, table, last, reads, reasons, states)

    def compiled(self, definition: Definition) -> Compiled:
        """A query that was right when the view was made can be wrong now: the error then says whose it is."""
        try:
            return self.warehouse.compiled(definition)
        except DeltaicError as error:
            raise type(error)(f"{definition.full_name}: {error.what}", at=error.at, hint=error.hint) from error

    def unchanged(self, last: Progress, pins: Mapping[str, int]) -> dict[str, SourceRead] | None:
        """The reads of a view whose sources have not moved: milliseconds, and no Spark."""
        found: dict[str, SourceRead] = {}
        for key, state in last.sources.items():
            ref = self.warehouse.source_ref(key)
            if ref is None or ref.path is None:
                return None
            log = Log(ref, self.warehouse.spark)
            version = max(pins.get(key, 0), state.version) if key in pins else log.version()
            if version < state.version or log.snapshot(version).table_id != state.table_id:
                return None
            try:
                commits = log.commits(state.version, version)
            except HistoryGone:
                return None
            if any(commit.data_change or commit.metadata is not None for commit in commits):
                return None
            found[key] = SourceRead(key, ref.relation, state.version, version)
        return found

    def states(self, compiled: Compiled, pins: Mapping[str, int]) -> dict[str, Snapshot]:
        found = {}
        for key, source in compiled.sources.items():
            log = Log(source.ref, self.warehouse.spark)
            found[key] = log.snapshot(pins.get(key, log.version()))
        return found

    def reads(
        self,
        compiled: Compiled,
        states: Mapping[str, Snapshot],
        last: Progress | None,
        reasons: list[Reason],
    ) -> dict[str, SourceRead]:
        """How each source will be read; what stands against reading its change is added to the reasons."""
        used = compiled.used_columns
        reads: dict[str, SourceRead] = {}
        for key, source in compiled.sources.items():
            snapshot = states[key]
            before = last.sources.get(key) if last else None
            own = list(source_reasons(source, before, snapshot, _used(compiled, key, snapshot)))
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
                key, source.ref.relation, before.version, snapshot.version, change.kind, change.sql,
                change.rows, change.reason, change.after, change.upto,
                self.small_states(source, before.version, snapshot.version, used.get(key, [])), snapshot.shown,
                change.appends, snapshot.rows, snapshot.files,
                self.can_find(source, snapshot.version, used.get(key, [])),
            )  # fmt: skip
        return reads

    def small_states(self, source: Source, old: int, new: int, used: list[tuple[str, str]]) -> frozenset[State]:
        """The states of a source that are cheaper read by delta-rs."""
        if not self.warehouse.use_rs:
            return frozenset()
        log, columns = Log(source.ref, self.warehouse.spark), [name for name, _ in used]
        versions = ((State.OLD, old), (State.NEW, new))
        return frozenset(state for state, version in versions if why_no_rs_state(log, version, columns) is None)

    def can_find(self, source: Source, version: int, used: list[tuple[str, str]]) -> bool:
        """Whether rows may be looked for in the files of a source, of any size."""
        log, columns = Log(source.ref, self.warehouse.spark), [name for name, _ in used]
        return self.warehouse.use_rs and _may_be_looked_up(log, version, columns)

    def change(self, source: Source, old: int, new: int, used: list[tuple[str, str]]) -> ChangePlan:
        log = Log(source.ref, self.warehouse.spark)
        columns = [name for name, _ in used]
        return plan_change(log, old, new, columns, allow_rs=self.warehouse.use_rs)

    def decided(
        self,
        definition: Definition,
        compiled: Compiled,
        table: ViewTable,
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
        paths = {s.ref.path or s.ref.relation: key for key, s in compiled.sources.items()}
        mode, technique, known, writer, choice = "full", "recompute", None, "spark", None
        steps: list[Step] = []
        if not reasons:
            assert isinstance(compiled.way, Maintenance)
            stored = stored_view(compiled, table, self.warehouse.use_rs)
            known = known_of(reads, stored)
            program = program_for(compiled.way, known)
            if program is None:
                return Plan(definition, compiled, "noop", "none", (), reads, [], table, last, paths)
            settings = Settings.of(self.warehouse.spark)
            writers = self.writers(compiled, table, reads, stored, program, known, settings)
            writer = min(writers, key=writers.__getitem__)
            stored = replace(stored, marked=writer == "marks")
            steps = [*refresh_steps(compiled.way, reads, stored), write_step(compiled, table, known)]
            mode, technique = "incremental", technique_name(compiled.way, known)
            choice = Choice(
                technique,
                price_of_steps(steps, reads, stored, program, known, writers[writer]),
                price_of_full(compiled.way, reads, stored),
                learnt_from(table.log),
                writers,
            )
            dearer = choice.why_full(definition, reads, settings)
            reasons.extend([dearer] if dearer else [])
        if reasons:
            mode, technique, steps = "full", "recompute", [self.full_step(compiled, reads, table)]
        why = tuple(reasons)
        prices = choice.recorded() if choice else None
        progress = progress_of(compiled, states, last, mode=mode, technique=technique, reasons=why, prices=prices)
        return Plan(
            definition, compiled, mode, technique, why, reads, steps, table, progress, paths, known, writer, choice
        )

    def writers(
        self,
        compiled: Compiled,
        table: ViewTable,
        reads: Mapping[str, SourceRead],
        stored: StoredView,
        program: Program,
        known: Known,
        settings: Settings,
    ) -> dict[str, float]:
        """Who could write the delta, and what it would take. delta-rs writes the files anew that have a row to replace,
        marks only say which rows are gone; Spark does what neither can."""
        way, snapshot = compiled.way, table.log.snapshot()
        assert isinstance(way, Maintenance)
        key = [compiled.stored[name] for name in way.replaced(known)]
        possible = ["spark"]
        if self.warehouse.use_rs and few(reads) and table.can_use_rs(snapshot):
            possible.append("delta-rs")
        if self.warehouse.use_rs and table.why_not_marked(key) is None:
            possible.append("marks")
        if settings.writer in possible:
            possible = [settings.writer]
        delta = delta_rows(program, known)
        return {name: price_of_write(name, way, delta, stored, snapshot.bytes or 0) for name in possible}

    def full_step(self, compiled: Compiled, reads: Mapping[str, SourceRead], table: ViewTable) -> WriteView:
        query = recompute_sql(compiled, reads)
        columns = stored_columns(compiled)
        if _same_columns(table, compiled):
            rows = table.log.snapshot().rows
            small = self.warehouse.use_rs and rows is not None and rows <= WHOLE_ROWS
            overwrite = table.overwrite_sql(query, columns)
            return WriteView("recompute the whole view", overwrite, None, query=query if small else None)
        return WriteView("recompute the whole view, whose columns changed", create_sql(compiled, table, query), None)

    def fall_back(self, plan: Plan, reason: Reason) -> Plan:
        """What turned out while running that the incremental way is closed."""
        assert plan.compiled is not None
        if plan.definition.policy is Policy.STRICT:
            raise NotIncremental(f"{plan.definition.full_name} cannot be refreshed incrementally: {reason}")
        assert plan.progress is not None
        plan.mode, plan.technique, plan.reasons = "full", "recompute", (reason,)
        figures = {**plan.progress.figures, "mode": "full", "reasons": [str(reason)]}
        figures.pop("prices", None)  # what it took is the price of both
        plan.progress = replace(plan.progress, technique="recompute", figures=figures)
        plan.steps = [self.full_step(plan.compiled, plan.reads, plan.table)]
        return plan

    # doing

    def execute(self, plan: Plan) -> Outcome:
        assert plan.compiled is not None
        assert plan.progress is not None
        with self.warehouse.session_for(plan.definition) as session:
            run = Run(session, plan.compiled, plan.table, plan.progress, self.warehouse.use_rs, self.shared)
            outcome = run.walk(plan)
            if outcome.written_by == "deletion vectors" and self.is_scattered(plan.table):
                self.fold(plan.table, session)
        if plan.mode == "full":  # its columns may be others now
            self.warehouse.catalog.register(plan.compiled.definition)
        return outcome

    def fold(self, table: ViewTable, session: SparkSession) -> None:
        """The refresh is made; what stands against folding its files stands against the next one too, which may try."""
        try:
            table.fold(session)
        except Exception as problem:  # classic and Connect sessions raise from different class trees
            _log.warning("%s: its files could not be put together: %s", table.ref.name, first_line(problem))

    def is_scattered(self, table: ViewTable) -> bool:
        return (table.log.snapshot().files or 0) > Settings.of(self.warehouse.spark).fold_files

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
            versions={key: r.new for key, r in plan.reads.items()},
            timings=timings,
            written_by=outcome.written_by,
            predicted=plan.choice.seconds if plan.choice else {},
            rows_there={key: read.rows for key, read in plan.reads.items()},
            files_there={key: read.files for key, read in plan.reads.items()},
        )

    def noop_report(self, plan: Plan, seconds: float) -> Report:
        versions = {key: read.new for key, read in plan.reads.items()}
        return Report(plan.definition.full_name, "noop", "none", versions=versions, seconds=seconds)


def _by_name(plan: Plan, by_path: Mapping[str, int] | None) -> dict[str, int] | None:
    """Figures under the names of the view and its sources."""
    if by_path is None:
        return None
    own = plan.table.ref.path or plan.table.ref.relation
    names = {**plan.tables, own: plan.definition.full_name}
    read = dict.fromkeys(plan.reads, 0)
    for path, count in by_path.items():
        name = names.get(path, path)
        read[name] = read.get(name, 0) + count
    return read


def technique_name(way: Maintenance, known: Known) -> str:
    if way.technique not in ("auto", "base"):
        return way.technique
    if way.marks:
        return f"{Way.CHANGES.value} (outer joins)"
    if way.by_groups(known):
        return f"base ({Way.KEYS.value})"
    if way.bags:
        return f"{Way.CHANGES.value} (multiplicities)"
    return way.way.value if way.way is Way.CHANGES else f"base ({way.way.value})"


def stored_view(compiled: Compiled, table: ViewTable, use_rs: bool) -> StoredView:
    version, columns = table.log.version(), compiled.stored
    small = use_rs and why_no_rs_state(table.log, version, list(columns.values())) is None
    return StoredView(
        table.ref.relation,
        version,
        columns,
        small,
        table.log.snapshot(version).rows,
        use_rs and _scanned_by_rs(compiled, table),
        use_rs and _may_be_looked_up(table.log, version, list(columns.values())),
    )


def _scanned_by_rs(compiled: Compiled, table: ViewTable) -> bool:
    """Whether delta-rs finds the same keys of outer joins in the view as Spark would."""
    assert isinstance(compiled.way, Maintenance)
    fields = compiled.way.root.fields
    names = [name for mark in compiled.way.marks for name in (mark.marker, *mark.keys)]
    # equal floats and equal nested values are Spark's to tell
    if not names or any(fields[name].type in ("float", "double") or "<" in fields[name].type for name in names):
        return False
    stored = [compiled.stored[name] for name in names]
    version = table.log.version()
    return _may_be_searched(table.log, version, stored)


def _may_be_searched(log: Log, version: int, columns: list[str]) -> bool:
    return why_no_rs_state(log, version, columns, most_rows=None, most_bytes=SCANNED_BYTES) is None


def _may_be_looked_up(log: Log, version: int, columns: list[str]) -> bool:
    if not _may_be_searched(log, version, columns):
        return False
    return partitions.why_not(str(log.ref.path), log.snapshot(version)) is None


def write_step(compiled: Compiled, table: ViewTable, known: Known) -> WriteView:
    way = compiled.way
    assert isinstance(way, Maintenance)
    key = tuple(compiled.stored[name] for name in way.replaced(known))
    sql = table.merge_sql(ARTIFACT, key, list(compiled.stored.values()))
    told = way.way is Way.CHANGES and not way.by_groups(known)
    return WriteView("replace the rows of those keys in the view", sql, None, key=key, all_there=told)


def stored_columns(compiled: Compiled) -> list[str]:
    if isinstance(compiled.way, Maintenance):
        return list(compiled.stored.values())
    return list(compiled.definition.columns)


def _same_columns(table: ViewTable, compiled: Compiled) -> bool:
    """Whether the table still has the query's columns, by name and type."""
    stored = StructType.fromJson(json.loads(table.log.snapshot().schema_json))
    if [field.name for field in stored.fields] != stored_columns(compiled):
        return False
    types = compiled.stored_types or tuple(field.dataType.simpleString() for field in compiled.schema.fields)
    return tuple(field.dataType.simpleString() for field in stored.fields) == types


def create_sql(
    compiled: Compiled,
    table: ViewTable,
    query: str,
    *,
    replacing: bool = True,
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
) -> str:
    """The statement that makes a view's table, or makes it anew, with its content."""
    definition = compiled.definition
    return table.create_sql(
        query,
        replace=replacing,
        partition_by=definition.partitioned_by,
        cluster_by=definition.clustered_by,
        properties={**(properties or {}), PROPERTY: definition.to_json()},
        comment=definition.comment,
        location=location,
    )


def recompute_sql(compiled: Compiled, reads: Mapping[str, SourceRead]) -> str:
    if isinstance(compiled.way, Maintenance):
        return full_query(compiled.way, reads, StoredView("", None, compiled.stored))
    text = pinned_text(compiled, reads)
    names = ", ".join(f"`{c.replace('`', '``')}`" for c in compiled.definition.columns)
    return f"SELECT * FROM (\n{text}\n) AS q({names})"


def definition_moves(last: Progress) -> bool:
    """Whether the answer may change though no source does."""
    return bool(last.figures.get("time_dependent"))


def progress_of(
    compiled: Compiled,
    states: Mapping[str, Snapshot],
    last: Progress | None,
    *,
    mode: str,
    technique: str,
    reasons: tuple[Reason, ...],
    prices: Mapping[str, object] | None = None,
) -> Progress:
    """What the commit of this refresh will say."""
    sources = {key: SourceState(s.version, s.table_id, _used(compiled, key, s)) for key, s in states.items()}
    figures: dict[str, object] = {"mode": mode, "definition": digest(compiled.definition)}
    figures["started"] = int(time.time() * 1000)
    figures.update(prices or {})
    if reasons:
        figures["reasons"] = [str(reason) for reason in reasons]
    if isinstance(compiled.way, Reason) and compiled.way.code is Code.NON_DETERMINISTIC:
        figures["time_dependent"] = True
    return Progress(
        refresh=last.refresh + 1 if last else 1,
        sources=sources,
        technique=technique,
        figures=figures,
    )


def first_reads(compiled: Compiled, states: Mapping[str, Snapshot]) -> dict[str, SourceRead]:
    """The reads of a view that is computed whole."""
    return {key: _whole(key, source, states[key]) for key, source in compiled.sources.items()}


def _whole(key: str, source: Source, now: Snapshot) -> SourceRead:
    return SourceRead(key, source.ref.relation, None, now.version, shown=now.shown, rows=now.rows, files=now.files)


def _not_back(pins: Mapping[str, int], last: Progress | None) -> dict[str, int]:
    """A view that another refresh brought further meanwhile stays where it is."""
    done = last.sources if last else {}
    return {key: max(pin, done[key].version) if key in done else pin for key, pin in pins.items()}


def _used(compiled: Compiled, key: str, snapshot: Snapshot) -> str:
    """The used columns of a source with their types and, as a name may be given anew, where they are stored."""
    stored = {field["name"]: physical_name(field) for field in snapshot.fields}
    return json.dumps([(name, kind, stored.get(name)) for name, kind in compiled.used_columns.get(key, [])])
