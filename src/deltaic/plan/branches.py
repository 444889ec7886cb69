"""The branches of a view that is a UNION ALL, so that one more or one less of them is a change of the view."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deltaic.algebra.expr import col, text
from deltaic.algebra.nodes import Filter, Item, Node, Project, UnionAll
from deltaic.algebra.prune import prune
from deltaic.algebra.simplify import simplify
from deltaic.delta.netting import net
from deltaic.delta.rules import Binding, sum_of, with_weight
from deltaic.plan.maintain import Maintenance, Way
from deltaic.plan.recursion import placed


@dataclass(frozen=True)
class AlteredBranches:
    """Trees with the columns of a view's table, by their places."""

    removed: tuple[Node, ...]
    added: tuple[Node, ...]


def branches(way: Maintenance) -> list[Node] | None:
    """What a view's rows are the sum of; None for a view that is kept in another way than by rows."""
    if way.way is not Way.ROWS or way.preserved or way.strata or way.recursion is not None:
        return None
    return [simplify(prune(placed(tree))) for tree in taken_apart(way.root)]


def taken_apart(node: Node) -> list[Node]:
    """What the rows of a tree are the sum of."""
    match node:
        case Project() | Filter():
            return [replace(node, input=part) for part in taken_apart(node.input)]
        case UnionAll():
            return [_renamed(part, node) for branch in node.branches for part in taken_apart(branch)]
    return [node]


def _renamed(branch: Node, union: UnionAll) -> Project:
    pairs = zip(branch.schema, union.schema, strict=True)
    return Project(branch, tuple(Item(wide.name, col(own.name), wide.type, wide.nullable) for own, wide in pairs))


def branch_delta(way: Maintenance, altered: AlteredBranches, name: str) -> Binding:
    """What becomes of the view's rows if branches go and come."""
    terms = [_signed(way, tree, "-1L") for tree in altered.removed] + [_signed(way, t, "1L") for t in altered.added]
    return Binding(name, net(sum_of(terms)))


def _signed(way: Maintenance, tree: Node, sign: str) -> Node:
    pairs = zip(tree.columns, way.root.schema, strict=True)
    named = Project(tree, tuple(Item(f.name, col(own), f.type, f.nullable) for own, f in pairs))
    return with_weight(named, way.root.columns, text(sign))
