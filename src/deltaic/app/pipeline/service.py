"""Keeps views at a target lag: propagates what comes, step by step, and applies it when it is due.

Each view says how far behind it may be (`deltaic.lag`), when it is to move (`deltaic.schedule`), or that it moves with
the views that read it (`downstream`). There is nothing to remember: what a view and its kept delta are at is in their
commits, so the service may be stopped and started anywhere, and of two that work on a view one yields.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.live import grown
from deltaic.app.pipeline.pipeline import Pipeline
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.rolling.apply import Applier
from deltaic.app.rolling.kept import KeptDelta, body_for
from deltaic.app.rolling.propagate import Propagator
from deltaic.app.values.definition import Definition
from deltaic.app.values.properties import DOWNSTREAM, seconds_in
from deltaic.app.values.report import Report
from deltaic.errors import ConcurrentRefresh, DeltaicError, HistoryGone, NotIncremental
from deltaic.store.table import first_line

_log = logging.getLogger(__name__)
WAITS = 1.0
"""Seconds between two rounds."""
RETRY_AFTER = 30.0
"""Seconds until a view that failed is tried again."""


@dataclass(frozen=True)
class Waiting:
    """What of a view's sources is not in it yet: how many commits, and when the oldest was made (milliseconds); and
    whether one of them is gone."""

    commits: int
    since: int | None
    lost: bool = False

    def lag(self, now: float) -> float:
        """Seconds that the view is behind."""
        return max(now - self.since / 1000, 0.0) if self.since is not None else 0.0


def waiting(engine: Engine, definition: Definition) -> Waiting:
    """As the logs tell it; commits that changed no rows do not count."""
    last = engine.last_progress(definition)
    found: list[int] = []
    lost = False
    for key, state in last.sources.items() if last else ():
        now = engine.source_log(key)
        if now is None:
            lost = True
            continue
        log, newest = now
        if newest < state.version or log.snapshot(newest).table_id != state.table_id or not state.is_of(log):
            found.append(log.commit(newest).timestamp or 0)  # another table under its name
            continue
        try:
            commits = log.commits(state.version, newest) if newest > state.version else []
        except HistoryGone:
            found.append(log.commit(newest).timestamp or 0)
            continue
        if engine.live(key) is not None:
            commits = grown(commits)
        found.extend(commit.timestamp or 0 for commit in commits if commit.data_change)
    return Waiting(len(found), min(found, default=None), lost)


class Service:
    """`lag` is that of views which say nothing themselves, in seconds; without it these are left alone."""

    def __init__(self, engine: Engine, lag: float | None = None, views: frozenset[str] = frozenset()) -> None:
        self.engine, self.lag, self.views = engine, lag, views
        self.failed: dict[str, float] = {}

    def run(self, stop: Event, tell: Callable[[str], None], waits: float = WAITS) -> None:
        """Rounds until `stop` is set; a step that is under way is finished."""
        while not stop.is_set():
            quiet = True
            for told in self.round(stop):
                quiet = False
                tell(told)
            if quiet:
                stop.wait(waits)

    def round(self, stop: Event) -> Iterator[str]:
        """Every view once: one step of propagation, and its refresh if that is due."""
        try:
            order = Pipeline(self.engine).in_order()
        except Exception as problem:  # a catalog that is out of reach may be back
            yield f"the views could not be listed: {first_line(problem)}"
            stop.wait(RETRY_AFTER)
            return
        for definition in order:
            if stop.is_set():
                return
            if time.time() < self.failed.get(definition.full_name, 0):
                continue
            try:
                target = self.target(definition, frozenset())
                if target is not None:
                    yield from map(_told, self.work(definition, target))
            except ConcurrentRefresh as other:
                yield f"{definition.full_name}: {other.what}"
            except Exception as problem:  # Spark, Arrow and drivers share no class; the other views go on
                self.failed[definition.full_name] = time.time() + RETRY_AFTER
                yield f"{definition.full_name}: {first_line(problem)}"

    def target(self, definition: Definition, above: frozenset[str]) -> float | None:
        """Seconds that a view may be behind; None if it is not this service's to keep."""
        told = definition.lag
        if definition.full_name in above:
            return None
        if told == DOWNSTREAM:
            readers = self.engine.readers(definition.full_name.lower())
            found = [
                self.target(self.engine.definition(_quoted(name)), above | {definition.full_name}) for name in readers
            ]
            return min((lag for lag in found if lag is not None), default=None)
        if self.views and definition.full_name.lower() not in self.views:
            return None
        if told is not None:
            return seconds_in(told)
        return 0.0 if definition.schedule is not None else self.lag

    def work(self, definition: Definition, target: float) -> Iterator[Report]:
        self.engine.capture(definition)
        behind = waiting(self.engine, definition)
        if behind.lost:
            yield Refresher(self.engine).refresh(definition, full=False)  # it says what is not there
            return
        if not behind.commits:
            return
        due = self.is_due(definition, behind, target)
        if self.has_kept(definition):
            try:
                yield from Propagator(self.engine, definition).propagate(None, None if due else 1)
                if due:
                    yield Applier(self.engine, definition).apply(None)
                return
            except ConcurrentRefresh:
                raise
            except DeltaicError as problem:
                # a source is another one, its past is gone, or the view was edited: a refresh says so, and recomputes
                _log.info("%s is refreshed as a whole: %s", definition.full_name, problem.what)
        if due:
            yield Refresher(self.engine).refresh(definition, full=False)

    def is_due(self, definition: Definition, behind: Waiting, target: float) -> bool:
        """By half of its lag, so that the refresh itself has the other half; or by its schedule."""
        now = time.time()
        if definition.schedule is None:
            return behind.lag(now) >= target / 2
        marked = self.engine.view_table(definition).last_refresh()  # compacting its files did not move it
        moved = (marked.commit.timestamp if marked else None) or 0
        return now - moved / 1000 >= seconds_in(definition.schedule)

    def has_kept(self, definition: Definition) -> bool:
        """Whether the view is propagated: it can be, and somebody began to."""
        if KeptDelta(self.engine, definition).now() is None and definition.lag in (None, DOWNSTREAM):
            return False
        try:
            body_for(definition, self.engine.compiled(definition))
        except NotIncremental:
            return False
        return True


def _told(report: Report) -> str:
    at = f" to time {report.time}" if report.time is not None else ""
    rows = "" if report.delta_rows is None else f", {report.delta_rows:,} rows"
    return f"{report.view}: {report.mode}{at} by {report.technique} in {report.seconds:.2f} s{rows}"


def _quoted(full_name: str) -> str:
    return ".".join(map(quote, full_name.split(".", 1)))
