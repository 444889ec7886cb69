"""Which transactions a snapshot of PostgreSQL saw, and positions in its write-ahead log."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_SHORT_HEADER, _LONG_HEADER = 24, 40


@dataclass(frozen=True)
class Visibility:
    """What `pg_current_snapshot()` says, in 64-bit transaction ids.

    Of the transactions that committed, it saw those below `xmax` except the `running` ones, all of which are at or
    above `xmin`. Ids are those of whole transactions: a subtransaction's rows carry its parent's.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Visibility:
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(xid) for xid in running.split(",") if xid))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}"

    def saw(self, xid: int) -> bool:
        return xid < self.xmin or (xid < self.xmax and xid not in self.running)

    def covers(self, other: Visibility) -> bool:
        """Whether it saw every transaction that the other did."""
        return self.xmax >= other.xmax and not any(other.saw(xid) for xid in self.running)

    def condition(self, column: str) -> str:
        """`saw` as SQL (PostgreSQL's, Spark's or delta-rs') about a BIGINT column."""
        if not self.running:
            return f"({column} < {self.xmax})"
        return f"({column} < {self.xmax} AND {column} NOT IN ({', '.join(map(str, self.running))}))"

    def mask(self, xids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """`saw` for a column of transaction ids."""
        running = pc.is_in(xids, value_set=pa.array(self.running, pa.int64()))
        return pc.and_not(pc.less(xids, self.xmax), running)


def lsn_number(text: str) -> int:
    """A position in the write-ahead log as a number: PostgreSQL writes its halves in hexadecimal."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def end_of_records(lsn: int, page: int, segment: int) -> int:
    """The end of the last record before an insert position.

    At the end of a page the insert position is past the header of the next one, which is not written before the next
    record is: nobody who waits for the log to reach it would ever see that on a quiet server.
    """
    header = _LONG_HEADER if lsn % segment < page else _SHORT_HEADER
    return lsn - header if lsn % page == header else lsn


def whole_xid(short: int, near: int) -> int:
    """The 64-bit id of a 32-bit one, given an id near to it.

    PostgreSQL never has two transactions in use that are 2^31 apart, and a slot keeps those it needs in use.
    """
    return near + ((short - near + 2**31) % 2**32) - 2**31
