"""Scalar expressions over Arrow columns: the few in which Arrow and Spark agree to the last bit.

`scalar` reads an expression and says its type, or None if anything in it is Spark's to compute. Whole numbers are
computed with 64 bits. Where Spark might raise an error or wrap around, in an overflow or a cast, `NotHere` is raised
and Spark decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from deltaic.algebra.expr import Expr
from deltaic.sql.parse import TEXTS, Text
from deltaic.sql.reading import binds_alike

INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
"""Types of whole numbers, from narrow to wide, and their bits without the sign."""
ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    **dict.fromkeys(INTEGERS, pa.int64()),
}
"""The types that are computed with, and as what."""

Value: TypeAlias = "pa.Array | pa.ChunkedArray | pa.Scalar"
Columns: TypeAlias = "Mapping[str, Value]"


class NotHere(Exception):
    """Something that is Spark's to do."""


@dataclass(frozen=True)
class Scalar:
    type: str
    of: Callable[[Columns], Value]
    """The value for every row; one value for all of them where no column is read."""
    columns: frozenset[str] = frozenset()
    column: str | None = None
    """The column, if it is just that."""


@dataclass(frozen=True)
class Condition:
    """The terms of a conjunction. `equal`: terms that make an expression equal to another, and whether NULLs are."""

    equal: tuple[tuple[Scalar, Scalar, bool], ...]
    others: tuple[Scalar, ...]


class _Foreign(Exception):
    """An expression that is not among those known here."""


def scalar(expr: Expr, types: Mapping[str, str]) -> Scalar | None:
    """An expression over columns of these types."""
    return _scalar(expr, _own(expr, types))


def condition(expr: Expr, types: Mapping[str, str]) -> Condition | None:
    return _condition(expr, _own(expr, types))


def _own(expr: Expr, types: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, types[name]) for name in sorted(expr.columns))


@lru_cache(maxsize=4096)
def _scalar(expr: Expr, types: tuple[tuple[str, str], ...]) -> Scalar | None:
    try:
        return _Reader(dict(types)).read(_parsed(expr))
    except _Foreign:
        return None


@lru_cache(maxsize=4096)
def _condition(expr: Expr, types: tuple[tuple[str, str], ...]) -> Condition | None:
    reader = _Reader(dict(types))
    equal, others = [], []
    try:
        for term in _terms(_parsed(expr)):
            if isinstance(term, exp.EQ | exp.NullSafeEQ):
                sides = reader.read(term.this), reader.read(term.expression)
                if _coded_alike(sides[0].type, sides[1].type):
                    equal.append((*sides, isinstance(term, exp.NullSafeEQ)))
                    continue
            found = reader.read(term)
            if found.type != "boolean":
                return None
            others.append(found)
    except _Foreign:
        return None
    return Condition(tuple(equal), tuple(others))


def _coded_alike(one: str, two: str) -> bool:
    """Whether values of two types are equal just where their codes are."""
    return one == two or (one in INTEGERS and two in INTEGERS)


def _parsed(expr: Expr) -> exp.Expr:
    if any(isinstance(part, str) and "\\" in part for part in expr.parts):
        raise _Foreign  # what such a sequence means is Spark's to say
    sql = expr.sql
    if "''" in sql and any(
        a.end + 1 == b.start for a, b in pairwise(t for t in Text.of(sql).tokens if t.token_type in TEXTS)
    ):
        raise _Foreign  # a quote inside of a literal to Spark, two literals to sqlglot
    try:
        return parse_one(sql, read="spark")
    except SqlglotError as error:
        raise _Foreign from error


def _terms(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Paren):
        return _terms(node.this)
    if isinstance(node, exp.And):
        return [*_terms(node.this), *_terms(node.expression)]
    return [node]


_COMPARISONS: dict[type[exp.Expr], Callable[[Value, Value], Value]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Value, Value], Value]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_CAST = {exp.DType.TINYINT: "tinyint", exp.DType.SMALLINT: "smallint", exp.DType.INT: "int", exp.DType.BIGINT: "bigint",
         exp.DType.TEXT: "string", exp.DType.DOUBLE: "double"}  # fmt: skip


@dataclass(frozen=True)
class _Reader:
    types: Mapping[str, str]

    def read(self, node: exp.Expr) -> Scalar:
        if not binds_alike(node):
            raise _Foreign
        reading = _READINGS.get(type(node))  # another class of sqlglot's below one of these is another function
        if reading is None:
            raise _Foreign(type(node).__name__)
        return reading(self, node)

    def all(self, nodes: Sequence[exp.Expr]) -> list[Scalar]:
        return [self.read(node) for node in nodes]

    # leaves

    def of_column(self, node: exp.Expr) -> Scalar:
        name = node.name
        if node.args.get("table") is not None or name not in self.types:
            raise _Foreign
        return Scalar(self.types[name], lambda columns: columns[name], frozenset({name}), name)

    def of_literal(self, node: exp.Expr, sign: int = 1) -> Scalar:
        if node.is_string:
            return _constant("string", node.this)
        if not node.this.isdecimal():
            raise _Foreign
        value = sign * int(node.this)
        kind = next((kind for kind in ("int", "bigint") if _fits(value, kind)), None)
        if kind is None:
            raise _Foreign
        return _constant(kind, value)

    def of_boolean(self, node: exp.Expr) -> Scalar:
        return _constant("boolean", node.this)

    # operators

    def of_paren(self, node: exp.Expr) -> Scalar:
        return self.read(node.this)

    def of_negative(self, node: exp.Expr) -> Scalar:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self.of_literal(node.this, -1)
        return self._computed(pc.negate_checked, [self.read(node.this)])

    def of_arithmetic(self, node: exp.Expr) -> Scalar:
        return self._computed(_ARITHMETIC[type(node)], self.all([node.this, node.expression]))

    def _computed(self, function: Callable[..., Value], sides: Sequence[Scalar]) -> Scalar:
        kind = _common(sides)
        if kind == "double":
            return _applied(kind, function, [_widened(side, kind) for side in sides])
        if kind not in INTEGERS:
            raise _Foreign
        return _applied(kind, lambda *values: _within(kind, function(*values)), sides)

    def of_comparison(self, node: exp.Expr) -> Scalar:
        return _compared(_COMPARISONS[type(node)], self.all([node.this, node.expression]))

    def of_same(self, node: exp.Expr) -> Scalar:
        return _compared(_null_safe_equal, self.all([node.this, node.expression]))

    def of_between(self, node: exp.Expr) -> Scalar:
        value, low, high = self.all([node.this, node.args["low"], node.args["high"]])
        if node.args.get("symmetric"):
            raise _Foreign
        both = _compared(pc.greater_equal, [value, low]), _compared(pc.less_equal, [value, high])
        return _applied("boolean", pc.and_kleene, both)

    def of_in(self, node: exp.Expr) -> Scalar:
        if not node.expressions or node.args.get("query") or node.args.get("unnest"):
            raise _Foreign
        value = self.read(node.this)
        each = [_compared(pc.equal, [value, other]) for other in self.all(node.expressions)]
        return reduce(lambda a, b: _applied("boolean", pc.or_kleene, [a, b]), each)

    def of_null_test(self, node: exp.Expr) -> Scalar:
        if not isinstance(node.expression, exp.Null):
            raise _Foreign
        return _applied("boolean", pc.is_null, [self.read(node.this)])

    def of_logic(self, node: exp.Expr) -> Scalar:
        function = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
        return _applied("boolean", function, _booleans(self.all([node.this, node.expression])))

    def of_not(self, node: exp.Expr) -> Scalar:
        return _applied("boolean", pc.invert, _booleans([self.read(node.this)]))

    # functions

    def of_cast(self, node: exp.Expr) -> Scalar:
        into, value = _CAST.get(node.args["to"].this), self.read_or_null(node.this)
        if into is None:
            raise _Foreign
        if value is None:
            return _constant(into, None)
        if into == value.type:
            return value
        if value.type not in INTEGERS:
            raise _Foreign
        if into in INTEGERS:
            return _applied(into, lambda found: _within(into, found), [value])
        return _widened(value, into)

    def read_or_null(self, node: exp.Expr) -> Scalar | None:
        return None if isinstance(node, exp.Null) else self.read(node)

    def of_concat(self, node: exp.Expr) -> Scalar:
        parts = self.all(node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression])
        if not all(part.type == "string" or part.type in INTEGERS for part in parts):
            raise _Foreign
        texts = [_widened(part, "string") for part in parts]
        return _applied("string", lambda *values: pc.binary_join_element_wise(*values, ""), texts)

    def of_coalesce(self, node: exp.Expr) -> Scalar:
        sides = self.all([node.this, *node.expressions])
        kind = _common(sides)
        return _applied(kind, pc.coalesce, [_widened(side, kind) for side in sides])

    def of_extreme(self, node: exp.Expr) -> Scalar:
        sides = self.all([node.this, *node.expressions])
        kind = _common(sides)
        if kind not in INTEGERS:
            raise _Foreign
        return _applied(kind, pc.min_element_wise if isinstance(node, exp.Least) else pc.max_element_wise, sides)

    def of_case(self, node: exp.Expr) -> Scalar:
        branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
        default = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
        if default is None or (isinstance(node, exp.Case) and node.this is not None):
            raise _Foreign
        found = self.read(default)
        for branch in reversed(branches):
            (when,) = _booleans([self.read(branch.this)])
            then = self.read(branch.args["true"])
            kind = _common([then, found])
            chosen = [when, _widened(then, kind), _widened(found, kind)]
            found = _applied(kind, lambda w, t, f: pc.if_else(pc.fill_null(w, False), t, f), chosen)
        return found


_READINGS: dict[type[exp.Expr], Callable[[_Reader, exp.Expr], Scalar]] = {
    exp.Column: _Reader.of_column,
    exp.Literal: _Reader.of_literal,
    exp.Boolean: _Reader.of_boolean,
    exp.Paren: _Reader.of_paren,
    exp.Neg: _Reader.of_negative,
    **dict.fromkeys(_ARITHMETIC, _Reader.of_arithmetic),
    **dict.fromkeys(_COMPARISONS, _Reader.of_comparison),
    exp.NullSafeEQ: _Reader.of_same,
    exp.Between: _Reader.of_between,
    exp.In: _Reader.of_in,
    exp.Is: _Reader.of_null_test,
    **dict.fromkeys((exp.And, exp.Or), _Reader.of_logic),
    exp.Not: _Reader.of_not,
    **dict.fromkeys((exp.Cast, exp.TryCast), _Reader.of_cast),
    **dict.fromkeys((exp.DPipe, exp.Concat), _Reader.of_concat),
    exp.Coalesce: _Reader.of_coalesce,
    **dict.fromkeys((exp.Least, exp.Greatest), _Reader.of_extreme),
    **dict.fromkeys((exp.Case, exp.If), _Reader.of_case),
}


def _constant(kind: str, value: object) -> Scalar:
    found = pa.scalar(value, ARROW[kind])
    return Scalar(kind, lambda _: found)


def _applied(kind: str, function: Callable[..., Value], inputs: Sequence[Scalar]) -> Scalar:
    if not {kind, *(one.type for one in inputs)} <= ARROW.keys():
        raise _Foreign

    def of(columns: Columns) -> Value:
        try:
            return function(*(one.of(columns) for one in inputs))
        except pa.ArrowInvalid as error:  # an overflow
            raise NotHere(str(error)) from error

    return Scalar(kind, of, frozenset().union(*(one.columns for one in inputs)))


def _common(sides: Sequence[Scalar]) -> str:
    """The type that values of several types become together."""
    kinds = {side.type for side in sides}
    if len(kinds) == 1:
        return sides[0].type
    if kinds <= set(INTEGERS):
        return max(kinds, key=lambda kind: INTEGERS[kind])
    if kinds <= {*INTEGERS, "double"}:
        return "double"
    raise _Foreign


def _widened(value: Scalar, kind: str) -> Scalar:
    """A whole number as a wider one, a double or a text; anything else must be of the type."""
    if value.type == kind or (value.type in INTEGERS and kind in INTEGERS):
        return value
    return _applied(kind, lambda found: pc.cast(found, ARROW[kind], safe=False), [value])


def _compared(function: Callable[[Value, Value], Value], sides: Sequence[Scalar]) -> Scalar:
    kind = _common(sides)
    widened = [_widened(side, kind) for side in sides]
    if kind != "double":
        return _applied("boolean", function, widened)
    return _applied("boolean", lambda *values: function(*map(_a_number, values)), widened)


def _a_number(values: Value) -> Value:
    """In Spark NaN equals itself and is the largest."""
    if pc.any(pc.is_nan(values)).as_py():
        raise NotHere("NaN")
    return values


def _null_safe_equal(one: Value, two: Value) -> Value:
    both = pc.and_(pc.is_null(one), pc.is_null(two))
    return pc.or_(pc.fill_null(pc.equal(one, two), False), both)


def _booleans(values: list[Scalar]) -> list[Scalar]:
    if any(value.type != "boolean" for value in values):
        raise _Foreign
    return values


def _fits(value: int, kind: str) -> bool:
    bound: int = 2 ** INTEGERS[kind]
    return -bound <= value < bound


def _within(kind: str, values: Value) -> Value:
    """Whole numbers that a type can hold."""
    ends = pc.min_max(values).as_py()
    if ends["min"] is not None and not (_fits(ends["min"], kind) and _fits(ends["max"], kind)):
        raise NotHere(f"too large for {kind}")
    return values
