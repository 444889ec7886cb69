"""When the tables of a view are looked after: once a refresh is committed, and never in the way of one.

Checkpoints come every so many commits, files are compacted once there are too many small ones, at most once in half as
many refreshes, and vacuumed once a day. Each commit says when the last vacuum was, so that it does not matter which
process refreshes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from deltaic.app.refresh.engine import Engine
from deltaic.app.values.settings import Settings
from deltaic.errors import ConcurrentRefresh, MissingError
from deltaic.store import upkeep
from deltaic.store.log import Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.table import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_VACUUMED, _STARTED = "vacuumed", "started"
"""Among the figures of a commit, in milliseconds."""
_HOUR = 3_600_000


def with_vacuum(progress: Progress, last: Progress | None, hours: float) -> Progress:
    """The commit with the time of the newest vacuum; that is its own, if one is due."""
    if not hours:
        return progress
    now, before = progress.figures[_STARTED], _vacuumed(last)
    due = before is None or now - before >= hours * _HOUR
    return replace(progress, figures={**progress.figures, _VACUUMED: now if due else before})


def with_last_vacuum(progress: Progress, last: Progress | None) -> Progress:
    """A commit that no vacuum follows, of a view that may have been vacuumed before."""
    before = _vacuumed(last)
    return progress if before is None else replace(progress, figures={**progress.figures, _VACUUMED: before})


def _vacuumed(last: Progress | None) -> int | None:
    told = last.figures if last else {}
    before = told.get(_VACUUMED, told.get(_STARTED))
    return before if isinstance(before, int) else None


def is_vacuumed_by(progress: Progress) -> bool:
    """Whether a vacuum comes after this very commit."""
    return _VACUUMED in progress.figures and progress.figures[_VACUUMED] == progress.figures.get(_STARTED)


class Upkeep:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def look_after(self, table: OwnTable, session: SparkSession, number: int, *, vacuum: bool) -> None:
        """After commit `number` of Deltaic's. What fails stands against the next time too, which may try."""
        name = table.ref.name
        if self.is_time_to_compact(number) and tried(name, "its small files", lambda: self.is_scattered(table)):
            tried(name, "its small files", lambda: upkeep.compact(table, session))
        if vacuum:
            tried(name, "its old files", lambda: upkeep.vacuum(table, session))
        tried(name, "its log", lambda: upkeep.checkpoint(table, self.settings.checkpoint_commits))

    def is_time_to_compact(self, number: int) -> bool:
        """Files may be many for a reason that compacting does not end: it is not tried every time."""
        files = self.settings.compact_files
        return files > 0 and number % max(1, files // 2) == 0

    def is_scattered(self, table: OwnTable) -> bool:
        return upkeep.small_files(table.log.snapshot()) > self.settings.compact_files


def tried(name: str, what: str, work: Callable[[], bool | None]) -> bool:
    """What was done before it is made, whatever becomes of this."""
    try:
        return bool(work())
    except (ConcurrentRefresh, MissingError):  # somebody else is at work there, and it is his now
        return False
    except Exception as problem:  # Spark, Connect, delta-rs and drivers share no class
        _log.warning("%s: %s could not be looked after: %s", name, what, first_line(problem))
        return False


def prune_passed(engine: Engine, sources: Iterable[str]) -> None:
    """Of captured logs that have become many files, what every view that reads them has passed."""
    most = Settings.of(engine.spark).captured_files

    def prune(key: str) -> None:
        live = engine.live(key)
        if live is not None and (Log(live.ref).snapshot().files or 0) > most:
            live.prune(min(engine.readers(key).values()))

    for key in sources:
        tried(key, "its captured log", partial(prune, key))
