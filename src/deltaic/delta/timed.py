"""Timed deltas: every row of a delta with the time of the commit that made it (Salem et al., definition 4.2).

A joined row takes the least time of its changed rows. That is right where all other relations are seen as they are at
the interval's end and what is counted twice is taken back:

    d(L1 ⋈ ... ⋈ Ln)  =  sum over sets S of changed leaves of (-1)^(|S|+1)  (dL of S) ⋈ (L' of the others)

For two rows that came, at a and b > a, this counts +1 at a, +1 at b and -1 at a: once, at b. For two that went: -1 at
a.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, combinations

from deltaic.algebra.expr import Expr, col, conjunction, join_parts
from deltaic.algebra.nodes import (
    WEIGHT,
    WEIGHT_FIELD,
    Field,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    ScanColumn,
    State,
    UnionAll,
    Values,
)
from deltaic.algebra.stability import own_unstable_decisions
from deltaic.algebra.trees import keep, pass_through, walk, with_leaves
from deltaic.delta.graph import Graph, is_joined
from deltaic.delta.joins import JoinTrees, Terms
from deltaic.delta.rules import OTHER_WEIGHT, sum_of

TIME = "__deltaic_time"
TIME_FIELD = Field(TIME, "bigint", False)
_OTHER_TIME = "__deltaic_time2"
_JOINED = 10
"""Relations in one join that may have a timed delta: of n that change it has 2^n - 1 terms."""


def why_not_timed(node: Node) -> str | None:
    """What in a tree has no timed delta; None if nothing."""
    for part in walk(node):
        linear = isinstance(part, Scan | Values | Filter | Project | Generate | UnionAll)
        if not linear and not (isinstance(part, Join) and part.kind is JoinKind.INNER):
            what = f"{part.kind.name.lower()} join" if isinstance(part, Join) else type(part).__name__.lower()
            return f"what it computes below its top has a {what}, whose delta has no times"
        joined = len(Graph.of(part).leaves) if is_joined(part) else 0
        if joined > _JOINED:
            return (
                f"it joins {joined} relations, and each set of them that may change has a term; up to {_JOINED} may be"
            )
        if any(True for _ in own_unstable_decisions(part)):
            return "a value decides about rows that may come out differently when computed again"
    return None


@dataclass
class Timed(JoinTrees):
    """Derives timed deltas of what `why_not_timed` has nothing against."""

    def _delta(self, node: Node) -> Node | None:
        match node:
            case Scan():
                columns = (*node.scanned, ScanColumn(TIME_FIELD, TIME))
                return replace(node, scanned=columns, state=State.CHANGE)
            case Values():
                return None
            case Join() | Filter() if is_joined(node):
                return self.delta_graph(node)
            case Filter():
                below = self.delta(node.input)
                return below and Filter(below, node.predicate)
            case Project():
                below = self.delta(node.input)
                return below and Project(below, (*node.items, pass_through(WEIGHT_FIELD), pass_through(TIME_FIELD)))
            case Generate():
                below = self.delta(node.input)
                return below and timed(replace(node, input=below), node.columns)
            case UnionAll():
                return self.timed_union(node)
        raise TypeError(f"there is no timed delta of {type(node).__name__}")

    def timed_union(self, node: UnionAll) -> Node | None:
        branches = []
        for branch in node.branches:
            below = self.delta(branch)
            if below is not None:
                branches.append(timed(below, branch.columns))
        return UnionAll(tuple(branches), (*node.schema, WEIGHT_FIELD, TIME_FIELD)) if branches else None

    def delta_graph(self, node: Node) -> Node:
        graph = Graph.of(node)
        sizes = graph.sizes(self.rows, self.changes, self.changed)
        terms = _TimedTerms(self, graph, sizes)
        moving = [place for place in range(len(graph.leaves)) if sizes.moves(place)]
        sets = chain.from_iterable(combinations(moving, size) for size in range(1, len(moving) + 1))
        return sum_of([timed(terms.product(chosen, _sign(chosen)), node.columns) for chosen in sets])


@dataclass
class OneTerm(Timed):
    """One term: the changes of all that changed, with each other."""

    sign: int = 1

    def delta_graph(self, node: Node) -> Node:
        graph = Graph.of(node)
        sizes = graph.sizes(self.rows, self.changes, self.changed)
        moving = tuple(place for place in range(len(graph.leaves)) if sizes.moves(place))
        return timed(_TimedTerms(self, graph, sizes).product(moving, self.sign), node.columns)


def _sign(changed: tuple[int, ...]) -> int:
    return 1 if len(changed) % 2 else -1


def apart(node: Node) -> tuple[Node, tuple[tuple[str, str], ...]] | None:
    """The tree with every scan under a name of its own, and these names beside those of their sources, for a join each
    of whose leaves reads one source; None for anything else."""
    names: list[tuple[str, str]] = []

    def turn(leaf: Node) -> Node:
        if not isinstance(leaf, Scan):
            return leaf
        names.append((f"{leaf.source}#{len(names)}", leaf.source))
        return replace(leaf, source=names[-1][0])

    if any(isinstance(part, UnionAll | Values) for part in walk(node)):
        return None
    return with_leaves(node, turn), tuple(names)


@dataclass
class _TimedTerms(Terms):
    def moved(self, relation: int) -> Node:
        if relation not in self.deltas:
            leaf = self.graph.leaves[relation]
            found = self.derivation.delta(leaf)
            assert found is not None
            self.deltas[relation] = self.derivation.bind("moved", timed(found, leaf.columns))
        return self.deltas[relation]

    def product(self, changed: tuple[int, ...], sign: int) -> Node:
        """The changes of these leaves with each other and with the others as they are now, signed."""
        rows, there = self.leaf_delta(changed[0]), frozenset(changed[:1])
        expected, left = self.sizes.delta(there), set(range(len(self.graph.leaves))) - there
        while left:
            following = min(left, key=lambda r: (not self.is_joined(r, there), r not in changed, self.sizes.new[r], r))
            conditions = self.conditions(following, there)
            on = conjunction(*conditions)
            if following in changed:
                rows = _both(rows, self.leaf_delta(following), on)
            else:
                leaf = self.leaf(following, past=False)
                rows, leaf = self.nearby(rows, leaf, conditions, expected)
                rows = Join(rows, leaf, JoinKind.INNER, on)
            expected *= self.sizes.new[following] * self.sizes.between(following, there)
            there, left = there | {following}, left - {following}
        if sign > 0:
            return rows
        minus = Item(WEIGHT, join_parts("-", col(WEIGHT)), "bigint", False)
        return Project(rows, tuple(minus if item.name == WEIGHT else item for item in keep(rows)))


def _both(rows: Node, other: Node, on: Expr | None) -> Node:
    """Two changes joined: counts multiply, and the earlier time is taken."""
    renames = {WEIGHT: OTHER_WEIGHT, TIME: _OTHER_TIME}
    renamed = Project(other, tuple(replace(item, name=renames.get(item.name, item.name)) for item in keep(other)))
    joined = Join(rows, renamed, JoinKind.INNER, on)
    weight = Item(WEIGHT, join_parts(col(WEIGHT), " * ", col(OTHER_WEIGHT)), "bigint", False)
    time = Item(TIME, join_parts("least(", col(TIME), ", ", col(_OTHER_TIME), ")"), "bigint", False)
    own = tuple(item for item in keep(joined) if item.name not in (*renames, *renames.values()))
    return Project(joined, (*own, weight, time))


def timed(node: Node, columns: Iterable[str]) -> Project:
    """These columns, and the count and time of each row."""
    items = {item.name: item for item in keep(node)}
    return Project(node, tuple(items[name] for name in (*columns, WEIGHT, TIME)))
