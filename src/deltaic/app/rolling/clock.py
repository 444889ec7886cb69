"""Times of a warehouse: the order of its sources' commits, and what a person means by a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from pyspark.errors import PySparkException

from deltaic.algebra.quoting import text_literal
from deltaic.app.catalogs.catalog import KEPT_DELTA, TIMES
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.upkeep import Upkeep, tried
from deltaic.app.values.definition import Definition
from deltaic.app.values.settings import Settings
from deltaic.errors import ConfigurationError, HistoryGone, SourceError, TimeError
from deltaic.spark.session import forked
from deltaic.store.log import Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.times import Order, TimesTable

AsOf = int | str | datetime
"""A time: its number, or a timestamp, by default in the session's time zone."""


@dataclass(frozen=True)
class Standing:
    """The order of commits, and where in it a view is."""

    definition: Definition
    last: Progress
    order: Order

    @property
    def ids(self) -> dict[str, str]:
        """The view's sources, and the ids of their tables."""
        return {key: state.table_id for key, state in self.last.sources.items()}

    @property
    def view_time(self) -> int | None:
        """The time that the view is at; None if its sources were at these versions at no recorded time."""
        return self.order.time_of({state.table_id: state.version for state in self.last.sources.values()})

    def versions(self, at: int) -> dict[str, int]:
        """The versions of the view's sources at a time."""
        found = self.order.versions_at(at, self.ids.values())
        return {key: found[table] for key, table in self.ids.items() if table in found}

    def still(self, at: int) -> int:
        """The last time at which the view's sources are as they were at this one."""
        own = set(self.ids.values())
        return next((u.time - 1 for u in self.order.units if u.time > at and u.source in own), self.order.newest)

    def since(self, at: int) -> int:
        """The first time from which on the view's sources are as they are at this one."""
        own = set(self.ids.values())
        return next((u.time for u in reversed(self.order.units) if u.time <= at and u.source in own), at)

    def is_back(self, at: int) -> bool:
        """Whether a time is before the view's own, for any of its sources."""
        there = self.versions(at)
        return any(there.get(key, -1) < state.version for key, state in self.last.sources.items())

    def told(self, at: int) -> str:
        """A time for people."""
        return str(self.order.told(at))


class Clock:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        ref, location = engine.catalog.hidden(TIMES)
        table = OwnTable(ref, engine.lock_file, engine.spark)
        writing = partial(forked, engine.spark)
        self.table = TimesTable(table, engine.spark, location, writing, lambda: self.settings.retention)

    @cached_property
    def settings(self) -> Settings:
        return Settings.of(self.engine.spark)

    def standing(self, definition: Definition) -> Standing:
        """The order with every commit of the view's sources that is there now. Under the warehouse's lock."""
        self.engine.capture(definition)
        last = self.engine.last_progress(definition)
        if last is None:
            raise TimeError(f"{definition.full_name} has no commit of Deltaic's own", hint="Refresh it.")
        logs: dict[str, tuple[Log, int]] = {}
        for key, state in last.sources.items():
            ref = self.engine.source_ref(key)
            if ref is None:
                raise SourceError(f"{definition.full_name}: its source {key} is gone")
            log = Log(ref, self.engine.spark)
            if log.snapshot().table_id != state.table_id or not state.is_of(log):
                hint = "Refresh the view: it is recomputed, and its times begin anew."
                raise SourceError(f"{definition.full_name}: {key} is another table than it was", hint=hint)
            logs[state.table_id] = (log, state.version)
        order = self.table.see({**self.others(logs), **logs})
        self.forget()
        return Standing(definition, last, order)

    def forget(self) -> None:
        """What nobody asks for any more, once the order has become many files: what all kept deltas are past, and is
        older than times are kept for. It is no part of what is asked, and the next one tries again."""
        table, most = self.table.table, self.settings.compact_files

        def shorten() -> None:
            files = table.log.snapshot().files if table.exists else 0
            if not most or (files or 0) <= most:
                return
            self.table.shorten(lambda now: now.since(self.needed_from(now), self.read_by_views()))
            with forked(self.engine.spark) as session:
                Upkeep(self.settings).look_after(table, session, 0, vacuum=self.settings.vacuum_hours > 0)

        tried(table.ref.name, "what it has of the past", shorten)

    def needed_from(self, order: Order) -> int:
        """The time that the last of the views with a kept delta is at, if that is not too long ago."""
        kept_from = order.at_stamp(int((time.time() - self.settings.retain_hours * 3600) * 1000))
        rolled = [one for name, one in self.engine.progresses().items() if self.has_kept_delta(name)]
        times = [order.time_of({s.table_id: s.version for s in one.sources.values()}) for one in rolled]
        return min([kept_from, *(at for at in times if at is not None)])

    def has_kept_delta(self, name: tuple[str, str]) -> bool:
        ref, _ = self.engine.catalog.hidden(KEPT_DELTA, *name)
        return OwnTable(ref, None, self.engine.spark).exists

    def read_by_views(self) -> frozenset[str]:
        return frozenset(s.table_id for one in self.engine.progresses().values() for s in one.sources.values())

    def others(self, own: Mapping[str, object]) -> dict[str, tuple[Log, int]]:
        """The sources of other views that are in the order: a commit that nobody looked at is no late one. Those that
        are gone, or are other tables now, are for these views to say."""
        recorded = {unit.source for unit in self.table.read().units}
        found: dict[str, tuple[Log, int]] = {}
        for last in self.engine.progresses().values():
            for key, state in last.sources.items():
                if state.table_id not in recorded or state.table_id in found or state.table_id in own:
                    continue
                there = self.engine.source_log(key)
                with suppress(SourceError, HistoryGone):  # its log may have a gap
                    if there and there[0].snapshot().table_id == state.table_id and state.is_of(there[0]):
                        found[state.table_id] = (there[0], state.version)
        return found

    def time_meant(self, standing: Standing, as_of: AsOf) -> int:
        """The number of a time; one that is not there yet is refused."""
        name, newest = standing.definition.full_name, standing.order.newest
        if isinstance(as_of, bool) or not isinstance(as_of, int | str | datetime):
            raise ConfigurationError(f"{as_of!r} is not a time", hint="A number, a timestamp, or a datetime.")
        if isinstance(as_of, int):
            if as_of > newest:
                raise TimeError(f"{name}: time {as_of} is after the newest commit, {standing.told(newest)}")
            if as_of < 1:
                raise TimeError(f"{name}: times begin with 1, and {as_of} is before that")
            return self.recorded(standing, as_of)
        stamp = self.stamp(as_of)
        if stamp > time.time() * 1000:
            raise TimeError(f"{name}: {as_of} is in the future", hint="A time up to now can be asked for.")
        found = standing.order.at_stamp(stamp)
        if not found:
            first = standing.order.units[0].time if standing.order.units else 0
            raise TimeError(f"{name}: {as_of} is before the first recorded commit, {standing.told(first)}")
        return self.recorded(standing, found)

    def recorded(self, standing: Standing, at: int) -> int:
        """A time, if the order still tells the versions of all of the view's sources at it."""
        begins = standing.order.begins
        if at < begins and standing.ids.keys() - standing.versions(at).keys():
            what = f"time {at} is no longer recorded, those from {standing.told(begins)} on are"
            raise TimeError(
                f"{standing.definition.full_name}: {what}",
                hint="spark.deltaic.retainHours says how long they are kept.",
            )
        return at

    def stamp(self, as_of: str | datetime) -> int:
        """Milliseconds; Spark says what a text means, in the session's time zone."""
        if isinstance(as_of, datetime):
            return int(as_of.timestamp() * 1000)
        try:
            row = self.engine.spark.sql(f"SELECT unix_millis(CAST({text_literal(as_of)} AS TIMESTAMP))").first()
        except PySparkException:
            row = None
        if row is None or row[0] is None:
            hint = "As in '2026-05-01 12:30:00', or with a zone: '2026-05-01 12:30:00 Europe/Berlin'."
            raise TimeError(f"{as_of!r} is not a timestamp that Spark knows", hint=hint)
        return int(row[0])

    def check_columns(self, compiled: Compiled, pins: Mapping[str, int]) -> None:
        """A query is what it is now: at a time when its columns were not there, it has no answer."""
        for key, version in pins.items():
            there = set(Log(compiled.sources[key].ref, self.engine.spark).snapshot(version).columns)
            missing = [name for name, _ in compiled.used_columns.get(key, []) if name not in there]
            if missing:
                name = compiled.definition.full_name
                raise TimeError(f"{name} reads {', '.join(missing)} of {key}, which was not there at that time")

    def pins(self, standing: Standing, at: int) -> Mapping[str, int]:
        """The versions that a refresh to a time reads; refused if the view is past it."""
        if standing.is_back(at):
            own = standing.view_time
            where = f"at time {standing.told(own)}" if own else "past it"
            raise TimeError(
                f"{standing.definition.full_name} is {where}, and time {standing.told(at)} is before that",
                hint="A view is rolled forward only; table(name, as_of=...) reads what is still kept.",
            )
        return standing.versions(at)
