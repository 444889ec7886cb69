"""PostgreSQL's types and what they are to Spark: the type, its text in PostgreSQL, and its values in Arrow.

Whatever way a row comes (decoded from the WAL, by a trigger, by COPY), its values are PostgreSQL's own texts, so
one set of conversions gives one answer. A value that Spark's type cannot hold (NaN in a NUMERIC, an infinite date)
is an error and never becomes another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.nodes import RESERVED
from deltaic.algebra.quoting import double_quoted
from deltaic.errors import NameProblem, SourceError, TypeNotStorable

WIDEST = 38
_PLAIN = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bool": "boolean",
    "text": "string",
    "varchar": "string",
    "bpchar": "string",
    "uuid": "string",
    "json": "string",
    "jsonb": "string",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "bytea": "binary",
}
_ARROW = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}
_NOT_IN_DELTA = re.compile(r"[ ,;{}()\n\t=]")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Column:
    """A column: its type in PostgreSQL (`base` is the type under a domain) and in Spark."""

    name: str
    base: str
    spark: str
    nullable: bool
    generated: bool

    @property
    def arrow(self) -> pa.DataType:
        if found := _DECIMAL.fullmatch(self.spark):
            return pa.decimal128(int(found[1]), int(found[2]))
        return _ARROW[self.spark]

    @property
    def field(self) -> pa.Field:
        """Always nullable: a constraint of the source may be dropped while the log of its changes stays."""
        return pa.field(self.name, self.arrow)

    def text(self, owner: str = "") -> str:
        """SQL for the text that PostgreSQL's output function gives, which a cast does not give for all types."""
        value = f"{owner}{double_quoted(self.name)}"
        if self.base in ("bpchar", "bool"):
            return f"textin({self.base}out({value}))"
        return f"{value}::text"


def column_of(table: str, name: str, base: str, modifier: int, shown: str, required: bool, generated: bool) -> Column:
    """A row of pg_attribute as a column, or the error that says why it cannot be one."""
    if name.lower().startswith(RESERVED):
        raise NameProblem(f"{table}.{name}: names that begin with {RESERVED} are Deltaic's own")
    if _NOT_IN_DELTA.search(name):
        raise NameProblem(
            f"{table}: Delta has no column {name!r}", hint="Rename it, or name the columns to use (only=...)."
        )
    spark = _decimal(modifier) if base == "numeric" else _PLAIN.get(base)
    if spark is None:
        raise TypeNotStorable(
            f"{table}.{name} is of type {shown}, which has no exact counterpart in Spark", hint=_way_out(name, base)
        )
    return Column(name, base, spark, not required, generated)


def _decimal(modifier: int) -> str | None:
    """NUMERIC(p, s) as Spark's DECIMAL; None without a precision: a value may then have any number of digits, and
    DECIMAL(38,18) would round some and refuse others, silently in a read over JDBC.

    The modifier is 4 more than precision and scale side by side. A scale may be negative, or exceed the precision.
    """
    if modifier < 4:
        return None
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return f"decimal({precision},{scale})" if precision <= WIDEST else None


def _way_out(name: str, base: str) -> str:
    leave = f"leave it out by naming the columns to use (only=...), or keep its text in another column ({name}_text)"
    if base == "numeric":
        return f"Give it a precision of at most {WIDEST}: ALTER COLUMN ... TYPE numeric(38,18), say; or {leave}."
    return f"{leave[0].upper()}{leave[1:]}."


# --- values -----------------------------------------------------------------------------------------


def to_arrow(table: str, column: Column, texts: Sequence[str | None]) -> pa.Array:
    """A column of PostgreSQL's texts as values."""
    raw = pa.array(texts, pa.string())
    try:
        return _CONVERSIONS.get(column.base, _cast)(raw, column.arrow)
    except (pa.ArrowInvalid, ValueError) as error:
        what = f"{table}.{column.name}: a value that Spark's {column.spark} cannot hold ({error})"
        hint = "Correct the value in PostgreSQL, or leave the column out (only=...)."
        raise SourceError(what, hint=hint) from error


def _cast(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    return raw.cast(kind)


def _boolean(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.equal(raw, "t")


def _bytes(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in raw.to_pylist()], kind)


_CONVERSIONS: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {"bool": _boolean, "bytea": _bytes}
