"""A view is made: what it is told becomes a definition, its first rows are computed, and both are one commit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from deltaic.algebra.reasons import Reason
from deltaic.app.catalogs.live import LiveStates
from deltaic.app.refresh.choice import first_price
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.decide import Planner, first_reads
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.here import evaluated
from deltaic.app.refresh.stored import create_sql, progress_of, recompute_sql, with_depth
from deltaic.app.refresh.upkeep import with_last_vacuum
from deltaic.app.values.definition import ESCAPED, Definition, recorded_settings
from deltaic.app.values.properties import checked_properties
from deltaic.app.values.settings import Settings
from deltaic.errors import DependencyError, NotIncremental, UnsupportedError
from deltaic.plan.maintain import Maintenance
from deltaic.plan.steps import SourceRead
from deltaic.spark.analyzer import enough_stack
from deltaic.spark.lost import again_if_lost
from deltaic.spark.telling import told_of
from deltaic.sql.statements import CreateView, Policy
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress


def new_definition(engine: Engine, create: CreateView) -> Definition:
    """What a statement says, with the settings of the session that says it."""
    schema, name = engine.catalog.qualified(create.name)
    told = checked_properties(create.properties)
    settings = recorded_settings(engine.spark)
    if settings.get(ESCAPED, "false").lower() == "true":
        raise UnsupportedError(
            f"a view whose literals are read under {ESCAPED}",
            hint=f"SET {ESCAPED} = false, and write a backslash twice, or the literal as r'...'.",
        )
    return Definition(
        schema=schema,
        name=name,
        query=create.query,
        given=tuple(column for column, _ in create.columns),
        policy=create.policy,
        settings=settings,
        technique=told.technique,
        counts=told.counts,
        strata=told.strata,
        keys=told.keys,
        references=told.references,
        intervals=told.intervals,
        lag=told.lag,
        schedule=told.schedule,
        comment=create.comment,
        partitioned_by=create.partitioned_by,
        clustered_by=create.clustered_by,
        current_schema=engine.catalog.current_schema(),
    )


def materialize(
    engine: Engine,
    definition: Definition,
    properties: Mapping[str, str] | None,
    *,
    replacing: bool,
    old: Definition | None = None,
) -> None:
    """Computes a new view and makes it visible, in one commit; in the place of what it is, which may have to be
    `old`."""
    compiled = engine.compile_new(definition)
    check_policy(compiled)
    check_circle(engine, compiled)
    for source in compiled.sources.values():
        if source.live is not None:
            engine.captures.step(source.live)
    name = compiled.definition.full_name
    first = _first_commit(engine, compiled, properties, replacing, old)
    with told_of(name):
        again_if_lost(first.write, name)
    engine.catalog.register(definition.schema, definition.name)


def check_policy(compiled: Compiled) -> None:
    if isinstance(compiled.way, Reason) and compiled.definition.policy is Policy.STRICT:
        raise NotIncremental(
            f"{compiled.definition.full_name} cannot be kept incrementally: {compiled.way}",
            at=compiled.way.at,
            hint="REFRESH POLICY AUTO lets it be recomputed.",
        )


def check_circle(engine: Engine, compiled: Compiled) -> None:
    """A view may not read itself through other views either."""
    own = compiled.definition.full_name.lower()
    waiting, seen = [key for key, s in compiled.sources.items() if s.is_view], set[str]()
    while waiting:
        key = waiting.pop()
        if key == own:
            raise DependencyError(f"{compiled.definition.full_name} would read itself through other views")
        if key not in seen:
            seen.add(key)
            last = engine.progress_at(*engine.catalog.found(*key.split(".", 1)))
            below = [source for source in (last.sources if last else ()) if not source.startswith("delta.`")]
            waiting.extend(source for source in below if engine.catalog.is_view_name(*source.split(".", 1)))


@dataclass(frozen=True)
class _FirstCommit:
    """All of a new view: nothing is changed before it is written, and then everything is."""

    engine: Engine
    compiled: Compiled
    table: OwnTable
    reads: Mapping[str, SourceRead]
    progress: Progress
    sql: str
    replacing: bool

    def write(self) -> None:
        catalog, definition = self.engine.catalog, self.compiled.definition
        with (
            (catalog.held if self.replacing else catalog.making)(definition.schema, definition.name),
            self.engine.session_for(definition) as session,
            closing(LiveStates(self.engine.captures, session)) as live,
        ):
            live.name_all(self.compiled.live, self.reads)
            with evaluated(session, self.compiled, self.reads) as told, enough_stack():
                self.table.apply_spark(session, self.sql, with_depth(self.progress, told))


def _first_commit(
    engine: Engine, compiled: Compiled, properties: Mapping[str, str] | None, replacing: bool, old: Definition | None
) -> _FirstCommit:
    definition, planner = compiled.definition, Planner(engine)
    # Its number comes before the sources' versions: whoever brings the view to later ones meanwhile takes it.
    table = planner.looked_at(old)[0] if old else engine.view_table(definition)
    last = table.newest_progress() if replacing else None
    number = table.next_refresh() if replacing else 1
    states = planner.states(compiled, {})
    reads = first_reads(compiled, states)
    way = compiled.way
    prices = first_price(way, reads) if isinstance(way, Maintenance) and way.recursion is None else None
    progress = progress_of(compiled, states, number, mode="full", technique="recompute", reasons=(), prices=prices)
    sql = create_sql(
        compiled,
        table,
        recompute_sql(compiled, reads),
        replacing=replacing,
        properties=None if properties is None else {**Settings.of(engine.spark).retention, **properties},
        location=engine.catalog.location(definition.schema, definition.name),
    )
    return _FirstCommit(engine, compiled, table, reads, with_last_vacuum(progress, last), sql, replacing)
