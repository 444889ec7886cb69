"""A small table at one version, read by delta-rs into this process.

Spark pays a fifth of a second to open any Delta table, however small, and opens it once per use in a query.
Reading a table of some hundred thousand rows here costs less, and of a few thousand milliseconds; Spark then plans
with the rows at hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import deltalake
import pyarrow as pa

from deltaic.algebra.quoting import double_quoted
from deltaic.errors import SourceError
from deltaic.plan.steps import STATE_ROWS
from deltaic.store import rs
from deltaic.store.log import Log
from deltaic.store.partitions import told_otherwise
from deltaic.store.table import TableRef

STATE_BYTES = 16_000_000
"""A table with more bytes than this is Spark's to read."""

SCANNED_BYTES, ANSWER_ROWS = 1_000_000_000, 10_000
"""A table that is only gone through, for an answer of some rows, may be so large."""

_READABLE = frozenset(
    {"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}
    # they concern writers only
    | {"checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"}
)


def why_no_rs_state(
    log: Log, version: int, columns: Sequence[str], *, most_rows: int | None = STATE_ROWS, most_bytes: int = STATE_BYTES
) -> str | None:
    """Why delta-rs must not read these columns of this version; None if it may."""
    path, snapshot = log.ref.path, log.snapshot(version)
    if path is None or not rs.can_open(path):
        return "not in a folder delta-rs can open"
    if snapshot.rows is None or snapshot.bytes is None:
        return "the log does not tell its size"
    if (most_rows is not None and snapshot.rows > most_rows) or snapshot.bytes > most_bytes:
        return "large"
    unknown = sorted(snapshot.features - _READABLE)
    if unknown:
        return f"table features it does not know: {', '.join(unknown)}"
    fields = [field for field in snapshot.fields if field["name"] in columns]
    if not fields:
        return "no column is wanted, only how many rows there are"
    odd = told_otherwise(fields, snapshot.partition_columns)
    return odd or rs.why_no_values(path, fields, lambda: _files(path, version))


def why_no_rs_difference(log: Log, version: int, columns: Sequence[str]) -> str | None:
    """Why delta-rs must not compare these columns of a version with those of another: to it 0.0 and -0.0 are one."""
    wanted = [field["type"] for field in log.snapshot(version).fields if field["name"] in columns]
    if any(kind in json.dumps(wanted) for kind in ('"float"', '"double"')):
        return "0.0 and -0.0 would be taken for one"
    return why_no_rs_state(log, version, columns)


def _files(path: str, version: int) -> list[str]:
    return [str(file) for file in pa.table(rs.opened(path, version).get_add_actions())["path"].to_pylist()]


def read_state_rs(
    ref: TableRef,
    version: int,
    columns: Mapping[str, str],
    shown: str | None = None,
    only: tuple[str, int] | None = None,
) -> pa.Table:
    """These columns of a version, each under the name beside it; of the rows that are shown, if some are not; `only` of
    those that have a number in a column."""
    where = f" WHERE {double_quoted(shown)}" if shown else ""
    if only is not None:
        where = f" WHERE {double_quoted(only[0])} = {only[1]}"
    return _asked(f"SELECT {_wanted(columns)} FROM state{where}", state=(ref, version))


def _wanted(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{double_quoted(name)} AS {double_quoted(given)}" for name, given in columns.items())


def read_difference_rs(
    ref: TableRef, old: int, new: int, columns: Sequence[str], count: str, shown: str | None
) -> pa.Table:
    """What two versions do not share, each row counted 1 or -1."""
    where = f" WHERE {double_quoted(shown)}" if shown else ""
    wanted = ", ".join(double_quoted(name) for name in columns)
    both = f"SELECT {wanted}, 1 AS __deltaic_sign FROM present{where} UNION ALL SELECT {wanted}, -1 FROM past{where}"
    netted = f"SELECT {wanted}, sum(__deltaic_sign) AS __deltaic_sum FROM ({both}) GROUP BY {wanted}"
    repeated = f"SELECT *, unnest(range(0, abs(__deltaic_sum))) AS __deltaic_copy FROM ({netted})"
    sign = f"CASE WHEN __deltaic_sum > 0 THEN 1 ELSE -1 END AS {double_quoted(count)}"
    return _asked(f"SELECT {wanted}, {sign} FROM ({repeated})", present=(ref, new), past=(ref, old))


def read_counts_rs(
    ref: TableRef, version: int, marker: str, keys: Sequence[str], names: Sequence[str], only_true: bool
) -> pa.Table | None:
    """Per key, how many rows have a true and how many a false marker, under `names`; None if keys are too many."""
    sign = f"CASE WHEN {double_quoted(marker)} THEN 1 ELSE 0 END"
    values = [*(map(double_quoted, keys) if keys else ("CAST(0 AS INT)",)), sign, f"1 - {sign}"]
    each = ", ".join(f"{value} AS {double_quoted(name)}" for value, name in zip(values, names, strict=True))
    where = double_quoted(marker) if only_true else f"{double_quoted(marker)} IS NOT NULL"
    groups = ", ".join(map(double_quoted, names[:-2]))
    sums = ", ".join(f"sum({double_quoted(name)}) AS {double_quoted(name)}" for name in names[-2:])
    rows = f"SELECT {each} FROM state WHERE {where}"
    answer = _asked(
        f"SELECT {groups}, {sums} FROM ({rows}) GROUP BY {groups} LIMIT {ANSWER_ROWS + 1}", state=(ref, version)
    )
    return answer if answer.num_rows <= ANSWER_ROWS else None


def read_interval_rs(ref: TableRef, version: int, columns: Sequence[str], time: str, after: int, upto: int) -> pa.Table:
    """The rows whose time is in an interval."""
    within = f"{double_quoted(time)} > {after} AND {double_quoted(time)} <= {upto}"
    return _asked(f"SELECT {_wanted({name: name for name in columns})} FROM state WHERE {within}", state=(ref, version))


def _asked(sql: str, **tables: tuple[TableRef, int]) -> pa.Table:
    query = deltalake.QueryBuilder()
    for name, (ref, version) in tables.items():
        if ref.path is None:
            raise SourceError(f"{ref.name} is not on this machine")
        query = query.register(name, rs.opened(ref.path, version))
    answer: Any = query.execute(sql)
    return pa.table(answer.read_all())
