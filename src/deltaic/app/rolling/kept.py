"""The kept delta of a view, beside its table: what it holds and how far it has come, as its own commits say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.reasons import Reason
from deltaic.algebra.types import is_groupable, is_storable
from deltaic.app.catalogs.catalog import KEPT_DELTA
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.engine import Engine
from deltaic.app.rolling.clock import Standing
from deltaic.app.values.definition import Definition
from deltaic.app.values.settings import Settings
from deltaic.delta.timed import TIME
from deltaic.errors import ConcurrentRefresh, ExistsError, HistoryGone, MissingError, NotIncremental
from deltaic.plan.kept import Body, body_of
from deltaic.plan.rolling import Rolling
from deltaic.store import write_sql
from deltaic.store.own_table import TRY_AGAIN, OwnTable
from deltaic.store.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROLLING, _BODY, _SINCE = "rolling", "body", "since"
"""What a commit of a kept delta says: how far it has come, of what, and since when."""


@dataclass(frozen=True)
class Kept:
    """Complete from `since` up to `rolling.mark`."""

    table: OwnTable
    rolling: Rolling
    since: int
    body: str
    number: int
    version: int
    """Of its table, when it was looked at; -1 before it is made."""

    @property
    def mark(self) -> int:
        return self.rolling.mark

    def progress(self, rolling: Rolling, since: int | None = None) -> Progress:
        """What the next commit will say."""
        figures = {_ROLLING: rolling.to_json(), _SINCE: self.since if since is None else since, _BODY: self.body}
        return Progress(self.number + 1, {}, "propagate", figures)

    def goes_from(self, time: int | None) -> bool:
        """Whether a view at this time can be rolled by it."""
        return time is not None and self.since <= time <= self.mark

    def rows_since(self, time: int) -> int:
        """About how many rows were kept since a time, as the commits tell."""
        total, log = 0, self.table.log
        for version in range(self.version, -1, -1):
            try:
                commit = log.commit(version)
            except HistoryGone:
                break
            told = _told(Progress.of(commit))
            total += sum(file.rows or 0 for file in commit.adds if file.data_change)
            if told is not None and told[0].mark <= time:
                break
        return total


def _told(progress: Progress | None) -> tuple[Rolling, int, str] | None:
    """What a commit of a kept delta says; None if it is of something else: it is begun anew."""
    figures = progress.figures if progress else {}
    try:
        return Rolling.from_json(figures[_ROLLING]), figures[_SINCE], figures[_BODY]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def digest_of(body: Body) -> str:
    return hashlib.sha256(body.text.encode()).hexdigest()[:16]


def kept_body(compiled: Compiled) -> Body | str:
    """What of a view has a timed delta, or why nothing has."""
    if isinstance(compiled.way, Reason):
        return str(compiled.way)
    body = body_of(compiled.way)
    if isinstance(body, str):
        return body
    kinds = [f.type for f in body.columns if not is_groupable(f.type) or not is_storable(f.type)]
    return f"a value of type {kinds[0]} would have to be kept, and cannot be compared or stored" if kinds else body


def body_for(definition: Definition, compiled: Compiled) -> Body:
    """The same, refused with the reason."""
    body = kept_body(compiled)
    if isinstance(body, Body):
        return body
    raise NotIncremental(
        f"{definition.full_name} has no kept delta: {body}",
        hint="It is refreshed as ever, to any time too; propagate and apply are not for it.",
    )


class KeptDelta:
    def __init__(self, engine: Engine, definition: Definition) -> None:
        self.engine, self.definition = engine, definition

    def table(self) -> OwnTable:
        ref, _ = self.engine.catalog.hidden(KEPT_DELTA, self.definition.schema, self.definition.name)
        return OwnTable(ref, self.engine.lock_file, self.engine.spark)

    def now(self) -> Kept | None:
        """As its newest commit says."""
        table = self.table()
        marked = table.last_refresh() if table.exists else None
        last = Progress.of(marked.commit) if marked else None
        told = _told(last)
        if marked is None or last is None or told is None:
            return None
        return Kept(table, *told, last.refresh, marked.version)

    def of(self, body: Body, standing: Standing) -> Kept | None:
        """The kept delta of this very body, if it goes on from where the view is."""
        kept = self.now()
        if kept is None or kept.body != digest_of(body) or not kept.goes_from(standing.view_time):
            return None
        return kept

    def prune(self, kept: Kept, upto: int, session: SparkSession) -> None:
        """Forget what nobody will ask for: what is not after a time that the view is at."""
        sql = f"DELETE FROM {kept.table.ref.relation} WHERE `{TIME}` <= {upto}"
        kept.table.apply_spark(session, sql, kept.progress(kept.rolling, since=upto))

    def begin(self, body: Body, relations: int, own: int, session: SparkSession) -> Kept:
        """An empty one from a time on, instead of what is there."""
        kept = self.empty(body, relations, own)
        table = kept.table
        fields = [(f.name, f.type) for f in body.columns] + [(WEIGHT, "bigint"), (TIME, "bigint")]
        empty = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in fields)
        _, location = self.engine.catalog.hidden(KEPT_DELTA, self.definition.schema, self.definition.name)
        query, kept_for = f"SELECT {empty} WHERE FALSE", Settings.of(self.engine.spark).retention
        sql = write_sql.create_sql(
            table.ref.relation, query, replace=table.exists, properties=kept_for, location=location
        )
        try:
            table.apply_spark(session, sql, kept.progress(kept.rolling))
        except (ExistsError, MissingError) as other:
            raise ConcurrentRefresh(
                f"{self.definition.full_name} is being propagated elsewhere", hint=TRY_AGAIN
            ) from other
        found = self.now()
        if found is None:
            raise MissingError(f"{self.definition.full_name} was dropped meanwhile")
        return found

    def empty(self, body: Body, relations: int, own: int) -> Kept:
        """One from a time on, not yet made."""
        table = self.table()
        return Kept(table, Rolling.start(relations, own), own, digest_of(body), table.next_refresh() - 1, -1)
