"""Values of this process written into a query, so that Delta skips files and Parquet row groups by them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.expr import quote

MOST = 1_000
"""More values than this are written as a range."""


def among(column: str, values: pa.ChunkedArray) -> str:
    """A condition that holds where the column is one of the values; it may hold elsewhere."""
    known = pc.drop_null(values).unique()
    if not len(known):
        return "FALSE"
    if pa.types.is_string(known.type) and pc.any(pc.match_substring_regex(known, r"['\\\\]")).as_py():
        return "TRUE"  # how these are written is a matter of settings
    if len(known) <= MOST:
        listed = ", ".join(_literal(value) for value in known.to_pylist())
        return f"{quote(column)} IN ({listed})"
    least, most = pc.min(known).as_py(), pc.max(known).as_py()
    return f"{quote(column)} BETWEEN {_literal(least)} AND {_literal(most)}"


def _literal(value: int | str) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    return f"{value}L" if abs(value) > 2**31 - 1 else str(value)
