"""Why a view is or is not incremental, how it is kept, and every statement that a refresh runs."""

from __future__ import annotations

import re
from textwrap import indent
from typing import TYPE_CHECKING

from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    UnionAll,
    Values,
    Window,
)
from deltaic.algebra.printer import print_tree
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import Reason
from deltaic.algebra.simplify import simplify
from deltaic.algebra.stability import unstable_columns
from deltaic.algebra.trees import sources
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.writing import STAGES
from deltaic.delta.joins import PlannedJoin
from deltaic.delta.trees import Tree, cost, singletons
from deltaic.plan.bags import Bag
from deltaic.plan.change import change_table
from deltaic.plan.kept import Body, body_of
from deltaic.plan.maintain import Known, Maintenance, Way
from deltaic.plan.outer import PreservedSide
from deltaic.plan.padding import is_outer_join
from deltaic.plan.program import program_for
from deltaic.plan.steps import ReadState
from deltaic.plan.strata import Stratum
from deltaic.store.log import last_commit_with_marker
from deltaic.store.progress import Progress

if TYPE_CHECKING:
    from deltaic.app.refresh.decide import Plan


def explain_create(compiled: Compiled) -> str:
    return "\n".join([*_definition(compiled), *_forms(compiled)])


def _forms(compiled: Compiled) -> list[str]:
    """What could be stored of the view's sets, and what refreshes are thought to take then."""
    if not compiled.forms:
        return []
    lines = ["Predicted for a refresh, after a thousandth of one source changed, if the view is stored"]
    for form, seconds in sorted(compiled.forms.items(), key=lambda priced: priced[1]):
        lines.append(f"  {form}: {seconds:.2f} s{', as it is' if form == compiled.definition.form else ''}")
    return lines


def explain_propagation(compiled: Compiled, told: str, plan: Plan | None) -> str:
    """The next step of propagation: its interval of each source, and of what it joins with, whether that is read in its
    past or now, and then compensated for."""
    parts = [*_definition(compiled), "", told]
    if plan is None:
        return "\n".join([*parts, "Propagate now: nothing to do"])
    parts.append(f"Propagate now: by {plan.technique}")
    for key, read in plan.reads.items():
        upto = f"version {read.new}"
        parts.append(f"  {key}: " + (f"its change after version {read.old} up to {upto}" if read.changed else upto))
        if read.changed:
            parts[-1] += f"; {read.change_note}; at most {read.change_rows or 0:,} change rows"
        if any(isinstance(step, ReadState) and step.source == key for step in plan.steps):
            past = f"its state is read in its past, at {upto}: no compensation"
            now = f"its state is read now, and compensated for what came after {upto}"
            parts[-1] += f"; {now if read.live else past}"
    return "\n".join([*parts, *_steps(plan)])


def explain_alter(plan: Plan | None, compiled: Compiled) -> str:
    """What becomes of a view under another query."""
    if plan is None:
        return "\n".join([*_definition(compiled), "", "Alter: the view is computed anew"])
    told = f"Alter: the view is refreshed as it is; then, by {plan.technique}:"
    return "\n".join([*_definition(compiled), "", told, *_steps(plan)])


def explain_refresh(plan: Plan, compiled: Compiled) -> str:
    """The definition, then the steps of a refresh that started now."""
    parts = [*_definition(compiled), "", f"Refresh now: {plan.mode}"]
    if plan.mode != "noop":
        parts[-1] += f", by {plan.technique}"
    parts.extend(f"  because {reason}" for reason in plan.reasons)
    for key, read in plan.reads.items():
        since = f"version {read.old} to {read.new}" if read.old is not None else f"version {read.new}"
        change = read.change_note if read.changed else "no rows changed"
        parts.append(f"  {key}: {since}" + (f"; {change}" if read.old is not None else ""))
        if read.changed and read.change_rows is not None:
            parts[-1] += f"; at most {read.change_rows:,} change rows"
        parts[-1] += _told_reads(plan, key)
    parts.extend(plan.choice.lines() if plan.choice else [])
    parts.extend(_joins(plan, compiled))
    parts.extend(_sizes(plan))
    return "\n".join([*parts, *_steps(plan)])


def _steps(plan: Plan) -> list[str]:
    parts = []
    for number, step in enumerate(plan.steps, 1):
        into = f" as {step.relation}" if step.relation else ""
        when = f", {step.only.value}" if step.only else ""
        parts.append(f"\nStep {number}: {step.title}{into}{when}")
        parts.append(indent(step.sql or "(by delta-rs, without Spark)", "    "))
    return parts


def _joins(plan: Plan, compiled: Compiled) -> list[str]:
    """How the deltas of joins are put together, with the sizes and prices that decided."""
    if plan.mode != "incremental" or plan.known is None or not isinstance(compiled.way, Maintenance):
        return []
    program = program_for(compiled.way, plan.known)
    return [line for join in (program.joins if program else ()) for line in _join(join)]


def _sizes(plan: Plan) -> list[str]:
    """How large the relations of an algorithm that may end early were, when it was last used."""
    marked = last_commit_with_marker(plan.table.log)
    last = Progress.of(marked.commit) if marked else None
    told = last.figures.get(STAGES, ()) if last else ()
    return ["The last refresh found, one step after the other:", *(f"  {line}" for line in told)] if told else []


def _join(join: PlannedJoin) -> list[str]:
    sizes = join.sizes
    names = [", ".join(dict.fromkeys(sources(leaf))) or "constants" for leaf in join.graph.leaves]
    lines = ["Join, with its delta propagation tree (d is a change; parts before it are read new, after it old):"]
    for name, rows, change in zip(names, sizes.new, sizes.change, strict=True):
        lines.append(f"  {name}: {rows:,.0f} rows, {change:,.0f} changed")
    others = singletons(range(sizes.count))
    lines.append(f"  {_told_tree(join.tree, names)} reads {cost(join.tree, sizes):,.0f} rows")
    if str(others) != str(join.tree):
        lines.append(f"  one term per source, {_told_tree(others, names)}, would read {cost(others, sizes):,.0f}")
    return lines


def _told_tree(tree: Tree, names: list[str]) -> str:
    if not tree.parts:
        return f"d {names[min(tree.relations)]}"
    return f"({', '.join(_told_tree(part, names) for part in tree.parts)})"


def _told_reads(plan: Plan, source: str) -> str:
    """What of a source an incremental refresh does not read."""
    if plan.mode != "incremental":
        return ""
    states = [step for step in plan.steps if isinstance(step, ReadState) and step.source == source]
    if any(step.only is None for step in states):
        return ""
    told = "; only its change is read" if plan.reads[source].changed else "; not read"
    return f"{told}, unless {states[0].only.value.removeprefix('only if ')}" if states and states[0].only else told


def _definition(compiled: Compiled) -> list[str]:
    definition = compiled.definition
    parts = [f"View {definition.full_name}, refresh policy {definition.policy.value}"]
    parts.append("Sources: " + (", ".join(compiled.sources) or "none"))
    if isinstance(compiled.way, Reason):
        parts.append(f"Not incremental: {compiled.way}")
        parts.append(f"  {compiled.way.code.name} means: {compiled.way.code.value}.")
    else:
        parts.append(_kept(compiled.way, compiled))
        parts.extend(_recursion(compiled.way))
        parts.extend(_told_side(side, compiled) for side in compiled.way.preserved)
        parts.extend(_told_bag(bag) for bag in compiled.way.bags)
        parts.extend(_told_stratum(stratum) for stratum in compiled.way.strata)
        body = body_of(compiled.way)
        parts.append("Kept delta: " + ("may be propagated" if isinstance(body, Body) else f"none, since {body}"))
    if isinstance(compiled.way, Maintenance) and compiled.way.way is Way.CHANGES:
        parts.extend(_carried(compiled.way))
    elif compiled.node is not None:
        way = compiled.way.layered if isinstance(compiled.way, Maintenance) else None
        parts.append("Algebra, with the delta rule of each node:")
        parts.append(indent(print_tree(simplify(prune(way.root if way else compiled.node)), note), "  "))
    if compiled.definition.strata and isinstance(compiled.way, Maintenance) and not compiled.way.strata:
        parts.append("  no set inside it can be stored (deltaic.strata): there is none, or none of exact values")
    return parts


def _carried(way: Maintenance) -> list[str]:
    """The tree with the aggregates that change tables pass, and the nodes they stop at with the reason."""
    assert way.kept is not None
    tables = change_table(way, way.derivation(Known(frozenset(sources(way.root))))).how
    notes = {id(node): "change table: its sums are carried through, it is not read" for node in tables.carried}
    notes.update({id(s.node): f"singular: {s.why}; insertions and deletions from here" for s in tables.singular})
    notes[id(way.kept.top)] = "change table: what changed is added to the stored parts"

    def told(node: Node) -> str:
        return notes.get(id(node)) or note(node)

    lines = ["Algebra, with the state that is kept and the rule of each node:"]
    return [*lines, indent(print_tree(way.root, told), "  ")]


def _kept(way: Maintenance, compiled: Compiled) -> str:
    key = ", ".join(compiled.stored[name] for name in way.key)
    if way.way is Way.CHANGES:
        technique = Way.CHANGES.value if way.technique == "auto" else way.technique
        return f"Incremental by {technique}: what changed of each group ({key}) is added to its row"
    if way.way is Way.SETS:
        technique = Way.SETS.value if way.technique == "auto" else way.technique
        return f"Incremental by {technique}: which rows ({key}) come and go is found without counts of derivations"
    if way.way is Way.KEYS:
        return f"Incremental by keys: the rows of touched keys ({key}) are computed anew and replaced"
    return f"Incremental by rows: a signed delta; rows are found in the view by their hash ({key})"


def _recursion(way: Maintenance) -> list[str]:
    """The components of predicates, lowest first, with their rules."""
    if way.recursion is None:
        return []
    lines = ["Recursion, kept by DRed (over-delete, re-derive, insert), stratum by stratum:"]
    for number, component in enumerate(way.recursion.components, 1):
        for p in component.predicates:
            stored = way.recursion.stored.get(p.source)
            where = "the view itself" if stored is None else "stored in rows that are not shown"
            lines.append(f"  stratum {number}: {p.name}, {where}; {len(p.rules)} rules")
            lines.extend(indent(print_tree(simplify(rule)), "    ") for rule in p.rules)
    return lines


def _told_side(side: PreservedSide, compiled: Compiled) -> str:
    """Which side of an outer join the view knows to stand alone, and what that saves."""
    own, other = (", ".join(sources(input_)) or "constants" for input_ in side.rule.inputs)
    column = compiled.stored[side.marker]
    return (
        f"  outer join: {column} tells which rows of {own} have no match, so a change of {other} need not read {other}"
    )


def _told_bag(bag: Bag) -> str:
    values = ", ".join(re.sub(r"#\d+", "", str(value)) for value in bag.values)
    return (
        f"  multiplicities: how often each {values} is in its group is stored too, in rows that are not shown;"
        " where that would be more rows than the sources have, touched groups are computed anew"
    )


def _told_stratum(stratum: Stratum) -> str:
    columns = ", ".join(name.split("#")[0] for name in stratum.node.columns)
    return (
        f"  stratum {stratum.number}: the set of {columns} is stored too, with counts of derivations, in rows that are"
        " not shown; only rows whose count crosses zero go on"
    )


def note(node: Node) -> str:
    """The base rule that gives the node's delta, and what it reads."""
    told = _rule(node)
    shaky = unstable_columns(node) - frozenset[str]().union(*(unstable_columns(n) for n in node.inputs))
    if shaky:
        names = ", ".join(sorted(name.split("#")[0] for name in shaky))
        told += f"; {names} is found by key, never by value"
    return told


def _rule(node: Node) -> str:
    match node:
        case Scan():
            return "its change"
        case Values():
            return "constant"
        case UnionAll() if is_outer_join(node):
            return "an outer join, whose padded rows no aggregate counts; linear"
        case Project() | Filter() | Generate() | UnionAll():
            return "linear"
        case Join(kind=JoinKind.INNER):
            return "inner join: each side's delta with the other side, new or old"
        case Join():
            return "each side's delta, and rows that got their first match or lost their last one"
        case Apply():
            return "rows of the left that changed, or match a change of the right"
        case Aggregate():
            return "touched groups" if node.groups else "the one row, whole"
        case Window():
            return "touched partitions"
    return ""
