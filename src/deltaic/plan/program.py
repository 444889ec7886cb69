"""The algebra of one refresh: named relations in order, the last of which is applied to the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
    Field,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    ScanColumn,
    State,
    UnionAll,
    Values,
)
from deltaic.algebra.prune import prune
from deltaic.algebra.simplify import simplify
from deltaic.algebra.trees import keep, null_item, pass_through, sources, top_of, walk, with_leaves
from deltaic.delta import near
from deltaic.delta.joins import JoinTrees, PlannedJoin
from deltaic.delta.near import Narrowing
from deltaic.delta.netting import net
from deltaic.delta.reduce import Reduction
from deltaic.delta.restrict import restrict
from deltaic.delta.rules import Binding, Derivation, never_negative
from deltaic.delta.sets import ALGORITHMS
from deltaic.plan.bags import KIND
from deltaic.plan.change import change_table
from deltaic.plan.fold import doubtful, folded
from deltaic.plan.kept import KEPT, Body, body_of, timed_bindings
from deltaic.plan.maintain import VIEW, Known, Maintenance, Way
from deltaic.plan.recursion import PredicateRows, Recursion
from deltaic.plan.recursion_cost import USUAL_DEPTH
from deltaic.plan.strata import STRATUM, Layers, expanded

OP = "__deltaic_op"
"""In what is applied to a view: -1 deletes the rows of a key, +1 inserts the row."""

DELTA, ARTIFACT, AGAIN_KEYS = "delta", "artifact", "again_keys"

AGAIN = "__deltaic_again"
"""In what is applied to a view kept by change tables: the row is to be computed from the sources instead."""

WAS, LEFT, NEW, OLD = "__deltaic_was", "__deltaic_left", "__deltaic_new", "__deltaic_old"


A_FEW = 4

Above = Layers | PredicateRows | None
"""What stands below a view and is written with it."""


@dataclass(frozen=True)
class Program:
    """`bindings` in the order they are computed; the last is the artifact."""

    bindings: tuple[Binding, ...]
    joins: tuple[PlannedJoin, ...] = ()
    """The joins whose deltas were planned, for explain."""

    @property
    def artifact(self) -> Node:
        return self.bindings[-1].node


def keys_program(way: Maintenance, derivation: Derivation, layers: Above = None) -> Program | None:
    """Replace what the touched keys hold. None if nothing the view reads has changed."""
    key = [col(name) for name in way.key]
    found = derivation.touched(way.root, key)
    if found is None:
        return None
    keys = derivation.bind("keys", Aggregate(found, keep(found)))
    rows = restrict(way.whole, key, keys)
    names = dict(zip(way.key, keys.columns, strict=True))
    deleted = tuple(
        Item(f.name, col(names[f.name]), f.type) if f.name in names else _own_row(f) for f in way.root.schema
    )
    artifact = _operations(way, Project(keys, deleted), [rows])
    return _finished(derivation, artifact, layers=layers, upper=way.root)


def _own_row(f: Field) -> Item:
    return Item(f.name, text("0"), f.type, False) if f.name == STRATUM else null_item(f)


def changes_program(way: Maintenance, derivation: Derivation, layers: Above = None) -> Program | None:
    """Fold the change table into the view's own rows: old value and change to new value.

    A row of the artifact stands for both operations, so that the fold is computed once; AGAIN marks the
    groups whose new row the sources must tell."""
    assert way.kept is not None
    change = change_table(way, derivation)
    if change.table is None:
        return None
    table = change.table
    if isinstance(derivation, JoinTrees) and derivation.rows.get(VIEW, 0) >= near.LARGE:
        table = derivation.bind("table", table)  # a large view is read near the groups in it
    joined, old = _beside_the_view(way, table)
    parts, stored = way.kept.parts, {part: old[name] for part, name in way.stored}
    new = {part.name: folded(part, stored) for part in parts}
    doubts = [d for part in parts if (d := doubtful(part, stored, stored[way.kept.rows])) is not None]
    groups = tuple(Item(i.name, col(i.name), i.type) for i in way.kept.top.groups)
    values = tuple(Item(part.name + NEW, new[part.name], part.item.type) for part in parts)
    again = _any(doubts) if doubts else text("FALSE")
    was = Item(WAS, join_parts(stored[way.kept.rows], " IS NOT NULL"), "boolean", False)
    fold = Project(joined, (*groups, *values, was, Item(AGAIN, again, "boolean", False)))
    finals = dict(way.kept.finals)
    now = {part.name: col(part.name + NEW) for part in parts}
    answers = tuple(
        Item(i.name, (finals[i.name] if i.name in finals else col(i.name)).substitute(now), i.type)
        for i in way.kept.top.aggregates
    )
    more = [doubt.substitute(now) for doubt in way.kept.doubts]
    untold = _any([col(AGAIN), *more]) if more else col(AGAIN)
    left = Item(LEFT, now[way.kept.rows], "bigint")
    marks = (pass_through(was.field), left, Item(AGAIN, untold, "boolean", False))
    top = Project(fold, (*groups, *answers, *marks))
    root = _through(way.root, way.kept.top, top, tuple(pass_through(mark.field) for mark in marks))
    op = Field(OP, "int", False)
    both = Generate(root, text("explode(array(-1, 1))"), False, (op,))
    # lemma 4.1 of Gupta, Mumick and Subrahmanian: no more goes than there is. Asked above the filters, since of a group
    # that they hide the view has no row.
    there = join_parts(never_negative(col(LEFT)), " > 0") if groups else text("TRUE")
    kept = Filter(both, join_parts("CASE WHEN ", col(OP), " < 0 THEN ", col(WAS), " ELSE ", there, " END"))
    shown = (pass_through(op), *(pass_through(f) for f in way.root.schema), pass_through(top.fields[AGAIN]))
    artifact: Node = Project(kept, shown)
    if change.bags is not None:
        told = Item(AGAIN, text("FALSE"), "boolean", False)
        rows = way.bag_table.operations(way.bags, change.bags, op)
        nullable = tuple(replace(f, nullable=True) for f in artifact.schema)
        artifact = UnionAll((artifact, Project(rows, (*keep(rows), told))), nullable)
    return _finished(derivation, artifact, layers=layers, upper=way.root)


def again_program(way: Maintenance) -> Program:
    """The rows of the groups in AGAIN_KEYS, from the sources as they are now."""
    keys = Ref(AGAIN_KEYS, tuple(Field(f"{name}_again", way.root.fields[name].type) for name in way.key))
    rows = restrict(way.root, [col(name) for name in way.key], keys)
    op = Item(OP, text("1"), "int", False)
    return _finished(Derivation(frozenset()), Project(rows, (op, *keep(rows))))


def may_need_again(way: Maintenance) -> bool:
    assert way.kept is not None
    stored = {part: text("0") for part, _ in way.stored}
    return any(doubtful(part, stored, text("0")) is not None for part in way.kept.parts)


def _beside_the_view(way: Maintenance, table: Node) -> tuple[Join, dict[str, Expr]]:
    """Each row of the change table with the view's row of its group, if there is one."""
    assert way.kept is not None
    fields = way.root.schema
    old = {f.name: f"{f.name}{OLD}" for f in fields}
    marks = [name for name in (KIND, STRATUM) if name in way.root.fields]
    needed = dict.fromkeys((*way.key, *(name for _, name in way.stored), *marks))
    view = Scan(VIEW, tuple(ScanColumn(replace(way.root.fields[n], name=old[n]), n) for n in needed), State.NEW)
    groups = [col(item.name) for item in way.kept.top.groups] or [text("0")]
    pairs = zip(groups, way.key, strict=True)
    on = conjunction(*(null_safe_equal(group, col(old[name])) for group, name in pairs))
    groups_only: Node = view
    for mark in marks:
        groups_only = Filter(groups_only, join_parts(col(old[mark]), " = 0"))
    return Join(table, groups_only, JoinKind.LEFT, on), {name: col(old[name]) for name in needed}


def _through(node: Node, top: Node, by: Node, marks: tuple[Item, ...]) -> Node:
    """The projections and filters above `top` over `by` instead, with its marks handed up."""
    if node is top:
        return by
    below = _through(node.inputs[0], top, by, marks)
    if isinstance(node, Project):
        return Project(below, (*node.items, *marks))
    assert isinstance(node, Filter)
    return replace(node, input=below)


def _any(terms: list[Expr]) -> Expr:
    pieces: list[str | Expr] = []
    for number, term in enumerate(terms):
        pieces.extend((" OR coalesce(" if number else "coalesce(", term, ", FALSE)"))
    return join_parts(*pieces)


def sets_program(way: Maintenance, derivation: Derivation, known: Known) -> Program | None:
    """What comes and goes of a set, by a reducing algorithm."""
    top = top_of(way.root)
    assert way.sets is not None
    assert isinstance(derivation, JoinTrees)
    assert isinstance(top, Aggregate)
    pairs = zip(top.groups, way.key, strict=True)
    view = Scan(VIEW, tuple(ScanColumn(item.field, name) for item, name in pairs))
    reduction = Reduction(
        derivation,
        way.sets,
        ALGORITHMS.get(way.technique, ALGORITHMS["reducing"]),
        way.declared,
        way.references,
        only_comes=known.changed <= known.appended,
        view=view,
    )
    found = reduction.delta()
    if found is None:
        return None
    sign = Item(OP, join_parts("CAST(", col(WEIGHT), " AS INT)"), "int", False)
    groups = tuple(pass_through(found.fields[item.name]) for item in top.groups)
    signed: Node = Project(found, (*groups, sign))
    if reduction.merges:  # what comes may be there: it is replaced
        signed = Generate(Project(found, groups), text("explode(array(-1, 1))"), False, (sign.field,))
    rows = _through(way.root, top, signed, (pass_through(sign.field),))
    return _finished(derivation, Project(rows, (pass_through(sign.field), *(pass_through(f) for f in way.root.schema))))


def rows_program(way: Maintenance, derivation: Derivation, layers: Above = None) -> Program | None:
    """The view's signed delta, netted, under the name DELTA."""
    found = derivation.delta(way.root)
    if found is None:
        return None
    return _finished(derivation, net(found), DELTA, layers=layers, upper=way.root)


def rows_artifact(way: Maintenance) -> Program:
    """Turns the netted delta into deletions by hash and insertions, looking at the view's rows."""
    fields = way.root.schema
    delta = Ref(DELTA, (*fields, Field(WEIGHT, "bigint", False)))
    gone = Aggregate(Filter(delta, join_parts(col(WEIGHT), " < 0")), (_row_item(way, ""),))
    derivation = Derivation(frozenset())
    lost = derivation.bind("gone", gone)
    view = Scan(VIEW, tuple(ScanColumn(f, f.name) for f in fields), State.NEW)
    existing = Project(_matching(view, lost, JoinKind.SEMI, way), (*keep(view), _weight(text("1L"))))
    mixed = UnionAll((_matching(delta, lost, JoinKind.SEMI, way), existing), delta.schema)
    total = Aggregate(mixed, tuple(pass_through(f) for f in fields), (_weight(_sum_weight()),))
    left_over = Filter(total, join_parts(never_negative(col(WEIGHT)), " > 0"))
    added = _matching(delta, lost, JoinKind.ANTI, way)
    deleted = tuple(Item(f.name, col(f.name), f.type) if f.name == way.key[0] else null_item(f) for f in fields)
    artifact = _operations(way, Project(lost, deleted), [_repeated(left_over), _repeated(added)])
    return _finished(derivation, artifact)


def rows_put_in(way: Maintenance) -> Program:
    """The rows that the netted delta puts in, without a look at the view."""
    delta = Ref(DELTA, (*way.root.schema, Field(WEIGHT, "bigint", False)))
    more = _repeated(Filter(delta, join_parts(col(WEIGHT), " > 0")))
    return _finished(Derivation(frozenset()), Project(more, (Item(OP, text("1"), "int", False), *keep(more))))


def _row_item(way: Maintenance, suffix: str) -> Item:
    name = way.key[0]
    return Item(name + suffix, col(name), "bigint", False)


def _weight(expr: Expr) -> Item:
    return Item(WEIGHT, expr, "bigint", False)


def _sum_weight() -> Expr:
    return join_parts("sum(", col(WEIGHT), ")")


def _matching(node: Node, lost: Ref, kind: JoinKind, way: Maintenance) -> Join:
    name = way.key[0]
    other = Project(lost, (Item(f"{name}_gone", col(name), "bigint", False),))
    return Join(node, other, kind, join_parts(col(name), " = ", col(f"{name}_gone")))


def _repeated(node: Node) -> Project:
    copy = Field("__deltaic_copy", "int", False)
    generator = join_parts("explode(array_repeat(0, CAST(", col(WEIGHT), " AS INT)))")
    items = tuple(item for item in keep(node) if item.name != WEIGHT)
    return Project(Generate(node, generator, False, (copy,)), items)


def _operations(way: Maintenance, deleted: Node, inserted: list[Node]) -> UnionAll:
    op = Field(OP, "int", False)

    def marked(node: Node, sign: str) -> Project:
        items = {item.name: item for item in keep(node)}
        return Project(node, (Item(OP, text(sign), "int", False), *(items[n] for n in way.root.columns)))

    branches = (marked(deleted, "-1"), *(marked(node, "1") for node in inserted))
    nullable = tuple(Field(f.name, f.type, True) for f in way.root.schema)
    return UnionAll(branches, (op, *nullable))


def _finished(
    derivation: Derivation,
    artifact: Node,
    name: str = ARTIFACT,
    layers: Above = None,
    upper: Node | None = None,
) -> Program:
    bindings = (*derivation.bindings, Binding(name, artifact))
    if layers is not None:
        assert upper is not None
        op = Field(WEIGHT, "bigint", False) if name == DELTA else Field(OP, "int", False)
        *below, last = layers.finished(artifact, upper, op, [Item(AGAIN, text("FALSE"), "boolean", False)])
        bindings = (*below, replace(last, name=name))
    if isinstance(derivation, JoinTrees):
        bindings = _narrowed(derivation, bindings)
    return _inlined(Program(bindings))


def _narrowed(derivation: JoinTrees, bindings: tuple[Binding, ...]) -> tuple[Binding, ...]:
    """Large tables near the keys that bindings ask for; those of what the view itself shows ask for none."""
    if not derivation.changed <= derivation.changes.keys():
        return bindings
    narrowing = Narrowing(derivation.rows, sum(derivation.changes.values()))
    return tuple(b if b.counts is not None else replace(b, node=narrowing.of(b.node)) for b in bindings)


def _inlined(program: Program) -> Program:
    """Bindings that are used once, or cost next to nothing, go where they are used."""
    uses = Counter(n.name for b in program.bindings for n in walk(b.node) if isinstance(n, Ref))
    asked = {n.near.binding for b in program.bindings for n in walk(b.node) if isinstance(n, Scan) and n.near}
    known: dict[str, Node] = {}
    kept: list[Binding] = []

    def inlined(leaf: Node) -> Node:
        return known.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf

    for binding in program.bindings:
        node = with_leaves(binding.node, inlined)
        last = binding is program.bindings[-1]
        often = uses[binding.name]
        kept_apart = binding.counts is not None or binding.common is not None or binding.stage is not None
        apart = last or kept_apart or binding.name in asked
        if not apart and (often <= 1 or (often <= A_FEW and _is_light(node))):
            known[binding.name] = node
        else:
            kept.append(replace(binding, node=simplify(prune(node))))
    return Program(tuple(kept))


def _is_light(node: Node) -> bool:
    """Only the change itself, filtered and projected: reading it a few times is cheaper than keeping it."""
    return all(
        isinstance(n, Project | Filter | Aggregate | UnionAll | Values)
        or (isinstance(n, Scan) and n.state is State.CHANGE)
        for n in walk(node)
    )


def timed_program(body: Body, known: Known, sign: int | None) -> Program | None:
    """What one step of propagation appends to the kept delta, under the name DELTA."""
    found = timed_bindings(body, known, sign)
    if found is None:
        return None
    derivation, (*below, last) = found
    return _inlined(Program(_narrowed(derivation, (*below, replace(last, name=DELTA)))))


def _known_above(known: Known, strata: Sequence[str], moved: set[str]) -> Known:
    """What is known of sources and strata: these have no more rows than the view that stores them."""
    rows = dict.fromkeys(strata, known.rows[VIEW]) if VIEW in known.rows else {}
    told = known.changed <= known.changes.keys()
    changes = dict.fromkeys(moved, sum(known.changes.values())) if told else {}
    return replace(
        known, changed=known.changed | moved, rows={**known.rows, **rows}, changes={**known.changes, **changes}
    )


def _applying(way: Maintenance, known: Known) -> Program | None:
    """What applying a kept delta computes: the view over its body, which is a source with this change."""
    body = body_of(way)
    assert isinstance(body, Body)
    above = replace(known, changed=frozenset({KEPT}))
    program = program_for_way(body.above, above)
    moved = frozenset(sources(body.node))
    return program and replace(
        program, bindings=tuple(replace(b, node=body.told(b.node, moved)) for b in program.bindings)
    )


def _known_of_predicates(known: Known, moved: frozenset[str]) -> Known:
    """How much of predicates changes is guessed: the share of the sources that did, some rounds on."""
    changes = known.changes
    if known.changed <= changes.keys() and VIEW in known.rows:
        shares = [changes[name] / max(known.rows.get(name, 0), 1) for name in known.changed]
        changes = {**changes, **dict.fromkeys(moved, int(known.rows[VIEW] * min(1.0, USUAL_DEPTH * sum(shares))))}
    return replace(known, changed=known.changed | moved, changes=changes)


def _over_predicates(way: Maintenance, recursion: Recursion, known: Known) -> Program | None:
    """What is above predicates whose changes are there: to it they are tables."""
    known = _known_of_predicates(known, recursion.moved(known.changed, known.altered.predicates))
    if way.layered is None:
        return program_for_way(way, known)
    derivation = way.layered.derivation(known)
    return program_for_way(way.layered, known, derivation, PredicateRows(recursion, way.strata_table, derivation))


def program_for(way: Maintenance, known: Known) -> Program | None:
    """What a refresh computes; None if nothing that the view reads has changed."""
    if KEPT in known.changed:
        return _applying(way, known)
    if way.recursion is not None:
        return _over_predicates(way, way.recursion, known)
    layers: Layers | None = None
    if way.layered is not None:
        moved = {s.source for s in way.strata if known.changed & set(sources(expanded(s.node, way.strata)))}
        known = _known_above(known, [s.source for s in way.strata], moved)
        strata, way = way.strata_table, way.layered
        derivation = way.derivation(known)
        layers = Layers(strata, derivation)
        return program_for_way(way, known, derivation, layers)
    return program_for_way(way, known)


def program_for_way(
    way: Maintenance, known: Known, derivation: Derivation | None = None, layers: Above = None
) -> Program | None:
    derivation = derivation or way.derivation(known)
    match way.way:
        case Way.CHANGES if not way.by_groups(known):
            program = changes_program(way, derivation, layers)
        case Way.CHANGES | Way.KEYS:
            program = keys_program(way, derivation, layers)
        case Way.SETS:
            program = sets_program(way, derivation, known)
        case _:
            program = rows_program(way, derivation, layers)
    if program is None or not isinstance(derivation, JoinTrees):
        return program
    return replace(program, joins=tuple(derivation.planned))
