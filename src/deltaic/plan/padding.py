"""Outer joins below an aggregate that passes over padded rows: the aggregate of a union, without the outer join.

    γ_{G; F}(X ⟕ Y)   =   γ_{G; F}(pad(X) ⊎ X ⋈ Y)        if G looks at X only, and F passes over padded rows

On the right every row of X is there once more with NULLs beside it, though it may have matches. It adds to no call of
F, and it makes no group that X ⟕ Y has not. Whether a row of X had a match before, or has one left, need not be
known any more: both terms are linear, so a change of Y is joined with X and Y is not read, be rows added or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Call,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    UnionAll,
    Window,
)
from deltaic.algebra.stability import unstable_columns
from deltaic.algebra.trees import keep, null_item
from deltaic.sql.nulls import is_harmless, is_not_true, is_null

# They all pass over rows whose argument is NULL; of two arguments, over those where either is, or the second.
_BY_FIRST = {
    "count", "sum", "avg", "mean", "min", "max", "bool_and", "every", "bool_or", "any", "some", "bit_and", "bit_or",
    "bit_xor", "var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev", "std",
}  # fmt: skip
_BY_EITHER = {"count", "covar_pop", "covar_samp", "corr"}
_BY_SECOND = {"min_by", "max_by"}


def without_padding(node: Node) -> Node:
    """The query with every outer join turned into a union that may be."""
    match node:
        case Join():
            return replace(node, left=without_padding(node.left), right=without_padding(node.right))
        case UnionAll():
            return replace(node, branches=tuple(map(without_padding, node.branches)))
        case Aggregate():
            return _turned(replace(node, input=without_padding(node.input)))
        case Project() | Filter() | Generate() | Window() | Apply():
            return replace(node, input=without_padding(node.input))
    return node


@dataclass(frozen=True)
class _Turned:
    """The aggregate's input with a union for one join; `null` are its columns that look at the other side.

    All of them are NULL in a padded row."""

    node: Node
    null: frozenset[str]


def _turned(top: Aggregate) -> Aggregate:
    for found in _spine(top.input):
        if any(item.expr.columns & found.null for item in top.groups):
            continue
        if all(item.call is not None and _passes_over(item.call, found.null) for item in top.aggregates):
            return replace(top, input=found.node)
    return top


def _passes_over(call: Call, null: frozenset[str]) -> bool:
    if call.where is not None and is_not_true(call.where, null):
        return True
    if not all(is_harmless(expr, null) for expr in (*call.arguments, *([call.where] if call.where else []))):
        return False
    passed = [is_null(argument, null) for argument in call.arguments]
    match call.function, len(passed):
        case function, 1 if function in _BY_FIRST:
            return passed[0]
        case "count_if", 1:
            return is_not_true(call.arguments[0], null)
        case function, number if number > 1 and function in _BY_EITHER:
            return any(passed)
        case function, 2 if function in _BY_SECOND:
            return passed[1]
    return False


def _spine(node: Node) -> Iterator[_Turned]:
    """For each outer join that the rows come from, and above which nothing drops rows by its other side."""
    match node:
        case Project():
            for below in _spine(node.input):
                null = frozenset(i.name for i in node.items if i.expr.columns & below.null)
                if all(is_null(i.expr, below.null) for i in node.items if i.name in null):
                    yield _Turned(Project(below.node, node.items), null)
        case Filter() | Generate():
            decides = node.predicate if isinstance(node, Filter) else node.generator
            for below in _spine(node.input):
                if not decides.columns & below.null:
                    yield replace(below, node=replace(node, input=below.node))
        case Join():
            if node.kind is JoinKind.LEFT and not unstable_columns(node.left):
                yield _united(node)
            decides_on = node.on.columns if node.on else frozenset()
            for place, side in enumerate((node.left, node.right)):
                if node.kind is JoinKind.FULL or (place and node.kind is not JoinKind.INNER):
                    continue
                for below in _spine(side):
                    if not decides_on & below.null:
                        sides = (below.node, node.right) if not place else (node.left, below.node)
                        yield replace(below, node=replace(node, left=sides[0], right=sides[1]))


def is_outer_join(node: UnionAll) -> bool:
    """Whether the union stands for an outer join of the query."""
    match node.branches:
        case (Project(input=left), Join(kind=JoinKind.INNER) as join):
            return join.left == left and join.columns == node.columns
    return False


def _united(node: Join) -> _Turned:
    other = frozenset(node.right.columns)
    alone = Project(node.left, (*keep(node.left), *(null_item(f) for f in node.right.schema)))
    return _Turned(UnionAll((alone, Join(node.left, node.right, JoinKind.INNER, node.on)), node.schema), other)
