"""A view as of another time than its own, without moving it: what a refresh would write, beside what is there."""

from __future__ import annotations

from contextlib import closing
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.live import LiveStates
from deltaic.app.refresh.decide import Plan, Planner
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.here import evaluated
from deltaic.app.refresh.run import Run
from deltaic.app.refresh.shared import Shared
from deltaic.app.refresh.stored import recompute_sql
from deltaic.app.refresh.why_full import digest, recoverable
from deltaic.app.rolling.apply import Applier
from deltaic.app.rolling.clock import AsOf, Clock, Standing
from deltaic.app.rounds.fixpoint import little
from deltaic.app.values.definition import Definition, give_settings, has_settings
from deltaic.errors import HistoryGone, TimeError
from deltaic.plan.maintain import Maintenance
from deltaic.plan.program import OP
from deltaic.plan.steps import Step, WriteView
from deltaic.spark.session import fork
from deltaic.spark.telling import told_of
from deltaic.store.arrow import arrow_to_spark
from deltaic.store.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Looker:
    def __init__(self, engine: Engine, definition: Definition) -> None:
        self.engine, self.definition = engine, definition
        self.log = engine.view_table(definition).log

    def table(self, as_of: AsOf) -> DataFrame:
        with told_of(self.definition.full_name), self.engine.lock():
            clock = Clock(self.engine)
            standing = clock.standing(self.definition)
            at = clock.time_meant(standing, as_of)
            if standing.is_back(at):
                return self.stored(self.version_at(standing, at))
            plan = self.plan(standing, at)
            if plan.mode == "noop":
                assert plan.table.at is not None
                return self.stored(plan.table.at)
            return self.looked_at(plan)

    def plan(self, standing: Standing, at: int) -> Plan:
        """By the kept delta, where it goes from here to there; else by what the sources say."""
        clock, compiled = Clock(self.engine), self.engine.compiled(self.definition)
        clock.check_columns(compiled, standing.versions(at))
        applier = Applier(self.engine, self.definition, looking=True)
        if applier.reaches(standing, at):
            return applier.roll(at).plan
        return Planner(self.engine, looking=True).plan(self.definition, pins=standing.versions(at))

    def version_at(self, standing: Standing, at: int) -> int:
        """The version of the view's own table that was at a time of the past."""
        wanted = {key: (standing.ids[key], version) for key, version in standing.versions(at).items()}
        for version in range(self.log.version(), -1, -1):
            try:
                progress = Progress.of(self.log.commit(version))
            except HistoryGone:
                break
            if progress is None or progress.figures.get("definition") != digest(self.definition):
                continue  # another query's rows
            if {key: (s.table_id, s.version) for key, s in progress.sources.items()} == wanted:
                return version
        own = standing.view_time
        now = standing.told(own) if own else "unknown"
        raise TimeError(
            f"{self.definition.full_name} is at time {now}, and what it was at time {standing.told(at)} is not kept",
            hint="Times that it was refreshed to can be read as long as its table has them.",
        )

    def stored(self, version: int) -> DataFrame:
        return self.shown(self.rows(version), version)

    def rows(self, version: int) -> DataFrame:
        return self.engine.spark.sql(f"SELECT * FROM {self.log.ref.as_of(version)}")

    def shown(self, rows: DataFrame, version: int) -> DataFrame:
        shown = self.log.snapshot(version).shown
        rows = rows.where(quote(shown)) if shown else rows
        return rows.select(*map(quote, self.definition.columns))

    def looked_at(self, plan: Plan) -> DataFrame:
        """The view's rows, with those that a refresh would replace."""
        assert plan.compiled is not None
        way = plan.compiled.way
        arrow = self.changes(plan) if plan.mode == "incremental" else None
        if arrow is None:
            return self.computed(plan)
        assert isinstance(way, Maintenance)
        assert plan.known is not None
        assert plan.table.at is not None
        there = self.rows(plan.table.at)
        wanted = StructType([StructField(OP, IntegerType(), False), *there.schema.fields])
        changes = arrow_to_spark(self.engine.spark, arrow.select(wanted.names), wanted)
        keys = [plan.compiled.stored[name] for name in way.replaced(plan.known)]
        gone = changes.where(f"`{OP}` = -1").selectExpr(*(f"{quote(k)} AS `{n}`" for n, k in enumerate(keys)))
        same = [there[quote(key)].eqNullSafe(gone[f"`{n}`"]) for n, key in enumerate(keys)]
        left = there.join(gone, reduce(lambda one, two: one & two, same), "left_anti")
        return self.shown(left.unionByName(changes.where(f"`{OP}` = 1").drop(OP)), plan.table.at)

    def changes(self, plan: Plan) -> pa.Table | None:
        """What a refresh would write, where that is little and can be computed."""
        assert plan.compiled is not None
        try:
            with self.engine.session_for(self.definition) as session:
                looking = Looking(session, plan.compiled, plan, self.engine.use_rs, Shared(), self.engine.captures)
                return looking.walked() if looking.is_small() else None
        except Exception as error:  # Spark, Connect and delta-rs share no class; what is not known is raised again
            if recoverable(error) is None:
                raise
            return None

    def computed(self, plan: Plan) -> DataFrame:
        """The query itself at that time."""
        assert plan.compiled is not None
        assert plan.table.at is not None
        session, at = self.session(), plan.table.at
        query = recompute_sql(plan.compiled, plan.reads)
        live = any(source.live for source in plan.compiled.sources.values())
        if not live and not plan.compiled.recursion.components:
            return self.shown(session.sql(query), at)
        with closing(LiveStates(self.engine.captures, session)) as states:  # what is read ends with this block
            states.name_all(plan.compiled.live, plan.reads)
            with evaluated(session, plan.compiled, plan.reads):
                frame = self.shown(session.sql(query), at)
                rows = little(frame)
                return frame.localCheckpoint() if rows is None else arrow_to_spark(session, rows, frame.schema)

    def session(self) -> SparkSession:
        """The warehouse's own, if it has the settings of the view's creator, else one that has and stays."""
        own, told = self.engine.spark, self.definition
        if has_settings(own, told.settings) and own.catalog.currentDatabase() == told.current_schema:
            return own
        session = fork(own)
        give_settings(session, told.settings)
        session.catalog.setCurrentDatabase(told.current_schema)
        return session


class Looking(Run):
    """A run that ends before its commit."""

    arrow: pa.Table | None

    def walked(self) -> pa.Table | None:
        self.walk()
        return self.arrow

    def take(self, step: Step, small: bool) -> None:
        if not isinstance(step, WriteView):
            super().take(step, small)

    def count(self) -> None:
        return
