"""The captured log of one live table: a Delta table that only grows, whose commits say how far capture has come.

Rows are the table's, with a weight (an update is a -1 and a +1), the order and the time of the commit they are from,
and its transaction id. Rows and progress are one commit, so a capture that is killed at any instant goes on from what
is written. Whole transactions only.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError

from deltaic.algebra.nodes import WEIGHT
from deltaic.errors import CaptureLost, ConcurrentRefresh, ExistsError
from deltaic.store import rs_write
from deltaic.store.commit import MARKER
from deltaic.store.log import Log, last_commit_with_marker
from deltaic.store.postgres.snapshot import Visibility
from deltaic.store.postgres.types import Column, to_arrow
from deltaic.store.state import read_state_rs
from deltaic.store.table import table_at

ORDER = "__deltaic_order"
"""Of the commit that a row is from: its position in the write-ahead log, or a number counted by the capture."""
XID = "__deltaic_xid"
COMMITTED = "__deltaic_committed"

_OWN = [(WEIGHT, pa.int64()), (ORDER, pa.int64()), (XID, pa.int64()), (COMMITTED, pa.timestamp("us", tz="UTC"))]
_ROWS = 50_000
_IN_MEMORY = 64 << 20
_EPOCH_2000 = 946_684_800_000_000


@dataclass(frozen=True)
class CapturePoint:
    """How far a captured log has come; part of each of its commits.

    The law: the table's state at `start`, plus the rows of order above `since`, is its state at the mark.

    `number` counts the commits. `lsn` (logical decoding): every transaction whose commit record ends at or before it
    is in the log. `seen` (triggers): every transaction that it saw is, and those of `xids`. It is not `complete`
    while more of them wait. `broken` says why the log cannot go on, until it is started anew; `lost` then says why
    that was. Rows up to the order `pruned` are gone, since every reader has passed them.
    """

    number: int
    order: int
    start: Visibility
    since: int
    identity: Mapping[str, Any]
    lsn: int = 0
    seen: Visibility | None = None
    xids: tuple[int, ...] = ()
    complete: bool = True
    broken: Mapping[str, str] | None = None
    pruned: int = 0
    lost: Mapping[str, str] | None = None

    @property
    def begins(self) -> int:
        """Changes of this order and before are not to be had: they were never captured, or were pruned."""
        return max(self.since, self.pruned)

    def has(self, xid: int) -> bool:
        """Whether a transaction that a trigger log holds is in this log, or in the state that it starts from."""
        return self.start.saw(xid) or xid in self.xids or (self.seen is not None and self.seen.saw(xid))

    def to_json(self) -> str:
        texts = {"start": str(self.start), "seen": self.seen and str(self.seen)}
        values = {**self.__dict__, **texts}
        return json.dumps({MARKER: {"capture": values}}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> CapturePoint:
        values = dict(recorded)
        values["start"] = Visibility.parse(values["start"])
        values["seen"] = Visibility.parse(values["seen"]) if values["seen"] else None
        values["xids"] = tuple(values["xids"])
        return cls(**values)


@dataclass(frozen=True)
class CapturedLog:
    """The Delta table at `path`."""

    path: str
    columns: tuple[Column, ...] = field(compare=False)
    table: str = ""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*(column.field for column in self.columns), *(pa.field(*own) for own in _OWN)])

    @property
    def exists(self) -> bool:
        return (Path(self.path) / "_delta_log").is_dir()

    def create(self, mark: CapturePoint) -> None:
        """The empty log, in one commit with its first mark."""
        if self.exists:
            raise ExistsError(f"{self.path} is a Delta table already", hint="Start the capture in another folder.")
        deltalake.DeltaTable.create(
            Path(self.path).as_uri(),
            schema=deltalake.Schema.from_arrow(self.schema),
            commit_properties=self._transaction(mark).properties(),
        )

    def newest(self) -> CapturePoint:
        """The mark of the newest commit."""
        if not self.exists:
            raise CaptureLost(f"{self.path}: the log of captured changes is gone")
        found = last_commit_with_marker(Log(table_at(self.path)))
        recorded = None if found is None or found.harmed else (found.commit.marker or {}).get("capture")
        if recorded is None:
            raise CaptureLost(f"{self.path} was written by something else than the capture")
        return CapturePoint.of(recorded)

    def append(self, mark: CapturePoint, rows: pa.RecordBatchReader | None = None) -> None:
        """Rows, if there are any, and the mark, in one commit; of two captures with one number one fails."""
        try:
            if rows is None:
                rs_write.commit_nothing(self.path, self._transaction(mark))
            else:
                rs_write.append(self.path, rows, self._transaction(mark))
        except CommitFailedError as error:
            raise ConcurrentRefresh(f"another capture wrote commit {mark.number} of {self.path} first") from error

    def prune(self, upto: int, seen: Visibility) -> None:
        """Forget the rows up to an order that every reader has passed. Reads to come are later than `seen`: they see
        what it saw, and need no row to correct them for that."""
        mark, log = self.newest(), Log(table_at(self.path))
        rows = read_state_rs(log.ref, log.version(), {ORDER: ORDER, XID: XID})
        unseen = pc.and_(pc.greater(rows[ORDER], mark.since), pc.invert(seen.mask(rows[XID])))
        first = pc.min(rows[ORDER].filter(unseen)).as_py()
        upto = upto if first is None else min(upto, first - 1)
        if upto > mark.begins:
            pruned = self._transaction(replace(mark, number=mark.number + 1, pruned=upto))
            rs_write.delete(self.path, f"{ORDER} <= {upto}", pruned)

    def matches(self, columns: Sequence[Column]) -> bool:
        """Whether a table's columns now are the ones that are logged; more of them do no harm."""
        now = {column.name: (column.base, column.spark) for column in columns}
        return all(now.get(column.name) == (column.base, column.spark) for column in self.columns)

    def _transaction(self, mark: CapturePoint) -> rs_write.Transaction:
        return rs_write.Transaction("deltaic-capture", mark.number, mark.to_json())


def broken(mark: CapturePoint, error: CaptureLost) -> CapturePoint:
    return replace(mark, broken=told(error))


def told(error: CaptureLost) -> dict[str, str]:
    return {"reason": error.reason, "detail": error.what}


def raise_if_broken(mark: CapturePoint) -> None:
    if mark.broken is not None:
        raise CaptureLost(mark.broken["detail"], reason=mark.broken["reason"])


class PendingRows:
    """The rows of one batch for one log, out of PostgreSQL's texts. A large batch goes to a file as it grows."""

    def __init__(self, log: CapturedLog) -> None:
        self.log, self.count = log, 0
        self._texts: list[tuple[str | None, ...]] = []
        self._own: list[tuple[int, int, int, int]] = []
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 (close() is below)
        self._writer = pa.ipc.new_stream(self._file, log.schema)

    def add(self, values: tuple[str | None, ...], weight: int, order: int, xid: int, at: int) -> None:
        """`at` in microseconds since 1970."""
        self._texts.append(values)
        self._own.append((weight, order, xid, at))
        self.count += 1
        if len(self._own) >= _ROWS:
            self._spill()

    def _spill(self) -> None:
        if not self._own:
            return
        columns = zip(self.log.columns, zip(*self._texts, strict=True), strict=True)
        arrays = [to_arrow(self.log.table, column, texts) for column, texts in columns]
        own = [pa.array(values, pa.int64()) for values in zip(*self._own, strict=True)]
        cast = [array.cast(kind) for array, (_, kind) in zip(own, _OWN, strict=True)]
        self._writer.write_batch(pa.record_batch([*arrays, *cast], schema=self.log.schema))
        self._texts.clear()
        self._own.clear()

    def reader(self) -> pa.RecordBatchReader | None:
        """Everything added, to be read once; None if there is nothing."""
        self._spill()
        self._writer.close()
        if not self.count:
            return None
        self._file.seek(0)
        return pa.ipc.open_stream(self._file)

    def close(self) -> None:
        self._file.close()


def since_1970(micros_since_2000: int) -> int:
    return micros_since_2000 + _EPOCH_2000
