"""One view, refreshed to now or to a time between its own and now."""

from __future__ import annotations

from dataclasses import replace

from deltaic.app.refresh.contest import contested
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.rolling.apply import Applier
from deltaic.app.rolling.clock import AsOf, Clock
from deltaic.app.values.report import Report


def refresh_to(engine: Engine, name: tuple[str, str], as_of: AsOf | None = None, *, full: bool = False) -> Report:
    """Whoever else works on the view, one of them wins, and this one goes on from there."""
    return contested(engine.catalog, name, lambda: _refreshed(engine, name, as_of, full))


def _refreshed(engine: Engine, name: tuple[str, str], as_of: AsOf | None, full: bool) -> Report:
    with engine.lock():
        definition = engine.catalog.definition(*name)
        if as_of is None:
            return Refresher(engine).refresh(definition, full=full)
        clock = Clock(engine)
        standing = clock.standing(definition)
        at = clock.time_meant(standing, as_of)
        clock.check_columns(engine.compiled(definition), standing.versions(at))
        applier = Applier(engine, definition)
        if not full and applier.reaches(standing, at):
            return applier.apply(at)
        report = Refresher(engine).refresh(definition, full=full, pins=clock.pins(standing, at))
        return replace(report, time=at)
