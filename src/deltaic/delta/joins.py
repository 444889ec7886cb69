"""Inner joins of any number of relations, whose delta is found by the cheapest propagation tree (`trees.py`).

Joins, filters and projections that only leave columns out, standing on one another, are one join of *leaves* under
conditions. A term starts from the delta it has and joins one leaf after another, each by a condition where there is
one. The old state of a leaf is the new one and its change with the opposite sign, in one relation with a count: the
past of a table is dearer to read than its present.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, text
from deltaic.algebra.nodes import WEIGHT, WEIGHT_FIELD, Filter, Item, Join, JoinKind, Node, Project, Ref
from deltaic.algebra.stability import own_unstable_decisions
from deltaic.algebra.trees import keep, pass_through
from deltaic.delta.common import Columns, Shape, Shaped
from deltaic.delta.graph import Graph, is_joined
from deltaic.delta.near import Narrowing
from deltaic.delta.rules import OTHER_WEIGHT, Derivation, ordered, sum_of, with_weight
from deltaic.delta.trees import Sizes, Tree, best


@dataclass(frozen=True)
class PlannedJoin:
    """A join with the tree that was chosen for its delta, and what the choice was made by."""

    graph: Graph
    sizes: Sizes
    tree: Tree


@dataclass
class JoinTrees(Derivation):
    """The base rules, but for inner joins."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows sources and views have, as far as it is known."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """How many their changes have."""
    planned: list[PlannedJoin] = field(default_factory=list)
    common: Mapping[Shape, Columns] = field(default_factory=dict)
    """The joins that other views refreshed with this one have too, and the columns that all of them want."""
    _in_common: dict[Shape, Ref] = field(default_factory=dict)

    def delta_inner_join(self, node: Join) -> Node:
        return self.delta_graph(node)

    def delta_of_filter(self, node: Filter) -> Node | None:
        return self.delta_graph(node) if is_joined(node) else super().delta_of_filter(node)

    def delta_graph(self, node: Node) -> Node:
        graph = Graph.of(node)
        for between in graph.nodes:
            if between is not node:
                self.shaky.extend(own_unstable_decisions(between))
        shaped = Shaped.of(graph) if self.common else None
        if shaped is not None and shaped.columns <= self.common.get(shaped.shape, frozenset()):
            return self.delta_in_common(shaped, node)
        return ordered(self.delta_by_tree(graph), node.columns)

    def delta_by_tree(self, graph: Graph) -> Node:
        sizes = graph.sizes(self.rows, self.changes, self.changed)
        tree = best(sizes)
        self.planned.append(PlannedJoin(graph, sizes, tree))
        return Terms(self, graph, sizes).delta(tree)

    def delta_in_common(self, shaped: Shaped, node: Node) -> Node:
        """The delta of the join in its common form, with the columns of all, as a binding; and this node's of it."""
        shape = shaped.shape
        if shape not in self._in_common:
            graph = shape.graph(self.common[shape])
            columns = tuple(sorted(name for leaf in graph.leaves for name in leaf.columns))
            self._in_common[shape] = self.bind("common", ordered(self.delta_by_tree(graph), columns), common=shape)
        delta, names = self._in_common[shape], dict(shaped.names)
        items = [replace(pass_through(f), expr=col(names[f.name])) for f in node.schema]
        return Project(delta, (*items, pass_through(WEIGHT_FIELD)))


@dataclass
class Terms:
    derivation: JoinTrees
    graph: Graph
    sizes: Sizes
    deltas: dict[int, Node] = field(default_factory=dict)
    """The delta of each leaf, used by several terms."""

    def delta(self, tree: Tree) -> Node:
        if not tree.parts:
            return self.leaf_delta(min(tree.relations))
        terms: list[Node] = []
        for place, part in enumerate(tree.parts):
            if any(self.sizes.moves(r) for r in part.relations):
                old = frozenset[int]().union(*(after.relations for after in tree.parts[place + 1 :]))
                terms.append(self.term(part, tree.relations - part.relations, old))
        columns = terms[0].columns
        return sum_of([ordered(term, tuple(c for c in columns if c != WEIGHT)) for term in terms])

    def leaf_delta(self, relation: int) -> Node:
        return self.filtered(self.moved(relation), relation)

    def moved(self, relation: int) -> Node:
        if relation not in self.deltas:
            leaf = self.graph.leaves[relation]
            found = self.derivation.delta(leaf)
            assert found is not None
            self.deltas[relation] = self.derivation.bind("moved", ordered(found, leaf.columns))
        return self.deltas[relation]

    def term(self, part: Tree, others: frozenset[int], old: frozenset[int]) -> Node:
        """The delta of `part` with the other leaves, those of `old` as they were."""
        rows, there, left = self.delta(part), part.relations, others
        expected = self.sizes.delta(part.relations)
        while left:
            following = min(left, key=lambda r: (not self.is_joined(r, there), self.sizes.new[r], r))
            conditions = self.conditions(following, there)
            on = conjunction(*conditions)
            leaf = self.leaf(following, past=following in old)
            rows, leaf = self.nearby(rows, leaf, conditions, expected)
            expected *= self.sizes.new[following] * self.sizes.between(following, there)
            joined = Join(rows, leaf, JoinKind.INNER, on)
            names = tuple(c for c in joined.columns if c not in (WEIGHT, OTHER_WEIGHT))
            rows = joined
            if OTHER_WEIGHT in leaf.columns:
                rows = with_weight(joined, names, join_parts(col(WEIGHT), " * ", col(OTHER_WEIGHT)))
            there, left = there | {following}, left - {following}
        return rows

    def nearby(self, rows: Node, leaf: Node, conditions: Sequence[Expr], expected: float) -> tuple[Node, Node]:
        """The rows so far as a binding, and the leaf near the keys in it, if a condition makes two columns equal."""
        asked = Ref(self.derivation.next_name("reached"), rows.schema)
        narrowed = Narrowing(self.derivation.rows, expected).beside(leaf, asked, conditions)
        return (rows, leaf) if narrowed is leaf else (self.derivation.bind("reached", rows), narrowed)

    def leaf(self, relation: int, *, past: bool) -> Node:
        """A leaf as it is; or as it was, with a count beside each row."""
        leaf = self.graph.leaves[relation]
        if not past or not self.sizes.moves(relation):
            return self.filtered(leaf, relation)
        moved = self.moved(relation)
        minus = Project(
            moved, (*_only(moved, leaf.columns), Item(OTHER_WEIGHT, join_parts("-", col(WEIGHT)), "bigint"))
        )
        plus = Project(leaf, (*keep(leaf), Item(OTHER_WEIGHT, text("1L"), "bigint")))
        return self.filtered(sum_of([plus, minus]), relation)

    def filtered(self, rows: Node, relation: int) -> Node:
        for condition in self.conditions(relation, frozenset()):
            rows = Filter(rows, condition)
        return rows

    def conditions(self, following: int, before: frozenset[int]) -> Sequence[Expr]:
        """What can be decided once a leaf has joined those before it, and neither they nor it decide alone; or, if
        there are none, what it decides."""
        there = before | {following}
        looked = self.graph.looking_at[following]
        return [condition for condition, reached in looked if reached <= there and (len(reached) > 1 or not before)]

    def is_joined(self, relation: int, there: frozenset[int]) -> bool:
        return not self.sizes.beside[relation].isdisjoint(there)


def _only(node: Node, names: Iterable[str]) -> tuple[Item, ...]:
    items = {item.name: item for item in keep(node)}
    return tuple(items[name] for name in names)
