"""How a view is stored: the statements that make and fill its table, and what its commits say."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from deltaic.algebra.quoting import quote, quote_list
from deltaic.algebra.reasons import Reason
from deltaic.app.refresh.compile import Compiled, pinned_text
from deltaic.app.refresh.why_full import TABLE, digest
from deltaic.app.values.definition import PROPERTY
from deltaic.plan.maintain import Known, Maintenance, Way
from deltaic.plan.program import ARTIFACT
from deltaic.plan.recursion import Phase
from deltaic.plan.recursion_cost import mean_round
from deltaic.plan.refreshing import full_query
from deltaic.plan.rounds import RoundsFound
from deltaic.plan.steps import SourceRead, StoredView, WriteView
from deltaic.store import partitions, write_sql
from deltaic.store.log import PLANNED_AT, Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress, SourceState
from deltaic.store.state import SCANNED_BYTES, why_no_rs_state
from deltaic.store.table import Snapshot, padded_type, stored_as


def stored_view(compiled: Compiled, table: OwnTable, use_rs: bool) -> StoredView:
    version, columns = table.log.version() if table.at is None else table.at, compiled.stored
    small = use_rs and why_no_rs_state(table.log, version, list(columns.values())) is None
    return StoredView(
        table.ref.relation,
        version,
        columns,
        small,
        table.log.snapshot(version).rows,
        use_rs and _scanned_by_rs(compiled, table, version),
        use_rs and may_be_looked_up(table.log, version, list(columns.values())),
    )


def _scanned_by_rs(compiled: Compiled, table: OwnTable, version: int) -> bool:
    """Whether delta-rs finds the same keys of outer joins in the view as Spark would."""
    assert isinstance(compiled.way, Maintenance)
    fields = compiled.way.root.fields
    names = [name for side in compiled.way.preserved for name in (side.marker, *side.keys)]
    # equal floats and equal nested values are Spark's to tell
    if not names or any(fields[name].type in ("float", "double") or "<" in fields[name].type for name in names):
        return False
    return _may_be_searched(table.log, version, [compiled.stored[name] for name in names])


def _may_be_searched(log: Log, version: int, columns: list[str]) -> bool:
    return why_no_rs_state(log, version, columns, most_rows=None, most_bytes=SCANNED_BYTES) is None


def may_be_looked_up(log: Log, version: int, columns: list[str]) -> bool:
    if not _may_be_searched(log, version, columns):
        return False
    # fields of structs have other names in the files, and what has no known name there would be NULL
    if any(f["name"] in columns and not isinstance(stored_as(f), str) for f in log.snapshot(version).fields):
        return False
    return partitions.why_not(str(log.ref.path), log.snapshot(version)) is None


def write_step(compiled: Compiled, table: OwnTable, known: Known) -> WriteView:
    way = compiled.way
    assert isinstance(way, Maintenance)
    key = tuple(compiled.stored[name] for name in way.replaced(known))
    sql = table.merge_sql(ARTIFACT, key, list(compiled.stored.values()))
    told = way.way is Way.CHANGES and not way.by_groups(known)
    return WriteView("replace the rows of those keys in the view", sql, None, key=key, all_there=told)


def stored_columns(compiled: Compiled) -> list[str]:
    if isinstance(compiled.way, Maintenance):
        return list(compiled.stored.values())
    return list(compiled.definition.columns)


def same_columns(table: OwnTable, compiled: Compiled) -> bool:
    """Whether the table still has the query's columns, by name and type."""
    stored = StructType.fromJson(json.loads(table.log.snapshot(table.at).schema_json))
    if [field.name for field in stored.fields] != stored_columns(compiled):
        return False
    types = compiled.stored_types or tuple(field.dataType.simpleString() for field in compiled.schema.fields)
    return tuple(field.dataType.simpleString() for field in stored.fields) == types


def create_sql(
    compiled: Compiled,
    table: OwnTable,
    query: str,
    *,
    replacing: bool = True,
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
) -> str:
    """The statement that makes a view's table, or makes it anew, with its content. Without `properties` it keeps those
    that it has."""
    definition = compiled.definition
    if properties is None:
        properties = own_properties(table)
    return write_sql.create_sql(
        table.ref.relation,
        without_defaults(compiled, query),
        replace=replacing,
        partition_by=definition.partitioned_by,
        cluster_by=definition.clustered_by,
        properties={**properties, PROPERTY: definition.to_json()},
        comment=definition.comment,
        location=location,
    )


def without_defaults(compiled: Compiled, query: str) -> str:
    """A column that is shown as it is would bring its DEFAULT along, which a table takes under a feature only."""
    pairs = zip(compiled.definition.columns, compiled.schema.fields, strict=True)
    brought = {name for name, field in pairs if any(key.endswith("_DEFAULT") for key in field.metadata or {})}
    if not brought:
        return query
    columns = compiled.stored.values() if isinstance(compiled.way, Maintenance) else compiled.definition.columns
    listed = ", ".join(f"coalesce({quote(c)}) AS {quote(c)}" if c in brought else quote(c) for c in columns)
    return f"SELECT {listed} FROM (\n{query}\n)"


def own_properties(table: OwnTable) -> dict[str, str]:
    """What was said of a table by a person, without what Delta notes for itself and what names columns, which may be
    others now."""
    found = table.log.snapshot().properties
    return {name: value for name, value in found.items() if not name.startswith(_DELTAS_OWN)}


_DELTAS_OWN = (
    "delta.columnMapping.maxColumnId",
    "delta.constraints.",
    "delta.dataSkippingStatsColumns",
    "delta.feature.",
    "delta.inCommitTimestampEnablement",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.requireCheckpointProtection",
    "delta.rowTracking.",
)


def recompute_sql(compiled: Compiled, reads: Mapping[str, SourceRead]) -> str:
    if isinstance(compiled.way, Maintenance):
        return full_query(compiled.way, reads, StoredView("", None, compiled.stored))
    text = pinned_text(compiled, reads)
    names = quote_list(compiled.definition.columns)
    return f"SELECT * FROM (\n{text}\n) AS q({names})"


def definition_moves(last: Progress) -> bool:
    """Whether the answer may change though no source does."""
    return bool(last.figures.get("time_dependent"))


DEPTH = "depth"
"""Among the figures of a commit: in which round of its recursion a row of the view was found, on average."""


def depth_of(last: Progress | None) -> float | None:
    found = last.figures.get(DEPTH) if last else None
    return found if isinstance(found, int | float) else None


def with_depth(progress: Progress, told: Sequence[RoundsFound]) -> Progress:
    """After predicates were evaluated."""
    depth = mean_round(told) if all(one.phase is Phase.EVALUATE for one in told) else None
    return replace(progress, figures={**progress.figures, DEPTH: round(depth, 2)}) if depth else progress


def progress_of(
    compiled: Compiled,
    states: Mapping[str, Snapshot],
    number: int,
    *,
    mode: str,
    technique: str,
    reasons: tuple[Reason, ...],
    prices: Mapping[str, object] | None = None,
    depth: float | None = None,
    table: str | None = None,
    at: int | None = None,
) -> Progress:
    """What the commit of this refresh will say. `table`: the id of the one it is for, unless it makes another;
    `at`: the version of it that was looked at."""
    sources = {
        key: SourceState(s.version, s.table_id, used_columns(compiled, key, s), s.fingerprint)
        for key, s in states.items()
    }
    figures: dict[str, object] = {"mode": mode, "definition": digest(compiled.definition)}
    figures["started"] = int(time.time() * 1000)
    figures.update(prices or {})
    if depth is not None:
        figures[DEPTH] = depth
    if table is not None:
        figures[TABLE] = table
        figures[PLANNED_AT] = at
    if reasons:
        figures["reasons"] = [str(reason) for reason in reasons]
    if compiled.moves:
        figures["time_dependent"] = True
    return Progress(
        refresh=number,
        sources=sources,
        technique=technique,
        figures=figures,
    )


def used_columns(compiled: Compiled, key: str, snapshot: Snapshot) -> str:
    """The used columns of a source with their types and, as a name may be given anew, where they are stored."""
    stored = {field["name"]: stored_as(field) for field in snapshot.fields}
    padded = {field["name"]: told for field in snapshot.fields if (told := padded_type(field)) is not None}
    used = compiled.used_columns.get(key, [])
    return json.dumps([(name, padded.get(name, kind), stored.get(name)) for name, kind in used])
