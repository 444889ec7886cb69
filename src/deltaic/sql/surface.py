"""Which nodes of an expression belong to a block, and which of them are subqueries."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def surface(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression that belong to this block: subqueries are given, not entered."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        if is_exists(found) or isinstance(found, exp.Subquery | exp.Query) or _not_in(found) is not None:
            continue
        inside = found.args.get("query") if isinstance(found, exp.In) else None
        children = found.iter_expressions(reverse=True)
        # a type's collation looks like a column
        waiting.extend(child for child in children if child is not inside and not isinstance(child, exp.DataType))


def _not_in(node: exp.Expr) -> exp.In | None:
    """NOT over nothing but an IN with a subquery, which Spark takes as one."""
    inner = node.this if isinstance(node, exp.Not) else None
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return inner if isinstance(inner, exp.In) and inner.args.get("query") is not None else None


def in_of(node: exp.Expr) -> exp.In | None:
    """The IN of an IN or NOT IN with a subquery."""
    if isinstance(node, exp.In):
        return node if node.args.get("query") is not None else None
    return _not_in(node)


def is_subquery(node: exp.Expr) -> bool:
    if isinstance(node, exp.In | exp.Not):
        return in_of(node) is not None
    return is_exists(node) or isinstance(node, exp.Subquery | exp.Query)


def is_exists(node: exp.Expr) -> bool:
    """EXISTS over a query, and not the function over an array."""
    return isinstance(node, exp.Exists) and node.args.get("expression") is None
