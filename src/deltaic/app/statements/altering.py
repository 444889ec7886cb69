"""ALTER ... AS another query, as a change: rules of a recursion, or branches of a UNION ALL, that are added or removed;
or other columns that follow from those that are there.

The view is first brought up to date under its old query. Then its rows are changed, by the change alone, in one commit
that has its new definition too: so nobody ever sees rows of one query under another, and of two who alter it one fails.
Such a commit is Deltaic's own to write (store/marks.py). Other columns are another table in one commit, definition and
all. What cannot be told as such a change, or written so, is computed anew at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from deltaic.algebra.canonical import canonical
from deltaic.algebra.nodes import Node
from deltaic.algebra.recursion import Predicate
from deltaic.algebra.simplify import simplify
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.decide import Plan, Planner
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.refresh.stored import (
    create_sql,
    depth_of,
    own_properties,
    progress_of,
    same_columns,
    stored_view,
    write_step,
)
from deltaic.app.refresh.upkeep import with_last_vacuum
from deltaic.app.refresh.why_full import recoverable
from deltaic.app.values.definition import PROPERTY, Definition
from deltaic.delta.dred import AlteredRules
from deltaic.plan.branches import AlteredBranches, branch_delta, branches
from deltaic.plan.columns import AlteredColumns, altered_columns
from deltaic.plan.maintain import Maintenance
from deltaic.plan.program import DELTA, Program, program_for
from deltaic.plan.refreshing import known_of, query_over_view, refresh_steps
from deltaic.plan.steps import SourceRead, Step, Write, WriteView
from deltaic.spark.telling import told_of
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.table import Snapshot


def _form(node: Node) -> Hashable:
    return canonical(simplify(node))


def altered_rules(old: Compiled, new: Compiled) -> AlteredRules | None:
    """What changed of a recursive view's rules; None if something else did."""
    before, after = old.way, new.way
    if not isinstance(before, Maintenance) or not isinstance(after, Maintenance):
        return None
    if before.recursion is None or after.recursion is None or _form(before.root) != _form(after.root):
        return None
    was = {p.source: p for p in before.recursion.predicates}
    now = {p.source: p for p in after.recursion.predicates}
    if [(p.source, p.name, p.types) for p in _sorted(was)] != [(p.source, p.name, p.types) for p in _sorted(now)]:
        return None
    removed, added = dict[str, tuple[Node, ...]](), dict[str, tuple[Node, ...]]()
    for source, p in was.items():
        gone, come = rules_without(p.rules, now[source].rules), rules_without(now[source].rules, p.rules)
        removed.update({source: tuple(gone)} if gone else {})
        added.update({source: tuple(come)} if come else {})
    return AlteredRules(removed, added)


def _sorted(predicates: dict[str, Predicate]) -> list[Predicate]:
    return [predicates[source] for source in sorted(predicates)]


def rules_without(some: Sequence[Node], others: Sequence[Node]) -> list[Node]:
    """Those of some trees that are not among others."""
    known = Counter(map(_form, others))
    found = []
    for node in some:
        if known[_form(node)]:
            known[_form(node)] -= 1
        else:
            found.append(node)
    return found


def altered_branches(old: Compiled, new: Compiled) -> AlteredBranches | None:
    """Which branches of a UNION ALL were added or removed; None if nothing else stays."""
    if not isinstance(old.way, Maintenance) or not isinstance(new.way, Maintenance):
        return None
    before, after = branches(old.way), branches(new.way)
    if before is None or after is None:
        return None
    removed, added = rules_without(before, after), rules_without(after, before)
    stays = len(removed) < len(before)
    return AlteredBranches(tuple(removed), tuple(added)) if stays else None


Altered = AlteredRules | AlteredBranches | AlteredColumns


def altered(old: Compiled, new: Compiled) -> Altered | None:
    return altered_rules(old, new) or altered_branches(old, new) or own_columns(old, new)


def own_columns(old: Compiled, new: Compiled) -> AlteredColumns | None:
    """Delta reads '' in a column that a table is partitioned by back as NULL: such a table does not tell its rows."""
    if not isinstance(old.way, Maintenance) or not isinstance(new.way, Maintenance) or old.definition.partitioned_by:
        return None
    return altered_columns(old.way, new.way)


def altered_definition(old: Definition, query: str) -> Definition:
    return replace(old, query=query, given=(), form=None, by_text=False)


def alteration(
    engine: Engine, old: Definition, query: str, properties: Mapping[str, str] = MappingProxyType({})
) -> Alteration:
    """Of a view as it is to one of another query."""
    return Alteration(engine, old, engine.compile_new(altered_definition(old, query)), properties)


class Alteration:
    """Of one view to another query; `properties` are those that its table gets besides."""

    def __init__(self, engine: Engine, old: Definition, new: Compiled, properties: Mapping[str, str]) -> None:
        self.engine, self.old, self.new, self.properties = engine, old, new, properties
        self.planner = Planner(engine)

    def plan(self) -> Plan | None:
        """What brings the view, as it is now, under the other query; None if it has to be computed anew."""
        before, (table, marked) = self.engine.compiled(self.old), self.planner.looked_at(self.old)
        change, way, last = altered(before, self.new), self.new.way, Progress.of(marked.commit) if marked else None
        if change is None or last is None or not isinstance(way, Maintenance) or (marked and marked.harmed):
            return None
        if isinstance(change, AlteredColumns):
            return self.columns_plan(change, before, way, table, last)
        if not same_columns(table, self.new) or table.why_not_marked([]) is not None:
            return None
        compiled = replace(self.new, sources={**before.sources, **self.new.sources})
        states = self.planner.states(compiled, {key: state.version for key, state in last.sources.items()})
        reads = self.reads(compiled, states, before)
        stored = stored_view(compiled, table, self.planner.use_rs)
        known = known_of(reads, stored)
        if isinstance(change, AlteredRules):
            known = replace(known, altered=change)
            program = program_for(way, known)
        else:
            program = Program((branch_delta(way, change, DELTA),)) if change.removed or change.added else None
        properties = {**self.properties, PROPERTY: self.new.definition.to_json()}
        own = {key: state for key, state in states.items() if key in self.new.sources}
        progress = progress_of(
            self.new,
            own,
            last.refresh + 1,
            mode="incremental",
            technique=_told(change),
            reasons=(),
            depth=depth_of(last),
        )
        progress = with_last_vacuum(progress, last)
        paths = {s.ref.place: key for key, s in compiled.sources.items()}
        if program is None:
            return Plan(
                self.new.definition, compiled, "noop", _told(change), (), reads, [], table, progress, paths,
                properties=properties,
            )  # fmt: skip
        key = [compiled.stored[name] for name in way.replaced(known)]
        if table.why_not_marked(key) is not None:
            return None
        stored = replace(stored, marked=True)
        steps = [*refresh_steps(way, reads, stored, known, program), write_step(compiled, table, known)]
        return Plan(
            self.new.definition, compiled, "incremental", _told(change), (), reads, steps, table, progress, paths,
            known, "marks", properties=properties,
        )  # fmt: skip

    def columns_plan(
        self, change: AlteredColumns, before: Compiled, way: Maintenance, table: OwnTable, last: Progress
    ) -> Plan:
        """The view's rows are read, and written as its new ones."""
        states = self.planner.states(self.new, {key: state.version for key, state in last.sources.items()})
        reads = self.reads(self.new, states, before)
        query = query_over_view(change.node, way, stored_view(before, table, use_rs=False), self.new.stored)
        title = "write the view's own rows with its new columns"
        sql = create_sql(self.new, table, query, properties={**own_properties(table), **self.properties})
        steps: list[Step] = [WriteView(title, sql, kind=Write.ANEW)]
        told = _told(change)
        progress = progress_of(self.new, states, last.refresh + 1, mode="incremental", technique=told, reasons=())
        progress = with_last_vacuum(progress, last)
        return Plan(self.new.definition, self.new, "incremental", told, (), reads, steps, table, progress)

    def reads(self, compiled: Compiled, states: Mapping[str, Snapshot], before: Compiled) -> dict[str, SourceRead]:
        """Tables that are read as they are, while the query becomes another one."""
        sources = compiled.sources
        return {key: self.planner.still(key, sources[key], now, self.used(key, before)) for key, now in states.items()}

    def used(self, key: str, before: Compiled) -> list[tuple[str, str]]:
        both = dict(before.used_columns.get(key, [])) | dict(self.new.used_columns.get(key, []))
        return sorted(both.items())

    def run(self) -> bool:
        """Whether it was done."""
        with told_of(self.old.full_name):
            return self.ran()

    def ran(self) -> bool:
        if altered(self.engine.compiled(self.old), self.new) is None:
            return False
        refresher = Refresher(self.engine)
        refresher.refresh(self.old, full=False)
        plan = self.plan()
        if plan is None or plan.progress is None:
            return False
        if plan.mode == "noop":
            assert plan.properties is not None
            assert plan.table.at is not None
            plan.table.redefine(plan.properties, plan.progress, plan.table.at)
        else:
            try:
                refresher.execute(plan)
            except Exception as error:  # Spark, Connect and delta-rs share no class; what is not known is raised again
                plan.table.check_not_lost(plan.progress)
                if recoverable(error) is None:
                    raise
                return False
        self.engine.catalog.register(self.old.schema, self.old.name)
        return True


def _told(change: Altered) -> str:
    if isinstance(change, AlteredBranches):
        return f"base (rows; {len(change.removed)} branches removed, {len(change.added)} added)"
    if isinstance(change, AlteredColumns):
        return f"the view's own rows ({change.removed} columns removed, {change.added} added)"
    removed, added = (sum(map(len, rules.values())) for rules in (change.removed, change.added))
    return f"dred ({removed} rules removed, {added} added)"
