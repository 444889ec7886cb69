"""The base rules: algebra in, algebra of its delta out, one rule per operator.

A delta is a relation with the node's columns and a signed count, `WEIGHT`. Linear operators apply
to the delta as it is. Every other one takes what the input's delta touches, and subtracts the old
answer there from the new one. Nothing here is clever; a better rule must give the same delta.

Notation in the laws below: E' is the new state, E the old one, dE the delta, so E' = E + dE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, text
from deltaic.algebra.nodes import (
    WEIGHT,
    WEIGHT_FIELD,
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
    State,
    UnionAll,
    Values,
    Window,
)
from deltaic.algebra.stability import is_unstable, own_unstable_decisions, unstable_columns
from deltaic.algebra.trees import keep, null_item, pass_through, sources, top_of, with_leaves
from deltaic.delta.common import Shape
from deltaic.delta.restrict import restrict

OTHER_WEIGHT = "__deltaic_d2"


@dataclass(frozen=True)
class Binding:
    """A relation that other parts of the program refer to by name."""

    name: str
    node: Node
    counts: ViewCounts | None = None
    """Set if this is what the view itself tells: it is read apart, not inlined."""
    common: Shape | None = None
    """Set if it is the delta of a join that other views have too: it is computed once for all of them."""
    stage: Stage | None = None
    """Set if it is a step of a reducing algorithm, which ends where it has no candidates."""


@dataclass(frozen=True)
class ViewCounts:
    """Per key, how many rows of the view have a true and how many a false marker; or only the keys with a true one."""

    marker: str
    keys: tuple[str, ...]
    only_true: bool


@dataclass(frozen=True)
class Stage:
    """A step of an algorithm that ends where nothing is left that may come or go.

    By reducing: the change of one table, after so many were joined, `joined` last. By counting: one of a stratum."""

    phase: int
    what: str
    changed: str = ""
    joined: str = ""
    number: int = 1
    last: bool = False
    """Whether this is what the phase finds, and not looked at."""
    after: frozenset[int] = frozenset()
    """Phases without which it is empty, if there are any."""


@dataclass
class Derivation:
    """Derives deltas given which sources changed, collecting what is used more than once."""

    changed: frozenset[str]
    bindings: list[Binding] = field(default_factory=list)
    shaky: list[tuple[Node, Expr]] = field(default_factory=list)
    """Where an unstable value decides about old rows; the result is exact only if there is none."""
    _keys: dict[Node, Ref | None] = field(default_factory=dict)
    _deltas: dict[Node, Node | None] = field(default_factory=dict)
    _touched: dict[tuple[Node, tuple[Expr, ...]], Node | None] = field(default_factory=dict)

    def delta(self, node: Node) -> Node | None:
        """The node's delta, or None if no source below it changed."""
        if node not in self._deltas:
            self._deltas[node] = self._delta(node) if self.moves(node) else None
            if self._deltas[node] is not None:
                self.shaky.extend(own_unstable_decisions(node))
        return self._deltas[node]

    def moves(self, node: Node) -> bool:
        return any(source in self.changed for source in sources(node))

    def bind(
        self,
        purpose: str,
        node: Node,
        counts: ViewCounts | None = None,
        common: Shape | None = None,
        stage: Stage | None = None,
    ) -> Ref:
        name = self.next_name(purpose)
        self.bindings.append(Binding(name, node, counts, common, stage))
        return Ref(name, node.schema)

    def next_name(self, purpose: str) -> str:
        """The name that the next binding gets."""
        return f"{purpose}_{len(self.bindings) + 1}"

    def old(self, node: Node) -> Node:
        """The node before the change. Sources that did not change are read as they are."""
        return at(node, self.changed)

    # One rule per operator

    @singledispatchmethod
    def _delta(self, node: Node) -> Node | None:
        raise TypeError(f"there is no delta rule for {type(node).__name__}")

    @_delta.register
    def delta_scan(self, node: Scan) -> Node:
        return replace(node, state=State.CHANGE)

    @_delta.register
    def delta_values(self, node: Values) -> None:
        return None

    # d(filter E) = filter dE
    @_delta.register
    def delta_filter(self, node: Filter) -> Node | None:
        return self.delta_of_filter(node)

    def delta_of_filter(self, node: Filter) -> Node | None:
        below = self.delta(node.input)
        return below and Filter(below, node.predicate)

    # d(project E) = project dE, the count carried along
    @_delta.register
    def delta_project(self, node: Project) -> Node | None:
        below = self.delta(node.input)
        return below and Project(below, (*node.items, pass_through(WEIGHT_FIELD)))

    # d(explode E) = explode dE
    @_delta.register
    def delta_generate(self, node: Generate) -> Node | None:
        below = self.delta(node.input)
        return below and ordered(replace(node, input=below), node.columns)

    # d(A + B) = dA + dB
    @_delta.register
    def delta_union_all(self, node: UnionAll) -> Node | None:
        branches = []
        for branch in node.branches:
            below = self.delta(branch)
            if below is not None:
                branches.append(ordered(below, branch.columns))
        if not branches:
            return None
        return UnionAll(tuple(branches), (*node.schema, WEIGHT_FIELD))

    @_delta.register
    def delta_join(self, node: Join) -> Node | None:
        match node.kind:
            case JoinKind.INNER:
                return self.delta_inner_join(node)
            case JoinKind.FULL:
                return self.delta_full_join(node)
        return self.delta_preserving(node, node.left, node.right, node.on)

    # d(A x B) = dA x B' + A' x dB - dA x dB: all states new, so no past is read
    def delta_inner_join(self, node: Join) -> Node:
        left, right = self.delta(node.left), self.delta(node.right)
        terms: list[Node] = []
        if left is not None:
            terms.append(ordered(replace(node, left=left), node.columns))
        if right is not None:
            terms.append(ordered(replace(node, right=right), node.columns))
        if left is not None and right is not None:
            other = renamed_weight(right)
            both = Join(left, other, JoinKind.INNER, node.on)
            minus = join_parts("-", col(WEIGHT), " * ", col(OTHER_WEIGHT))
            terms.append(with_weight(both, node.columns, minus))
        return sum_of(terms)

    # A full join is the left join and, padded, the right rows without a partner
    def delta_full_join(self, node: Join) -> Node | None:
        left = self.delta(Join(node.left, node.right, JoinKind.LEFT, node.on))
        alone = self.delta(Join(node.right, node.left, JoinKind.ANTI, node.on))
        terms = [ordered(left, node.columns)] if left is not None else []
        if alone is not None:
            nulls = tuple(null_item(f) for f in node.left.schema)
            items = {item.name: item for item in (*nulls, *keep(alone))}
            terms.append(Project(alone, tuple(items[name] for name in (*node.columns, WEIGHT))))
        return sum_of(terms) if terms else None

    # Left, semi, anti join and Apply answer row by row of A, looking at the rows of B it matches:
    # d(A op B) = dA op B'  +  T op B' - T op B   where T = the rows of A that match a row of dB
    def delta_preserving(self, node: Join | Apply, left: Node, right: Node, on: Expr | None) -> Node:
        terms: list[Node] = []
        moved, other = self.delta(left), self.delta_by_partner(node, left, right, on)
        if moved is not None:
            terms.append(ordered(_over(node, self.bind("moved", moved), right), node.columns))
        if other is not None:
            terms.append(other)
        return sum_of(terms)

    def delta_by_partner(self, node: Join | Apply, left: Node, right: Node, on: Expr | None) -> Node | None:
        """The second part of the law: what a change of the right side does to old rows of the left one."""
        found = self.delta(right)
        if found is None:
            return None
        other = self.bind("moved", found)
        reached = Project(other, tuple(i for i in keep(other) if i.name != WEIGHT))
        touched = Join(self.old(left), reached, JoinKind.SEMI, on)
        was = self.bind("touched", touched)
        new = with_weight(_over(node, was, right), node.columns, text("1L"))
        return sum_of([new, with_weight(_over(node, was, self.old(right)), node.columns, text("-1L"))])

    def delta_by_right(self, node: Join) -> Node | None:
        """The part of an inner join's delta that the right side's change makes: A' x dB."""
        right = self.delta(node.right)
        return None if right is None else ordered(replace(node, right=right), node.columns)

    @_delta.register
    def delta_apply(self, node: Apply) -> Node:
        return self.delta_preserving(node, node.input, node.body, _reach(node))

    @_delta.register
    def delta_window(self, node: Window) -> Node | None:
        return self.delta_by_key(node)

    @_delta.register
    def delta_aggregate(self, node: Aggregate) -> Node | None:
        return self.delta_of_groups(node)

    def delta_of_groups(self, node: Aggregate) -> Node | None:
        return self.delta_by_key(node)

    # d(op E) = op(E' | K) - op(E | K)   where K = the keys that dE touches
    def delta_by_key(self, node: Aggregate | Window) -> Node | None:
        keys = self.keys(node)
        if keys is None:
            return None
        exprs = key_exprs(node)
        new = restrict(node, exprs, keys)
        old = restrict(self.old(node), exprs, keys)
        return sum_of([with_weight(new, node.columns, text("1L")), with_weight(old, node.columns, text("-1L"))])

    def keys(self, node: Aggregate | Window) -> Ref | None:
        """The keys of a keyed operator that the change touches, each once, as a binding."""
        if node not in self._keys:
            found = self.touched(node.input, partition_of(node))
            self._keys[node] = self.bind("keys", Aggregate(found, keep(found))) if found is not None else None
        return self._keys[node]

    def keys_from(self, node: Aggregate, moved: Node) -> Ref:
        """The same from the delta of the operator's input, where that is known."""
        keys = self._keys.get(node)
        if keys is None:
            found = _keyed(moved, partition_of(node))
            keys = self._keys[node] = self.bind("keys", Aggregate(found, keep(found)))
        return keys

    # Which keys a change may touch: too many is only slow, too few is wrong

    def touched(self, node: Node, exprs: Sequence[Expr]) -> Node | None:
        """Values of `exprs` over the rows of `node` that the change may have touched."""
        key = (node, tuple(exprs))
        if key not in self._touched:
            self._touched[key] = self._find_touched(node, tuple(exprs)) if self.moves(node) else None
        return self._touched[key]

    def _find_touched(self, node: Node, exprs: tuple[Expr, ...]) -> Node | None:
        match node:
            case Project():
                return self.touched(node.input, [e.substitute(node.by_name) for e in exprs])
            case Filter() if is_unstable(node.predicate, unstable_columns(node.input)):
                # a shaky filter may have let the row pass before: do not trust it about the past
                return self.touched(node.input, exprs)
            case Filter() if _is_keyed(node.input):
                # to know which keys pass, and passed, would be to compute both answers
                return self.touched(node.input, exprs)
            case Aggregate() if _only(exprs, node.groups):
                keys = self.keys(node)
                if keys is None:
                    return None
                names = dict(zip((i.name for i in node.groups), map(col, keys.columns), strict=False))
                return _keyed(keys, [e.substitute(names) for e in exprs])
            case Window() if all(e.columns <= set(node.input.columns) for e in exprs):
                return self._touched_by_window(node, exprs)
            case Join() | Apply() if all(e.columns <= set(node.inputs[0].columns) for e in exprs):
                return self._touched_by_partner(node, exprs)
        return self._touched_by_delta(node, exprs)

    def _touched_by_delta(self, node: Node, exprs: tuple[Expr, ...]) -> Node | None:
        self._note_unstable(node, exprs)
        below = self.delta(node)
        return None if below is None else _keyed(below, exprs)

    def _note_unstable(self, node: Node, exprs: tuple[Expr, ...]) -> None:
        """A key that may come out differently again does not find the rows it stood for."""
        shaky = unstable_columns(node)
        self.shaky.extend((node, expr) for expr in exprs if is_unstable(expr, shaky))

    def _touched_by_partner(self, node: Join | Apply, exprs: tuple[Expr, ...]) -> Node | None:
        """A row of the left side is touched if it changed itself or matches a changed row.

        A row that did not change is in the new state, so the past is not read for this."""
        if isinstance(node, Join) and node.kind is JoinKind.FULL:
            return self._touched_by_delta(node, exprs)
        self.shaky.extend(own_unstable_decisions(node))
        left, right = node.inputs
        parts: list[Node] = []
        own, other = self.touched(left, exprs), self.delta(right)
        if own is not None:
            parts.append(_keyed(own, [col(name) for name in own.columns]) if exprs else own)
        if other is not None:
            on = _reach(node) if isinstance(node, Apply) else node.on
            moved = self.bind("moved", other)
            reached = Project(moved, tuple(i for i in keep(moved) if i.name != WEIGHT))
            parts.append(_keyed(Join(left, reached, JoinKind.SEMI, on), exprs))
        return UnionAll(tuple(parts), parts[0].schema) if parts else None

    def _touched_by_window(self, node: Window, exprs: tuple[Expr, ...]) -> Node | None:
        """All rows of a touched partition may have changed, and stood under any key."""
        keys = self.keys(node)
        if keys is None:
            return None
        if exprs == node.partition:
            return keys
        self._note_unstable(node.input, exprs)
        new = restrict(node.input, node.partition, keys)
        old = restrict(self.old(node.input), node.partition, keys)
        branches = tuple(_keyed(part, exprs) for part in (new, old))
        return UnionAll(branches, branches[0].schema)


def _is_keyed(node: Node) -> bool:
    return isinstance(top_of(node), Aggregate | Window)


def partition_of(node: Aggregate | Window) -> tuple[Expr, ...]:
    """The expressions over the input that decide which rows a keyed operator sees together."""
    return tuple(i.expr for i in node.groups) if isinstance(node, Aggregate) else node.partition


def key_exprs(node: Aggregate | Window) -> tuple[Expr, ...]:
    """The same over the operator's own output."""
    return tuple(col(i.name) for i in node.groups) if isinstance(node, Aggregate) else node.partition


def at(node: Node, changed: frozenset[str]) -> Node:
    """The tree with its changed sources read as they were."""

    def past(leaf: Node) -> Node:
        return replace(leaf, state=State.OLD) if isinstance(leaf, Scan) and leaf.source in changed else leaf

    return with_leaves(node, past)


MISMATCH = "DELTAIC_VIEW_MISMATCH"


def never_negative(count: Expr) -> Expr:
    """A count of rows. More taken out than there are can only mean that view and change do not fit."""
    return join_parts("CASE WHEN ", count, " >= 0 THEN ", count, f" ELSE CAST(raise_error('{MISMATCH}') AS BIGINT) END")


def _reach(node: Apply) -> Expr | None:
    """When a row of the body can matter: for IN, an unknown comparison matters too."""
    if not node.kind.compares:
        return node.on
    pairs = zip(node.needles, node.select, strict=True)
    equal = conjunction(*(join_parts("(", a, ") = (", b, ")") for a, b in pairs))
    assert equal is not None
    member = join_parts("((", equal, ") IS NOT FALSE)")
    return conjunction(*(term for term in (node.on, member) if term is not None))


def _over(node: Join | Apply, left: Node, right: Node) -> Node:
    if isinstance(node, Apply):
        return replace(node, input=left, body=right)
    return replace(node, left=left, right=right)


def _only(exprs: Sequence[Expr], groups: tuple[Item, ...]) -> bool:
    names = {item.name for item in groups}
    return all(expr.columns <= names for expr in exprs)


def _keyed(node: Node, exprs: Sequence[Expr]) -> Project:
    fields = node.fields
    items = []
    for number, expr in enumerate(exprs):
        kind = fields[expr.column].type if expr.column else "?"
        items.append(Item(f"__deltaic_k{number}", expr, kind))
    if not items:
        items.append(Item("__deltaic_k0", text("0"), "int", False))
    return Project(node, tuple(items))


def ordered(node: Node, columns: tuple[str, ...]) -> Project:
    items = {item.name: item for item in keep(node)}
    return Project(node, tuple(items[name] for name in (*columns, WEIGHT)))


def with_weight(node: Node, columns: tuple[str, ...], weight: Expr) -> Project:
    items = {item.name: item for item in keep(node)}
    return Project(node, (*(items[name] for name in columns), Item(WEIGHT, weight, "bigint", False)))


def renamed_weight(node: Node) -> Project:
    items = tuple(
        Item(OTHER_WEIGHT, col(WEIGHT), "bigint", False) if item.name == WEIGHT else item for item in keep(node)
    )
    return Project(node, items)


def sum_of(terms: Sequence[Node]) -> Node:
    if len(terms) == 1:
        return terms[0]
    first: tuple[Field, ...] = terms[0].schema
    nullable = tuple(Field(f.name, f.type, True) if f.name != WEIGHT else f for f in first)
    return UnionAll(tuple(terms), nullable)
