"""Why a refresh cannot be, or had better not be, incremental: what the view, its sources and their sizes say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from deltaic.algebra.reasons import Code, Reason, too_large
from deltaic.app.refresh.sources import Source
from deltaic.app.values.definition import Definition
from deltaic.delta.rules import MISMATCH
from deltaic.plan.rounds import OverDeleted
from deltaic.spark.analyzer import is_too_deep
from deltaic.spark.telling import is_of_values
from deltaic.sql.statements import Policy
from deltaic.store.gone import is_damaged, is_history_gone
from deltaic.store.log import Log, OwnCommit
from deltaic.store.progress import Progress, SourceState
from deltaic.store.rs import is_not_text
from deltaic.store.table import Snapshot


def digest(definition: Definition) -> str:
    """Changes exactly when what the view means does."""
    parts = (
        definition.query,
        definition.columns,
        sorted(definition.settings.items()),
        definition.current_schema,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


TABLE = "table"
"""Among the figures of a commit: the id of the table that it was planned for."""


def view_reasons(
    definition: Definition, marked: OwnCommit | None, last: Progress | None, full: bool, table: str | None
) -> Iterator[Reason]:
    if full:
        yield Reason(Code.POLICY, "a full refresh was asked for")
    elif definition.policy is Policy.FULL:
        yield Reason(Code.POLICY, "the view's refresh policy is FULL")
    if last is None:
        yield Reason(Code.VIEW_EDITED, "no commit of the view's table says which versions it was made of")
    elif last.figures.get("definition") != digest(definition):
        yield Reason(Code.DEFINITION_CHANGED, "the query or its settings are other ones than those last computed")
    elif last.figures.get(TABLE) not in (None, table):
        yield Reason(
            Code.VIEW_EDITED, "it was dropped and made anew, and then a refresh of the old one was written into it"
        )
    if marked is not None and marked.harmed:
        names = ", ".join(f"{f.commit.operation} at version {f.commit.version}" for f in marked.later if f.harmful)
        yield Reason(Code.VIEW_EDITED, f"the view's table was changed by {names}")


def source_reasons(source: Source, before: SourceState | None, now: Snapshot, used: str, log: Log) -> Iterator[Reason]:
    if before is None:
        yield Reason(Code.DEFINITION_CHANGED, f"{source.key} was not read by the last refresh")
        return
    if before.table_id != now.table_id:
        yield Reason(Code.SOURCE_REPLACED, f"{source.key} is another table than before")
    elif now.version < before.version:
        yield Reason(Code.SOURCE_REWOUND, f"{source.key} is at version {now.version}, the view at {before.version}")
    elif not before.is_of(log):
        detail = f"version {before.version} of {source.key} is another commit than the one that the view was made of"
        yield Reason(Code.SOURCE_REWOUND, detail)
    elif used != before.schema:
        yield Reason(Code.SOURCE_SCHEMA, f"columns of {source.key} that the view uses have changed")


def recoverable(error: Exception) -> Reason | None:
    """An error that closes the incremental way but not the full one."""
    if is_history_gone(error) or is_damaged(error):
        return Reason(Code.HISTORY_GONE, "a past state that the refresh needs can no longer be read")
    if is_too_deep(error):
        return too_large("Spark has not enough stack for its delta")
    if isinstance(error, OverDeleted):
        return Reason(Code.COST, f"{error} would have to be derived again")
    if MISMATCH in str(error):
        return Reason(Code.VIEW_MISMATCH, "a row was deleted more often than the view holds it")
    if any(code in str(error) for code in ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE")):
        return Reason(Code.OVERFLOW, "adding up what changed went out of a type's range")
    if is_not_text(error):
        return Reason(Code.EVALUATION, "a text that is not UTF-8 cannot come into this process")
    if is_of_values(error):
        return Reason(Code.EVALUATION, "an expression failed on a row that came or went")
    return None
