"""The first rows of a result brought here, in a form that people and programs can read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Result:
    """The first rows of a result, as text or as JSON values."""

    columns: list[tuple[str, str]]
    rows: list[list[Any]]
    more: bool

    def as_dict(self) -> dict[str, Any]:
        columns = [{"name": name, "type": kind} for name, kind in self.columns]
        return {"columns": columns, "rows": self.rows, "truncated": self.more}


def fetched(frame: DataFrame, limit: int | None, *, as_json: bool) -> Result:
    """Names may be used twice in a result, so columns go by their place."""
    fields = frame.schema.fields
    columns = [(field.name, field.dataType.simpleString()) for field in fields]
    if not fields:
        return Result([], [], False)
    plain = frame.toDF(*(f"c{n}" for n in range(len(fields))))
    shown = plain.selectExpr(*(_shown(f"c{n}", f.dataType, as_json) for n, f in enumerate(fields)))
    rows = shown.collect() if limit is None else shown.take(limit + 1)
    kept = rows if limit is None else rows[:limit]
    values = [list(row) for row in kept]
    if as_json:
        values = [[_json_value(v, f.dataType) for v, f in zip(row, fields, strict=True)] for row in values]
    return Result(columns, values, len(rows) > len(kept))


_NESTED = frozenset({"struct", "array", "map", "variant"})
_AS_THEY_ARE = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "string", "void"})


def _shown(name: str, kind: DataType, as_json: bool) -> str:
    """Spark itself writes values as text, in the session's time zone; JSON keeps what JSON has.

    A DECIMAL is text in JSON too: most readers of JSON would make it a double, and lose digits.
    """
    word = kind.typeName()
    if word == "binary":
        return f"base64({name})" if as_json else f"concat('0x', hex({name}))"
    if as_json and word in _NESTED:
        return f"to_json({name}, map('ignoreNullFields', 'false'))"
    if as_json and word in _AS_THEY_ARE:
        return name
    return f"CAST({name} AS STRING)"


def _json_value(value: Any, kind: DataType) -> Any:
    if kind.typeName() in _NESTED and value is not None:
        return _typed(json.loads(value, parse_float=_Digits), kind)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value


class _Digits(str):
    """A number of JSON as it was written."""

    __slots__ = ()


def _typed(value: Any, kind: DataType | None) -> Any:
    """What Spark wrote as JSON, with decimals as text in it too."""
    word = kind.typeName() if kind is not None else ""
    if isinstance(value, dict):
        kinds = {f.name: f.dataType for f in getattr(kind, "fields", ())}
        inner = getattr(kind, "valueType", None)
        return {key: _typed(one, kinds.get(key, inner)) for key, one in value.items()}
    if isinstance(value, list):
        return [_typed(one, getattr(kind, "elementType", None)) for one in value]
    if word == "decimal" and value is not None:
        return f"{Decimal(value):f}"
    return float(value) if isinstance(value, _Digits) else value
