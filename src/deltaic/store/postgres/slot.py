"""Capturing by logical decoding: a replication slot and a publication of our own.

The slot is read by SQL (`pg_logical_slot_peek_binary_changes`), which gives whole transactions in the order of their
commits and moves nothing; it is moved on by itself once the log is committed. It is never confirmed beyond what a
commit of the log says, so a slot that is ahead of the log is another slot, or somebody else has moved it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltaic.algebra.quoting import double_quoted
from deltaic.errors import CaptureLost, ConcurrentRefresh, ExistsError, SourceError
from deltaic.store.postgres import pgoutput
from deltaic.store.postgres.captured_log import CapturedLog, CapturePoint, PendingRows, broken, since_1970
from deltaic.store.postgres.pgoutput import Begin, Commit, Relation, RowChange, Truncation
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.server import Server, driver, problems_of
from deltaic.store.postgres.snapshot import lsn_number, lsn_text, whole_xid
from deltaic.store.postgres.table import Described, PostgresTable, Retry, connect
from deltaic.store.table import first_line

if TYPE_CHECKING:
    from deltaic.store.postgres.server import Connection

QUIET = 16 << 20
"""Bytes of the write-ahead log without a change of ours after which the log says so in a commit of no rows: the
server keeps what the slot has not confirmed."""

_FETCH = 5_000
_PEEK = "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"


def slot_lag(server: Server, name: str, retry: Retry) -> tuple[int | None, str | None]:
    """How many bytes of its write-ahead log a server keeps for a slot, and the slot's status; None if it is gone."""
    query = (
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8, wal_status "
        "FROM pg_replication_slots WHERE slot_name = %s"
    )
    with problems_of(server), connect(server, retry) as connection:
        row = connection.execute(query, (name,)).fetchone()
    return (row[0], row[1]) if row else (None, None)


@dataclass(frozen=True)
class SlotWay:
    """The slot `name` over the publication `name`."""

    name: str
    tables: tuple[PostgresTable, ...]

    # --- making it ----------------------------------------------------------------------------------

    def prepare(self, connection: Connection, described: Sequence[Described], set_identity: bool) -> None:
        """Everything but the slot: the publication, and old rows in the write-ahead log."""
        for table, found in zip(self.tables, described, strict=True):
            _refuse(table, found)
            if not found.full_identity:
                _full_identity(connection, table, set_identity)
        listed = ", ".join(f"ONLY {table.relation}" for table in self.tables)
        statement = f"CREATE PUBLICATION {double_quoted(self.name)} FOR TABLE {listed}"
        try:
            connection.execute(statement.encode())
        except driver().errors.DuplicateObject:
            pass  # the owner's, for a user who may not make one; `identity` looks at it
        except driver().errors.InsufficientPrivilege as error:
            what = f"{self.tables[0].server.user} may not make a publication: {first_line(error)}"
            raise SourceError(what, hint=f"Have the tables' owner run: {statement}") from error

    def start(self, connection: Connection, read: LiveRead, retry: Retry) -> int:
        """Make the slot. `read` becomes the state from which its changes start, exactly; where that is."""
        command = f"CREATE_REPLICATION_SLOT {self.name} LOGICAL pgoutput EXPORT_SNAPSHOT"
        with connect(read.server, retry, replication=True) as walsender:
            result = walsender.pgconn.exec_(command.encode())
            if result.status != driver().pq.ExecStatus.TUPLES_OK:
                raise self._not_made(
                    result.get_error_message(), result.error_field(driver().pq.DiagnosticField.SQLSTATE)
                )
            point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
            assert point is not None
            assert snapshot is not None
            read.frozen(snapshot.decode())  # before its connection ends, and with it the exported snapshot
        return lsn_number(point.decode())

    def _not_made(self, message: str, state: bytes | None) -> Exception:
        what = f"the slot {self.name} could not be made: {message.strip()}"
        if state == b"42710":
            return ExistsError(what, hint="Another capture may use it. Drop it, or give this capture another name.")
        if state == b"55P03":
            return SourceError(
                what, hint="It waits for all transactions that were writing, and one did not end; try again."
            )
        return SourceError(what, hint="Logical decoding needs wal_level = logical, the REPLICATION attribute of the "
                           "user and a free slot (max_replication_slots); else capture by triggers.")  # fmt: skip

    def drop(self, connection: Connection) -> None:
        query = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        try:
            connection.execute(query, (self.name,))
        except driver().errors.ObjectInUse as error:
            raise ConcurrentRefresh(f"the slot {self.name} is in use: {first_line(error)}") from error
        with suppress(driver().errors.InsufficientPrivilege):  # then its owner made it
            connection.execute(f"DROP PUBLICATION IF EXISTS {double_quoted(self.name)}".encode())

    # --- is it still the same -----------------------------------------------------------------------

    def identity(self, connection: Connection, oid: int) -> dict[str, Any]:
        """What must stay as it is for no change to be missed: a table that leaves a publication and comes back has
        another entry there."""
        query = (
            "SELECT p.oid::int8, r.oid::int8, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, "
            "to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs' "
            "FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid "
            "WHERE p.pubname = %s AND r.prrelid = %s"
        )
        row = connection.execute(query, (self.name, oid)).fetchone()
        if row is None:
            raise CaptureLost(f"the publication {self.name} is gone, or no longer has its table")
        if not row[2] or row[3] is not None or row[4] is not None:
            raise CaptureLost(f"the publication {self.name} does not publish all changes of all rows and columns")
        return {"way": "slot", "slot": self.name, "publication": [row[0], row[1]]}

    def _check_slot(self, connection: Connection, rows: Sequence[PendingRows], marks: Sequence[CapturePoint]) -> None:
        query = "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s"
        row = connection.execute(query, (self.name,)).fetchone()
        if row is None:
            raise CaptureLost(f"the replication slot {self.name} is gone")
        if row[1] == "lost" or row[0] is None:
            hint = "It was behind by more than max_slot_wal_keep_size. Start the capture anew (restart) and recompute."
            raise CaptureLost(f"the replication slot {self.name} was invalidated", hint=hint)
        if lsn_number(row[0]) <= min(mark.lsn for mark in marks):
            return
        # The marks were read before: they may be old by now, but never behind the slot.
        if lsn_number(row[0]) <= min(pending.log.newest().lsn for pending in rows):
            raise ConcurrentRefresh(f"another capture moved the replication slot {self.name} on")
        raise CaptureLost(f"the replication slot {self.name} was moved or made anew by something else")

    # --- a batch ------------------------------------------------------------------------------------

    def fill(
        self, connection: Connection, oids: Sequence[int], rows: Sequence[PendingRows], marks: Sequence[CapturePoint],
        limit: int,
    ) -> list[CapturePoint]:  # fmt: skip
        """Put what was committed since into `rows`; the marks to commit with them."""
        self._check_slot(connection, rows, marks)
        row = connection.execute(
            "SELECT pg_current_wal_flush_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text::int8"
        ).fetchone()
        assert row is not None
        batch = _Batch(dict(zip(oids, range(len(oids)), strict=True)), rows, list(marks), row[1])
        count = 0
        with self._problems_named():
            for data in self._messages(connection, row[0], limit):
                batch.take(pgoutput.parse(data))
                count += 1
        # Where the limit did not end it, everything up to the position asked for was decoded.
        complete = count < limit
        return batch.marks_at(lsn_number(row[0]) if complete else batch.end, complete)

    def _messages(self, connection: Connection, upto: str, limit: int) -> Iterator[bytes]:
        with connection.transaction(), connection.cursor("deltaic_changes") as cursor:
            cursor.itersize = _FETCH
            cursor.execute(f"SELECT data FROM {_PEEK}".encode(), (self.name, upto, limit, double_quoted(self.name)))
            for (data,) in cursor:
                yield data

    @contextmanager
    def _problems_named(self) -> Iterator[None]:
        errors = driver().errors
        try:
            yield
        except (errors.UndefinedObject, errors.ObjectNotInPrerequisiteState) as error:
            raise CaptureLost(f"the replication slot {self.name} has no more changes: {first_line(error)}") from error
        except errors.ObjectInUse as error:
            what = f"another capture reads the replication slot {self.name}: {first_line(error)}"
            raise ConcurrentRefresh(what) from error

    def worth(self, old: CapturePoint, new: CapturePoint) -> bool:
        """Whether a mark is worth a commit of no rows."""
        return new.lsn - old.lsn >= QUIET

    def confirm(self, connection: Connection, marks: Sequence[CapturePoint]) -> None:
        """Let the server forget what every log has."""
        query = (
            "SELECT pg_replication_slot_advance(slot_name, %(lsn)s::pg_lsn) FROM pg_replication_slots "
            "WHERE slot_name = %(name)s AND confirmed_flush_lsn < %(lsn)s::pg_lsn"
        )
        # Of two captures the other may have confirmed more.
        with self._problems_named(), suppress(driver().errors.InvalidParameterValue):
            connection.execute(query, {"name": self.name, "lsn": lsn_text(min(mark.lsn for mark in marks))})


class _Batch:
    """Messages become rows. What a log has already, from a batch that was committed but not confirmed, is dropped."""

    def __init__(
        self, places: dict[int, int], rows: Sequence[PendingRows], marks: list[CapturePoint], near: int
    ) -> None:
        self._places, self._rows, self._marks, self._near = places, rows, marks, near
        self._relations: dict[int, tuple[Relation, tuple[int, ...]]] = {}
        self._begin = Begin(0, 0, 0)
        self._xid = 0
        self.end = 0

    def take(self, message: pgoutput.Message | None) -> None:
        match message:
            case Begin():
                self._begin, self._xid = message, whole_xid(message.xid, self._near)
            case Commit():
                self.end = message.end
            case Relation():
                self._relation(message)
            case RowChange():
                self._row(message)
            case Truncation():
                for oid in message.oids:
                    if oid in self._places and self._wanted(self._places[oid]):
                        self._truncated(self._places[oid])

    def marks_at(self, lsn: int, complete: bool) -> list[CapturePoint]:
        return [
            replace(mark, number=mark.number + 1, lsn=max(lsn, mark.lsn), complete=complete) for mark in self._marks
        ]

    def _wanted(self, place: int) -> bool:
        """Of the transactions after the log's position, those that the state it starts from did not see."""
        mark = self._marks[place]
        return self._begin.lsn >= mark.lsn and mark.broken is None and not mark.start.saw(self._xid)

    def _relation(self, relation: Relation) -> None:
        place = self._places.get(relation.oid)
        if place is None:
            return
        names = [column.name for column in self._rows[place].log.columns]
        missing = [name for name in names if name not in relation.columns]
        if not missing:
            self._relations[relation.oid] = relation, tuple(relation.columns.index(name) for name in names)
        elif self._wanted(place):
            what = f"{relation.name} was without its column {', '.join(missing)} for a while"
            self._marks[place] = broken(self._marks[place], CaptureLost(what, reason="SOURCE_SCHEMA"))

    def _row(self, change: RowChange) -> None:
        place = self._places.get(change.oid)
        if place is None or not self._wanted(place):
            return
        relation, indexes = self._relations[change.oid]
        if not (change.whole and relation.full):
            what = f"{relation.name} was without REPLICA IDENTITY FULL, so old rows are not known"
            self._marks[place] = broken(self._marks[place], CaptureLost(what))
            return
        for values, weight in ((change.old, -1), (change.new, 1)):
            if values is not None:
                chosen = tuple(values[index] for index in indexes)
                self._rows[place].add(chosen, weight, self._begin.lsn, self._xid, since_1970(self._begin.at))
        self._marks[place] = replace(self._marks[place], order=self._begin.lsn)

    def _truncated(self, place: int) -> None:
        log: CapturedLog = self._rows[place].log
        what = f"{log.table} was truncated by transaction {self._xid}, at {lsn_text(self._begin.lsn)}"
        self._marks[place] = broken(self._marks[place], CaptureLost(what, reason="SOURCE_TRUNCATED"))


def _refuse(table: PostgresTable, found: Described) -> None:
    if not found.logged:
        what = f"{table} is not in the write-ahead log (UNLOGGED or TEMPORARY)"
        raise SourceError(what, hint=f"ALTER TABLE {table.relation} SET LOGGED, or capture it by triggers.")
    computed = [column.name for column in found.columns if column.generated]
    if computed:
        what = f"{table}: logical decoding leaves out generated columns ({', '.join(computed)})"
        raise SourceError(what, hint="Name the columns to use (only=...), or capture it by triggers.")


def _full_identity(connection: Connection, table: PostgresTable, allowed: bool) -> None:
    statement = f"ALTER TABLE ONLY {table.relation} REPLICA IDENTITY FULL"
    if not allowed:
        what = f"{table}: the write-ahead log does not have its old rows"
        raise SourceError(what, hint=f"Run: {statement}")
    try:
        connection.execute(statement.encode())
    except driver().errors.InsufficientPrivilege as error:
        what = f"{table}: the write-ahead log does not have its old rows, and {first_line(error)}"
        raise SourceError(what, hint=f"Have its owner run: {statement}") from error
