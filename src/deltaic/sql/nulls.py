"""What an expression gives when some of its columns are NULL, where its form alone tells.

Only forms that certainly pass a NULL on are known here; of anything else nothing is claimed.
"""

from __future__ import annotations

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from deltaic.algebra.expr import Expr

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


def _parsed(expr: Expr, nulls: frozenset[str]) -> exp.Expr | None:
    if not expr.columns & nulls:
        return None
    try:
        return parse_one(expr.sql, dialect="spark")
    except SqlglotError:
        return None


def _is_null(node: exp.Expr | None, nulls: frozenset[str]) -> bool:
    match node:
        case exp.Column():
            return not node.table and node.name in nulls
        case _ if isinstance(node, _ONE):
            return _is_null(node.this, nulls)
        case _ if isinstance(node, _TWO):
            return _is_null(node.left, nulls) or _is_null(node.right, nulls)
        case exp.Between() | exp.In():
            return _is_null(node.this, nulls)
    return False


def _is_not_true(node: exp.Expr, nulls: frozenset[str]) -> bool:
    match node:
        case exp.Paren():
            return _is_not_true(node.this, nulls)
        case exp.And():
            return _is_not_true(node.left, nulls) or _is_not_true(node.right, nulls)
        case exp.Or():
            return _is_not_true(node.left, nulls) and _is_not_true(node.right, nulls)
        case exp.Not(this=exp.Is(this=tested, expression=exp.Null())):
            return _is_null(tested, nulls)
    return _is_null(node, nulls)
