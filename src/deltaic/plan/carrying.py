"""Columns of an operator inside a view handed up to its top, and where columns there come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from deltaic.algebra.expr import col
from deltaic.algebra.nodes import Apply, Filter, Generate, Item, Join, JoinKind, Node, Project, Window


def origin(node: Node, name: str | None) -> tuple[Node, str | None]:
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


def carried_up(node: Node, target: Node, by: Node, items: tuple[Item, ...]) -> Node | None:
    """The tree with `by` in the place of `target`, whose additional columns `items` are handed up to its root."""
    if node is target:
        return by
    match node:
        case Project():
            below = carried_up(node.input, target, by, items)
            passed = tuple(Item(i.name, col(i.name), i.type) for i in items)
            return below and Project(below, node.items + passed)
        case Filter() | Generate() | Apply() | Window():
            below = carried_up(node.input, target, by, items)
            return below and replace(node, input=below)
        case Join() if node.kind is not JoinKind.FULL:
            left = carried_up(node.left, target, by, items)
            if left is not None:
                return replace(node, left=left)
            right = carried_up(node.right, target, by, items) if node.kind is JoinKind.INNER else None
            return right and replace(node, right=right)
    return None


def preserved(node: Node) -> Iterator[Node]:
    """The operators whose rows reach the top of the tree without being padded or merged."""
    yield node
    match node:
        case Project() | Filter() | Generate() | Apply() | Window():
            yield from preserved(node.input)
        case Join() if node.kind is not JoinKind.FULL:
            yield from preserved(node.left)
            if node.kind is JoinKind.INNER:
                yield from preserved(node.right)
