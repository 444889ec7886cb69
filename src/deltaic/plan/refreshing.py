"""A refresh as a list of steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deltaic.algebra.nodes import Near, Node, Scan, State
from deltaic.algebra.quoting import quote
from deltaic.algebra.recursion import PREFIX
from deltaic.algebra.simplify import simplify
from deltaic.algebra.trees import walk, with_leaves
from deltaic.delta.near import LARGE
from deltaic.delta.rules import Binding
from deltaic.plan.iterating import fixpoints, maintain_step, pinned_in, unmoved_steps
from deltaic.plan.kept import KEPT, Body
from deltaic.plan.maintain import ROW_KEY, VIEW, Known, Maintenance, Way
from deltaic.plan.program import (
    AGAIN,
    AGAIN_KEYS,
    ARTIFACT,
    DELTA,
    OP,
    Program,
    again_program,
    may_need_again,
    program_for,
    rows_artifact,
    rows_put_in,
    timed_program,
)
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
    StoredView,
    relation_name,
)
from deltaic.sql.render import render, stub


def known_of(reads: Mapping[str, SourceRead], view: StoredView) -> Known:
    changed = frozenset(name for name, read in reads.items() if read.changed)
    appended = frozenset(name for name in changed if reads[name].appends)
    rows = {name: read.rows for name, read in reads.items() if read.rows is not None}
    if view.rows is not None:
        rows[VIEW] = view.rows
    changes = {name: reads[name].change_rows for name in changed}
    return Known(changed, appended, rows, {name: count for name, count in changes.items() if count is not None})


def refresh_steps(
    way: Maintenance,
    reads: Mapping[str, SourceRead],
    view: StoredView,
    known: Known | None = None,
    program: Program | None = None,
) -> list[Step]:
    """What an incremental refresh does; empty if no source that the view reads has changed. Another `program` than the
    one for these changes may be given."""
    known = known or known_of(reads, view)
    program = program or program_for(way, known)
    if program is None:
        return []
    whole = frozenset(key for key, read in reads.items() if _read_whole(read))
    program = _far(program, whole | {VIEW} if view.by_rs and (view.rows or 0) < LARGE else whole)
    numbers = {name: n for n, name in enumerate(reads)}

    def named(scan: Scan) -> str:
        return relation_name(scan, numbers)

    by_keys = way.way is Way.KEYS or way.by_groups(known)
    below = fixpoints(way, known)
    removed = [Binding("", rule) for rules in known.altered.removed.values() for rule in rules]
    whole_program = replace(program, bindings=(*(b for f in below for b in f.leaves), *removed, *program.bindings))
    rounds = [*unmoved_steps(way, view, known), *(maintain_step(fixpoint, way, view, named) for fixpoint in below)]
    computes = [*rounds, *_computes(program, named, view, way, by_keys)]
    steps = _in_order([*_reads(whole_program, reads, numbers, view), *computes])
    if way.way is Way.CHANGES and not by_keys and may_need_again(way):
        steps.extend(_again(steps, way, reads, numbers, view))
    if way.way is Way.ROWS:
        find = rows_artifact(way)
        sql = _stored(render(find.artifact, named), way, view)
        needed = [_near_the_lost(step, view) for step in _not_in(steps, _reads(find, reads, numbers, view))]
        needed.extend(_compute(binding, named) for binding in find.bindings[:-1])
        needed.append(FindRows("find what the deletions leave of equal rows", sql, ARTIFACT))
        if view.marked:
            put_in = _stored(render(rows_put_in(way).artifact, named), way, view)
            title = "find where in the view the rows are that go"
            steps.append(MarkRows(title, put_in, ARTIFACT, only=Only.DELETES))
        steps.extend(replace(step, only=Only.EQUALS if view.marked else Only.DELETES) for step in needed)
    return steps


def _again(
    steps: Sequence[Step],
    way: Maintenance,
    reads: Mapping[str, SourceRead],
    numbers: Mapping[str, int],
    view: StoredView,
) -> list[Step]:
    """What was read may not have all columns that this needs: then it is read once more, under another name."""
    again = again_program(way)
    there = {step.relation: set(step.columns) for step in steps if isinstance(step, ReadState)}
    needed = _reads(again, reads, numbers, view)
    narrow = {
        s.relation
        for s in needed
        if isinstance(s, ReadState) and not set(s.columns) <= there.get(s.relation, set(s.columns))
    }

    def named(scan: Scan) -> str:
        name = relation_name(scan, numbers)
        return f"{name}_whole" if name in narrow else name

    wanted = [replace(s, relation=f"{s.relation}_whole") if s.relation in narrow else s for s in needed]
    sql = _stored(render(again.artifact, named), way, view)
    compute = ComputeAgain("compute the groups that their change does not tell", sql, AGAIN_KEYS)
    return [replace(step, only=Only.AGAIN) for step in (*_not_in(list(steps), wanted), compute)]


def propagation_steps(body: Body, reads: Mapping[str, SourceRead], known: Known, sign: int | None = None) -> list[Step]:
    """What one step of propagation does, but for writing; empty if no source that the body reads has changed."""
    program = timed_program(body, known, sign)
    if program is None:
        return []
    program = _far(program, frozenset(key for key, read in reads.items() if _read_whole(read)))
    numbers = {name: n for n, name in enumerate(reads)}

    def named(scan: Scan) -> str:
        return relation_name(scan, numbers)

    *bindings, last = program.bindings
    view = StoredView("", None, {})
    computes: list[Step] = [_compute(binding, named) for binding in bindings]
    computes.append(ComputeDelta("compute the timed delta", render(last.node, named), DELTA))
    return _in_order([*_reads(program, reads, numbers, view), *computes])


def _near_the_lost(step: Step, view: StoredView) -> Step:
    """Of the view only rows are wanted that may be equal to one that goes."""
    if not isinstance(step, ReadState) or step.source != VIEW or view.by_rs:
        return step
    near = Near(view.columns[ROW_KEY], DELTA, ROW_KEY)
    return replace(step, title=f"{step.title}, near the rows that go", near=near, rs_finds=view.rs_finds)


def _read_whole(read: SourceRead) -> bool:
    """Whether a source is so small that looking for rows in it would save nothing."""
    return State.NEW in read.rs_states and (read.rows or 0) < LARGE


def _far(program: Program, small: frozenset[str]) -> Program:
    """Small sources are read whole."""

    def far(node: Node) -> Node:
        return replace(node, near=None) if isinstance(node, Scan) and node.source in small else node

    bindings = tuple(replace(b, node=with_leaves(b.node, far)) for b in program.bindings)
    return replace(program, bindings=bindings)


def _in_order(steps: list[Step]) -> list[Step]:
    """What is read near the values of a relation is read after that is computed."""
    asked = {step.near.binding for step in steps if isinstance(step, ReadState) and step.near}
    late = [step for step in steps if isinstance(step, ReadState) and step.near]
    found: list[Step] = []
    for step in steps:
        if step in late:
            continue
        keyed = isinstance(step, Compute) and step.relation in asked
        found.append(replace(step, asked=True) if keyed and isinstance(step, Compute) else step)
        if keyed:
            found.extend(read for read in late if read.near and read.near.binding == step.relation)
    return found


def _not_in(steps: list[Step], more: list[Step]) -> list[Step]:
    done = {step.relation for step in steps}
    return [step for step in more if step.relation not in done]


def _computes(
    program: Program, named: Callable[[Scan], str], view: StoredView, way: Maintenance, by_keys: bool
) -> list[Step]:
    *bindings, last = program.bindings
    steps: list[Step] = [_read_counts(b, view) if b.counts else _compute(b, named) for b in bindings]
    sql = render(last.node, named)
    if by_keys:
        steps.append(ComputeDelta("compute the rows of the touched keys", _stored(sql, way, view), ARTIFACT))
    elif way.way is Way.SETS:
        title = "compute the rows that come and go"
        steps.append(ComputeDelta(title, _stored(sql, way, view), ARTIFACT))
    elif way.way is Way.CHANGES:
        title = "add the change to the view's rows"
        steps.append(ComputeDelta(title, _stored(sql, way, view, marked=may_need_again(way)), ARTIFACT))
    else:
        steps.append(ComputeDelta("compute the signed delta", sql, DELTA))
    return steps


def _compute(binding: Binding, named: Callable[[Scan], str]) -> Compute:
    tables = [quote(table) for table in binding.common.tables] if binding.common else []
    shared = f", the delta of the join of {', '.join(tables)} for all views that have it" if tables else ""
    stage = binding.stage
    title = f"compute {binding.name}{f', {stage.what}' if stage else shared}"
    waits = stage is not None and (stage.number > 1 or bool(stage.after))
    return Compute(
        title,
        render(binding.node, named),
        binding.name,
        only=Only.CANDIDATES if waits else None,
        node=binding.node,
        common=binding.common,
        stage=stage,
        nothing=f"SELECT * FROM {stub(binding.node.schema)} WHERE FALSE" if stage else "",
    )


def without(steps: Sequence[Step], done: Callable[[Step], bool]) -> list[Step]:
    """The steps, but for those that serve only what is `done`."""
    kept: list[Step] = []
    asked: set[str] = set()
    for step in reversed(steps):
        serves = isinstance(step, ReadChange | ReadState | ReadCounts | Compute)
        if serves and step.relation not in asked:
            continue
        kept.append(step)
        if not done(step):
            asked.update(re.findall(r"\w+", step.sql))
            if isinstance(step, ReadState) and step.near:
                asked.add(step.near.binding)
    return kept[::-1]


def _read_counts(binding: Binding, view: StoredView) -> ReadCounts:
    counts = binding.counts
    assert counts is not None
    listed = ", ".join(
        f"{quote(s)} AS {quote(a)}" for a, s in view.columns.items() if a in (counts.marker, *counts.keys)
    )
    relation = f"(SELECT {listed} FROM {view.relation} VERSION AS OF {view.version})"
    stored = replace(counts, marker=view.columns[counts.marker], keys=tuple(view.columns[k] for k in counts.keys))
    what = "stand alone" if counts.only_true else "stand alone and which have a match"
    title = f"read which rows of the view {what} ({stored.marker})" + (", by delta-rs" if view.scanned_by_rs else "")
    return ReadCounts(
        title, render(binding.node, lambda _: relation), binding.name,
        counts=stored, names=binding.node.columns, version=view.version, by_rs=view.scanned_by_rs,
    )  # fmt: skip


def _stored(sql: str, way: Maintenance, view: StoredView, *, marked: bool = False) -> str:
    """The artifact under the names of the view's table."""
    columns = ", ".join(f"{quote(a)} AS {quote(view.columns[a])}" for a in way.root.columns)
    mark = f", {quote(AGAIN)}" if marked else ""
    return f"SELECT {quote(OP)}, {columns}{mark} FROM (\n{sql}\n)"


def _scans(program: Program) -> list[Scan]:
    nodes: list[Node] = [n for b in program.bindings if b.counts is None for n in walk(b.node)]
    return [n for n in nodes if isinstance(n, Scan)]


def _reads(
    program: Program, reads: Mapping[str, SourceRead], numbers: Mapping[str, int], view: StoredView
) -> list[Step]:
    """One step per source and state that the program reads, with only the columns it uses."""
    used: dict[tuple[str, State, Near | None], dict[str, None]] = {}
    for scan in _scans(program):
        columns = used.setdefault((scan.source, scan.state, scan.near), {})
        columns.update(dict.fromkeys(c.origin for c in scan.scanned))
    steps: list[Step] = []
    for (source, state, near), columns in used.items():
        name = relation_name(Scan(source, (), state, near), numbers)
        if source.startswith(PREFIX):
            continue
        if source == VIEW:
            steps.append(_read_view(view, name, near))
            continue
        read = reads[source]
        if state is State.CHANGE:
            title = f"read the change of {read.name}, versions {read.old} to {read.new} ({read.change_note})"
            if source == KEPT:
                title = f"read the kept delta ({read.change_note})"
            sql, wanted = read.change_sql or "", tuple(columns)
            steps.append(ReadChange(title, sql, name, source=source, columns=wanted, times=read.times))
        else:
            version = read.new if state is State.NEW else read.old
            small = state in read.rs_states
            pairs = tuple((column, column) for column in columns)
            step = _read_state(read.name, read.at(version), version, small, name, source, state, pairs, read.shown)
            if read.live:
                title = f"read {read.name} as it is now, and take back what came after version {version}"
                step = replace(step, title=title)
            if near is not None:
                title = f"{step.title}, near the values of {near.value.split('#')[0]} in {near.binding}"
                step = replace(step, title=title, near=near, rs_finds=read.rs_finds)
            steps.append(step)
    return steps


def _read_state(
    what: str, relation: str, version: int | None, small: bool, name: str,
    source: str, state: State, columns: tuple[tuple[str, str], ...], shown: str | None = None,
) -> ReadState:  # fmt: skip
    listed = ", ".join(quote(a) if a == b else f"{quote(a)} AS {quote(b)}" for a, b in columns)
    where = f" WHERE {quote(shown)}" if shown else ""
    sql = "" if small else f"SELECT {listed} FROM {relation}{where}"
    title = f"read {what} as of version {version}" + (" (small, by delta-rs)" if small else "")
    return ReadState(title, sql, name, source=source, state=state, version=version, columns=columns, shown=shown)


def _read_view(view: StoredView, name: str, near: Near | None) -> ReadState:
    pairs = tuple((stored, name) for name, stored in view.columns.items())
    pinned = f"{view.relation} VERSION AS OF {view.version}"
    step = _read_state("the view itself", pinned, view.version, view.by_rs, name, VIEW, State.NEW, pairs)
    if near is None:
        return step
    title = f"{step.title}, near the values of {near.value.split('#')[0]} in {near.binding}"
    return replace(step, title=title, near=replace(near, column=view.columns[near.column]), rs_finds=view.rs_finds)


def full_query(way: Maintenance, reads: Mapping[str, SourceRead], view: StoredView) -> str:
    """The view's whole contents, hidden columns included, at the new versions."""

    columns = ", ".join(f"{quote(a)} AS {quote(s)}" for a, s in view.columns.items())
    return f"SELECT {columns} FROM (\n{render(simplify(way.whole), pinned_in(reads))}\n)"


def query_over_view(node: Node, way: Maintenance, view: StoredView, columns: Mapping[str, str]) -> str:
    """All rows of a view's table under other columns, computed from those that it has."""
    listed = ", ".join(f"{quote(stored)} AS {quote(name)}" for name, stored in view.columns.items())
    own = f"(SELECT {listed} FROM {view.relation} VERSION AS OF {view.version})"
    named = ", ".join(f"{quote(name)} AS {quote(columns[name])}" for name in way.root.columns)
    return f"SELECT {named} FROM (\n{render(simplify(node), lambda _: own)}\n)"
