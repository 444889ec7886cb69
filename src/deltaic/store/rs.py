"""What is known of delta-rs, the Delta library without Spark: what it can open, and what it misreads.

Tried with deltalake 1.6.6; tests/store holds the cases.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq

_SAFE_PATH = re.compile(r"[A-Za-z0-9._=/+-]+")
_CHAR = re.compile(r"(?<!var)char\(")

MAYBE_NOT_TEXT = "DELTAIC: a text that may not be UTF-8"
_NOT_TEXT = re.compile(f"{MAYBE_NOT_TEXT}|non UTF-8 data|invalid utf-?8|'utf-8' codec can't decode", re.IGNORECASE)


def can_open(path: str) -> bool:
    """delta-rs decodes percent signs in a folder's name, however given, and so opens another folder."""
    return "%" not in path


def opened(path: str, version: int | None = None) -> deltalake.DeltaTable:
    """The table by delta-rs."""
    return deltalake.DeltaTable(Path(path).as_uri(), version=version)


def is_not_text(error: Exception) -> bool:
    """Whether something failed over a STRING that is not UTF-8: Spark's may hold any bytes, Arrow's may not."""
    return _NOT_TEXT.search(str(error)) is not None


@functools.lru_cache(maxsize=10_000)
def has_int96(file: str) -> bool:
    """Whether a Parquet file stores timestamps as INT96, as Spark does unless told otherwise.

    delta-rs reads those as nanoseconds: instants before 1677 or after 2262 silently become others. Data files
    never change, so the answer is kept.
    """
    schema = pq.ParquetFile(file).schema
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema.names)))


def why_no_values(path: str, fields: Sequence[Mapping[str, Any]], files: Callable[[], Sequence[str]]) -> str | None:
    """What about these columns in these files of a table delta-rs does not read as Spark does."""
    if any(_CHAR.search(field.get("metadata", {}).get("__CHAR_VARCHAR_TYPE_STRING", "")) for field in fields):
        return "CHAR columns, which Spark pads when it reads them"
    names = files()
    if not all(_SAFE_PATH.fullmatch(name) for name in names):
        return "partition values that delta-rs encodes otherwise"
    instants = any('"timestamp"' in json.dumps(field["type"]) for field in fields)
    try:
        if instants and any(has_int96(str(Path(path) / name)) for name in names):
            return "timestamps stored as INT96"
    except FileNotFoundError:
        return "files that are gone"  # Spark will say so
    return None
