"""Starting to capture: slot or triggers in the server, the state they start from, and the first marks of the logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from deltaic.errors import CaptureLost, ConfigurationError, ExistsError, SourceError
from deltaic.store.postgres.captured_log import CapturedLog, CapturePoint, PendingRows, told
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.server import driver, problems_of
from deltaic.store.postgres.slot import SlotWay
from deltaic.store.postgres.table import Described, PostgresTable, Retry, describe
from deltaic.store.postgres.triggers import TriggerWay
from deltaic.store.postgres.types import Column
from deltaic.store.table import first_line

if TYPE_CHECKING:
    from deltaic.store.postgres.server import Connection

Pairs = Sequence[tuple[PostgresTable, str | Path]]
WayName = Literal["slot", "triggers"]
_LOCK_SECONDS = 20
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Way(Protocol):
    """How changes come out of the server. Each has the same parts, called in this order."""

    @property
    def name(self) -> str: ...
    def prepare(self, connection: Connection, described: Sequence[Described], set_identity: bool) -> None: ...
    def start(self, connection: Connection, read: LiveRead, retry: Retry) -> int: ...
    def identity(self, connection: Connection, oid: int) -> dict[str, Any]: ...
    def fill(
        self, connection: Connection, oids: Sequence[int], rows: Sequence[PendingRows], marks: Sequence[CapturePoint],
        limit: int,
    ) -> list[CapturePoint]: ...  # fmt: skip
    def worth(self, old: CapturePoint, new: CapturePoint) -> bool: ...
    def confirm(self, connection: Connection, marks: Sequence[CapturePoint]) -> None: ...
    def drop(self, connection: Connection) -> None: ...


def best_way(connection: Connection) -> WayName:
    query = (
        "SELECT current_setting('wal_level') = 'logical' AND EXISTS (SELECT FROM pg_roles "
        "WHERE rolname = current_user AND (rolsuper OR rolreplication))"
    )
    row = connection.execute(query).fetchone()
    return "slot" if row and row[0] else "triggers"


@contextmanager
def made(
    connection: Connection, way: Way, pairs: Pairs, set_identity: bool, retry: Retry
) -> Iterator[tuple[LiveRead, list[CapturePoint], list[CapturedLog]]]:
    """Slot or triggers, the state they start from, and the first marks. What was made goes if something fails."""
    tables = [table for table, _ in pairs]
    with problems_of(tables[0].server):
        described = [describe(connection, table) for table in tables]
    prepared = False
    read = LiveRead(tables[0].server, tables, retry)
    with closing(read):
        try:
            with problems_of(read.server):
                without_queueing(connection, lambda: way.prepare(connection, described, set_identity))
                prepared = True
                lsn = way.start(connection, read.locked(), retry)
                marks = [_first(connection, way, found, read, lsn) for found in described]
        except ExistsError:
            raise  # what is there is another capture's
        except BaseException:
            read.close()  # its locks would be in the way
            if prepared:
                way.drop(connection)
            raise
        logs = [log_of(table, path, found.columns) for (table, path), found in zip(pairs, described, strict=True)]
        yield read, marks, logs


def without_queueing(connection: Connection, work: Callable[[], None]) -> None:
    """Changing a table waits for those who use it, and everybody else then waits behind: not for long."""
    connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
    try:
        work()
    except driver().errors.LockNotAvailable as error:
        what = f"a table is in use, and could not be had within {_LOCK_SECONDS} s: {first_line(error)}"
        raise SourceError(
            what, hint="pg_stat_activity shows long transactions; try again when they are done."
        ) from error
    finally:
        connection.execute("SET lock_timeout = 0")


def _first(connection: Connection, way: Way, found: Described, read: LiveRead, lsn: int) -> CapturePoint:
    system = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    columns = [[column.name, column.base, column.spark] for column in found.columns]
    identity = {"table": found.oid, "system": system and system[0], "columns": columns}
    seen = None if isinstance(way, SlotWay) else read.visibility
    return CapturePoint(
        number=0,
        order=max(lsn - 1, 0),
        start=read.visibility,
        since=max(lsn - 1, 0),
        identity={**identity, **way.identity(connection, found.oid)},
        lsn=lsn,
        seen=seen,
    )


def gone_on(
    log: CapturedLog, mark: CapturePoint, before: CapturePoint | None, now: CapturedLog, why: CaptureLost | None
) -> None:
    """Put a new start into a log that has had one."""
    if before is None or now.schema != log.schema or (mark.seen is None and mark.order < before.order):
        raise ConfigurationError(
            f"{log.path} cannot be gone on with: it was edited, or the table's columns or its server are others",
            hint="Drop the capture and start one in another folder.",
        )
    order = max(mark.order, before.order)
    lost = before.broken or (told(why) if why else None)
    log.append(replace(mark, number=before.number + 1, order=order, since=order, lost=lost))


def newest_or_none(log: CapturedLog) -> CapturePoint | None:
    try:
        return log.newest()
    except CaptureLost:
        return None


def way_of(kind: str, name: str, tables: Sequence[PostgresTable]) -> Way:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is no name for a slot: small letters, digits and _, at most 40")
    if any(table.server != tables[0].server for table in tables):
        raise ConfigurationError("tables that are captured together are in one database")
    if kind == "slot":
        return SlotWay(name, tuple(tables))
    if len(tables) > 1:
        hint = "Start one capture for each."
        raise ConfigurationError("triggers give no common order to the transactions of several tables", hint=hint)
    return TriggerWay(name, tuple(tables))


def log_of(table: PostgresTable, path: str | Path, columns: Sequence[Column] | None) -> CapturedLog:
    """A log with its columns, which its own commits know if nobody else does."""
    absolute = str(Path(path).absolute())
    if columns is None:
        recorded = CapturedLog(absolute, (), str(table)).newest().identity["columns"]
        columns = [Column(name, base, spark, True, False) for name, base, spark in recorded]
    return CapturedLog(absolute, tuple(columns), str(table))
