"""What an expression gives when some of its columns are NULL, where its form alone tells.

Only forms that certainly pass a NULL on are known here; of anything else nothing is claimed. Nor of an expression that
looks at such a column before it comes to the NULL that settles it: under ANSI that may raise an error, which an outer
join without unmatched rows would not have.
"""

from __future__ import annotations

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from deltaic.algebra.expr import Expr
from deltaic.sql.reading import binds_alike

_ONE = (exp.Paren, exp.Cast, exp.TryCast, exp.Neg, exp.BitwiseNot, exp.Not)
_TWO = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def is_null(expr: Expr, nulls: frozenset[str]) -> bool:
    """Whether it is NULL wherever all columns in `nulls` are."""
    if expr.column is not None:
        return expr.column in nulls
    parsed = _parsed(expr, nulls)
    return parsed is not None and _is_null(parsed, nulls)


def is_not_true(expr: Expr, nulls: frozenset[str]) -> bool:
    """Whether no row passes it wherever all columns in `nulls` are NULL."""
    parsed = _parsed(expr, nulls)
    return parsed is not None and _is_not_true(parsed, nulls)


def is_harmless(expr: Expr, nulls: frozenset[str]) -> bool:
    """Whether it looks at none of the columns in `nulls`, or gives NULL or FALSE before it could raise an error."""
    return not expr.columns & nulls or is_null(expr, nulls) or is_not_true(expr, nulls)


def _parsed(expr: Expr, nulls: frozenset[str]) -> exp.Expr | None:
    if not expr.columns & nulls:
        return None
    try:
        parsed = parse_one(expr.sql, dialect="spark")
    except SqlglotError:
        return None
    return parsed if all(map(binds_alike, parsed.walk())) else None


def _is_null(node: exp.Expr | None, nulls: frozenset[str]) -> bool:
    match node:
        case exp.Column():
            return not node.table and node.name in nulls
        case _ if isinstance(node, _ONE):
            return _is_null(node.this, nulls)
        case _ if isinstance(node, _TWO):
            # which side Spark looks at first depends on the operator, and on what else the query computes
            sides = (node.left, node.right)
            return all(_is_harmless(side, nulls) for side in sides) and any(_is_null(s, nulls) for s in sides)
        case exp.Between():
            return _is_null(node.this, nulls) and all(_is_harmless(node.args[end], nulls) for end in ("low", "high"))
        case exp.In() if node.args.get("query") is None:
            return _is_null(node.this, nulls) and all(_is_harmless(one, nulls) for one in node.expressions)
    return False


def _is_not_true(node: exp.Expr, nulls: frozenset[str]) -> bool:
    match node:
        case exp.Paren():
            return _is_not_true(node.this, nulls)
        case exp.And():
            sides = (node.left, node.right)
            return all(_is_harmless(side, nulls) for side in sides) and any(_is_not_true(s, nulls) for s in sides)
        case exp.Or():
            return _is_not_true(node.left, nulls) and _is_not_true(node.right, nulls)
        case exp.Not(this=exp.Is(this=tested, expression=exp.Null())):
            return _is_null(tested, nulls)
    return _is_null(node, nulls)


def _is_harmless(node: exp.Expr, nulls: frozenset[str]) -> bool:
    """Whether NULLs in these columns cannot make it raise an error."""
    return not _looks(node, nulls) or _is_not_true(node, nulls) or _is_default(node, nulls)


def _is_default(node: exp.Expr, nulls: frozenset[str]) -> bool:
    """Such a column, or a number in its place; a text might have to be cast."""
    if not isinstance(node, exp.Coalesce):
        return False
    parts = (node.this, *node.expressions)
    return all(_is_null(part, nulls) or (isinstance(part, exp.Literal) and not part.is_string) for part in parts)


def _looks(node: exp.Expr, nulls: frozenset[str]) -> bool:
    return any(column.name in nulls or column.table in nulls for column in node.find_all(exp.Column))
