"""The algebra of one refresh: named relations in order, the last of which is applied to the view."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from deltaic.algebra.expr import Expr, col, join_parts, text
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
    Apply,
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
    keep,
    null_item,
    pass_through,
    walk,
)
from deltaic.algebra.prune import prune
from deltaic.algebra.simplify import simplify
from deltaic.delta.restrict import restrict
from deltaic.delta.rules import Binding, Derivation, net
from deltaic.plan.maintain import Maintenance, Way

OP = "__deltaic_op"
"""In what is applied to a view: -1 deletes the rows of a key, +1 inserts the row."""

VIEW = "@view"
"""The source name under which a program reads the view's own table."""

DELTA, ARTIFACT = "delta", "artifact"


@dataclass(frozen=True)
class Program:
    """`bindings` in the order they are computed; the last is the artifact."""

    bindings: tuple[Binding, ...]

    @property
    def artifact(self) -> Node:
        return self.bindings[-1].node


def keys_program(way: Maintenance, changed: frozenset[str]) -> Program | None:
    """Replace what the touched keys hold. None if nothing the view reads has changed."""
    derivation = Derivation(changed)
    key = [col(name) for name in way.key]
    found = derivation.touched(way.root, key)
    if found is None:
        return None
    keys = derivation.bind("keys", Aggregate(found, keep(found)))
    rows = restrict(way.root, key, keys)
    names = dict(zip(way.key, keys.columns, strict=True))
    deleted = tuple(
        Item(f.name, col(names[f.name]), f.type) if f.name in names else null_item(f) for f in way.root.schema
    )
    artifact = _operations(way, Project(keys, deleted), [rows])
    return _finished(derivation, artifact)


def rows_program(way: Maintenance, changed: frozenset[str]) -> Program | None:
    """The view's signed delta, netted, under the name DELTA."""
    derivation = Derivation(changed)
    found = derivation.delta(way.root)
    if found is None:
        return None
    return _inlined(Program((*derivation.bindings, Binding(DELTA, net(found)))))


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
    left_over = Filter(total, join_parts(_not_negative(), " > 0"))
    added = _matching(delta, lost, JoinKind.ANTI, way)
    deleted = tuple(Item(f.name, col(f.name), f.type) if f.name == way.key[0] else null_item(f) for f in fields)
    artifact = _operations(way, Project(lost, deleted), [_repeated(left_over), _repeated(added)])
    return _finished(derivation, artifact)


def _row_item(way: Maintenance, suffix: str) -> Item:
    name = way.key[0]
    return Item(name + suffix, col(name), "bigint", False)


def _weight(expr: Expr) -> Item:
    return Item(WEIGHT, expr, "bigint", False)


def _sum_weight() -> Expr:
    return join_parts("sum(", col(WEIGHT), ")")


def _not_negative() -> Expr:
    """A row taken out more often than it is there can only mean that view and change do not fit."""
    return join_parts(
        "CASE WHEN ",
        col(WEIGHT),
        " >= 0 THEN ",
        col(WEIGHT),
        f" ELSE CAST(raise_error('{MISMATCH}') AS BIGINT) END",
    )


MISMATCH = "DELTAIC_VIEW_MISMATCH"


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


def _finished(derivation: Derivation, artifact: Node) -> Program:
    return _inlined(Program((*derivation.bindings, Binding(ARTIFACT, artifact))))


def _inlined(program: Program) -> Program:
    """Bindings that are used once, or cost next to nothing, go where they are used."""
    uses = Counter(n.name for b in program.bindings for n in walk(b.node) if isinstance(n, Ref))
    known: dict[str, Node] = {}
    kept: list[Binding] = []
    for binding in program.bindings:
        node = simplify(prune(_replaced(binding.node, known)))
        last = binding is program.bindings[-1]
        if not last and (uses[binding.name] <= 1 or _is_light(node)):
            known[binding.name] = node
        else:
            kept.append(Binding(binding.name, node))
    return Program(tuple(kept))


def _is_light(node: Node) -> bool:
    """Only the change itself, filtered and projected: reading it again is cheaper than keeping it."""
    return all(
        isinstance(n, Project | Filter | Aggregate | UnionAll | Values)
        or (isinstance(n, Scan) and n.state is State.CHANGE)
        for n in walk(node)
    )


def _replaced(node: Node, known: dict[str, Node]) -> Node:
    match node:
        case Ref():
            return known.get(node.name, node)
        case Scan() | Values():
            return node
        case Join():
            return replace(node, left=_replaced(node.left, known), right=_replaced(node.right, known))
        case Apply():
            return replace(node, input=_replaced(node.input, known), body=_replaced(node.body, known))
        case UnionAll():
            return replace(node, branches=tuple(_replaced(b, known) for b in node.branches))
        case _:
            return replace(node, input=_replaced(node.input, known))


def program_for(way: Maintenance, changed: frozenset[str]) -> Program | None:
    return keys_program(way, changed) if way.way is Way.KEYS else rows_program(way, changed)
