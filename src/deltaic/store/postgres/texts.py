"""Texts of PostgreSQL's SQL that reads are made of."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from deltaic.algebra.quoting import double_quoted
from deltaic.errors import SourceError
from deltaic.store.postgres.table import PostgresTable
from deltaic.store.postgres.types import Column

PLACE = "__deltaic_place"


def jdbc_source(table: PostgresTable, columns: Sequence[Column]) -> str:
    shown = ", ".join(f"{_guarded(column)} AS {double_quoted(column.name)}" for column in columns)
    return f"(SELECT {shown}, ctid AS {PLACE} FROM ONLY {table.relation}) AS source"


_ORDINARY = {
    "date": "'0001-01-01'::date AND '9999-12-31'::date",
    "timestamp": "'0001-01-01'::timestamp AND '9999-12-31 23:59:59.999999'::timestamp",
    "timestamptz": "'0001-01-01 00:00Z'::timestamptz AND '9999-12-31 23:59:59.999999Z'::timestamptz",
}


def _guarded(column: Column) -> str:
    """A column for JDBC. Times go as texts: Java's have another calendar before 1582, and no infinity."""
    name = double_quoted(column.name)
    if column.base in ("uuid", "json", "jsonb", "bpchar"):
        return column.text()
    if column.base not in _ORDINARY:
        return name
    text = f"(({name} AT TIME ZONE 'UTC')::text || 'Z')" if column.base == "timestamptz" else f"{name}::text"
    refused = f"('Spark cannot hold ' || {name}::text)::{column.base}::text"
    return f"CASE WHEN {name} BETWEEN {_ORDINARY[column.base]} THEN {text} WHEN {name} IS NOT NULL THEN {refused} END"


def chosen_of(present: Sequence[Column], table: PostgresTable, names: Sequence[str] | None) -> list[Column]:
    known = {column.name: column for column in present}
    missing = [name for name in names or () if name not in known]
    if missing:
        raise SourceError(f"{table} has no column {', '.join(missing)}; it has {', '.join(known)}")
    return [known[name] for name in (known if names is None else names)]


def among(present: Sequence[Column], table: PostgresTable, keys: pa.Table) -> str:
    """A condition that holds for the keys. Those without NULL stand in one list, which an index can serve."""
    columns = chosen_of(present, table, keys.column_names)
    rows = set(zip(*(_texts(keys[column.name], column) for column in columns), strict=True))
    whole = [row for row in rows if None not in row]
    names = ", ".join(double_quoted(column.name) for column in columns)
    lists = ", ".join(_array(column, [row[index] for row in whole]) for index, column in enumerate(columns))
    conditions = [f"({names}) IN (SELECT * FROM unnest({lists}))"] if whole else []
    for row in rows.difference(whole):
        parts = [_is(column, value) for column, value in zip(columns, row, strict=True)]
        conditions.append(f"({' AND '.join(parts)})")
    return " OR ".join(conditions) or "false"


def _array(column: Column, values: Sequence[str]) -> str:
    elements = ", ".join(_literal(value) for value in values)
    return f"ARRAY[{elements}]::text[]::{column.base}[]"


def _is(column: Column, value: str | None) -> str:
    name = double_quoted(column.name)
    return f"{name} IS NULL" if value is None else f"{name} = {_literal(value)}::{column.base}"


def _literal(text: str) -> str:
    """An escape string, which no setting of the server reads otherwise."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _texts(values: pa.ChunkedArray, column: Column) -> list[str | None]:
    if column.arrow == pa.binary():
        return [None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()]
    fitting = values.cast(column.arrow)
    if pa.types.is_timestamp(fitting.type) and fitting.type.tz:
        return [None if value is None else value.isoformat() for value in fitting.to_pylist()]
    texts: list[str | None] = fitting.cast(pa.string()).to_pylist()
    return texts
