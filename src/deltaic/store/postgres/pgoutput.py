"""The messages of pgoutput, PostgreSQL's own logical decoding, version 1 with values as texts.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

UNCHANGED = "\0"
"""A large value that an update left as it was and does not repeat; no text of PostgreSQL has this character."""

Values: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True)
class Begin:
    """A transaction that committed; `lsn` is where its commit record begins. `at` is in microseconds since 2000."""

    lsn: int
    at: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """`end` is where the commit record ends."""

    end: int


@dataclass(frozen=True)
class Relation:
    """A table as it was when the rows after this were written."""

    oid: int
    name: str
    full: bool
    columns: tuple[str, ...]
    types: tuple[int, ...]


@dataclass(frozen=True)
class RowChange:
    """`old` is None for an insertion, `new` for a deletion. `whole` is false if only a key of the old row is known,
    or nothing of it."""

    oid: int
    old: Values | None
    new: Values | None
    whole: bool = True


@dataclass(frozen=True)
class Truncation:
    oids: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | RowChange | Truncation


class _Bytes:
    """A message, read from left to right."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 1

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def char(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def row(self) -> Values:
        (count,) = self.take("!H")
        return tuple(self._value() for _ in range(count))

    def _value(self) -> str | None:
        kind = self.char()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind != "t":
            raise ValueError(f"pgoutput: a value of kind {kind!r}")
        (length,) = self.take("!I")
        self._at += length
        return self._data[self._at - length : self._at].decode()


def parse(data: bytes) -> Message | None:
    """One message; None for those that say nothing of rows (origins, types)."""
    kind, rest = chr(data[0]), _Bytes(data)
    if kind == "B":
        lsn, at, xid = rest.take("!QqI")
        return Begin(lsn, at, xid)
    if kind == "C":
        _, _, end, _ = rest.take("!BQQq")
        return Commit(end)
    if kind == "R":
        return _relation(rest)
    if kind == "I":
        (oid,) = rest.take("!I")
        rest.char()
        return RowChange(oid, None, rest.row())
    if kind == "U":
        return _update(rest)
    if kind == "D":
        (oid,) = rest.take("!I")
        whole = rest.char() == "O"
        return RowChange(oid, rest.row(), None, whole)
    if kind == "T":
        count, _ = rest.take("!IB")
        return Truncation(rest.take(f"!{count}I"))
    if kind in "OYM":
        return None
    raise ValueError(f"pgoutput: a message of kind {kind!r}")


def _relation(rest: _Bytes) -> Relation:
    (oid,) = rest.take("!I")
    schema, name, identity = rest.text(), rest.text(), rest.char()
    columns, types = [], []
    for _ in range(rest.take("!H")[0]):
        rest.take("!B")
        columns.append(rest.text())
        kind, _ = rest.take("!Ii")
        types.append(kind)
    return Relation(oid, f"{schema}.{name}", identity == "f", tuple(columns), tuple(types))


def _update(rest: _Bytes) -> RowChange:
    (oid,) = rest.take("!I")
    kind = rest.char()
    if kind == "N":
        return RowChange(oid, None, rest.row(), whole=False)
    old = rest.row()
    rest.char()
    new = rest.row()
    if kind == "O":
        new = tuple(_same_if_unchanged(new, old))
    return RowChange(oid, old, new, kind == "O")


def _same_if_unchanged(new: Values, old: Values) -> Iterator[str | None]:
    return (before if after == UNCHANGED else after for after, before in zip(new, old, strict=True))
