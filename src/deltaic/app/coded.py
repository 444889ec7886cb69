"""Rounds of a fixpoint in this process, for rules that do nothing but compare: no Spark job, a few milliseconds each.

Every value is a number, its *code*; equal values of a type have one code, and NULL has one too. Nothing is computed
with codes but whether they are equal, for types in which Arrow and Spark agree on that. What a rule does beyond that,
an expression or another comparison, is Spark's to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    UnionAll,
    walk,
)
from deltaic.algebra.recursion import Predicate
from deltaic.delta.near import equal_pairs, is_only_equality
from deltaic.plan.recursion import Query

NULL = -(2**63)
MOST = 20_000_000
"""A relation of more rows than this is Spark's."""

_COMPARED = re.compile(r"tinyint|smallint|int|bigint|boolean|date|string|timestamp|timestamp_ntz|decimal\(.*\)")
_THEMSELVES = ("tinyint", "smallint", "int", "bigint")
_PAIR = 2


class NotHere(Exception):
    """Something that is Spark's to do."""


def only_compares(nodes: Iterable[Node]) -> bool:
    """Whether trees do nothing but look whether values are equal."""
    return all(_is_plain(part) for node in nodes for part in walk(node))


def _is_plain(node: Node) -> bool:
    if not all(_COMPARED.fullmatch(f.type) for f in node.schema):
        return False
    match node:
        case Ref() | UnionAll():
            return True
        case Project():
            return all(item.expr.column is not None for item in node.items)
        case Aggregate():
            return not node.aggregates and all(item.expr.column is not None for item in node.groups)
        case Filter():
            pairs, types = equal_pairs(node.predicate), node.input.fields
            return is_only_equality(node.predicate) and all(types[a].type == types[b].type for a, b, _ in pairs)
        case Join(kind=JoinKind.INNER | JoinKind.SEMI | JoinKind.ANTI):
            return node.on is not None and is_only_equality(node.on) and _across(node, node.on)
    return False


def _across(node: Join, on: Expr) -> bool:
    """Whether a condition compares each side with the other, and values of one type."""
    types = {f.name: f.type for side in node.inputs for f in side.schema}
    left = set(node.left.columns)
    return all(types[a] == types[b] and (a in left) != (b in left) for a, b, _ in equal_pairs(on))


class Codes:
    """The codes of all values of some types. Whole numbers are their own."""

    def __init__(self) -> None:
        self.known: dict[str, pa.Array] = {}

    def learn(self, kind: str, columns: Sequence[pa.ChunkedArray]) -> None:
        if kind not in _THEMSELVES:
            there = [self.known[kind]] if kind in self.known else []
            chunks = [chunk for column in columns for chunk in column.chunks]
            every = pa.chunked_array([*there, *chunks]) if there or chunks else pa.chunked_array([[]], pa.string())
            self.known[kind] = pc.drop_null(every.unique())

    def encoded(self, kind: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if kind in _THEMSELVES:
            codes = column.cast(pa.int64())
            if len(codes) and pc.any(pc.equal(codes, NULL)).as_py():
                raise NotHere(f"the number {NULL}")
        else:
            codes = pc.index_in(column, value_set=self.known[kind]).cast(pa.int64())
        return pc.fill_null(codes, NULL)

    def decoded(self, kind: str, codes: pa.ChunkedArray, into: pa.DataType) -> pa.ChunkedArray:
        missing = pc.equal(codes, NULL)
        found = pc.if_else(missing, pa.scalar(None, pa.int64()), codes)
        return found.cast(into) if kind in _THEMSELVES else self.known[kind].take(found).cast(into)


class CodedEngine:
    """Relations are tables of codes, under the names of their columns."""

    def __init__(self) -> None:
        self.relations: dict[str, pa.Table] = {}
        self.changes: dict[str, pa.Table] = {}

    # what rounds ask for

    def keep(self, relation: str, query: Query) -> int:
        self.relations[relation] = self.evaluate(query.node)
        return int(self.relations[relation].num_rows)

    def add(self, relation: str, other: str, p: Predicate) -> None:
        self.relations[relation] = pa.concat_tables([self.relations[relation], self.relations[other]])

    def empty(self, relation: str, p: Predicate) -> None:
        self.relations[relation] = pa.schema([(f.name, pa.int64()) for f in p.fields]).empty_table()

    def define(self, relation: str, query: Query) -> None:
        self.keep(relation, query)

    def change(self, p: Predicate, lost: Query, won: Query) -> None:
        parts = []
        for query, sign in ((lost, -1), (won, 1)):
            rows = self.evaluate(query.node)
            parts.append(rows.append_column(WEIGHT, pa.array([sign] * rows.num_rows, pa.int64())))
        self.changes[p.source] = pa.concat_tables(parts)

    # the change of a leaf

    def learn_leaf(self, names: Mapping[str, str], new: pa.Table, change: pa.Table | None) -> None:
        """The relations of a leaf, under the names given for `new`, `old`, `gone` and `come`, from its rows now and the
        change that led to them: statement 2."""
        self.relations[names["new"]] = new
        columns = new.column_names
        if change is None:
            return
        net = change.group_by(columns).aggregate([(WEIGHT, "sum")])
        net = net.filter(pc.not_equal(net[f"{WEIGHT}_sum"], 0))
        touched = _matched(new, net.select(columns), [(c, c) for c in columns], keep=True)
        counts = touched.group_by(columns).aggregate([([], "count_all")])
        both = net.join(counts, keys=columns, join_type="left outer")
        there, moved = pc.fill_null(both["count_all"], 0), both[f"{WEIGHT}_sum"]
        gone = both.filter(pc.and_(pc.less(moved, 0), pc.equal(there, 0))).select(columns)
        come = both.filter(pc.and_(pc.greater(moved, 0), pc.equal(there, moved))).select(columns)
        left = _matched(new, come, [(c, c) for c in columns], keep=False)
        self.relations[names["gone"]], self.relations[names["come"]] = gone, come
        self.relations[names["old"]] = pa.concat_tables([left, gone])

    # trees

    def evaluate(self, node: Node) -> pa.Table:
        found = self._evaluate(node)
        if found.num_rows > MOST:
            raise NotHere(f"{found.num_rows:,} rows")
        return found

    def _evaluate(self, node: Node) -> pa.Table:
        match node:
            case Ref() if node.name not in self.relations:
                raise NotHere(node.name)
            case Ref():
                return self.relations[node.name].select(list(node.columns))
            case Project():
                below = self.evaluate(node.input)
                return pa.table({item.name: below[str(item.expr.column)] for item in node.items})
            case Filter():
                below = self.evaluate(node.input)
                for a, b, safe in equal_pairs(node.predicate):
                    same = pc.equal(below[a], below[b])
                    below = below.filter(same if safe else pc.and_(same, pc.not_equal(below[a], NULL)))
                return below
            case UnionAll():
                parts = [self.evaluate(branch).rename_columns(list(node.columns)) for branch in node.branches]
                return pa.concat_tables(parts)
            case Aggregate():
                below = self.evaluate(node.input)
                named = pa.table({item.name: below[str(item.expr.column)] for item in node.groups})
                return named.group_by(named.column_names).aggregate([])
            case Join():
                return self.joined(node)
            case Scan():
                raise NotHere(f"a table, {node.source}")
        raise NotHere(type(node).__name__)

    def joined(self, node: Join) -> pa.Table:
        assert node.on is not None
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        pairs = []
        for one, two, safe in equal_pairs(node.on):
            a, b = (one, two) if one in left.column_names else (two, one)
            pairs.append((a, b))
            if not safe and left.num_rows < right.num_rows and node.kind is not JoinKind.ANTI:
                left = left.filter(pc.not_equal(left[a], NULL))
            elif not safe:
                right = right.filter(pc.not_equal(right[b], NULL))
        if node.kind is not JoinKind.INNER:
            return _matched(left, right.select([b for _, b in pairs]), pairs, keep=node.kind is JoinKind.SEMI)
        if left.num_rows <= right.num_rows:  # Arrow builds its table of the right side
            keys = [b for _, b in pairs], [a for a, _ in pairs]
            found = right.join(left, *keys, join_type="inner", coalesce_keys=False)
        else:
            keys = [a for a, _ in pairs], [b for _, b in pairs]
            found = left.join(right, *keys, join_type="inner", coalesce_keys=False)
        return found.select(list(node.columns))


def _matched(left: pa.Table, right: pa.Table, pairs: Sequence[tuple[str, str]], *, keep: bool) -> pa.Table:
    """The rows of the left with a match on the right, or those without one."""
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    if not left.num_rows or not right.num_rows:
        return left.slice(0, 0) if keep or not left.num_rows else left
    if right.num_rows > _PAIR * left.num_rows:  # only what can match
        few = left.select(list(dict.fromkeys(ours)))
        right = right.join(few, theirs, ours, join_type="left semi")
    return left.join(right, ours, theirs, join_type="left semi" if keep else "left anti").select(left.column_names)
