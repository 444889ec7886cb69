"""One case of the lab: tables with rows, views over them, a history of changes. Plain values, Spark SQL."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TypeAlias

Value: TypeAlias = int | str | Decimal | date | bool | float | None
Row: TypeAlias = tuple[Value, ...]


class Type(Enum):
    INT = "INT"
    BIGINT = "BIGINT"
    STRING = "STRING"
    DECIMAL = "DECIMAL(10,2)"
    DATE = "DATE"
    BOOLEAN = "BOOLEAN"
    DOUBLE = "DOUBLE"


class Grade(IntEnum):
    """How far a value can be trusted to come out the same when it is computed again in another order.

    Only doubles are ever worse than EXACT. A ROUNDED value may be shown, added or carried along; as a key, in
    a comparison or in a set operation it would make the view itself a matter of luck.
    """

    EXACT = 0  # even sums of it are exact: multiples of a power of two
    STABLE = 1  # a function of one row, but sums of it round
    ROUNDED = 2  # came out of a sum that rounds


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    grade: Grade = Grade.EXACT


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()

    def create_sql(self) -> str:
        columns = ", ".join(f"{identifier(c.name)} {c.type.value}" for c in self.columns)
        return f"CREATE TABLE {self.name} ({columns})"

    def insert_sql(self, rows: Iterable[Row]) -> str:
        return f"INSERT INTO {self.name} {values_sql(self.columns, rows)}"


@dataclass(frozen=True)
class View:
    name: str
    sql: str
    columns: tuple[Column, ...]
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Statement:
    """One change of one table, as a Spark SQL statement for Delta; `inserts` where it only adds rows."""

    table: str
    kind: str
    sql: str
    inserts: tuple[Row, ...] = ()


Batch: TypeAlias = tuple[Statement, ...]


@dataclass(frozen=True)
class Case:
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    history: tuple[Batch, ...]
    seed: int | None = field(default=None, compare=False)

    @property
    def features(self) -> frozenset[str]:
        return frozenset(f for view in self.views for f in view.features)

    def script(self) -> str:
        """The whole case as a Spark SQL script, for a bug report."""
        lines = [f"-- seed {self.seed}"]
        for table in self.tables:
            lines.append(f"{table.create_sql()};")
            if table.rows:
                lines.append(f"{table.insert_sql(table.rows)};")
        lines += [f"CREATE MATERIALIZED VIEW {view.name} AS {view.sql};" for view in self.views]
        for number, batch in enumerate(self.history):
            lines.append(f"-- batch {number}")
            lines += [f"{statement.sql};" for statement in batch]
            lines.append("-- refresh")
        return "\n".join(lines)


_RESERVED = frozenset({"group", "select", "order"})


def identifier(name: str) -> str:
    """A name as Spark SQL writes it, quoted only where it has to be."""
    plain = re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in _RESERVED
    return name if plain else f"`{name}`"


def literal(value: Value, type_: Type) -> str:
    """A value as a Spark SQL literal of exactly this type (decimals: of this value's own precision)."""
    if value is None:
        return f"CAST(NULL AS {type_.value})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        return "CAST('NaN' AS DOUBLE)" if math.isnan(value) else _signed(f"{value!r}D")
    return _signed(f"{value}L" if type_ is Type.BIGINT else str(value))


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def values_sql(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    def row_sql(row: Row) -> str:
        return "(" + ", ".join(literal(v, c.type) for v, c in zip(row, columns, strict=True)) + ")"

    return "VALUES " + ", ".join(row_sql(row) for row in rows)
