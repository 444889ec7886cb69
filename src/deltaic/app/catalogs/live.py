"""Live sources: tables in PostgreSQL, whose changes are captured into a Delta log and whose state can be read only now.

To the rest of Deltaic such a source is its captured log: that has versions, and its rows in an interval are the
source's change. A state as of a version is read now, in one snapshot, and compensated for:

    state at v  =  what is read  -  captured changes after v that the read saw  +  those up to v that it did not see

so that every rule that reads a state, old or new, is exact while the table is written to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.quoting import quote, text_literal
from deltaic.algebra.reasons import Code, Reason
from deltaic.errors import CaptureLost, ConfigurationError, HistoryGone
from deltaic.store.arrow import arrow_to_spark
from deltaic.store.commit import Commit
from deltaic.store.log import Log
from deltaic.store.postgres.capture import Capture, open_capture
from deltaic.store.postgres.captured_log import ORDER, XID, CapturedLog, CapturePoint
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.snapshot import Visibility
from deltaic.store.postgres.table import PostgresTable, Server, connect
from deltaic.store.table import TableRef, table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltaic.plan.steps import SourceRead

ENDING = ".live"
_ROWS = "SELECT greatest(reltuples, 0)::int8 FROM pg_class WHERE oid = %s::regclass"


@dataclass(frozen=True)
class LiveTable:
    """A table of a server under a name of the warehouse's; `path` is where its captured log is."""

    key: str
    table: PostgresTable
    path: str
    set_identity: bool = True
    """Whether the table may be told REPLICA IDENTITY FULL, should its capture have to begin anew."""

    def __post_init__(self) -> None:
        if self.table.server.password is not None:
            raise ConfigurationError(
                f"{self.key}: a password that is a function cannot be called by the next process",
                hint="Name an environment variable (password_env) or a password file (passfile).",
            )

    @property
    def ref(self) -> TableRef:
        """The captured log."""
        return table_at(self.path, self.key)

    @property
    def relation(self) -> str:
        """The temporary view that its state is read from."""
        return f"__deltaic_live_{_digest(self.key)}"

    def rows(self) -> int:
        """About how many it has, as PostgreSQL thinks."""
        with connect(self.table.server) as connection:
            found = connection.execute(_ROWS, (self.table.relation,)).fetchone()
        return int(found[0]) if found else 0

    def mark_at(self, version: int) -> CapturePoint:
        """How far the log was at a version of it."""
        log = Log(self.ref)
        for earlier in range(version, -1, -1):
            marker = log.commit(earlier).marker
            if marker is not None:
                return CapturePoint.of(marker["capture"])
        raise CaptureLost(f"{self.key}: its captured log has no mark up to version {version}")

    def change_sql(self, after: int, upto: int, columns: Sequence[str]) -> str:
        """The captured changes of the versions after one and up to another."""
        low, high = self.mark_at(after).order, self.mark_at(upto).order
        listed = "".join(f"{quote(name)}, " for name in columns)
        rows = f"FROM {self.ref.as_of(upto)} WHERE {ORDER} > {low} AND {ORDER} <= {high}"
        return f"SELECT {listed}{WEIGHT} {rows}"

    def changed_rows(self, after: int, upto: int) -> int:
        """How many changes the versions after one and up to another brought."""
        return sum(file.rows or 0 for commit in grown(Log(self.ref).commits(after, upto)) for file in commit.adds)

    def lost(self, since: int) -> Reason | None:
        """Why changes after a version are not in the log: the capture was begun anew later, or they were pruned."""
        newest = CapturedLog(self.path, ()).newest()
        try:
            order = self.mark_at(since).order
        except HistoryGone:
            order = -1
        if order >= newest.begins:
            return None
        if newest.lost is None or order >= newest.since:
            return Reason(Code.CAPTURE_LOST, f"changes of {self.key} are no longer in its captured log")
        what = f"the capture of {self.key} was begun anew, since {newest.lost['detail']}"
        return Reason(Code[newest.lost["reason"]], what)

    def prune(self, version: int) -> None:
        """Forget the changes up to a version."""
        with connect(self.table.server) as connection:
            row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        if row is not None:
            CapturedLog(self.path, ()).prune(self.mark_at(version).order, Visibility.parse(row[0]))

    def to_json(self) -> str:
        server = self.table.server
        told = {
            name: getattr(server, name)
            for name in ("host", "database", "user", "port", "password_env", "passfile", "sslmode")
        }
        only = list(self.table.only) if self.table.only is not None else None
        table = {"server": told, "schema": self.table.schema, "table": self.table.name, "only": only}
        return json.dumps({**table, "set_identity": self.set_identity})

    @staticmethod
    def read(file: Path, key: str, path: str) -> LiveTable:
        try:
            return LiveTable.parse(file.read_text("utf-8"), key, path)
        except (ValueError, KeyError, TypeError):  # what is there is not told: it might be a password
            raise ConfigurationError(f"{file} does not say where the source {key} is", hint="Attach it anew.") from None

    @staticmethod
    def parse(text: str, key: str, path: str) -> LiveTable:
        raw: dict[str, Any] = json.loads(text)
        only = tuple(raw["only"]) if raw["only"] is not None else None
        table = PostgresTable(Server(**raw["server"]), raw["schema"], raw["table"], only)
        return LiveTable(key, table, path, bool(raw.get("set_identity", True)))


def grown(commits: Iterable[Commit]) -> list[Commit]:
    """Those of a captured log that are no pruning of it."""
    return [commit for commit in commits if not commit.removes]


def capture_name(live: LiveTable) -> str:
    """Of a new slot and publication, or triggers, in the server. Other warehouses may capture the same table, from the
    same folder of another machine."""
    return f"{capture_prefix(live)}{uuid4().hex[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def capture_prefix(live: LiveTable) -> str:
    return f"deltaic_{_digest(live.path)}_"


class Captures:
    """The captures of a warehouse that are at work in this process."""

    def __init__(self) -> None:
        self._open: dict[str, Capture] = {}

    def of(self, live: LiveTable) -> Capture:
        if live.key not in self._open:
            self._open[live.key] = open_capture([(live.table, live.path)])
        return self._open[live.key]

    def step(self, live: LiveTable) -> None:
        """Bring the captured log up to now; begin anew where changes were lost, which views over it notice."""
        try:
            self._catch_up(live)
        except CaptureLost:
            if live.key in self._open:  # another process may have begun it anew since it was opened here
                self._open.pop(live.key).close()
            capture = self.of(live)
            try:
                self._catch_up(live)
            except CaptureLost as why:
                with capture.restarted(why, set_identity=live.set_identity):
                    pass

    def _catch_up(self, live: LiveTable) -> None:
        while not all(mark.complete for mark in self.of(live).step()):
            pass

    def close(self) -> None:
        for capture in self._open.values():
            capture.close()
        self._open.clear()


class LiveStates:
    """States of live sources in one run: each source is read in one snapshot, which lasts as long as the run."""

    def __init__(self, captures: Captures, session: SparkSession) -> None:
        self.captures, self.session = captures, session
        self._stack = ExitStack()
        self._reads: dict[str, LiveRead] = {}

    def close(self) -> None:
        self._stack.close()

    def read(self, live: LiveTable) -> LiveRead:
        if live.key not in self._reads:
            found = self._stack.enter_context(LiveRead(live.table.server, [live.table]))
            self.captures.of(live).catch_up(found)
            self._reads[live.key] = found
        return self._reads[live.key]

    def frame(self, live: LiveTable, version: int, columns: Sequence[str], keys: pa.Table | None = None) -> DataFrame:
        """The source as of a version of its log; at least the rows of some keys."""
        read, names = self.read(live), list(columns) or [self.any_column(live)]
        frame = read.frame(self.session, live.table, names)
        if keys is not None:
            frame = arrow_to_spark(self.session, read.arrow(live.table, names, keys), frame.schema)
        wrong = self.corrections(live, version, names)
        return frame if not wrong.num_rows else self.compensated(live, frame, wrong, whole=keys is None)

    def any_column(self, live: LiveTable) -> str:
        return str(Log(live.ref).snapshot().columns[0])

    def corrections(self, live: LiveTable, version: int, columns: Sequence[str]) -> pa.Table:
        """How often each row is to be put in or taken out of what was read."""
        read, log = self.read(live), Log(live.ref)
        order, since = live.mark_at(version).order, CapturedLog(live.path, ()).newest().begins
        if order < since:
            raise HistoryGone(
                f"{live.key} cannot be read as of version {version} of its captured log: changes after it are gone",
                hint="Captured changes are kept until every view that reads them has passed them.",
            )
        saw, listed = read.visibility.condition(XID), ", ".join(map(quote, columns))
        later = f"SELECT {listed}, -{WEIGHT} AS {WEIGHT} {{rows}} AND {ORDER} > {order} AND {saw}"
        sooner = f"SELECT {listed}, {WEIGHT} {{rows}} AND {ORDER} <= {order} AND NOT {saw}"
        rows = f"FROM {live.ref.as_of(log.version())} WHERE {ORDER} > {since}"
        both = f"{later} UNION ALL {sooner}".format(rows=rows)
        query = f"SELECT {listed}, sum({WEIGHT}) AS {WEIGHT} FROM ({both}) GROUP BY {listed} HAVING sum({WEIGHT}) <> 0"
        return self.session.sql(query).toArrow()

    def compensated(self, live: LiveTable, frame: DataFrame, wrong: pa.Table, *, whole: bool) -> DataFrame:
        """What is taken out was read, unless only some keys were: then it may be of another one."""
        schema = StructType([*frame.schema.fields, StructField(WEIGHT, LongType(), True)])
        names = [f"__deltaic_w{n}" for n in range(len(schema.fields))]
        other = arrow_to_spark(self.session, wrong, schema).toDF(*names)
        pairs = zip(frame.columns, names, strict=False)
        same = reduce(lambda one, two: one & two, (frame[quote(a)].eqNullSafe(other[b]) for a, b in pairs))
        untouched = frame.join(sf.broadcast(other), same, "left_anti")
        touched = frame.join(sf.broadcast(other), same, "left_semi").withColumn(WEIGHT, sf.lit(1))
        both = touched.union(other).groupBy(*map(quote, frame.columns)).agg(sf.sum(WEIGHT).alias(WEIGHT))
        mismatch = text_literal(f"{live.key}: rows that were read differ from what was captured of them")
        below = f"raise_error({mismatch})" if whole else "0"
        count = f"CAST(CASE WHEN {WEIGHT} < 0 THEN {below} ELSE {WEIGHT} END AS INT)"
        copies = sf.explode(sf.expr(f"array_repeat(0, {count})"))
        left = both.withColumn("__deltaic_copy", copies).select(*map(quote, frame.columns))
        return untouched.unionByName(left)

    def name_all(self, columns: Mapping[str, tuple[LiveTable, Sequence[str]]], reads: Mapping[str, SourceRead]) -> None:
        """The new states of all live sources, for a query over all of a view."""
        for key, (live, names) in columns.items():
            self.frame(live, reads[key].new, names).createOrReplaceTempView(live.relation)
