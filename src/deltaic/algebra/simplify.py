"""Merges projections, so that the SQL that runs can be read and Spark has less to analyse.

The law: project(p, project(q, E)) = project(p after q, E). It is applied where no expression of q
would be computed more often than before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from deltaic.algebra.expr import Col
from deltaic.algebra.nodes import Aggregate, Apply, Item, Join, Node, Project, Ref, Scan, UnionAll, Values
from deltaic.algebra.trees import keep


def simplify(node: Node) -> Node:
    """The same relation with fewer projections; columns and their order stay."""
    match node:
        case Scan() | Ref() | Values():
            return node
        case Join():
            return replace(node, left=simplify(node.left), right=simplify(node.right))
        case Apply():
            return replace(node, input=simplify(node.input), body=simplify(node.body))
        case UnionAll():
            return replace(node, branches=tuple(simplify(branch) for branch in node.branches))
        case Project():
            return _project(simplify(node.input), node.items)
        case Aggregate():
            return _aggregate(replace(node, input=simplify(node.input)))
        case _:
            return replace(node, input=simplify(node.input))


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
