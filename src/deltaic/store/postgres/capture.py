"""Capturing the changes of PostgreSQL tables into Delta logs: starting it, going on, catching up with a read.

with start_capture([(table, folder)], "deltaic_orders") as started:   # once
    rows = started.read.frame(spark, table)                           # the state the log starts from
capture = open_capture([(table, folder)])                             # in the process that captures
while True:
    capture.step()
with LiveRead(server, [table]) as read:                               # in a term that reads now
    rows = read.frame(spark, table)
capture.catch_up(read)                                                # the log now has all that it saw
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deltaic.errors import CaptureLost, DeltaicError, ExistsError, SourceAway
from deltaic.store.postgres.captured_log import CapturedLog, CapturePoint, PendingRows, raise_if_broken
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.server import problems_of, retried
from deltaic.store.postgres.start import (
    Pairs,
    Way,
    WayName,
    best_way,
    gone_on,
    log_of,
    made,
    newest_or_none,
    way_of,
    without_queueing,
)
from deltaic.store.postgres.table import PATIENT, PostgresTable, Retry, connect, describe

if TYPE_CHECKING:
    from deltaic.store.postgres.server import Connection

BATCH = 100_000
"""Changes in a batch, unless one transaction has more: a batch has whole transactions."""
_CATCH_UP_SECONDS = 60


@dataclass(frozen=True)
class Started:
    """A capture, and the state of its tables from which its logs start, readable while the block runs."""

    capture: Capture
    read: LiveRead


@contextmanager
def start_capture(
    pairs: Pairs, name: str, way: WayName | None = None, *, set_identity: bool = False
) -> Iterator[Started]:
    """Begin to capture tables of one server, each into the folder given with it.

    `name` is that of the slot and publication, or of the triggers, in PostgreSQL. Without `way` it is logical decoding
    where the server and the user's rights allow it. `set_identity` allows ALTER TABLE ... REPLICA IDENTITY FULL.
    Several tables share one slot, and one order of their transactions.
    """
    server = pairs[0][0].server
    for _, path in pairs:
        if (Path(path) / "_delta_log").exists():
            raise ExistsError(f"{path} is a Delta table already", hint="Open the capture, or give another folder.")
    with connect(server) as connection:
        chosen = way_of(way or best_way(connection), name, [table for table, _ in pairs])
        with made(connection, chosen, pairs, set_identity, PATIENT) as (read, marks, logs):
            _create(connection, chosen, read, logs, marks)
            with Capture(chosen, pairs, logs) as capture:
                yield Started(capture, read)


def _create(
    connection: Connection, way: Way, read: LiveRead, logs: Sequence[CapturedLog], marks: Sequence[CapturePoint]
) -> None:
    """All logs, or nothing of the capture."""
    try:
        for mark, log in zip(marks, logs, strict=True):
            log.create(mark)
    except BaseException:
        for log in logs:  # none was there before
            shutil.rmtree(log.path, ignore_errors=True)
        read.close()  # its locks would be in the way
        way.drop(connection)
        raise


def drop_capture(tables: Sequence[PostgresTable], name: str, way: WayName, retry: Retry = PATIENT) -> None:
    """Take what a capture has in the server out of it, also if its logs are gone or were never made."""
    server = tables[0].server
    with connect(server, retry) as connection, problems_of(server):
        without_queueing(connection, lambda: way_of(way, name, tables).drop(connection))


def open_capture(pairs: Pairs, retry: Retry = PATIENT) -> Capture:
    """The capture that was started into these folders."""
    logs = [log_of(table, path, None) for table, path in pairs]
    identity = logs[0].newest().identity
    name = identity["slot"] if identity["way"] == "slot" else identity["name"]
    return Capture(way_of(identity["way"], name, [table for table, _ in pairs]), pairs, logs, retry)


class Capture:
    """The half of a live source that runs: `step` moves its logs on. One at a time works on a log; of two, one
    fails with ConcurrentRefresh and has done nothing."""

    def __init__(self, way: Way, pairs: Pairs, logs: Sequence[CapturedLog], retry: Retry = PATIENT) -> None:
        self.way, self.logs = way, tuple(logs)
        self._pairs, self._tables, self._retry = pairs, [table for table, _ in pairs], retry
        self._connection: Connection | None = None

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def marks(self) -> list[CapturePoint]:
        """How far each log has come, by its newest commit."""
        return [log.newest() for log in self.logs]

    def step(self, limit: int = BATCH, *, note: bool = False) -> list[CapturePoint]:
        """Move on by one batch; where each log is then. `complete` marks say that nothing more was waiting.

        A log that has no new rows gets no commit, unless `note` asks for one or much was passed over. A server that
        goes away is asked again; killed or failed at any instant, the next step loses nothing and repeats nothing.
        """
        return self._patiently(lambda connection: self._step(connection, limit, note))

    def _step(self, connection: Connection, limit: int, note: bool) -> list[CapturePoint]:
        old = self.marks()
        for mark in old:
            raise_if_broken(mark)
        oids = self._same(connection, old)
        rows = [PendingRows(log) for log in self.logs]
        try:
            new = self.way.fill(connection, oids, rows, old, limit)
            kept = [self._commit(*parts, note) for parts in zip(self.logs, rows, old, new, strict=True)]
        finally:
            for pending in rows:
                pending.close()
        self.way.confirm(connection, kept)
        for mark in new:
            raise_if_broken(mark)
        return new

    def _commit(
        self, log: CapturedLog, rows: PendingRows, old: CapturePoint, new: CapturePoint, note: bool
    ) -> CapturePoint:
        """The mark that the log has after it."""
        moved = note and new != replace(old, number=new.number)
        if rows.count or new.broken or not new.complete or moved or self.way.worth(old, new):
            log.append(new, rows.reader())
            return new
        return old

    def catch_up(self, read: LiveRead) -> list[CapturePoint]:
        """Step until every log has all that the read saw, and says so in a commit."""
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            marks = self.step(note=True)
            if all(read.passed_by(mark) for mark in marks):
                return marks
            if time.monotonic() > deadline:
                raise SourceAway(
                    f"capture has not passed a read of {read.server} after {_CATCH_UP_SECONDS} s",
                    hint="It goes on where it is; try again. A slow or stuck server shows in pg_stat_activity.",
                )
            time.sleep(0.01)

    @contextmanager
    def restarted(self, why: CaptureLost | None = None, *, set_identity: bool = False) -> Iterator[LiveRead]:
        """Start anew in the same logs, after a loss: make slot or triggers again; the state that they go on from."""
        old = [newest_or_none(log) for log in self.logs]
        server = self._tables[0].server
        self.close()
        with connect(server, self._retry) as connection:
            with problems_of(server):
                without_queueing(connection, lambda: self.way.drop(connection))
            with made(connection, self.way, self._pairs, set_identity, self._retry) as (read, marks, logs):
                try:
                    for log, mark, before, now in zip(self.logs, marks, old, logs, strict=True):
                        gone_on(log, mark, before, now, why)
                except BaseException:
                    read.close()  # its locks would be in the way
                    self.way.drop(connection)  # a slot that nobody reads would keep the server's log for ever
                    raise
                yield read

    def drop(self) -> None:
        """Take slot, publication or triggers out of the server; the logs stay."""
        server = self._tables[0].server
        self.close()
        with connect(server, self._retry) as connection, problems_of(server):
            without_queueing(connection, lambda: self.way.drop(connection))

    def _same(self, connection: Connection, marks: Sequence[CapturePoint]) -> list[int]:
        """The tables' oids, if everything is what it was when the logs were started."""
        oids = []
        for table, log, mark in zip(self._tables, self.logs, marks, strict=True):
            try:
                found = describe(connection, table)
            except DeltaicError as error:
                raise CaptureLost(f"{table} is not what it was: {error.what}", reason="SOURCE_REPLACED") from error
            if found.oid != mark.identity["table"]:
                raise CaptureLost(f"{table} is another table than before", reason="SOURCE_REPLACED")
            if not log.matches(found.columns):
                raise CaptureLost(f"{table} has other columns than before", reason="SOURCE_SCHEMA")
            if {**mark.identity, **self.way.identity(connection, found.oid)} != mark.identity:
                raise CaptureLost(f"the capture {self.way.name} of {table} was made anew by something else")
            oids.append(found.oid)
        return oids

    def _patiently(self, work: Callable[[Connection], list[CapturePoint]]) -> list[CapturePoint]:
        """Do it with a connection; with a new one if that ends meanwhile."""
        server = self._tables[0].server

        def attempt() -> list[CapturePoint]:
            if self._connection is None or self._connection.closed:
                self._connection = connect(server, self._retry)
            return work(self._connection)

        with problems_of(server):
            return retried(server, self._retry, attempt, lambda _: self._connection is None or self._connection.closed)
