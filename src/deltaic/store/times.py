"""The order of commits of all sources: the unit-of-work table of Salem et al., kept by Deltaic.

Each commit gets a number, its *time*, when it is first seen, and keeps it. Timestamps alone give no order: Spark takes
the log file's, delta-rs the one inside, and copying a table changes the former. A commit that shows up late gets a
later number, whatever its timestamp says; the timestamp that is recorded never goes back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from deltaic.errors import ConcurrentRefresh, ExistsError, HistoryGone
from deltaic.plan.program import OP
from deltaic.store.log import Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.state import read_state_rs
from deltaic.store.write_sql import create_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"time": "BIGINT", "source": "STRING", "version": "BIGINT", "stamp": "BIGINT"}
Writing = Callable[[], AbstractContextManager["SparkSession"]]
_ATTEMPTS = 5
_BEGINNING = ""
"""In the place of a source: the unit says from when on all commits are recorded."""
_ARROW = {"BIGINT": pa.int64(), "STRING": pa.string()}


@dataclass(frozen=True)
class Unit:
    """One commit: the id of its table, its version, its time, and its timestamp in milliseconds."""

    time: int
    source: str
    version: int
    stamp: int


@dataclass(frozen=True)
class Order:
    """All units, by time."""

    units: tuple[Unit, ...] = ()

    @property
    def newest(self) -> int:
        return self.units[-1].time if self.units else 0

    @property
    def begins(self) -> int:
        """Of what was before this time, only the last commit of each source is recorded."""
        return max((unit.time for unit in self.units if unit.source == _BEGINNING), default=0)

    def since(self, time: int, sources: Container[str]) -> Order:
        """Without what was before a time: of that, the last commit of each of these sources stays, so that the versions
        at the time, and at every later one, are known as before."""
        stamp = self.stamp_of(time)
        if stamp is None or time <= self.begins:
            return self
        last = {unit.source: unit for unit in self.units if unit.time <= time and unit.source in sources}
        later = (unit for unit in self.units if unit.time > time)
        beginning = Unit(time, _BEGINNING, 0, stamp)
        return Order((*sorted(last.values(), key=lambda unit: unit.time), beginning, *later))

    def versions_at(self, time: int, sources: Iterable[str]) -> dict[str, int]:
        """The version of each source at a time; without those that were first seen later."""
        found = {}
        for unit in self.units:
            if unit.time > time:
                break
            found[unit.source] = unit.version
        return {source: found[source] for source in sources if source in found}

    def time_of(self, versions: Mapping[str, int]) -> int | None:
        """The time at which the sources were at these versions; None if they never were at once."""
        times = {(unit.source, unit.version): unit.time for unit in self.units}
        if not all(pair in times for pair in versions.items()):
            return None
        time = max((times[pair] for pair in versions.items()), default=self.newest)
        return time if self.versions_at(time, versions) == dict(versions) else None

    def at_stamp(self, stamp: int) -> int:
        """The time of the newest commit at or before a timestamp; 0 if there is none."""
        place = bisect_right([unit.stamp for unit in self.units], stamp)
        return self.units[place - 1].time if place else 0

    def stamp_of(self, time: int) -> int | None:
        return next((unit.stamp for unit in reversed(self.units) if unit.time <= time), None)

    def told(self, time: int | None) -> str | None:
        """A time for people: its number and, in this machine's time zone, its timestamp."""
        stamp = None if time is None else self.stamp_of(time)
        if time is None or stamp is None:
            return None if time is None else str(time)
        return f"{time} ({datetime.fromtimestamp(stamp / 1000).astimezone().isoformat(' ', 'milliseconds')})"

    def between(self, source: str, after: int, upto: int) -> list[Unit]:
        """The commits of a source at these times."""
        return [u for u in self.units if u.source == source and after < u.time <= upto]


def numbered(order: Order, logs: Mapping[str, tuple[Log, int]]) -> list[Unit]:
    """The commits that are not in the order yet. A source that is new to it begins at the version beside its log; so
    does one that was put back from a copy, whose commits are others now."""
    newest = {unit.source: unit for unit in order.units}
    found: list[tuple[int, int, str, int]] = []
    for place, (source, (log, first)) in enumerate(logs.items()):
        known, upto = newest.get(source), log.version()
        seen = known.version if known is not None and _is_in(log, known, upto) else None
        if seen is None:
            found.append((-1, place, source, first))
            seen = first
        try:
            commits = log.commits(seen, upto) if upto > seen else []
        except HistoryGone:  # what is between is known to nobody any more: the source begins anew where it is
            found.append((-1, place, source, upto))
            commits = []
        last = -1
        for commit in commits:
            last = max(last, commit.timestamp or 0)  # a table's own commits stay in their order
            found.append((last, place, source, commit.version))
    units: list[Unit] = []
    stamp, time = (order.units[-1].stamp if order.units else 0), order.newest
    for own, _, source, version in sorted(found, key=lambda one: one[0]):
        time += 1
        stamp = max(stamp, own if own >= 0 else _stamp(logs[source][0], version))
        units.append(Unit(time, source, version, stamp))
    return units


def _is_in(log: Log, unit: Unit, newest: int) -> bool:
    """Whether the log still has a commit that was seen: no time is recorded with a stamp before the commit's own."""
    return unit.version <= newest and _stamp(log, unit.version) <= unit.stamp


def _stamp(log: Log, version: int) -> int:
    try:
        return log.commit(version).timestamp or 0
    except HistoryGone:
        return 0


class TimesTable:
    """The order as a Delta table of its own, appended to in commits of which one of two fails."""

    def __init__(
        self,
        table: OwnTable,
        spark: SparkSession,
        location: str | None,
        writing: Writing,
        properties: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`writing` gives a session of its own: what a commit says is a setting, and the user's may be at work.
        `location` and `properties` are for when it is made."""
        self.table, self.spark, self.location = table, spark, location
        self.writing, self.properties = writing, properties

    def read(self) -> Order:
        """All units."""
        log = self.table.log
        if not self.table.exists:
            return Order()
        version = log.version()
        names = {name: name for name in COLUMNS}
        if log.ref.path is not None:
            rows = read_state_rs(log.ref, version, names, None)
        else:
            rows = self.spark.sql(f"SELECT {', '.join(names)} FROM {log.ref.as_of(version)}").toArrow()
        columns = (rows[name].to_pylist() for name in COLUMNS)
        return Order(tuple(sorted((Unit(*row) for row in zip(*columns, strict=True)), key=lambda unit: unit.time)))

    def see(self, logs: Mapping[str, tuple[Log, int]]) -> Order:
        """The order with all commits that are there now; another process may be numbering them, or making the table."""
        for _ in range(_ATTEMPTS):
            with suppress(ConcurrentRefresh, ExistsError):
                return self.seen(logs)
        return self.seen(logs)

    def seen(self, logs: Mapping[str, tuple[Log, int]]) -> Order:
        number = self.table.next_refresh()  # first: whoever adds to the order after it is read takes this number
        order = self.read()
        units = numbered(order, logs)
        if not units:
            return order
        if number == 1:
            self.create()
            number = 2
        progress = Progress(number, {}, "times")
        rows = _rows(units).append_column(OP, pa.array([1] * len(units), pa.int32()))
        if self.table.why_not_rs(rows, []) is None:
            self.table.apply_rs(rows, [], progress)
        else:
            with self.writing() as session:
                self.table.append(rows, progress, session)
        return Order((*order.units, *units))

    def shorten(self, shortened: Callable[[Order], Order]) -> None:
        """A shorter order instead of the one that is there, in one file. Of this and an addition one fails."""
        number = self.table.next_refresh()
        rows = _rows(shortened(self.read()).units)
        with self.writing() as session:
            self.table.overwrite(rows, Progress(number, {}, "times"), session)

    def create(self) -> None:
        empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items())
        query = f"SELECT {empty} WHERE FALSE"
        sql = create_sql(self.table.ref.relation, query, properties=self.properties(), location=self.location)
        with self.writing() as session:
            self.table.apply_spark(session, sql, Progress(1, {}, "times"))


def _rows(units: Sequence[Unit]) -> pa.Table:
    return pa.table({n: pa.array([getattr(u, n) for u in units], _ARROW[kind]) for n, kind in COLUMNS.items()})
