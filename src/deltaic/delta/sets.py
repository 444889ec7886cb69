"""Views that are sets of joined rows, and the algorithms by which such a set is kept without counts (`reduce.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import Aggregate, Filter, Item, Node, Project, UnionAll
from deltaic.delta.graph import Graph


@dataclass(frozen=True)
class Reducing:
    """What an algorithm does at each join."""

    existing: bool = True
    """RIE."""
    candidates: bool = True
    """RIC."""
    early: bool = True
    """Selection and projection as early as possible."""
    mixed: bool = True
    """MU2: what comes counts as existing for what goes, and the other way round."""
    free: bool = False
    """Whether it may leave out what would drop little, and where a theorem makes it empty."""


ALGORITHMS: Mapping[str, Reducing] = {
    "naive": Reducing(existing=False, candidates=False, early=False, mixed=False),
    "rie": Reducing(candidates=False, early=False, mixed=False),
    "ric": Reducing(existing=False, early=False, mixed=False),
    "reduce": Reducing(early=False, mixed=False),
    "reduce+": Reducing(mixed=False),
    "mu1": Reducing(early=False, mixed=False),
    "mu2": Reducing(early=False),
    "reducing": Reducing(free=True),
}
"""MU1 is REDUCE for what comes and what goes, each by itself, which is how all but MU2 take a mixed change here.
"reducing" is REDUCE+ and MU2, with the freedom to leave things out."""


@dataclass(frozen=True)
class SetQuery:
    """SELECT DISTINCT `items` FROM the leaves of `graph` WHERE its conditions."""

    graph: Graph
    items: tuple[Item, ...]

    @staticmethod
    def of(top: Node) -> SetQuery | None:
        """None if it is not a set of rows that are chosen from joined relations."""
        if not isinstance(top, Aggregate) or top.aggregates:
            return None
        node, items, conditions = top.input, top.groups, list[Expr]()
        while isinstance(node, Project | Filter):
            if isinstance(node, Filter):
                conditions.append(node.predicate)
            else:
                by = node.by_name
                items = tuple(replace(item, expr=item.expr.substitute(by)) for item in items)
                conditions = [condition.substitute(by) for condition in conditions]
            node = node.input
        if isinstance(node, UnionAll):
            return None
        graph = Graph.of(node)
        return SetQuery(replace(graph, conditions=(*graph.conditions, *conditions)), items)
