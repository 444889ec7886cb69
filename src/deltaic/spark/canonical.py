"""Values of any type in a form that Spark can group, order and compare.

A MAP is no key and has no order, a VARIANT can only be looked into, and numbers that are equal but for rounding are not
equal: each becomes something that says the same and can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    NumericType,
    StructType,
    VariantType,
)

from deltaic.algebra.quoting import quote


def canonical(sql: str, kind: DataType) -> str:
    """An expression that has the same value exactly where `sql` has."""
    return sql if not _holds(kind, MapType, VariantType) else _Form(_same, _same).of(sql, kind)


def skeleton(sql: str, kind: DataType) -> str:
    """The same without its numbers: of these only whether they are there, and numbers at all."""
    return _Form(_same, _kind_of_number).of(sql, kind)


def numbers(sql: str, kind: DataType) -> str:
    """The numbers in it, in order, as an array of DOUBLE."""
    return _numbers(sql, kind, count())


def _holds(kind: DataType, *wanted: type[DataType]) -> bool:
    match kind:
        case ArrayType():
            return _holds(kind.elementType, *wanted)
        case StructType():
            return any(_holds(field.dataType, *wanted) for field in kind.fields)
        case MapType():
            return MapType in wanted or any(_holds(part, *wanted) for part in (kind.keyType, kind.valueType))
    return isinstance(kind, wanted)


def _same(sql: str, _kind: DataType) -> str:
    return sql


def _kind_of_number(sql: str, kind: DataType) -> str:
    if not isinstance(kind, DoubleType | FloatType):
        return f"CASE WHEN {sql} IS NOT NULL THEN '' END"
    infinite = f"WHEN abs({sql}) = double('Infinity') THEN CAST({sql} AS STRING)"
    return f"CASE WHEN {sql} IS NULL THEN NULL WHEN isnan({sql}) THEN 'NaN' {infinite} ELSE '' END"


class _Form:
    """Rebuilds a value, with `number` and `other` in the place of what is not nested."""

    def __init__(self, other: Callable[[str, DataType], str], number: Callable[[str, DataType], str]) -> None:
        self.other, self.number, self.fresh = other, number, count()

    def of(self, sql: str, kind: DataType) -> str:
        match kind:
            case VariantType():
                both = f"named_struct('type', schema_of_variant({sql}), 'value', to_json({sql}))"
                return f"CASE WHEN {sql} IS NOT NULL THEN {both} END"
            case ArrayType():
                return f"transform({sql}, {self.function(kind.elementType)})"
            case StructType():
                return self.struct(sql, kind)
            case MapType():
                keys = _keys(sql)
                values = f"transform({_values(sql, keys, self.name())}, {self.function(kind.valueType)})"
                pairs = f"named_struct('keys', {keys}, 'values', {values})"
                return f"CASE WHEN {sql} IS NOT NULL THEN {pairs} END"
            case NumericType():
                return self.number(sql, kind)
        return self.other(sql, kind)

    def struct(self, sql: str, kind: StructType) -> str:
        if not kind.fields:
            return sql
        parts = [f"'{n}', {self.of(f'{sql}.{quote(f.name)}', f.dataType)}" for n, f in enumerate(kind.fields)]
        return f"CASE WHEN {sql} IS NOT NULL THEN named_struct({', '.join(parts)}) END"

    def function(self, kind: DataType) -> str:
        name = self.name()
        return f"{name} -> {self.of(name, kind)}"

    def name(self) -> str:
        return f"x{next(self.fresh)}"


def _keys(sql: str) -> str:
    """Keys of maps can always be ordered."""
    return f"array_sort(map_keys({sql}))"


def _values(sql: str, keys: str, name: str) -> str:
    return f"transform({keys}, {name} -> {sql}[{name}])"


_NONE = "CAST(array() AS ARRAY<DOUBLE>)"


def _numbers(sql: str, kind: DataType, fresh: count[int]) -> str:
    """Keys of maps are not among them: equal maps have equal keys."""
    match kind:
        case NumericType():
            return f"array(CAST({sql} AS DOUBLE))"
        case ArrayType():
            return _flat(sql, kind.elementType, fresh)
        case MapType():
            return _flat(_values(sql, _keys(sql), f"y{next(fresh)}"), kind.valueType, fresh)
        case StructType() if kind.fields:
            parts = [_numbers(f"{sql}.{quote(f.name)}", f.dataType, fresh) for f in kind.fields]
            return f"concat({', '.join(parts)})"
    return _NONE


def _flat(sql: str, kind: DataType, fresh: count[int]) -> str:
    name = f"y{next(fresh)}"
    return f"coalesce(flatten(transform({sql}, {name} -> {_numbers(name, kind, fresh)})), {_NONE})"
