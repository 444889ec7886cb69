"""Recursion in this process: predicates that are evaluated or maintained over codes, where what rules compute is known
there and what they read is not large."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from deltaic.algebra.nodes import WEIGHT, Filter, Node, Project, Ref, Scan, State
from deltaic.algebra.recursion import PREFIX, Predicate, column
from deltaic.algebra.trees import with_leaves
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.desk import Desk
from deltaic.app.refresh.reading import Reading
from deltaic.app.rounds.coded import CodedRunner, Codes, rounds_run_here, runs_here
from deltaic.app.rounds.fixpoint import Keep, Limits, iterate, name_relations
from deltaic.app.rounds.scalars import NotHere
from deltaic.app.values.settings import Settings
from deltaic.delta.dred import Of, relation_of
from deltaic.delta.rules import Derivation, ordered
from deltaic.plan.iterating import evaluation_steps
from deltaic.plan.maintain import Maintenance
from deltaic.plan.recursion import Fixpoint, Phase, change_of, leaf_relation, placed
from deltaic.plan.rounds import Rounds, RoundsFound
from deltaic.plan.steps import Iterate, SourceRead
from deltaic.plan.strata import STRATUM
from deltaic.store.arrow import arrow_schema, arrow_to_spark, without_views
from deltaic.store.state import SCANNED_BYTES, read_state_rs, why_no_rs_state
from deltaic.store.table import padded_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_CORES, _PER_PARTITION = 2, 1_000_000


class Here(ABC):
    def __init__(self, session: SparkSession, limits: Limits, keep: Keep) -> None:
        self.session, self.limits, self.kept_by_spark = session, limits, keep
        self.codes = Codes()
        self.runner = CodedRunner(self.codes)
        self.rounds = Rounds(self.runner, limits.rounds, limits.over_deleted)
        self.waiting: dict[str, tuple[pa.Table, dict[str, str]]] = {}
        """Relations that are to be encoded, and the types of their columns."""
        self.named = False
        """Whether Spark knows the relations of leaves."""

    def iterate(self, step: Iterate) -> list[RoundsFound] | None:
        """Evaluates or maintains the predicates of a step, so that Spark has them or their changes under their names;
        None if that is Spark's to do."""
        assert step.fixpoint is not None
        if not self.limits.here or not rounds_run_here(step.fixpoint):
            return None
        try:
            self.run(step, step.fixpoint)
        except NotHere:
            return None
        return self.rounds.told

    @abstractmethod
    def run(self, step: Iterate, fixpoint: Fixpoint) -> None: ...

    def read(self, step: Iterate, number: int, node: Node, *relations: Of) -> None:
        """Relations of a leaf, by Spark."""
        if not self.named:
            name_relations(self.session, step, self.kept_by_spark)
            self.named = True
        types = {column(n): f.type for n, f in enumerate(node.schema)}
        for of in relations:
            frame = self.session.table(leaf_relation(number, of))
            if any(padded_type({"metadata": field.metadata}) for field in frame.schema.fields):
                raise NotHere("a CHAR, to whose length Spark pads what it is compared with")
            rows = frame.limit(self.limits.here + 1).toArrow()
            if rows.num_rows > self.limits.here:
                raise NotHere(f"more than {self.limits.here:,} rows")
            self.waiting[leaf_relation(number, of)] = rows, types

    def encode(self) -> None:
        by_type: dict[str, list[pa.ChunkedArray]] = {}
        for rows, types in self.waiting.values():
            for name, kind in types.items():
                by_type.setdefault(kind, []).append(rows[name])
        for kind, columns in by_type.items():
            self.codes.learn(kind, columns)
        for relation, (rows, types) in self.waiting.items():
            coded = {name: self.codes.encoded(kind, rows[name]) for name, kind in types.items()}
            self.runner.relations[relation] = pa.table(coded)

    def tell(self, p: Predicate, relation: str, rows: pa.Table) -> None:
        """Spark rows of a predicate, with their signs if they have such."""
        listed = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in p.fields)
        sign = f", 0L AS {WEIGHT}" if WEIGHT in rows.column_names else ""
        schema = self.session.sql(f"SELECT {listed}{sign}").schema
        types, kinds = arrow_schema(schema), {f.name: f.type for f in p.fields}
        found = {name: self.codes.decoded(kind, rows[name], types.field(name).type) for name, kind in kinds.items()}
        if sign:
            found[WEIGHT] = rows[WEIGHT]
        frame = arrow_to_spark(self.session, pa.table(found), schema)
        # Spark would make a partition, and later a file, of every few thousand rows
        frame.coalesce(_CORES + rows.num_rows // _PER_PARTITION).createOrReplaceTempView(relation)


class EvaluatedHere(Here):
    def run(self, step: Iterate, fixpoint: Fixpoint) -> None:
        for number, node in enumerate(fixpoint.read):
            self.read(step, number, node, Of.NEW)
        self.encode()
        self.rounds.evaluate(dict(step.phases)[Phase.EVALUATE])
        for p in fixpoint.component.predicates:
            new = relation_of(p.source, Of.NEW)
            self.tell(p, new, self.runner.relations[new])


class MaintainedHere(Here):
    def __init__(self, desk: Desk, reading: Reading, limits: Limits) -> None:
        super().__init__(desk.session, limits, desk.keep)
        self.desk, self.reading = desk, reading
        self.scanned: dict[int, list[Node]] = {}
        """Leaves that are computed here, by number: their rows and, if they changed, their change, over a table's."""

    def run(self, step: Iterate, fixpoint: Fixpoint) -> None:
        moved = {name for name, _ in step.relations}
        for number, node in enumerate(fixpoint.read):
            changed = leaf_relation(number, Of.GONE) in moved
            if not self.scan_leaf(number, node, changed):
                self.read(step, number, node, *((Of.NEW, Of.GONE, Of.COME, Of.OLD) if changed else (Of.NEW,)))
        for p in fixpoint.component.predicates:
            self.read_old(p)
        self.encode()
        for number, trees in self.scanned.items():
            names = {of.value: leaf_relation(number, of) for of in (Of.NEW, Of.OLD, Of.GONE, Of.COME)}
            self.runner.learn_leaf(names, *map(self.runner.evaluate, trees))
        self.rounds.maintain(dict(step.phases))
        for p in fixpoint.component.predicates:
            self.tell(p, change_of(p), self.runner.changes[p.source])
            self.tell_states(step, p)

    def scan_leaf(self, number: int, node: Node, changed: bool) -> bool:
        """A leaf that chooses and computes from the rows of one table: whether they, and their change, are here."""
        scan = _scanned_below(node)
        if scan is None:
            return False
        trees: list[Node] = [placed(node)]
        if changed:
            delta = Derivation(frozenset({scan.source})).delta(node)
            assert delta is not None
            trees.append(placed(ordered(delta, node.columns), WEIGHT))
        for place, state in enumerate((State.NEW, State.CHANGE)[: len(trees)]):
            read = replace(scan, state=state)
            rows, ref = self.reading.here(read), Ref(f"__deltaic_leaf{number}_{state.value}_rows", read.schema)
            trees[place] = with_leaves(trees[place], partial(_instead_of_scan, ref))
            if rows is None or not runs_here([trees[place]]):
                return False
            origins = {c.field.name: c.origin for c in scan.scanned}
            named = {f.name: rows[origins.get(f.name, f.name)] for f in ref.schema}
            self.waiting[ref.name] = pa.table(named), {f.name: f.type for f in ref.schema}
        self.scanned[number] = trees
        return True

    def read_old(self, p: Predicate) -> None:
        """The predicate as it was, out of the view's table."""
        way, table = self.desk.compiled.way, self.desk.table
        assert isinstance(way, Maintenance)
        assert way.recursion is not None
        stored, stratum = self.desk.compiled.stored, way.recursion.stored.get(p.source)
        names = [f.name for f in stratum.columns] if stratum else list(way.root.columns[: len(p.types)])
        columns = {stored[name]: column(n) for n, name in enumerate(names)}
        log, version = table.log, table.log.version() if table.at is None else table.at
        if why_no_rs_state(log, version, list(columns), most_rows=self.limits.here, most_bytes=SCANNED_BYTES):
            raise NotHere(f"{p.name} as it was")
        only = (stored[STRATUM], stratum.number) if stratum else None
        rows = without_views(read_state_rs(table.ref, version, columns, only=only))
        self.desk.scanned(table.ref, rows.num_rows, log.snapshot(version).files)
        self.waiting[relation_of(p.source, Of.OLD)] = rows, {f.name: f.type for f in p.fields}

    def tell_states(self, step: Iterate, p: Predicate) -> None:
        """What a predicate was and is, if a later step looks at that."""
        old, new, change = relation_of(p.source, Of.OLD), relation_of(p.source, Of.NEW), change_of(p)
        later = self.desk.plan.steps[self.desk.plan.steps.index(step) + 1 :]
        if not any(name in other.sql for other in later for name in (old, new)):
            return
        self.session.sql(dict(step.relations)[old]).createOrReplaceTempView(old)
        same = " AND ".join(f"a.{f.name} <=> b.{f.name}" for f in p.fields)
        left = f"SELECT * FROM {old} a LEFT ANTI JOIN (SELECT * FROM {change} WHERE {WEIGHT} < 0) b ON {same}"
        come = f"SELECT {', '.join(f.name for f in p.fields)} FROM {change} WHERE {WEIGHT} > 0"
        self.session.sql(f"{left} UNION ALL {come}").createOrReplaceTempView(new)


def _scanned_below(node: Node) -> Scan | None:
    while isinstance(node, Project | Filter):
        node = node.input
    return node if isinstance(node, Scan) and not node.source.startswith(PREFIX) else None


def _instead_of_scan(ref: Ref, leaf: Node) -> Node:
    return ref if isinstance(leaf, Scan) else leaf


@contextmanager
def evaluated(
    session: SparkSession, compiled: Compiled, reads: Mapping[str, SourceRead], *, by_spark: bool = False
) -> Iterator[list[RoundsFound]]:
    """The predicates of a query, for as long as a block reads them; what their rounds found. By Spark, its own reading
    of what rules compute is the only one."""
    told = list[RoundsFound]()
    with ExitStack() as stack:

        def keep(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        for step in evaluation_steps(compiled.recursion.components, reads):
            limits = Limits.of(Settings.of(session), reads, None)
            here = None if by_spark else EvaluatedHere(session, limits, keep).iterate(step)
            told.extend(iterate(session, step, limits, keep) if here is None else here)
        yield told
