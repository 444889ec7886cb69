"""Where an actor stops: before it looks at a log, before and after it writes, before it changes a name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from deltaic.app.catalogs.catalog import Catalog
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.session import SessionCatalog
from deltaic.app.refresh.decide import Planner
from deltaic.app.refresh.run import Run
from deltaic.store import lock, marks, own_table, rs_write
from deltaic.store.log import Log
from tests.together.scheduler import Scheduler, waiting_for_file

BEFORE: tuple[tuple[Any, str, str], ...] = (
    (Log, "version", "look"),
    (Log, "snapshot", "look"),
    (Log, "commit", "look"),
    (Log, "commits", "look"),
    (Run, "take", "step"),
    (own_table.OwnTable, "_committed", "commit"),
    (rs_write, "apply", "write"),
    (rs_write, "overwrite", "write"),
    (rs_write, "commit_nothing", "write"),
    (marks, "_commit", "write"),
    (own_table, "_run", "write"),
    (Catalog, "run", "name"),
    (Catalog, "unregister", "name"),
    (LocalCatalog, "remove", "drop"),
    (SessionCatalog, "remove", "drop"),
    (LocalCatalog, "discard_hidden", "drop"),
    (SessionCatalog, "discard_hidden", "drop"),
)
AFTER: tuple[tuple[Any, str, str], ...] = (
    (Planner, "plan", "planned"),
    (rs_write, "_opened", "opened"),
    (rs_write, "apply", "wrote"),
    (rs_write, "overwrite", "wrote"),
    (marks, "_commit", "wrote"),
    (own_table, "_run", "wrote"),
    (Catalog, "run", "named"),
    (LocalCatalog, "remove", "dropped"),
    (SessionCatalog, "remove", "dropped"),
)
KINDS = ("look", "planned", "step", "commit", "write", "opened", "wrote", "name", "named", "drop", "dropped", "own")
"""Of points; an actor's own are those between the things that it does."""


@contextmanager
def points(scheduler: Scheduler) -> Iterator[None]:
    with ExitStack() as undo:
        for owner, name, kind in BEFORE:
            _replace(owner, name, _stopping(scheduler, getattr(owner, name), kind, before=True), undo)
        for owner, name, kind in AFTER:
            _replace(owner, name, _stopping(scheduler, getattr(owner, name), kind, before=False), undo)
        _replace(lock, "_wait", waiting_for_file(scheduler, lock._wait), undo)
        yield


def _replace(owner: Any, name: str, new: Any, undo: ExitStack) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, new)


def _stopping(scheduler: Scheduler, real: Any, kind: str, *, before: bool) -> Any:
    @functools.wraps(real)
    def stopping(*arguments: Any, **named: Any) -> Any:
        if before:
            scheduler.point(kind)
        result = real(*arguments, **named)
        if not before:
            scheduler.point(kind)
        return result

    return stopping
