"""The change of a source between two versions: signed rows, and the cheapest right way to get them.

All ways give the same change once equal rows are netted:

- `none`     no commit in the range changed rows;
- `feed`     Delta's change feed, by Spark;
- `feed-rs`  Delta's change feed, by delta-rs: a few milliseconds for a small change, where it can be trusted;
- `files`    no feed: all rows of the files that the two versions do not share, + of the new, - of the old;
- `states-rs` no feed and a small table: both versions by delta-rs, subtracted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.quoting import double_quoted, quote, quote_list, text_literal
from deltaic.errors import HistoryGone, SourceError
from deltaic.plan.steps import RS_ROWS
from deltaic.store import rs
from deltaic.store.arrow import without_views
from deltaic.store.commit import Commit, FileAction
from deltaic.store.diff import are_told_by_name, differing_files, reads_only
from deltaic.store.log import Log
from deltaic.store.partitions import told_otherwise
from deltaic.store.state import read_difference_rs, why_no_rs_difference
from deltaic.store.table import Snapshot, TableRef, data_of

RS_BYTES = 16_000_000
"""The same limit where the log tells sizes only."""

Kind = Literal["none", "feed", "feed-rs", "files", "states-rs"]


@dataclass(frozen=True)
class ChangePlan:
    """How to read one change. `sql` gives the table's columns and `__deltaic_d`; rows are not netted.

    `after` and `upto` are the range to read, which may be narrower than what was asked: commits at its ends
    that change no rows are left out. `rows` is an upper bound, where the log has one.
    """

    kind: Kind
    after: int
    upto: int
    sql: str | None
    rows: int | None
    reason: str
    appends: bool = False
    """Whether every commit only added rows: once netted, the change deletes nothing."""


def plan_change(
    log: Log,
    after: int,
    upto: int,
    columns: Sequence[str],
    *,
    allow_rs: bool = True,
    allow_feed: bool = True,
    rs_rows: int = RS_ROWS,
) -> ChangePlan:
    """Decide how to read the change of `columns` in the versions (after, upto]."""
    if after > upto:
        raise HistoryGone(f"{log.ref.name} is at version {upto}, before version {after} that was read last")
    commits = log.commits(after, upto)
    changing = [commit for commit in commits if commit.data_change]
    if not changing:
        return ChangePlan("none", after, upto, None, 0, f"{upto - after} commits, none changed rows")
    commits = _narrowed(log, commits, changing, columns)
    found = _planned(log, commits, columns, allow_rs, allow_feed, rs_rows)
    appends = not any(file.data_change for commit in changing for file in commit.removes)
    return replace(found, appends=appends)


def _narrowed(log: Log, commits: list[Commit], changing: Sequence[Commit], columns: Sequence[str]) -> list[Commit]:
    """The commits without those at the ends that change no rows, if every column is there under its name.

    A column that was renamed and renamed back is the same column at both ends, and has another name between them.
    """
    first, last = changing[0].version, changing[-1].version
    before = [commit for commit in commits if commit.version < first]
    later = [commit for commit in commits if commit.version > last]
    now = commits[-1].version
    if any(commit.metadata for commit in before) and _cores(log, first - 1, columns) != _cores(log, now, columns):
        before = []
    if any(commit.metadata for commit in later) and _cores(log, last, columns) != _cores(log, now, columns):
        later = []
    return commits[len(before) : len(commits) - len(later)]


def _cores(log: Log, version: int, columns: Sequence[str]) -> dict[str, tuple[Any, str]]:
    return {field["name"]: data_of(field) for field in log.snapshot(version).fields if field["name"] in columns}


def _planned(
    log: Log, commits: Sequence[Commit], columns: Sequence[str], allow_rs: bool, allow_feed: bool, rs_rows: int
) -> ChangePlan:
    first, last = commits[0].version - 1, commits[-1].version
    no_feed = _why_no_feed(log, first, commits) if allow_feed else "texts that are not UTF-8"
    if no_feed is not None:
        if allow_rs and not any(why_no_rs_difference(log, version, columns) for version in (first, last)):
            most = sum(log.snapshot(version).rows or 0 for version in (first, last))
            return ChangePlan("states-rs", first, last, None, most, f"{no_feed}: small, both versions compared")
        return _files_plan(log, commits, columns, no_feed)
    rows = _feed_rows(commits)
    no_rs = _why_no_rs(log, commits, columns, rows, rs_rows) if allow_rs else "delta-rs not wanted"
    if no_rs is None:
        return ChangePlan("feed-rs", first, last, None, rows, "change feed, small, read by delta-rs")
    sql = _feed_sql(log.ref, first, last, columns, log.snapshot(last))
    return ChangePlan("feed", first, last, sql, rows, f"change feed, read by Spark ({no_rs})")


# --- the change feed ------------------------------------------------------------------------------


def _feed_sql(ref: TableRef, after: int, upto: int, columns: Sequence[str], snapshot: Snapshot) -> str:
    function, name = ("table_changes", ref.relation)
    if ref.path is not None and ref.relation.startswith("delta."):
        function, name = ("table_changes_by_path", ref.path)
    sign = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1L ELSE -1L END"
    texts = [field for field in snapshot.fields if '"string"' in json.dumps(field["type"]) and field["name"] in columns]
    only = [quote(snapshot.shown)] if snapshot.shown else []
    only += [_all_utf8(texts)] if texts else []
    feed = f"{function}({text_literal(name)}, {after + 1}, {upto})" + (f" WHERE {' AND '.join(only)}" if only else "")
    return f"SELECT {_selected(columns)}{sign} AS {quote(WEIGHT)} FROM {feed}"


def _all_utf8(fields: Sequence[Mapping[str, Any]]) -> str:
    """Of a text that is not UTF-8 Spark's feed has another, with U+FFFD for its odd bytes. One with U+FFFD may be such
    a text; the refresh then reads the files themselves."""
    named = ((quote(field["name"]), field["type"] == "string") for field in fields)
    odd = " OR ".join(f"contains({name if plain else f'CAST({name} AS STRING)'}, '\ufffd')" for name, plain in named)
    return f"CASE WHEN {odd} THEN raise_error({text_literal(rs.MAYBE_NOT_TEXT)}) ELSE TRUE END"


def _selected(columns: Sequence[str]) -> str:
    """Columns with a comma after each: a query may need none of them, only how many rows there are."""
    return f"{quote_list(columns)}, " if columns else ""


def _why_no_feed(log: Log, after: int, commits: Sequence[Commit]) -> str | None:
    """Why the feed cannot give these commits, all of them; None if it can.

    A commit is in the feed if the feed was on after it. Delta refuses a range in which it was off at any
    commit.
    """
    start = log.snapshot(after)
    feed = start.change_feed
    for commit in commits:
        # seen with Delta 4.4: by such a feed more rows go than there were; the files that differ give the right change
        if commit.features is not None and "deletionVectors" in start.features - commit.features:
            return "deletion vectors were dropped in between"
        if commit.metadata is not None:
            feed = commit.metadata.change_feed
            if _loses_columns(start, commit.metadata.schema_json):
                return "columns changed in between"
            if commit.metadata.partition_columns != start.partition_columns:
                return "partitioned otherwise in between"
        if not feed:
            return f"no change feed at version {commit.version}"
    return None


def _loses_columns(start: Snapshot, schema_json: str) -> bool:
    """Delta reads a feed under one schema: right if columns were only added, not if one became another."""
    later = {field["name"]: field for field in json.loads(schema_json)["fields"]}
    return any(field["name"] not in later or data_of(later[field["name"]]) != data_of(field) for field in start.fields)


def _feed_rows(commits: Iterable[Commit]) -> int | None:
    """How many rows the feed of these commits has at most, if they all tell."""
    total = 0
    for commit in commits:
        count = _metric_rows(commit)
        if count is None and not commit.cdc:
            count = _file_rows(commit)
        if count is None:
            return None
        total += count
    return total


def _file_rows(commit: Commit) -> int | None:
    """Without rows of its own a commit's feed is its files, whole."""
    counts = [file.rows for file in (*commit.adds, *commit.removes) if file.data_change]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


_METRICS = {
    "DELETE": {"numDeletedRows": 1},
    "UPDATE": {"numUpdatedRows": 2},
    "MERGE": {"numTargetRowsInserted": 1, "numTargetRowsUpdated": 2, "numTargetRowsDeleted": 1},
}


def _metric_rows(commit: Commit) -> int | None:
    wanted, found = _METRICS.get(commit.operation), commit.operation_metrics
    if wanted is None or not wanted.keys() <= found.keys():
        return None
    return sum(int(found[name]) * times for name, times in wanted.items())


# --- the change feed by delta-rs ------------------------------------------------------------------

_RS_NEVER = {"deletionVectors", "columnMapping", "typeWidening", "variantType", "catalogManaged"}


def _why_no_rs(
    log: Log, commits: Sequence[Commit], columns: Sequence[str], rows: int | None, rs_rows: int
) -> str | None:
    """Why delta-rs must not read this feed. Most of these it would get wrong without saying so."""
    path, snapshot = log.ref.path, log.snapshot(commits[-1].version)
    if path is None or not rs.can_open(path):
        return "not in a folder delta-rs can open"
    start = log.snapshot(commits[0].version - 1)
    # a feature can be dropped, and then the commits before that still are of a table that had it
    had = start.features.union(snapshot.features, *(one.features for one in commits if one.features))
    never = sorted(_RS_NEVER & had)
    if never:
        return f"delta-rs misreads feeds of tables with {', '.join(never)}"
    schemas = [start.schema_json, *(one.metadata.schema_json for one in commits if one.metadata)]
    if any(json.loads(schema) != json.loads(snapshot.schema_json) for schema in schemas):
        return "the table's columns were changed"
    files = [file for commit in commits for file in (commit.cdc or _changing(commit))]
    if not _small(files, rows, rs_rows):
        return "large"
    if any(value in (None, "") for file in files for value in (file.partition or {}).values()):
        return "a partition is NULL, of whose column delta-rs does not know the type"
    wanted = [field for field in snapshot.fields if field["name"] in columns]
    odd = told_otherwise(wanted, snapshot.partition_columns)
    return odd or rs.why_no_values(path, wanted, lambda: [file.path for file in files])


def _changing(commit: Commit) -> list[FileAction]:
    return [file for file in (*commit.adds, *commit.removes) if file.data_change]


def _small(files: Sequence[FileAction], rows: int | None, rs_rows: int) -> bool:
    if rows is not None:
        return rows <= rs_rows
    sizes = [file.size for file in files]
    return all(size is not None for size in sizes) and sum(size or 0 for size in sizes) <= RS_BYTES


def read_change_rs(ref: TableRef, kind: str, after: int, upto: int, columns: Sequence[str]) -> pa.Table:
    """The change in (after, upto] by delta-rs, where plan_change says so: `columns` and `__deltaic_d`."""
    if kind == "states-rs":
        return read_difference_rs(ref, after, upto, columns, WEIGHT, Log(ref).snapshot(upto).shown)
    if ref.path is None:
        raise SourceError(f"{ref.name} is not on this machine")
    # delta-rs reads these names as SQL does: without quotes they become lower case
    shown = Log(ref).snapshot(upto).shown
    asked = dict.fromkeys((*columns, *([shown] if shown else []), "_change_type"))
    reader = rs.opened(ref.path, upto).load_cdf(after + 1, upto, columns=list(map(double_quoted, asked)))
    feed = pa.table(reader.read_all())
    if shown:
        feed = without_views(feed).filter(feed[shown])
    plus = pc.is_in(
        feed["_change_type"].cast(pa.string()),
        value_set=pa.array(["insert", "update_postimage"], pa.string()),
    )
    sign = pc.if_else(plus, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    return feed.select(list(columns)).append_column(WEIGHT, sign)


# --- without a feed -------------------------------------------------------------------------------


def _files_plan(log: Log, commits: Sequence[Commit], columns: Sequence[str], reason: str) -> ChangePlan:
    after, upto = commits[0].version - 1, commits[-1].version
    difference = differing_files(commits)
    shown = log.snapshot(upto).shown
    only = f" AND {quote(shown)}" if shown else ""
    files = [*difference.new, *log.described(difference.old, after)]
    snapshots = [log.snapshot(after), log.snapshot(upto)]
    these, told = reads_only(files, snapshots), are_told_by_name(files, snapshots)
    selects = [
        f"SELECT {_selected(columns)}{sign}L AS {quote(WEIGHT)} FROM {log.ref.as_of(version)} WHERE {these}{only}"
        for version, sign, own in ((upto, 1, difference.new), (after, -1, difference.old))
        if own or not told
    ]
    rows = None if any(file.rows is None for file in files) else sum(file.rows or 0 for file in files)
    why = f"{reason}: the rows of {len(difference.old)} old and {len(difference.new)} new files are compared"
    if not files:
        return ChangePlan("none", after, upto, None, rows, why)
    return ChangePlan("files", after, upto, " UNION ALL ".join(selects), rows, why)
