"""Capturing by triggers, where logical decoding is not allowed: a table beside each one holds its changes.

Every change becomes rows of texts, with the id of its transaction and a number out of a sequence. A batch is what one
snapshot sees of them: transactions that are finished, and never a part of one. Once the log has them they are deleted.

The order of commits is known only where the server keeps their times (`track_commit_timestamp`); then that is the
order inside a batch. Else transactions go by the last number they drew. If one changed or needed a row that another
wrote, it did so after the other's end, so it drew its last number later: applied in this order every row is there
when it is deleted, though of two transactions that have nothing to do with each other either may come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltaic.algebra.quoting import double_quoted
from deltaic.errors import CaptureLost, SourceError
from deltaic.store.postgres.captured_log import CapturePoint, PendingRows, broken
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.server import driver
from deltaic.store.postgres.snapshot import Visibility
from deltaic.store.postgres.table import Described, PostgresTable, Retry
from deltaic.store.table import first_line

if TYPE_CHECKING:
    from deltaic.store.postgres.server import Connection

_FETCH = 5_000
_XIDS = 10_000
"""A batch that is a part of what waits names its transactions in its commit: not more than these."""

# Texts are written one way whatever the writer's session has set; the writer needs no right to the log.
_FUNCTION = """
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO' SET timezone = 'UTC' SET bytea_output = 'hex'
SET extra_float_digits = 3 AS $deltaic$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        INSERT INTO {log} (weight) VALUES (0);
    END IF;
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
        INSERT INTO {log} (weight, texts) VALUES (-1, ARRAY[{old}]);
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        INSERT INTO {log} (weight, texts) VALUES (1, ARRAY[{new}]);
    END IF;
    RETURN NULL;
END $deltaic$
"""
_LOG = """
CREATE TABLE {log} (
    number bigint GENERATED ALWAYS AS IDENTITY (CACHE 1), xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(), weight smallint NOT NULL, texts text[]
)
"""


@dataclass(frozen=True)
class TriggerWay:
    """Triggers named `name` on each table, and logs named `name`_<oid> beside them."""

    name: str
    tables: tuple[PostgresTable, ...]

    # --- making it ----------------------------------------------------------------------------------

    def prepare(self, connection: Connection, described: Sequence[Described], set_identity: bool) -> None:
        """The triggers. Making one waits for all who are writing the table: who writes later is captured."""
        for table, found in zip(self.tables, described, strict=True):
            self._make(connection, table, found)

    def _make(self, connection: Connection, table: PostgresTable, found: Described) -> None:
        try:
            with connection.transaction():
                for statement in self._statements(table, found):
                    connection.execute(statement.encode())
        except driver().errors.InsufficientPrivilege as error:
            what = f"{table.server.user} may not make triggers on {table}: {first_line(error)}"
            hint = f"It needs to own the table, and CREATE on the schema {double_quoted(table.schema)}."
            raise SourceError(what, hint=hint) from error

    def _statements(self, table: PostgresTable, found: Described) -> Iterator[str]:
        log, trigger = self._log(table, found.oid), double_quoted(self.name)
        rows, emptied, guard = trigger, double_quoted(f"{self.name}_truncate"), double_quoted(f"{self.name}_guard")
        yield _LOG.format(log=log)
        old, new = (", ".join(column.text(f"{row}.") for column in found.columns) for row in ("OLD", "NEW"))
        yield _FUNCTION.format(function=log, log=log, old=old, new=new)
        call = f"EXECUTE FUNCTION {log}()"
        yield f"CREATE TRIGGER {rows} AFTER INSERT OR UPDATE OR DELETE ON {table.relation} FOR EACH ROW {call}"
        yield f"CREATE TRIGGER {emptied} AFTER TRUNCATE ON {table.relation} FOR EACH STATEMENT {call}"
        # This one never fires. It makes PostgreSQL refuse to drop or retype a column that the function reads,
        # instead of failing every write after that.
        used = ", ".join(double_quoted(column.name) for column in found.columns)
        yield (f"CREATE TRIGGER {guard} AFTER UPDATE OF {used} ON {table.relation} FOR EACH ROW WHEN (false) {call}")
        for name in (rows, emptied):
            yield f"ALTER TABLE {table.relation} ENABLE ALWAYS TRIGGER {name}"

    def start(self, connection: Connection, read: LiveRead, retry: Retry) -> int:
        """Any state after the triggers were made will do: what it saw is dropped from the logs."""
        read.frozen()
        return 0

    def drop(self, connection: Connection) -> None:
        query = (
            "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE t.tgname = %s AND c.oid = %s::regclass"
        )
        for table in self.tables:
            oid = connection.execute("SELECT to_regclass(%s)::oid::int8", (table.relation,)).fetchone()
            if oid is None or oid[0] is None:
                continue
            for suffix in ("", "_truncate", "_guard"):
                for (relation,) in connection.execute(query, (self.name + suffix, table.relation)).fetchall():
                    statement = f"DROP TRIGGER {double_quoted(self.name + suffix)} ON {relation}"
                    connection.execute(statement.encode())
            connection.execute(f"DROP FUNCTION IF EXISTS {self._log(table, oid[0])}()".encode())
            connection.execute(f"DROP TABLE IF EXISTS {self._log(table, oid[0])}".encode())

    def _log(self, table: PostgresTable, oid: int) -> str:
        return f"{double_quoted(table.schema)}.{double_quoted(f'{self.name}_{oid}')}"

    # --- is it still the same -----------------------------------------------------------------------

    def identity(self, connection: Connection, oid: int) -> dict[str, Any]:
        query = (
            "SELECT array_agg(oid::int8 ORDER BY tgname), count(*) FILTER (WHERE tgenabled = 'A') "
            "FROM pg_trigger WHERE tgrelid = %s AND tgname = ANY(%s)"
        )
        row = connection.execute(query, (oid, [self.name, f"{self.name}_truncate"])).fetchone()
        log = connection.execute(
            "SELECT c.oid::int8 FROM pg_class c JOIN pg_class t ON t.relnamespace = c.relnamespace "
            "WHERE t.oid = %s AND c.relname = %s", (oid, f"{self.name}_{oid}"),
        ).fetchone()  # fmt: skip
        if row is None or row[0] is None or len(row[0]) != 2 or log is None:
            raise CaptureLost(f"the triggers {self.name}, or the table they write to, are gone")
        if row[1] != 2:
            raise CaptureLost(f"the triggers {self.name} were disabled")
        return {"way": "triggers", "name": self.name, "triggers": row[0], "log": log[0]}

    # --- a batch ------------------------------------------------------------------------------------

    def fill(
        self, connection: Connection, oids: Sequence[int], rows: Sequence[PendingRows], marks: Sequence[CapturePoint],
        limit: int,
    ) -> list[CapturePoint]:  # fmt: skip
        """Put what is finished into `rows`; the marks to commit with them. One snapshot for all tables."""
        self.confirm(connection, marks)  # what a killed capture may have left
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            row = connection.execute(
                "SELECT pg_current_snapshot()::text, current_setting('track_commit_timestamp')::bool"
            ).fetchone()
            assert row is not None
            seen, timed = Visibility.parse(row[0]), row[1]
            order = max(mark.order for mark in marks)
            return [
                self._one(connection, self._log(table, oid), pending, replace(mark, order=order), seen, timed, limit)
                for table, oid, pending, mark in zip(self.tables, oids, rows, marks, strict=True)
            ]
        finally:
            connection.execute("ROLLBACK")

    def _one(
        self, connection: Connection, log: str, rows: PendingRows, mark: CapturePoint, seen: Visibility, timed: bool,
        limit: int,
    ) -> CapturePoint:  # fmt: skip
        xids: list[int] = []
        order = mark.order
        new = replace(mark, number=mark.number + 1, seen=seen, xids=(), complete=True)
        with connection.cursor("deltaic_changes") as cursor:
            cursor.itersize = _FETCH
            cursor.execute(_query(log, timed).encode())
            for xid, at, weight, texts in cursor:
                if mark.has(xid):
                    continue
                if not xids or xids[-1] != xid:
                    if rows.count >= limit or len(xids) >= _XIDS:
                        return replace(new, seen=mark.seen, xids=tuple(xids), complete=False, order=order)
                    xids.append(xid)
                    order += 1
                if weight == 0:
                    what = f"{rows.log.table} was truncated by transaction {xid}"
                    lost = CaptureLost(what, reason="SOURCE_TRUNCATED")
                    return replace(broken(new, lost), order=order - 1)
                rows.add(tuple(texts), weight, order, xid, at)
        return replace(new, order=order)

    def worth(self, old: CapturePoint, new: CapturePoint) -> bool:
        """An old mark stays true; it needs no successor before there are rows."""
        return False

    def confirm(self, connection: Connection, marks: Sequence[CapturePoint]) -> None:
        """Delete what the logs have."""
        for table, mark in zip(self.tables, marks, strict=True):
            log = self._log(table, mark.identity["table"])
            done = [mark.start if mark.seen is None else mark.seen, mark.start]
            query = (
                f"DELETE FROM {log} WHERE pg_visible_in_snapshot(xid, %s::pg_snapshot) OR "
                "pg_visible_in_snapshot(xid, %s::pg_snapshot) OR xid = ANY(%s::text[]::xid8[])"
            )
            try:
                values = (str(done[0]), str(done[1]), [str(xid) for xid in mark.xids])
                connection.execute(query.encode(), values)
            except driver().errors.UndefinedTable as error:
                raise CaptureLost(f"the table of changes {log} is gone") from error


def _query(log: str, timed: bool) -> str:
    """All changes of finished transactions, transaction by transaction."""
    when = "pg_xact_commit_timestamp(xid::xid)" if timed else "NULL::timestamptz"
    return (
        f"SELECT xid::text::int8, (extract(epoch FROM coalesce(committed, last_at)) * 1000000)::int8, weight, texts "
        f"FROM (SELECT *, {when} AS committed, max(number) OVER whole AS last, max(at) OVER whole AS last_at "
        f"FROM {log} WINDOW whole AS (PARTITION BY xid)) AS changes "
        f"ORDER BY {'committed NULLS FIRST, ' if timed else ''}last, number"
    )
