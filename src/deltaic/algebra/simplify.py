"""Merges projections, so that the SQL that runs can be read and Spark has less to analyse.

The law: project(p, project(q, E)) = project(p after q, E). It is applied where no expression of q
would be computed more often than before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from deltaic.algebra.expr import Col
from deltaic.algebra.nodes import Aggregate, Item, Node, Project
from deltaic.algebra.trees import keep, with_inputs


def simplify(node: Node) -> Node:
    """The same relation with fewer projections; columns and their order stay."""
    below = with_inputs(node, simplify)
    match below:
        case Project():
            return _project(below.input, below.items)
        case Aggregate():
            return _aggregate(below)
    return below


def _project(below: Node, items: tuple[Item, ...]) -> Node:
    if isinstance(below, Project) and _costs_nothing(below, items):
        merged = tuple(replace(item, expr=item.expr.substitute(below.by_name)) for item in items)
        return _project(below.input, merged)
    if items == keep(below):
        return below
    return Project(below, items)


def _costs_nothing(below: Project, items: tuple[Item, ...]) -> bool:
    uses = Counter(part.name for item in items for part in item.expr.parts if isinstance(part, Col))
    return all(item.expr.column is not None or uses[item.name] <= 1 for item in below.items)


def _aggregate(node: Aggregate) -> Node:
    """DISTINCT of DISTINCT is DISTINCT."""
    below = node.input
    while isinstance(below, Project) and all(item.expr.column == item.name for item in below.items):
        below = below.input
    inner = isinstance(below, Aggregate) and not below.aggregates and not node.aggregates
    if inner and node.columns == below.columns and all(i.expr.column == i.name for i in node.groups):
        return below
    return node
