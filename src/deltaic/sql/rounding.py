"""What becomes of an expression when a number in it differs in its last digits.

Used to tell a view that differs from its query from one that was only added up in another order. Only forms that are
certainly continuous are known here; of anything else nothing is claimed.
"""

from __future__ import annotations

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from deltaic.algebra.expr import Expr
from deltaic.errors import ParseError
from deltaic.sql import functions
from deltaic.sql.parse import Text

_CONTINUOUS = (
    exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Abs, exp.Sqrt, exp.Exp, exp.Ln, exp.Pow,
    exp.Greatest, exp.Least, exp.Coalesce, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count,
)  # fmt: skip
_FLOATS = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
_WHOLE = (exp.DataType.Type.INT, exp.DataType.Type.BIGINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.TINYINT)


def only_rounds(expr: Expr) -> bool:
    """Whether an unstable expression comes out the same but for rounding: a float sum does, a tie does not."""
    try:
        text = Text.of(expr.sql)
        names = {call.name for call in text.calls((0, len(expr.sql)))}
    except ParseError:
        return False
    by_order = any(token.text.upper() == "ROWS" for token in text.tokens)
    judged = names & (functions.AGGREGATES | functions.WINDOW_ONLY)
    known = functions.ROUNDED | functions.STABLE_AGGREGATES | functions.STABLE_WINDOWS
    return bool(judged) and judged <= known and not by_order


def is_continuous(expr: Expr, inexact: frozenset[str]) -> bool:
    """Whether it moves a little where the columns in `inexact` do."""
    if expr.column is not None:
        return True
    parsed = _parsed(expr)
    return parsed is not None and _is_continuous(parsed, inexact)


def step_of(expr: Expr, inexact: frozenset[str]) -> float | None:
    """How far it may jump where these columns move a little: by one digit, if it rounds; None if that is not known."""
    parsed = _parsed(expr)
    while isinstance(parsed, exp.Paren):
        parsed = parsed.this
    if parsed is None or not isinstance(parsed.this, exp.Expr) or not _is_continuous(parsed.this, inexact):
        return None
    match parsed:
        case exp.Round():
            return _power(parsed.args.get("decimals"))
        case exp.Cast() if parsed.to.this in _WHOLE:
            return 1.0
        case exp.Cast() if parsed.to.this is exp.DataType.Type.DECIMAL:
            sizes = [size.this for size in parsed.to.expressions]
            return _power(sizes[1] if len(sizes) == 2 else None)
        case exp.Floor() | exp.Ceil() if parsed.args.get("decimals") is None:
            return 1.0
    return None


def _power(digits: exp.Expr | None) -> float | None:
    if digits is None:
        return 1.0
    return 10.0 ** -int(digits.name) if isinstance(digits, exp.Literal) and digits.is_int else None


def _parsed(expr: Expr) -> exp.Expr | None:
    try:
        return parse_one(expr.sql, dialect="spark")
    except SqlglotError:
        return None


def _is_continuous(node: exp.Expr, inexact: frozenset[str]) -> bool:
    if not _looks(node, inexact):
        return True
    match node:
        case exp.Column():
            return True
        case exp.Cast():
            return node.to.this in _FLOATS and _is_continuous(node.this, inexact)
        case exp.Case() if node.this is None:
            default = node.args.get("default")
            return all(_is_continuous(each, inexact) for each in (*node.args["ifs"], *([default] if default else ())))
        case exp.If():
            branches = [node.args["true"], *([node.args["false"]] if node.args.get("false") else ())]
            return not _looks(node.this, inexact) and all(_is_continuous(each, inexact) for each in branches)
        case _ if isinstance(node, _CONTINUOUS):
            return all(_is_continuous(each, inexact) for each in node.iter_expressions())
    return False


def _looks(node: exp.Expr, columns: frozenset[str]) -> bool:
    return any(column.name in columns for column in node.find_all(exp.Column))
