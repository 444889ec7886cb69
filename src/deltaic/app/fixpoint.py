"""Runs the rounds of a fixpoint on Spark. What a round finds is brought here if it is little, and is kept by Spark if
not; either way the next round starts from rows, not from the queries that led to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltaic.algebra.nodes import WEIGHT, Node, Project, Scan, State
from deltaic.algebra.nodes import keep as all_items
from deltaic.algebra.recursion import PREFIX, Predicate, column
from deltaic.app.coded import CodedEngine, Codes, NotHere, only_compares
from deltaic.app.compile import Compiled
from deltaic.app.desk import Desk
from deltaic.app.reading import Reading
from deltaic.app.settings import Settings
from deltaic.delta.dred import Of, relation_of
from deltaic.plan.maintain import Maintenance
from deltaic.plan.recursion import Fixpoint, Phase, Query, change_of, leaf_relation
from deltaic.plan.rounds import Rounds, Told
from deltaic.plan.steps import Iterate, SourceRead, evaluation_steps
from deltaic.plan.strata import STRATUM
from deltaic.store.arrow import arrow_schema, arrow_to_spark, has_arrow_types, without_views
from deltaic.store.state import SCANNED_BYTES, read_state_rs, why_no_rs_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 20_000
"""Rows of a round that are brought into this process."""
MOST = 5_000_000
"""Rows of a relation that rounds in this process start from."""


Keep = Callable[["DataFrame"], "DataFrame"]
"""Has Spark keep what a frame gives, until somebody says that it is over."""


def iterate(session: SparkSession, step: Iterate, most: int, keep: Keep) -> list[Told]:
    """Evaluate or maintain the predicates of a step; they, and their changes, are then there under their names."""
    name_relations(session, step, keep)
    rounds = Rounds(SparkEngine(session), most)
    phases = dict(step.phases)
    if Phase.EVALUATE in phases:
        rounds.evaluate(phases[Phase.EVALUATE])
    else:
        rounds.maintain(phases)
    return rounds.told


@contextmanager
def evaluated(session: SparkSession, compiled: Compiled, reads: Mapping[str, SourceRead]) -> Iterator[None]:
    """The predicates of a query, for as long as a block reads them."""
    with ExitStack() as stack:

        def keep(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        for step in evaluation_steps(compiled.recursion.components, reads):
            iterate(session, step, Settings.of(session).rounds, keep)
        yield


def name_relations(session: SparkSession, step: Iterate, keep: Keep) -> None:
    for name, sql in step.relations:
        keep(session.sql(sql)).createOrReplaceTempView(name)


class SparkEngine:
    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def keep(self, relation: str, query: Query) -> int:
        frame = self.session.sql(query.sql)
        if has_arrow_types(frame.schema):
            rows = frame.limit(FEW + 1).toArrow()
            if rows.num_rows <= FEW:
                self.named(arrow_to_spark(self.session, rows, frame.schema), relation)
                return int(rows.num_rows)
        frame = frame.localCheckpoint()
        self.named(frame, relation)
        return frame.count()

    def add(self, relation: str, other: str, p: Predicate) -> None:
        """Rows that are here stay here."""
        self.named(self.session.table(relation).unionAll(self.session.table(other)), relation)

    def empty(self, relation: str, p: Predicate) -> None:
        listed = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in p.fields)
        self.named(self.session.sql(f"SELECT * FROM (SELECT {listed}) WHERE FALSE"), relation)

    def define(self, relation: str, query: Query) -> None:
        self.named(self.session.sql(query.sql), relation)

    def change(self, p: Predicate, lost: Query, won: Query) -> None:
        signed = f"SELECT *, -1L AS {WEIGHT} FROM ({lost.sql}) UNION ALL SELECT *, 1L FROM ({won.sql})"
        self.named(self.session.sql(signed), change_of(p))

    def named(self, frame: DataFrame, relation: str) -> None:
        frame.createOrReplaceTempView(relation)


class Here:
    """Rounds in this process, over codes, where rules only compare and what they read is not large."""

    def __init__(self, desk: Desk, reading: Reading) -> None:
        self.desk, self.reading = desk, reading
        self.engine, self.codes = CodedEngine(), Codes()
        self.waiting: dict[str, tuple[pa.Table, dict[str, str]]] = {}
        """Relations that are to be encoded, and the types of their columns."""

    def iterate(self, step: Iterate, most: int) -> list[Told] | None:
        """None if it is Spark's to do."""
        queries = [q for _, of in step.phases for part in of for q in (part.first, part.again) if q is not None]
        if not only_compares(query.node for query in queries):
            return None
        assert step.fixpoint is not None
        try:
            self.read_leaves(step, step.fixpoint)
            for p in step.fixpoint.component.predicates:
                self.read_old(p)
            self.encode(step.fixpoint)
            rounds = Rounds(self.engine, most)
            rounds.maintain(dict(step.phases))
            for p in step.fixpoint.component.predicates:
                self.tell(step, p)
        except NotHere:
            return None
        return rounds.told

    def read_leaves(self, step: Iterate, fixpoint: Fixpoint) -> None:
        named = False
        for number, node in enumerate(fixpoint.read):
            types = {column(n): f.type for n, f in enumerate(node.schema)}
            changed = any(name == leaf_relation(number, Of.GONE) for name, _ in step.relations)
            new = self.scanned(node)
            change = self.scanned(node, State.CHANGE) if changed else None
            if new is not None and (change is not None or not changed):
                self.waiting[leaf_relation(number, Of.NEW)] = new, types
                if change is not None:
                    self.waiting[_change(number)] = change, {**types, WEIGHT: ""}
                continue
            if not named:
                name_relations(self.desk.session, step, self.desk.keep)
                named = True
            for of in (Of.NEW, Of.GONE, Of.COME, Of.OLD) if changed else (Of.NEW,):
                self.waiting[leaf_relation(number, of)] = self.collected(leaf_relation(number, of)), types

    def scanned(self, node: Node, state: State = State.NEW) -> pa.Table | None:
        """The rows of a leaf that is columns of a table, if they are here."""
        items = node.items if isinstance(node, Project) else all_items(node)
        scan = node.input if isinstance(node, Project) else node
        if not isinstance(scan, Scan) or scan.source.startswith(PREFIX):
            return None
        rows = self.reading.here(replace(scan, state=state))
        names = [item.expr.column for item in items]
        if rows is None or None in names:
            return None
        origins = {c.field.name: c.origin for c in scan.scanned}
        found = {column(n): rows[origins[str(name)]] for n, name in enumerate(names)}
        return pa.table({**found, WEIGHT: rows[WEIGHT]} if state is State.CHANGE else found)

    def collected(self, relation: str) -> pa.Table:
        rows = self.desk.collected(self.desk.session.table(relation).limit(MOST + 1))
        if rows.num_rows > MOST:
            raise NotHere(f"more than {MOST:,} rows")
        return rows

    def read_old(self, p: Predicate) -> None:
        """The predicate as it was, out of the view's table."""
        way, table = self.desk.compiled.way, self.desk.table
        assert isinstance(way, Maintenance)
        assert way.recursion is not None
        stored, stratum = self.desk.compiled.stored, way.recursion.stored.get(p.source)
        names = [f.name for f in stratum.columns] if stratum else list(way.root.columns[: len(p.types)])
        columns = {stored[name]: column(n) for n, name in enumerate(names)}
        version = table.log.version()
        if why_no_rs_state(table.log, version, list(columns), most_rows=MOST, most_bytes=SCANNED_BYTES) is not None:
            raise NotHere(f"{p.name} as it was")
        only = (stored[STRATUM], stratum.number) if stratum else None
        rows = without_views(read_state_rs(table.ref, version, columns, only=only))
        self.desk.scanned(table.ref, rows.num_rows, table.log.snapshot(version).files)
        self.waiting[relation_of(p.source, Of.OLD)] = rows, {f.name: f.type for f in p.fields}

    def encode(self, fixpoint: Fixpoint) -> None:
        by_type: dict[str, list[pa.ChunkedArray]] = {}
        for rows, types in self.waiting.values():
            for name, kind in types.items():
                if kind:
                    by_type.setdefault(kind, []).append(rows[name])
        for kind, columns in by_type.items():
            self.codes.learn(kind, columns)
        coded = {
            relation: pa.table({n: self.codes.encoded(kind, rows[n]) if kind else rows[n] for n, kind in types.items()})
            for relation, (rows, types) in self.waiting.items()
        }
        self.engine.relations.update(coded)
        for number in range(len(fixpoint.read)):
            if _change(number) in coded:
                names = {of.value: leaf_relation(number, of) for of in (Of.NEW, Of.OLD, Of.GONE, Of.COME)}
                self.engine.learn_leaf(names, coded[names["new"]], coded[_change(number)])

    def tell(self, step: Iterate, p: Predicate) -> None:
        """Spark what changed of a predicate; and what it was and is, if a later step looks at that."""
        session, change = self.desk.session, self.engine.changes[p.source]
        kinds = {f.name: f.type for f in p.fields}
        listed = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in kinds.items())
        schema = session.sql(f"SELECT {listed}, 0L AS {WEIGHT}").schema
        types = arrow_schema(schema)
        rows = pa.table({
            **{name: self.codes.decoded(kind, change[name], types.field(name).type) for name, kind in kinds.items()},
            WEIGHT: change[WEIGHT],
        })  # fmt: skip
        arrow_to_spark(session, rows, schema).createOrReplaceTempView(change_of(p))
        old, new = (relation_of(p.source, of) for of in (Of.OLD, Of.NEW))
        later = self.desk.plan.steps[self.desk.plan.steps.index(step) + 1 :]
        if any(name in other.sql for other in later for name in (old, new)):
            session.sql(dict(step.relations)[old]).createOrReplaceTempView(old)
            same = " AND ".join(f"a.{name} <=> b.{name}" for name in kinds)
            lost = f"SELECT * FROM {change_of(p)} WHERE {WEIGHT} < 0"
            won = f"SELECT {', '.join(kinds)} FROM {change_of(p)} WHERE {WEIGHT} > 0"
            rest = f"SELECT * FROM {old} a LEFT ANTI JOIN ({lost}) b ON {same}"
            session.sql(f"{rest} UNION ALL {won}").createOrReplaceTempView(new)


def _change(number: int) -> str:
    return f"__deltaic_leaf{number}_change"
