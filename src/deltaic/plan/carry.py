"""Columns on their way up a tree: where one comes from, and how one that is not shown is handed to the top."""

from __future__ import annotations

from dataclasses import replace

from deltaic.algebra.expr import col
from deltaic.algebra.nodes import Apply, Filter, Generate, Item, Join, JoinKind, Node, Project, Window


def origin_of(node: Node, name: str | None) -> tuple[Node, str | None]:
    """Where a column that is only passed through comes from."""
    while name is not None:
        if isinstance(node, Project):
            expr = node.by_name[name]
            if expr.column is None:
                break
            node, name = node.input, expr.column
        elif isinstance(node, Filter):
            node = node.input
        elif isinstance(node, Join):
            node = node.left if name in node.left.columns else node.right
        else:
            break
    return node, name


def carry(node: Node, target: Node, by: Node, items: tuple[Item, ...]) -> Node | None:
    """The tree with `by` in the place of `target`, whose additional columns `items` are handed up to its root."""
    if node is target:
        return by
    match node:
        case Project():
            below = carry(node.input, target, by, items)
            passed = tuple(Item(i.name, col(i.name), i.type) for i in items)
            return below and Project(below, node.items + passed)
        case Filter() | Generate() | Apply() | Window():
            below = carry(node.input, target, by, items)
            return below and replace(node, input=below)
        case Join() if node.kind is not JoinKind.FULL:
            left = carry(node.left, target, by, items)
            if left is not None:
                return replace(node, left=left)
            right = carry(node.right, target, by, items) if node.kind is JoinKind.INNER else None
            return right and replace(node, right=right)
    return None
