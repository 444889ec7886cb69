"""Runs the rounds of a fixpoint on Spark. What a round finds is brought here if it is little, and is kept by Spark if
not; either way the next round starts from rows, not from the queries that led to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.recursion import Predicate
from deltaic.app.settings import Settings
from deltaic.plan.recursion import Phase, Query, change_of
from deltaic.plan.rounds import Rounds, Told
from deltaic.plan.steps import Iterate, SourceRead
from deltaic.store.arrow import arrow_schema, arrow_to_spark, has_arrow_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 20_000
"""Rows of a round that are brought into this process."""


@dataclass(frozen=True)
class Limits:
    """How many rounds there may be, rows that are brought here, and rows that may be over-deleted."""

    rounds: int
    here: int
    over_deleted: float | None = None

    @staticmethod
    def of(settings: Settings, reads: Mapping[str, SourceRead], view_rows: int | None) -> Limits:
        """A small view is not recomputed for what it costs to keep."""
        small = sum(read.rows or 0 for read in reads.values()) + (view_rows or 0) < settings.full_rows
        most = None if small or view_rows is None else settings.over_deleted * view_rows
        return Limits(settings.rounds, settings.rounds_here, most)


Keep = Callable[["DataFrame"], "DataFrame"]
"""Has Spark keep what a frame gives, until somebody says that it is over."""


def iterate(session: SparkSession, step: Iterate, limits: Limits, keep: Keep) -> list[Told]:
    """Evaluate or maintain the predicates of a step; they, and their changes, are then there under their names."""
    name_relations(session, step, keep)
    rounds = Rounds(SparkEngine(session), limits.rounds, limits.over_deleted)
    phases = dict(step.phases)
    if Phase.EVALUATE in phases:
        rounds.evaluate(phases[Phase.EVALUATE])
    else:
        rounds.maintain(phases)
    return rounds.told


def name_relations(session: SparkSession, step: Iterate, keep: Keep) -> None:
    for name, sql in step.relations:
        keep(session.sql(sql)).createOrReplaceTempView(name)


class SparkEngine:
    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.here: dict[str, pa.Table] = {}
        """Relations that are in this process: one table each, however many rounds added to it."""

    def keep(self, relation: str, query: Query) -> int:
        frame = self.session.sql(query.sql)
        self.here.pop(relation, None)
        if has_arrow_types(frame.schema):
            rows = frame.limit(FEW + 1).toArrow()
            if rows.num_rows <= FEW:
                self.bring(relation, rows, frame.schema)
                return int(rows.num_rows)
        frame = frame.localCheckpoint()
        frame.createOrReplaceTempView(relation)
        return frame.count()

    def add(self, relation: str, other: str, p: Predicate) -> None:
        parts = [self.here[name] for name in (relation, other) if name in self.here]
        there = self.session.table(relation)
        if len(parts) > 1 and sum(part.num_rows for part in parts) <= FEW:
            self.bring(relation, pa.concat_tables(parts), there.schema)
            return
        self.here.pop(relation, None)
        there.unionAll(self.session.table(other)).createOrReplaceTempView(relation)

    def empty(self, relation: str, p: Predicate) -> None:
        listed = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in p.fields)
        schema = self.session.sql(f"SELECT {listed}").schema
        if has_arrow_types(schema):
            self.bring(relation, arrow_schema(schema).empty_table(), schema)
        else:
            self.session.sql(f"SELECT * FROM (SELECT {listed}) WHERE FALSE").createOrReplaceTempView(relation)

    def define(self, relation: str, query: Query) -> None:
        self.session.sql(query.sql).createOrReplaceTempView(relation)

    def change(self, p: Predicate, lost: Query, won: Query) -> None:
        signed = f"SELECT *, -1L AS {WEIGHT} FROM ({lost.sql}) UNION ALL SELECT *, 1L FROM ({won.sql})"
        self.session.sql(signed).createOrReplaceTempView(change_of(p))

    def bring(self, relation: str, rows: pa.Table, schema: StructType) -> None:
        """Any column may be NULL: one rule's is not, where it is a constant, and another's is."""
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        self.here[relation] = rows
        nullable = StructType([StructField(f.name, f.dataType, True) for f in schema.fields])
        arrow_to_spark(self.session, rows, nullable).createOrReplaceTempView(relation)
