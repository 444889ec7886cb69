"""Whether a view is what its query says: the query as of the versions that the view was made of, beside what is stored.

A view that is merely stale is not wrong. What stands against a check, a query that is another one each time or a past
that was vacuumed, is said instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from deltaic.algebra.nodes import RESERVED, Apply
from deltaic.algebra.reasons import Code, Reason
from deltaic.algebra.trees import walk
from deltaic.app.care.beside import Comparing, Past
from deltaic.app.catalogs.live import LiveStates
from deltaic.app.pipeline.status import commits_behind
from deltaic.app.refresh.decide import Planner, first_reads
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.here import evaluated
from deltaic.app.refresh.stored import definition_moves, used_columns
from deltaic.app.refresh.why_full import digest
from deltaic.app.values.definition import Definition
from deltaic.app.values.report import DAMAGED, ROWS_SHOWN, UNCERTAIN, Check
from deltaic.errors import ConfigurationError, DeltaicError, HistoryGone, SourceError, UnsupportedError
from deltaic.spark.session import spare_subqueries
from deltaic.spark.telling import FILE_GONE, is_of_others
from deltaic.store.damage import damaged_files
from deltaic.store.gone import is_damaged, is_history_gone
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.table import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFRESH = "Refresh it, and check it then."
_REPAIR = "deltaic repair, or Warehouse.repair(name), computes it anew."


class _Damaged(DeltaicError):
    """The view's own table is broken."""


class Checker:
    """`sample`: about so many of the view's rows, chosen by a hash; None for all."""

    def __init__(self, engine: Engine, *, sample: int | None = None, rows: int = ROWS_SHOWN) -> None:
        if rows < 0 or (sample is not None and sample < 1):
            raise ConfigurationError("a check takes a sample of 1 row at least, and shows 0 rows at least")
        self.engine, self.sample, self.rows = engine, sample, rows

    def check(self, definition: Definition) -> Check:
        started = time.perf_counter()
        table = self.engine.view_table(definition)
        marked = table.last_refresh()
        last = Progress.of(marked.commit) if marked else None
        versions = {key: state.version for key, state in last.sources.items()} if last else {}
        found = Check(definition.full_name, UNCERTAIN, versions=versions)
        found = replace(found, commits_behind=commits_behind(self.engine, versions))
        try:
            assert table.at is not None
            version = table.at
            broken = damaged_files(table.log, version)
            if broken:
                raise _Damaged(f"{len(broken):,} of its files are damaged: {_first(broken)}")
            if last is None:
                raise UnsupportedError("no commit of its table says which versions it was made of", hint=_REPAIR)
            found = self.compared(found, self.past(definition, table, version, last))
        except _Damaged as problem:
            found = replace(found, verdict=DAMAGED, notes=(problem.what,), hint=_REPAIR)
        except DeltaicError as problem:
            found = replace(found, verdict=UNCERTAIN, notes=(problem.what,), hint=problem.hint)
        return replace(found, seconds=time.perf_counter() - started)

    def past(self, definition: Definition, table: OwnTable, version: int, last: Progress) -> Past:
        if last.figures.get("definition") != digest(definition):
            raise UnsupportedError("its query or its settings are others than those last computed", hint=_REFRESH)
        planner = Planner(self.engine)
        compiled = planner.compiled(definition)
        drawn = isinstance(compiled.way, Reason) and compiled.way.code is Code.SAMPLE
        if definition_moves(last) or compiled.moves or drawn:
            why = compiled.way.detail if isinstance(compiled.way, Reason) else "time"
            hint = (
                "There is nothing to compare it with. Store what it draws or asks for in a table, to have it checked."
            )
            raise UnsupportedError(f"it is another one each time that it is computed: {why}", hint=hint)
        states = planner.states(compiled, {key: state.version for key, state in last.sources.items()})
        for key, source in compiled.sources.items():
            before = last.sources.get(key)
            if before is None or states[key].table_id != before.table_id:
                raise SourceError(f"{key} is another table than the one that the view was made of", hint=_REFRESH)
            if used_columns(compiled, key, states[key]) != before.schema:
                raise SourceError(f"columns of {key} that the view uses have changed since", hint=_REFRESH)
            lost = source.live.lost(before.version) if source.live is not None else None
            if lost is not None:
                raise HistoryGone(lost.detail, hint=_REFRESH)
        return Past(compiled, first_reads(compiled, states), table, version, last)

    def compared(self, found: Check, past: Past) -> Check:
        stored = past.table.log.snapshot(past.version)
        names = list(past.definition.columns)
        if [name for name in stored.columns if not name.startswith(RESERVED)] != names:
            raise _Damaged("its table has other columns than its query")
        try:
            with self.session_for(past) as session:
                return Comparing(session, past, self.rows).check(found, self.sample)
        except DeltaicError:
            raise
        except Exception as error:  # classic and Connect sessions raise from different class trees
            if not is_of_others(error) and not is_history_gone(error) and not is_damaged(error):
                raise
            is_now = all(count == 0 for count in found.commits_behind.values())
            raise self.explained(error, past, is_now) from error

    @contextmanager
    def session_for(self, past: Past) -> Iterator[SparkSession]:
        """A session in which everything that the query reads is there."""
        compiled, reads = past.compiled, past.reads
        with self.engine.session_for(past.definition) as session:
            if compiled.node is None or any(isinstance(node, Apply) for node in walk(compiled.node)):
                spare_subqueries(session)
            with closing(LiveStates(self.engine.captures, session)) as live:
                with self.engine.lock() if compiled.live else nullcontext():  # it brings captured logs up to now
                    live.name_all(compiled.live, reads)
                with evaluated(session, compiled, reads, by_spark=True):
                    yield session

    def explained(self, error: Exception, past: Past, is_now: bool) -> DeltaicError:
        """Why the two could not be compared: it may be the view that cannot be read, or the past of its sources; or, if
        the view `is_now` where they are, they themselves."""
        try:
            rows = self.engine.spark.sql(f"SELECT * FROM {past.table.ref.as_of(past.version)}")
            rows.write.format("noop").mode("overwrite").save()
        except Exception as own:
            return _Damaged(f"its table cannot be read: {first_line(own)}")
        if is_history_gone(error) and is_now:
            return SourceError("its sources cannot be read as they are now", hint=FILE_GONE)
        if is_history_gone(error):
            return HistoryGone(
                "the versions of its sources that it was made of can no longer be read: they were vacuumed",
                hint=f"{_REFRESH} VACUUM with RETAIN, or delta.deletedFileRetentionDuration, keeps them for longer.",
            )
        return SourceError(f"its query cannot be run: {first_line(error)}")


def _first(problems: Sequence[str]) -> str:
    return "; ".join(problems[:3]) + (" …" if len(problems) > 3 else "")
