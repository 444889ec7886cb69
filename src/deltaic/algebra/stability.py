"""Which columns may come out differently when the same rows are evaluated again.

A float sum depends on the order of addition, row_number on how ties fall. Such a column is
*unstable*. Old rows that hold one must be removed by a stable key, never matched by value, and a
stable decision (which row passes, which group a row is in) must not rest on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


Judge = Callable[[Expr, frozenset[str], tuple[Node, ...]], bool]
"""Whether an expression is such a one, given the columns below it that are, and the nodes that it is over."""


def _is_unstable(expr: Expr, below: frozenset[str], _inputs: tuple[Node, ...]) -> bool:
    return is_unstable(expr, below)


@singledispatch
def unstable_columns(node: Node, judge: Judge = _is_unstable) -> frozenset[str]:
    """The columns that are unstable, or of which another judge says so."""
    raise TypeError(f"stability has no case for {type(node).__name__}")


def _from(items: tuple[Item, ...], below: frozenset[str], node: Node, judge: Judge) -> frozenset[str]:
    return frozenset(item.name for item in items if judge(item.expr, below, node.inputs))


@unstable_columns.register(Scan)
@unstable_columns.register(Ref)
@unstable_columns.register(Values)
def _(node: Node, judge: Judge = _is_unstable) -> frozenset[str]:
    return frozenset()


@unstable_columns.register
def _(node: Project, judge: Judge = _is_unstable) -> frozenset[str]:
    return _from(node.items, unstable_columns(node.input, judge), node, judge)


@unstable_columns.register
def _(node: Filter, judge: Judge = _is_unstable) -> frozenset[str]:
    return unstable_columns(node.input, judge)


@unstable_columns.register
def _(node: Join, judge: Judge = _is_unstable) -> frozenset[str]:
    both = unstable_columns(node.left, judge) | unstable_columns(node.right, judge)
    return both & frozenset(node.columns)


@unstable_columns.register
def _(node: Apply, judge: Judge = _is_unstable) -> frozenset[str]:
    body = unstable_columns(node.body, judge)
    below = unstable_columns(node.input, judge)
    shaky = any(judge(expr, body, (node.body,)) for expr in node.select)
    shaky = shaky or any(judge(expr, below, (node.input,)) for expr in node.needles)
    return below | {node.output.name} if shaky else below


@unstable_columns.register
def _(node: Generate, judge: Judge = _is_unstable) -> frozenset[str]:
    below = unstable_columns(node.input, judge)
    if judge(node.generator, below, node.inputs):
        return below | {field.name for field in node.generated}
    return below


@unstable_columns.register
def _(node: Aggregate, judge: Judge = _is_unstable) -> frozenset[str]:
    return _from(node.groups + node.aggregates, unstable_columns(node.input, judge), node, judge)


@unstable_columns.register
def _(node: Window, judge: Judge = _is_unstable) -> frozenset[str]:
    below = unstable_columns(node.input, judge)
    return below | _from(node.items, below, node, judge)


@unstable_columns.register
def _(node: UnionAll, judge: Judge = _is_unstable) -> frozenset[str]:
    found: set[str] = set()
    for branch in node.branches:
        shaky = unstable_columns(branch, judge)
        found.update(field.name for field, name in zip(node.schema, branch.columns, strict=True) if name in shaky)
    return frozenset(found)


def own_unstable_decisions(node: Node) -> Iterator[tuple[Node, Expr]]:
    """The expressions by which this node decides, on an unstable value, which rows there are."""
    below = frozenset[str]().union(*(unstable_columns(child) for child in node.inputs))
    for expr in deciding(node):
        if is_unstable(expr, below):
            yield node, expr


@singledispatch
def deciding(node: Node) -> tuple[Expr, ...]:
    """The expressions by which a node decides which rows there are."""
    raise TypeError(f"stability has no case for {type(node).__name__}")


@deciding.register(Scan)
@deciding.register(Ref)
@deciding.register(Values)
@deciding.register(Project)
@deciding.register(Aggregate)
@deciding.register(Window)
@deciding.register(UnionAll)
def _(node: Node) -> tuple[Expr, ...]:
    return ()


@deciding.register
def _(node: Filter) -> tuple[Expr, ...]:
    return (node.predicate,)


@deciding.register
def _(node: Join) -> tuple[Expr, ...]:
    return (node.on,) if node.on else ()


@deciding.register
def _(node: Apply) -> tuple[Expr, ...]:
    members = node.select if node.kind.compares else ()
    return (*((node.on,) if node.on else ()), *node.needles, *members)


@deciding.register
def _(node: Generate) -> tuple[Expr, ...]:
    return (node.generator,)
