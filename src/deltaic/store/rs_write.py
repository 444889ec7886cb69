"""Applying a small artifact to a view's table by delta-rs, and when that must not be done.

What is written are values that Spark computed: delta-rs compares keys, it never calculates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties, write_deltalake

from deltaic.algebra.quoting import double_quoted
from deltaic.errors import ConcurrentRefresh
from deltaic.plan.program import OP
from deltaic.store import partitions, rs
from deltaic.store.arrow import conform
from deltaic.store.table import Snapshot, physical_name

KNOWN_FEATURES = frozenset(
    {"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}
    # Implied by old protocol versions; whether a table uses one is seen in its properties and schema.
    | {"checkConstraints", "changeDataFeed", "generatedColumns"}
)
_FOOTERS = 500
"""Above this many files, looking into each is no longer cheap."""


@dataclass(frozen=True)
class Transaction:
    """What a commit must carry: whose it is, its number, and its userMetadata; and the id of the table it is for, if
    that is known."""

    app: str
    number: int
    metadata: str
    table: str | None = None

    def properties(self) -> CommitProperties:
        """Without retries a commit succeeds only on top of the version that was opened: of two, one fails."""
        return CommitProperties(
            custom_metadata={"userMetadata": self.metadata},
            app_transactions=[deltalake.Transaction(self.app, self.number)],
            max_commit_retries=0,
        )


# --- when not -------------------------------------------------------------------------------------


def why_not_table(path: str | None, snapshot: Snapshot, known: frozenset[str] = KNOWN_FEATURES) -> str | None:
    """What about the table forbids it; None if nothing does."""
    if path is None or not rs.can_open(path):
        return "not in a folder delta-rs can open"
    unknown = sorted(snapshot.features - known)
    if unknown:
        return f"table features it does not know: {', '.join(unknown)}"
    checked = [name for name in snapshot.properties if name.startswith("delta.constraints.")]
    if checked or snapshot.properties.get("delta.appendOnly", "").lower() == "true" or snapshot.change_feed:
        return "constraints, append-only or a change feed, which are Spark's to keep"
    if any(word in snapshot.schema_json for word in ("delta.generationExpression", "delta.identity")):
        return "generated columns"
    if any("." in physical_name(field) for field in snapshot.fields):
        return "a column whose name in the files has a dot"
    return partitions.told_otherwise(snapshot.fields, snapshot.partition_columns)


def why_not_artifact(path: str, artifact: pa.Table, key: Sequence[str]) -> str | None:
    """What about the artifact, or the files it meets, forbids it; None if nothing does."""
    if not _takes_out(artifact):
        return None
    gone = artifact.filter(pc.equal(artifact[OP], -1))
    for name in key:
        if pa.types.is_nested(gone[name].type):
            return f"the key {name} is nested"
        if pa.types.is_floating(gone[name].type) and pc.any(pc.is_nan(gone[name])).as_py():
            return f"the key {name} is NaN, of which delta-rs knows many and Spark one"
    return _why_not_files(rs.opened(path))


def _why_not_files(table: DeltaTable) -> str | None:
    """A merge copies rows, and would bend instants that Spark stored as INT96."""
    if '"timestamp"' not in table.schema().to_json():
        return None
    files = table.file_uris()
    if len(files) > _FOOTERS:
        return "too many files to look for INT96 timestamps in"
    old = any(rs.has_int96(unquote(urlsplit(file).path) if "://" in file else file) for file in files)
    return "timestamps stored as INT96" if old else None


def _takes_out(artifact: pa.Table) -> bool:
    return bool(pc.any(pc.equal(artifact[OP], -1)).as_py())


# --- writing --------------------------------------------------------------------------------------


def apply(path: str, artifact: pa.Table, key: Sequence[str], transaction: Transaction) -> None:
    """Replace by key, in one commit."""
    table = _opened(path, transaction)
    schema = pa.schema([pa.field(field.name, field.type) for field in pa.schema(table.schema().to_arrow())])
    artifact = conform(artifact, schema.append(pa.field(OP, pa.int32())))
    if not _takes_out(artifact):
        _write(table, artifact.drop_columns([OP]), "append", transaction)
    elif not _merge(table, _both_zeros(artifact, key), schema.names, key, transaction):
        commit_nothing(path, transaction)  # delta-rs commits nothing where nothing changes


def overwrite(path: str, rows: pa.Table, transaction: Transaction) -> None:
    """These rows instead of all there are, in one commit."""
    table = _opened(path, transaction)
    schema = pa.schema([pa.field(field.name, field.type) for field in pa.schema(table.schema().to_arrow())])
    _write(table, conform(rows, schema), "overwrite", transaction)


def append(path: str, rows: pa.Table | pa.RecordBatchReader, transaction: Transaction) -> None:
    """These rows beside all there are, in one commit."""
    _write(_opened(path, transaction), rows, "append", transaction)


def delete(path: str, condition: str, transaction: Transaction) -> None:
    """Without these rows, in one commit; and without files that no version within the table's retention has."""
    table = _opened(path, transaction)
    table.delete(condition, writer_properties=_writer(table), commit_properties=transaction.properties())
    table.vacuum(dry_run=False)


def commit_nothing(path: str, transaction: Transaction) -> None:
    """A commit of no rows, for what it says."""
    table = _opened(path, transaction)
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=transaction.properties(),
    )


def _opened(path: str, transaction: Transaction) -> DeltaTable:
    """delta-rs writes transaction numbers, but does not refuse one that is there already."""
    table = rs.opened(path)
    done = table.transaction_version(transaction.app)
    if done is not None and done >= transaction.number:
        raise ConcurrentRefresh(f"refresh {transaction.number} of {path} is already made")
    if transaction.table is not None and str(table.metadata().id) != transaction.table:
        raise ConcurrentRefresh(f"{path} is another table than the one that was to be written")
    return table


def _write(
    table: DeltaTable,
    rows: pa.Table | pa.RecordBatchReader,
    mode: Literal["append", "overwrite"],
    transaction: Transaction,
) -> None:
    write_deltalake(
        table,
        rows,
        mode=mode,
        writer_properties=_writer(table),
        commit_properties=transaction.properties(),
    )


def _merge(
    table: DeltaTable,
    artifact: pa.Table,
    columns: Sequence[str],
    key: Sequence[str],
    transaction: Transaction,
) -> bool:
    """Whether there was anything to commit. To DataFusion IS NOT DISTINCT FROM binds weaker than AND."""
    equal = [f"(t.{double_quoted(name)} IS NOT DISTINCT FROM s.{double_quoted(name)})" for name in key]
    before = table.version()
    merger = table.merge(
        artifact,
        " AND ".join([f"(s.{double_quoted(OP)} = -1)", *equal]),
        source_alias="s",
        target_alias="t",
        writer_properties=_writer(table),
        commit_properties=transaction.properties(),
    )
    values = {double_quoted(name): f"s.{double_quoted(name)}" for name in columns}
    merger.when_matched_delete().when_not_matched_insert(values, f"s.{double_quoted(OP)} = 1").execute()
    return table.version() > before


def _both_zeros(artifact: pa.Table, key: Sequence[str]) -> pa.Table:
    """To Spark 0.0 and -0.0 are one key, to delta-rs two: a row that takes out one takes out the other."""
    for name in key:
        column = artifact[name]
        if not pa.types.is_floating(column.type):
            continue
        zero = pc.and_(pc.equal(column, 0.0), pc.equal(artifact[OP], -1))
        twins = artifact.filter(zero)
        index = artifact.schema.get_field_index(name)
        other = twins.set_column(index, artifact.schema.field(index), pc.negate(twins[name]))
        artifact = pa.concat_tables([artifact, other])
    return artifact


def _writer(table: DeltaTable) -> WriterProperties:
    """No statistics where delta-rs writes wrong ones, by which Spark would skip rows that are there.

    It leaves NaN out of a range, and rounds a DECIMAL to a DOUBLE. A field inside a struct cannot be named to it, so
    there the columns are named that have statistics.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    names = {physical_name(field): _has_inexact(field["type"]) for field in fields}
    silent, told = ColumnProperties(statistics_enabled="NONE"), ColumnProperties(statistics_enabled="CHUNK")
    nested = any(names[physical_name(field)] and isinstance(field["type"], dict) for field in fields)
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=64,
        default_column_properties=silent if nested else None,
        column_properties={name: silent if inexact else told for name, inexact in names.items()},
    )


def _has_inexact(kind: Any) -> bool:
    """Whether a type is, or a struct has, one whose statistics are not to be trusted."""
    if isinstance(kind, dict) and kind["type"] == "struct":
        return any(_has_inexact(field["type"]) for field in kind["fields"])
    return kind in ("float", "double") or _wide_decimal(kind)


def _wide_decimal(kind: Any) -> bool:
    """More digits than a DOUBLE holds."""
    return isinstance(kind, str) and kind.startswith("decimal(") and int(kind[8:].split(",")[0]) > 15
