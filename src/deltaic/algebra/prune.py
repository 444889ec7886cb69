"""Drops the columns that nothing above needs, so that only used columns are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatch

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    UnionAll,
    Values,
    Window,
)
from deltaic.algebra.trees import keep


def prune(node: Node, needed: Iterable[str] | None = None) -> Node:
    """The same rows with at least the needed columns (all, if not given), in the same order."""
    return _prune(node, frozenset(node.columns if needed is None else needed))


def _used(exprs: Iterable[Expr | None]) -> frozenset[str]:
    return frozenset[str]().union(*(expr.columns for expr in exprs if expr is not None))


@singledispatch
def _prune(node: Node, needed: frozenset[str]) -> Node:
    raise TypeError(f"pruning has no case for {type(node).__name__}")


@_prune.register(Ref)
@_prune.register(Values)
def _(node: Node, needed: frozenset[str]) -> Node:
    return node


@_prune.register
def _(node: Scan, needed: frozenset[str]) -> Node:
    kept = tuple(column for column in node.scanned if column.field.name in needed)
    return replace(node, scanned=kept or node.scanned[:1])


@_prune.register
def _(node: Project, needed: frozenset[str]) -> Node:
    items = tuple(item for item in node.items if item.name in needed) or node.items[:1]
    return Project(_prune(node.input, _used(item.expr for item in items)), items)


@_prune.register
def _(node: Filter, needed: frozenset[str]) -> Node:
    return replace(node, input=_prune(node.input, needed | node.predicate.columns))


@_prune.register
def _(node: Join, needed: frozenset[str]) -> Node:
    wanted = needed | _used([node.on])
    left = _prune(node.left, wanted & set(node.left.columns))
    right = _prune(node.right, wanted & set(node.right.columns))
    joined = Join(left, right, node.kind, node.on)
    if node.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return joined
    kept = tuple(item for item in keep(joined) if item.name in needed)
    return Project(joined, kept) if kept and len(kept) < len(joined.columns) else joined


@_prune.register
def _(node: Apply, needed: frozenset[str]) -> Node:
    if node.output.name not in needed:
        return _prune(node.input, needed)
    wanted = needed | _used([node.on, *node.needles])
    body = _prune(node.body, _used([node.on, *node.select, *node.groups]) & set(node.body.columns))
    return replace(node, input=_prune(node.input, wanted & set(node.input.columns)), body=body)


@_prune.register
def _(node: Generate, needed: frozenset[str]) -> Node:
    below = (needed & set(node.input.columns)) | node.generator.columns
    return replace(node, input=_prune(node.input, below))


@_prune.register
def _(node: Aggregate, needed: frozenset[str]) -> Node:
    aggregates = tuple(item for item in node.aggregates if item.name in needed)
    if not node.groups:
        aggregates = aggregates or node.aggregates[:1]
    below = _used(item.expr for item in node.groups + aggregates)
    return Aggregate(_prune(node.input, below), node.groups, aggregates)


@_prune.register
def _(node: Window, needed: frozenset[str]) -> Node:
    items = tuple(item for item in node.items if item.name in needed)
    below = needed & set(node.input.columns)
    if not items:
        return _prune(node.input, below)
    wanted = below | _used([*(item.expr for item in items), *node.partition])
    return Window(_prune(node.input, wanted), items, node.partition)


@_prune.register
def _(node: UnionAll, needed: frozenset[str]) -> Node:
    places = [n for n, name in enumerate(node.columns) if name in needed] or [0]
    branches = []
    for branch in node.branches:
        names = [branch.columns[place] for place in places]
        pruned = _prune(branch, frozenset(names))
        items = {item.name: item for item in keep(pruned)}
        branches.append(Project(pruned, tuple(items[name] for name in names)))
    return UnionAll(tuple(branches), tuple(node.schema[place] for place in places))
