"""How many rows at the bottom stand behind a value above an aggregate.

Counting the aggregate's own rows would need its answer; the sum of their counts is 0 in the same cases, and is a sum
like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deltaic.algebra.expr import Expr, col, join_parts, text
from deltaic.algebra.nodes import Aggregate, Call, Filter, Generate, Item, Join, JoinKind, Node, Project, UnionAll
from deltaic.algebra.trees import keep
from deltaic.delta.moments import linear


def with_support(node: Node, column: str, fresh: Callable[[str], str]) -> tuple[Node, str] | None:
    """The node with one more column: for each row, 0 where `column` is NULL and else at least 1."""
    match node:
        case Project():
            source = node.by_name[column].column
            below = with_support(node.input, source, fresh) if source else None
            return below and (Project(below[0], (*node.items, _passed(below[1]))), below[1])
        case Filter() | Generate() if column in node.input.columns:
            below = with_support(node.input, column, fresh)
            return below and (replace(node, input=below[0]), below[1])
        case Join() if column in node.left.columns and node.kind is not JoinKind.FULL:
            below = with_support(node.left, column, fresh)
            return below and (replace(node, left=below[0]), below[1])
        case Join(kind=JoinKind.INNER):
            below = with_support(node.right, column, fresh)
            return below and (replace(node, right=below[0]), below[1])
        case UnionAll():
            return _through_union(node, column, fresh)
        case Aggregate() if node.groups:
            return _support_of_sum(node, column, fresh)
    return None


def _through_union(node: UnionAll, column: str | None, fresh: Callable[[str], str]) -> tuple[Node, str] | None:
    """Every branch with the column; without `column`, the one that counts rows."""
    found: list[tuple[Node, str] | None] = []
    for branch in node.branches:
        own = branch.columns[node.columns.index(column)] if column else None
        found.append(with_support(branch, own, fresh) if own else with_rows(branch, fresh))
    if not any(found):
        return None
    name = fresh("rows")
    branches = []
    for branch, below in zip(node.branches, found, strict=True):
        base = below[0] if below else branch
        own = branch.columns[node.columns.index(column)] if column else None
        plain = join_parts("CASE WHEN ", col(own), " IS NULL THEN 0L ELSE 1L END") if own else text("1L")
        extra = Item(name, col(below[1]) if below else plain, "bigint", False)
        branches.append(Project(base, (*(i for i in keep(base) if i.name in branch.columns), extra)))
    field = branches[0].fields[name]
    return UnionAll(tuple(branches), (*node.schema, field)), name


def _support_of_sum(node: Aggregate, column: str, fresh: Callable[[str], str]) -> tuple[Node, str] | None:
    item = next((i for i in node.aggregates if i.name == column), None)
    call = item.call if item else None
    if call is None or linear(call) is None:
        return None
    if call.function != "sum":  # a count is never NULL
        return with_rows(node, fresh)
    argument = call.arguments[0]
    below = with_support(node.input, argument.column, fresh) if argument.column else None
    if below is not None:
        return _with_sum(replace(node, input=below[0]), below[1], fresh, call.where)
    name = fresh("known")
    counted = Item(name, call_of("count", argument, call.where), "bigint", False, _counting(argument, call.where))
    return replace(node, aggregates=(*node.aggregates, counted)), name


def with_rows(node: Node, fresh: Callable[[str], str]) -> tuple[Node, str] | None:
    """The node with one more column: for each row, how many rows at the bottom it is made of, at least 1."""
    match node:
        case Project():
            below = with_rows(node.input, fresh)
            return below and (Project(below[0], (*node.items, _passed(below[1]))), below[1])
        case Filter() | Generate():
            below = with_rows(node.input, fresh)
            return below and (replace(node, input=below[0]), below[1])
        case Join() if node.kind is not JoinKind.FULL:
            left = with_rows(node.left, fresh)
            if left is not None:
                return replace(node, left=left[0]), left[1]
            right = with_rows(node.right, fresh) if node.kind is JoinKind.INNER else None
            return right and (replace(node, right=right[0]), right[1])
        case UnionAll():
            return _through_union(node, None, fresh)
        case Aggregate() if node.groups:
            below = with_rows(node.input, fresh)
            if below is not None:
                return _with_sum(replace(node, input=below[0]), below[1], fresh)
            name = fresh("rows")
            counted = Item(name, text("count(*)"), "bigint", False, Call("count", (text("*"),), ("",)))
            return replace(node, aggregates=(*node.aggregates, counted)), name
    return None


def _with_sum(node: Aggregate, column: str, fresh: Callable[[str], str], where: Expr | None = None) -> tuple[Node, str]:
    name = fresh("rows")
    call = Call("sum", (col(column),), ("bigint",), where)
    total = Item(name, call_of("sum", col(column), where), "bigint", False, call)
    return replace(node, aggregates=(*node.aggregates, total)), name


def _counting(argument: Expr, where: Expr | None) -> Call:
    return Call("count", (argument,), ("",), where)


def _passed(name: str) -> Item:
    return Item(name, col(name), "bigint", False)


def call_of(function: str, argument: Expr, where: Expr | None) -> Expr:
    bare = join_parts(f"{function}(", argument, ")")
    return join_parts(bare, " FILTER (WHERE ", where, ")") if where else bare
