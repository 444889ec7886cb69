"""Which columns may come out differently when the same rows are evaluated again.

A float sum depends on the order of addition, row_number on how ties fall. Such a column is
*unstable*. Old rows that hold one must be removed by a stable key, never matched by value, and a
stable decision (which row passes, which group a row is in) must not rest on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Filter,
    Generate,
    Item,
    Join,
    Node,
    Project,
    Ref,
    Scan,
    UnionAll,
    Values,
    Window,
)


def is_unstable(expr: Expr, unstable: frozenset[str]) -> bool:
    return expr.unstable or bool(expr.columns & unstable)


def _from(items: tuple[Item, ...], below: frozenset[str]) -> frozenset[str]:
    return frozenset(item.name for item in items if is_unstable(item.expr, below))


@singledispatch
def unstable_columns(node: Node) -> frozenset[str]:
    raise TypeError(f"stability has no case for {type(node).__name__}")


@unstable_columns.register(Scan)
@unstable_columns.register(Ref)
@unstable_columns.register(Values)
def _(node: Node) -> frozenset[str]:
    return frozenset()


@unstable_columns.register
def _(node: Project) -> frozenset[str]:
    return _from(node.items, unstable_columns(node.input))


@unstable_columns.register
def _(node: Filter) -> frozenset[str]:
    return unstable_columns(node.input)


@unstable_columns.register
def _(node: Join) -> frozenset[str]:
    both = unstable_columns(node.left) | unstable_columns(node.right)
    return both & frozenset(node.columns)


@unstable_columns.register
def _(node: Apply) -> frozenset[str]:
    body = unstable_columns(node.body)
    below = unstable_columns(node.input)
    shaky = any(is_unstable(expr, body) for expr in node.select)
    shaky = shaky or any(is_unstable(expr, below) for expr in node.needles)
    return below | {node.output.name} if shaky else below


@unstable_columns.register
def _(node: Generate) -> frozenset[str]:
    below = unstable_columns(node.input)
    if is_unstable(node.generator, below):
        return below | {field.name for field in node.generated}
    return below


@unstable_columns.register
def _(node: Aggregate) -> frozenset[str]:
    return _from(node.groups + node.aggregates, unstable_columns(node.input))


@unstable_columns.register
def _(node: Window) -> frozenset[str]:
    below = unstable_columns(node.input)
    return below | _from(node.items, below)


@unstable_columns.register
def _(node: UnionAll) -> frozenset[str]:
    found: set[str] = set()
    for branch in node.branches:
        shaky = unstable_columns(branch)
        found.update(field.name for field, name in zip(node.schema, branch.columns, strict=True) if name in shaky)
    return frozenset(found)


def own_unstable_decisions(node: Node) -> Iterator[tuple[Node, Expr]]:
    """The expressions by which this node decides, on an unstable value, which rows there are."""
    below = frozenset[str]().union(*(unstable_columns(child) for child in node.inputs))
    for expr in _deciding(node):
        if is_unstable(expr, below):
            yield node, expr


def _deciding(node: Node) -> tuple[Expr, ...]:
    match node:
        case Filter():
            return (node.predicate,)
        case Join():
            return (node.on,) if node.on else ()
        case Apply():
            members = node.select if node.kind.compares else ()
            return (*((node.on,) if node.on else ()), *node.needles, *members)
        case Generate():
            return (node.generator,)
    return ()
