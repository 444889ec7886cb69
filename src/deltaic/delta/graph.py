"""A join of any number of relations: leaves under conditions, whatever order the joins were written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import Filter, Join, JoinKind, Node, Project, Scan
from deltaic.algebra.trees import walk
from deltaic.delta.trees import Sizes

ROWS, CHANGE = 100_000.0, 100.0
"""Of a relation whose size is not known."""


@dataclass(frozen=True)
class Graph:
    """A join of `leaves` under `conditions`; `nodes` are what stood between them."""

    leaves: tuple[Node, ...]
    conditions: tuple[Expr, ...]
    nodes: tuple[Node, ...]

    @staticmethod
    def of(node: Node) -> Graph:
        match node:
            case Join(kind=JoinKind.INNER):
                left, right = Graph.of(node.left), Graph.of(node.right)
                own = (node.on,) if node.on is not None else ()
                return Graph(
                    left.leaves + right.leaves,
                    (*left.conditions, *right.conditions, *own),
                    (*left.nodes, *right.nodes, node),
                )
            case Filter() if is_joined(node):
                below = Graph.of(node.input)
                return Graph(below.leaves, (*below.conditions, node.predicate), (*below.nodes, node))
            case Project() if is_joined(node):
                return Graph.of(node.input)
        return Graph((node,), (), ())

    @cached_property
    def leaf_of(self) -> dict[str, int]:
        """Which leaf has a column."""
        return {name: number for number, leaf in enumerate(self.leaves) for name in leaf.columns}

    def reach(self, condition: Expr) -> frozenset[int]:
        """The leaves that a condition looks at."""
        found = frozenset(self.leaf_of[name] for name in condition.columns if name in self.leaf_of)
        return found or frozenset({0})  # a condition that looks at nothing must be decided somewhere

    @cached_property
    def looking_at(self) -> dict[int, list[tuple[Expr, frozenset[int]]]]:
        """The conditions that look at each leaf, in their order, with all leaves that they look at."""
        found: dict[int, list[tuple[Expr, frozenset[int]]]] = {number: [] for number in range(len(self.leaves))}
        for condition in self.conditions:
            reached = self.reach(condition)
            for leaf in reached:
                found[leaf].append((condition, reached))
        return found

    def sizes(self, rows: Mapping[str, int], changes: Mapping[str, int], changed: frozenset[str]) -> Sizes:
        new = [_size(leaf, rows, ROWS) for leaf in self.leaves]
        # a source may have changed by rows that cancel out: it moves all the same
        at_least = {source: max(changes[source], 1) for source in changes}
        change = [_size(leaf, at_least, CHANGE, changed) for leaf in self.leaves]
        old = [n + c for n, c in zip(new, change, strict=True)]
        selectivity: dict[tuple[int, int], float] = {}
        for condition in self.conditions:
            reached = sorted(self.reach(condition))
            for a, b in ((a, b) for a in reached for b in reached if a < b):
                # as if it were a key of the smaller one: each row of the other meets one
                selectivity[a, b] = min(selectivity.get((a, b), 1.0), 1.0 / max(min(new[a], new[b]), 1.0))
        return Sizes(new, old, change, selectivity)


def is_joined(node: Node) -> bool:
    """Whether only filters, and projections that leave columns out, are above a join."""
    while isinstance(node, Filter) or (isinstance(node, Project) and is_narrowing(node)):
        node = node.input
    return isinstance(node, Join) and node.kind is JoinKind.INNER


def is_narrowing(node: Project) -> bool:
    return all(item.expr.column == item.name for item in node.items)


def _size(leaf: Node, known: Mapping[str, int], unknown: float, only: frozenset[str] | None = None) -> float:
    scans = [n.source for n in walk(leaf) if isinstance(n, Scan)]
    return float(sum(known.get(s, unknown) for s in scans if only is None or s in only))
