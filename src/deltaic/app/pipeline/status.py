"""Where views are, and how they came there: what their tables say, for people."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from deltaic.app.pipeline.service import waiting
from deltaic.app.refresh.choice import seconds_of
from deltaic.app.refresh.contest import unless_gone
from deltaic.app.refresh.engine import Engine
from deltaic.app.rolling.clock import Clock
from deltaic.app.rolling.kept import KeptDelta
from deltaic.app.values.definition import Definition
from deltaic.errors import DefinitionDamaged, HistoryGone
from deltaic.store.log import Log
from deltaic.store.progress import Progress


def views_of(engine: Engine) -> list[dict[str, Any]]:
    """Every view with what its table says about it; one that is dropped meanwhile is none."""
    definitions, damaged = engine.definitions()
    found = [unless_gone(engine.catalog, (d.schema, d.name), partial(status_of, engine, d)) for d in definitions]
    return [*(status for status in found if status), *(damaged_status(*pair) for pair in damaged.items())]


def status_of(engine: Engine, definition: Definition) -> dict[str, Any]:
    """What a view's table, its kept delta and the logs of its sources say about it."""
    last = engine.last_progress(definition)
    versions: Mapping[str, int] = {k: s.version for k, s in last.sources.items()} if last else {}
    return {
        "view": definition.full_name,
        "policy": definition.policy.value,
        "refreshes": last.refresh if last else 0,
        "technique": last.technique if last else None,
        "sources": dict(versions),
        "commits_behind": commits_behind(engine, versions),
        **times_of(engine, definition),
        "comment": definition.comment,
    }


def damaged_status(view: str, problem: DefinitionDamaged) -> dict[str, Any]:
    """The same of a view whose definition cannot be used."""
    told = ("policy", "refreshes", "technique", "sources", "commits_behind")
    times = ("materialized_at", "high_water_mark", "lag_seconds", "commits_waiting")
    return {"view": view, **dict.fromkeys((*told, *times)), "comment": problem.what}


def commits_behind(engine: Engine, versions: Mapping[str, int]) -> dict[str, int | None]:
    """How many commits each source is ahead of a version of it; None if it is gone."""
    behind = {}
    for key, version in versions.items():
        now = engine.source_log(key)
        behind[key] = None if now is None else now[1] - version
    return behind


def times_of(engine: Engine, definition: Definition) -> dict[str, Any]:
    """Where a view is, how far its kept delta goes, and what waits. Nothing is recorded for that."""
    order = Clock(engine).table.read()
    last, kept = engine.last_progress(definition), KeptDelta(engine, definition).now()
    own = order.time_of({s.table_id: s.version for s in last.sources.values()}) if last else None
    behind = waiting(engine, definition)
    return {
        "materialized_at": order.told(own),
        "high_water_mark": order.told(kept.mark) if kept else None,
        "lag_seconds": round(behind.lag(time.time()), 1),
        "commits_waiting": behind.commits,
    }


def history_of(engine: Engine, name: tuple[str, str]) -> list[dict[str, Any]]:
    """The newest 100 commits of a view's table, newest first."""
    log = Log(engine.catalog.view_ref(*engine.catalog.found(*name)), engine.spark)
    newest = log.version()
    found = []
    for version in range(newest, max(-1, newest - 100), -1):
        try:
            commit = log.commit(version)
        except HistoryGone:  # the log is cleaned up from its old end
            break
        own = Progress.of(commit)
        figures = own.figures if own else {}
        found.append({
            "version": version,
            "timestamp": commit.timestamp,
            "operation": commit.operation,
            "refresh": own.refresh if own else None,
            "mode": figures.get("mode"),
            "technique": own.technique if own else None,
            "reasons": figures.get("reasons"),
            "seconds": seconds_of(commit),
            "predicted": figures.get("predicted"),
            "sources": {key: state.version for key, state in own.sources.items()} if own else {},
        })  # fmt: skip
    return found
