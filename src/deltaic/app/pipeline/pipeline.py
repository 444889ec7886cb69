"""All views of a warehouse, refreshed in dependency order to one common time; what they share is computed once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from functools import partial
from graphlib import CycleError, TopologicalSorter

from deltaic.app.refresh.contest import contested
from deltaic.app.refresh.decide import evaluated_under
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.refresh.shared import Shared, Together
from deltaic.app.values.definition import Definition
from deltaic.app.values.report import Report
from deltaic.app.values.settings import Settings
from deltaic.delta.common import Columns, Shape, shapes
from deltaic.errors import ComputeError, ConfigurationError, DeltaicError, DependencyError, HistoryGone, MissingError
from deltaic.plan.maintain import Maintenance
from deltaic.sql.statements import Policy
from deltaic.store.log import Log
from deltaic.store.table import first_line

_log = logging.getLogger(__name__)


def _as_own(problem: Exception, definition: Definition) -> DeltaicError:
    if isinstance(problem, DeltaicError):
        return problem
    own = ComputeError(f"{definition.full_name} could not be refreshed: {first_line(problem)}")
    own.__cause__ = problem
    return own


class Pipeline:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def refresh(self, *, full: bool) -> list[Report]:
        """A view that cannot be refreshed stops those that read it, and no others; it is told when these are done."""
        reports, problems = self.refreshed(full=full)
        for other in problems[1:]:
            _log.warning("%s", other.what)
        if problems:
            raise problems[0]
        return reports

    def refreshed(self, *, full: bool, again: bool = True) -> tuple[list[Report], list[DeltaicError]]:
        """What was done, and what could not be. If that is because the common time was vacuumed meanwhile, all are
        brought to a later one."""
        from deltaic.app.pipeline.progress_bar import progress_bar

        order = self.in_order()
        self.capture(order)
        pins = self.pins(order)
        reports: list[Report] = []
        failed: dict[str, DeltaicError] = {}
        bar = progress_bar("refreshing", len(order), enabled=sys.stderr.isatty())
        shared_reads = partial(self.columns_read, order)
        with (
            bar as advance,
            Together(self.engine.spark, shared_reads, partial(self.common_joins, order)) as together,
        ):
            shared = Shared(together=together)
            for definition in order:
                try:
                    self.check_sources(definition, failed)
                    report = self.refresh_one(definition, shared, full, pins)
                    reports.extend([report] if report else [])
                except Exception as problem:  # Spark, Arrow, delta-rs and drivers share no class; the other views go on
                    failed[definition.full_name.lower()] = _as_own(problem, definition)
                advance(definition.full_name)
        if again and any(isinstance(problem, HistoryGone) for problem in failed.values()):
            return self.refreshed(full=full, again=False)
        return reports, [*failed.values(), *self.engine.definitions()[1].values()]

    def check_sources(self, definition: Definition, failed: Container[str]) -> None:
        """All views show one state of the sources: one over a view that stays behind stays there too."""
        last = self.engine.last_progress(definition)
        for source in last.sources if last else ():
            if source in failed:
                raise DependencyError(f"{definition.full_name} stays as it is, since {source} could not be refreshed")

    def refresh_one(self, definition: Definition, shared: Shared, full: bool, pins: Mapping[str, int]) -> Report | None:
        """As it is by now; None if it was dropped meanwhile."""
        catalog, own = self.engine.catalog, (definition.schema, definition.name)

        def refresh() -> Report:
            with self.engine.lock():
                return Refresher(self.engine, shared).refresh(catalog.definition(*own), full=full, pins=pins)

        try:
            return contested(catalog, own, refresh)
        except MissingError:
            if catalog.is_gone(*own):
                return None
            raise

    def in_order(self) -> list[Definition]:
        """All views that can be used, each after those it reads."""
        definitions = {definition.full_name.lower(): definition for definition in self.engine.definitions()[0]}
        graph = {}
        for key, definition in definitions.items():
            last = self.engine.last_progress(definition)
            graph[key] = [s for s in (last.sources if last else {}) if s in definitions]
        try:
            return [definitions[key] for key in TopologicalSorter(graph).static_order()]
        except CycleError as cycle:
            raise ConfigurationError(f"views read one another in a circle: {cycle.args[1]}") from None

    def capture(self, order: list[Definition]) -> None:
        """What live sources have by now belongs to this refresh."""
        for definition in order:
            with suppress(Exception):  # drivers share no class; the view's own refresh meets it again
                self.engine.capture(definition)

    def pins(self, order: list[Definition]) -> dict[str, int]:
        """The versions of all base tables at this moment: the common time of a refresh of many views. A table that is
        named in two ways has one."""
        views = {d.full_name.lower() for d in order}
        found, newest = dict[str, int](), dict[str, int]()
        for definition in order:
            last = self.engine.last_progress(definition)
            for key in last.sources if last else {}:
                now = None if key in views or key in found else self.engine.source_log(key)
                if now is not None:
                    found[key] = newest.setdefault(now[0].ref.place, now[1])
        return found

    def columns_read(self, definitions: Sequence[Definition], source: str) -> list[Sequence[str]]:
        """The columns of a source that each of these views reads, if it does."""
        found: list[Sequence[str]] = []
        for definition in definitions:
            compiled = self.engine.compiled_or_none(definition)
            if compiled is not None and source in compiled.sources:
                found.append([name for name, _ in compiled.used_columns.get(source, [])])
        return found

    def common_joins(self, definitions: Sequence[Definition]) -> dict[tuple[object, ...], dict[Shape, Columns]]:
        """The joins that several of these views have, and the columns that all of them want.

        Those of small tables are cheaper computed than kept."""
        found: dict[tuple[object, ...], dict[Shape, list[Columns]]] = {}
        rows = Settings.of(self.engine.spark).common_rows
        for definition in definitions:
            compiled = self.engine.compiled_or_none(definition)
            if compiled is None or not isinstance(compiled.way, Maintenance) or definition.policy is Policy.FULL:
                continue
            own: dict[Shape, Columns] = {}
            for shaped in shapes(compiled.way.root):
                own[shaped.shape] = own.get(shaped.shape, frozenset()) | shaped.columns
            for shape, columns in own.items():
                tables = [Log(compiled.sources[name].ref, self.engine.spark).snapshot().rows for name in shape.tables]
                if sum(count or 0 for count in tables) >= rows:
                    found.setdefault(evaluated_under(definition), {}).setdefault(shape, []).append(columns)
        return {
            settings: {shape: frozenset().union(*wanted) for shape, wanted in joins.items() if len(wanted) > 1}
            for settings, joins in found.items()
        }
