"""Values of this process written into a query, so that Delta skips files and Parquet row groups by them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.quoting import quote

MOST = 1_000
"""More values than this are written as a range."""


def among(column: str, values: pa.ChunkedArray, nulls: bool = False) -> str:
    """A condition for Spark that holds where the column is one of the values, or NULL if one of them is and that is
    wanted; it may hold elsewhere."""
    known = _written(values)
    if known is None:
        return "TRUE"
    condition = _listed(quote(column), known) if len(known) <= MOST else _between(quote(column), known)
    return f"({condition} OR {quote(column)} IS NULL)" if nulls and values.null_count else condition


def _between(column: str, known: pa.Array) -> str:
    return f"{column} BETWEEN {_literal(pc.min(known).as_py())} AND {_literal(pc.max(known).as_py())}"


def _written(values: pa.ChunkedArray) -> pa.Array | None:
    """The values, each once; None if settings decide how they are read, or Spark would put variables into them."""
    known = pc.drop_null(values).unique()
    if pa.types.is_integer(known.type):
        return known
    texts = known.cast(pa.string())
    return None if pc.any(pc.match_substring_regex(texts, r"['\\\\$]")).as_py() else texts


def _listed(column: str, known: pa.Array) -> str:
    if not len(known):
        return "FALSE"
    return f"{column} IN ({', '.join(_literal(value) for value in known.to_pylist())})"


def _literal(value: int | str) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
