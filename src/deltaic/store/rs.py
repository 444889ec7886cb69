"""What is known of delta-rs, the Delta library without Spark: what it can open, and what it misreads.

Tried with deltalake 1.6.6; tests/store holds the cases.
"""

from __future__ import annotations

import functools
from pathlib import Path

import deltalake
import pyarrow.parquet as pq


def can_open(path: str) -> bool:
    """delta-rs decodes percent signs in a folder's name, however given, and so opens another folder."""
    return "%" not in path


def opened(path: str, version: int | None = None) -> deltalake.DeltaTable:
    """The table by delta-rs."""
    return deltalake.DeltaTable(Path(path).as_uri(), version=version)


@functools.lru_cache(maxsize=10_000)
def has_int96(file: str) -> bool:
    """Whether a Parquet file stores timestamps as INT96, as Spark does unless told otherwise.

    delta-rs reads those as nanoseconds: instants before 1677 or after 2262 silently become others. Data files
    never change, so the answer is kept.
    """
    schema = pq.ParquetFile(file).schema
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema.names)))
