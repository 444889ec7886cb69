"""Runs the rounds of a fixpoint on Spark. What a round finds is brought here if it is little, and is kept by Spark if
not; either way the next round starts from rows, not from the queries that led to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from deltaic.algebra.nodes import WEIGHT, Aggregate, Join, JoinKind, Node, Project, Ref, Scan
from deltaic.algebra.quoting import quote
from deltaic.algebra.recursion import Predicate
from deltaic.algebra.trees import walk
from deltaic.app.values.settings import Settings
from deltaic.plan.recursion import Phase, Query, change_of
from deltaic.plan.rounds import Rounds, RoundsFound
from deltaic.plan.steps import Iterate, SourceRead
from deltaic.sql.render import render
from deltaic.store.arrow import arrow_schema, arrow_to_spark, has_arrow_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ADAPTIVE = "spark.sql.adaptive.enabled"
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


def iterate(session: SparkSession, step: Iterate, limits: Limits, keep: Keep) -> list[RoundsFound]:
    """Evaluate or maintain the predicates of a step; they, and their changes, are then there under their names."""
    name_relations(session, step, keep)
    rounds = Rounds(SparkRunner(session, keep), limits.rounds, limits.over_deleted)
    phases = dict(step.phases)
    if Phase.EVALUATE in phases:
        rounds.evaluate(phases[Phase.EVALUATE])
        return rounds.told
    adaptive = session.conf.get(_ADAPTIVE)
    session.conf.set(_ADAPTIVE, False)  # which plans a query anew at each of its stages; those of rounds are small
    try:
        rounds.maintain(phases)
    finally:
        session.conf.set(_ADAPTIVE, str(adaptive))
    return rounds.told


def name_relations(session: SparkSession, step: Iterate, keep: Keep) -> None:
    for name, sql in step.relations:
        keep(session.sql(sql)).createOrReplaceTempView(name)


def little(frame: DataFrame) -> pa.Table | None:
    """The rows of a frame, if they are few."""
    if not has_arrow_types(frame.schema):
        return None
    rows = frame.limit(FEW + 1).toArrow()
    return rows if rows.num_rows <= FEW else None


class SparkRunner:
    def __init__(self, session: SparkSession, keep: Keep) -> None:
        self.session, self.kept_by_spark = session, keep
        self.here: dict[str, pa.Table] = {}
        """Relations that are in this process: one table each, however many rounds added to it."""

    def keep(self, relation: str, query: Query) -> int:
        self.here.pop(relation, None)
        frame, known = self.session.sql(query.sql), self.large(query.node)
        if known is not None:
            frame = self.less_what_is_known(relation, *known) or frame
        rows = little(frame)
        if rows is not None:
            self.bring(relation, rows, frame.schema)
            return int(rows.num_rows)
        frame = frame.localCheckpoint()  # these rows may be lost: see spark/lost.py
        frame.createOrReplaceTempView(relation)
        return frame.count()

    def large(self, node: Node) -> tuple[Node, list[str]] | None:
        """What a round derives, and the relations, not all of them here, whose rows it leaves out."""
        known: list[str] = []
        while isinstance(node, Join) and node.kind is JoinKind.ANTI and isinstance(node.right, Project):
            below = node.right.input
            if not isinstance(below, Ref):
                return None
            listed = ", ".join(f"{item.expr.sql} AS c{n}" for n, item in enumerate(node.right.items))
            known.append(below.name if below.name in self.here else f"(SELECT {listed} FROM {below.name})")
            node = node.left
        is_whole = isinstance(node, Aggregate) and not any(isinstance(n, Scan) for n in walk(node))
        return (node, known) if is_whole and any(name not in self.here for name in known) else None

    def less_what_is_known(self, relation: str, derived: Node, known: list[str]) -> DataFrame | None:
        """Of a large relation only what equals a derived row is looked at: it is gone through, and not put in order."""
        frame = self.session.sql(render(derived, lambda scan: scan.source))
        rows = little(frame)
        if rows is None:
            return None
        new = f"{relation}_derived"
        self.bring(new, rows, frame.schema)
        same = " AND ".join(f"a.{quote(name)} <=> b.{quote(name)}" for name in frame.columns)
        there = [
            f"SELECT /*+ BROADCAST(b) */ a.* FROM {name} a LEFT SEMI JOIN {new} b ON {same}" for name in known
        ]  # fmt: skip
        return self.session.sql(f"SELECT a.* FROM {new} a LEFT ANTI JOIN ({' UNION ALL '.join(there)}) b ON {same}")

    def add(self, relation: str, other: str) -> None:
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
        frame = self.session.sql(query.sql)
        if isinstance(query.node, Join):  # what is left of a large relation, which every round after it reads
            frame = self.kept_by_spark(frame)
        frame.createOrReplaceTempView(relation)

    def change(self, p: Predicate, lost: Query, won: Query) -> None:
        signed = f"SELECT *, -1L AS {WEIGHT} FROM ({lost.sql}) UNION ALL SELECT *, 1L FROM ({won.sql})"
        self.session.sql(signed).createOrReplaceTempView(change_of(p))

    def bring(self, relation: str, rows: pa.Table, schema: StructType) -> None:
        """Any column may be NULL: one rule's is not, where it is a constant, and another's is."""
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        self.here[relation] = rows
        nullable = StructType([StructField(f.name, f.dataType, True) for f in schema.fields])
        arrow_to_spark(self.session, rows, nullable).createOrReplaceTempView(relation)
