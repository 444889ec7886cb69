"""Rounds of a fixpoint in this process: no Spark job, a few milliseconds each.

Every value is a number, its *code*; equal values of a type have one code, and NULL has one too. Rows are joined, merged
and compared by codes, for types in which Arrow and Spark agree on what is equal. What a rule computes is computed with
values (`scalars`) and given codes again. Whatever else a rule does is Spark's to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import WEIGHT, Aggregate, Filter, Item, Join, JoinKind, Node, Project, Ref, Scan, UnionAll
from deltaic.algebra.recursion import Predicate
from deltaic.algebra.trees import walk
from deltaic.app.rounds.scalars import ARROW, INTEGERS, Condition, NotHere, Scalar, condition, scalar
from deltaic.plan.recursion import Fixpoint, Query

NULL = -(2**63)
MOST = 20_000_000
"""A relation of more rows than this is Spark's."""

_COMPARED = re.compile(r"tinyint|smallint|int|bigint|boolean|date|string|timestamp_ltz|timestamp_ntz|decimal\(.*\)")
"""What is equal is the same: of DOUBLE there are two zeros."""
_PAIR = 2
_ROW = "__deltaic_row"


def rounds_run_here(fixpoint: Fixpoint) -> bool:
    """Whether the rounds of a component can be."""
    rounds = [part for _, parts in fixpoint.phases for part in parts]
    return runs_here(node for part in rounds for node in (part.first, part.again) if node is not None)


def runs_here(nodes: Iterable[Node]) -> bool:
    """Whether trees can be evaluated in codes."""
    return all(_is_known(part) for node in nodes for part in walk(node))


def _is_known(node: Node) -> bool:
    if not all(_COMPARED.fullmatch(f.type) for f in node.schema):
        return False
    match node:
        case Ref() | UnionAll():
            return True
        case Project():
            return _are_known(node.items, node.input)
        case Aggregate():
            return not node.aggregates and _are_known(node.groups, node.input)
        case Filter():
            return condition(node.predicate, _types(node.input)) is not None
        case Join(kind=JoinKind.INNER | JoinKind.SEMI | JoinKind.ANTI):
            return node.on is None or condition(node.on, _types(node.left, node.right)) is not None
    return False


def _are_known(items: Sequence[Item], below: Node) -> bool:
    found = [scalar(item.expr, _types(below)) for item in items]
    return all(one is not None and one.type == item.type for one, item in zip(found, items, strict=True))


def _types(*nodes: Node) -> dict[str, str]:
    return {f.name: f.type for node in nodes for f in node.schema}


class Codes:
    """The codes of all values of some types. Whole numbers are their own."""

    def __init__(self) -> None:
        self.known: dict[str, pa.Array] = {}

    def learn(self, kind: str, columns: Sequence[pa.ChunkedArray]) -> None:
        """Values that have a code keep it."""
        if kind not in INTEGERS:
            there = [self.known[kind]] if kind in self.known else []
            chunks = [chunk for column in columns for chunk in column.chunks]
            every = pa.chunked_array([*there, *chunks]) if there or chunks else pa.chunked_array([[]], pa.string())
            self.known[kind] = pc.drop_null(every.unique())

    def encoded(self, kind: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if kind in INTEGERS:
            codes = column.cast(pa.int64())
            if len(codes) and pc.any(pc.equal(codes, NULL)).as_py():
                raise NotHere(f"the number {NULL}")
        else:
            codes = pc.index_in(column, value_set=self.known[kind]).cast(pa.int64())
        return pc.fill_null(codes, NULL)

    def encoded_new(self, kind: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The codes of values that may not have one yet."""
        if kind not in INTEGERS:
            known = self.known.get(kind)
            unknown = column if known is None else column.filter(pc.invert(pc.is_in(column, value_set=known)))
            if unknown.null_count < len(unknown):
                self.learn(kind, [unknown])
        return self.encoded(kind, column)

    def decoded(self, kind: str, codes: pa.ChunkedArray, into: pa.DataType) -> pa.ChunkedArray:
        missing = pc.equal(codes, NULL)
        found = pc.if_else(missing, pa.scalar(None, pa.int64()), codes)
        return found.cast(into) if kind in INTEGERS else self.known[kind].take(found).cast(into)


class CodedRunner:
    """Relations are tables of codes, under the names of their columns."""

    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        self.relations: dict[str, pa.Table] = {}
        self.changes: dict[str, pa.Table] = {}

    # what rounds ask for

    def keep(self, relation: str, query: Query) -> int:
        self.relations[relation] = self.evaluate(query.node)
        return int(self.relations[relation].num_rows)

    def add(self, relation: str, other: str) -> None:
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

    def learn_leaf(self, names: Mapping[str, str], new: pa.Table, change: pa.Table | None = None) -> None:
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
                return self.computed(node.items, node.input)
            case Filter():
                return self.filtered(self.evaluate(node.input), _condition(node.predicate, node.input), node.input)
            case UnionAll():
                parts = [self.evaluate(branch).rename_columns(list(node.columns)) for branch in node.branches]
                return pa.concat_tables(parts)
            case Aggregate():
                named = self.computed(node.groups, node.input)
                return named.group_by(named.column_names).aggregate([])
            case Join():
                return self.joined(node)
            case Scan():
                raise NotHere(f"a table, {node.source}")
        raise NotHere(type(node).__name__)

    def computed(self, items: Sequence[Item], below: Node) -> pa.Table:
        rows, types = self.evaluate(below), _types(below)
        return pa.table({item.name: self.codes_of(_scalar(item.expr, types), rows, types) for item in items})

    def codes_of(self, value: Scalar, rows: pa.Table, types: Mapping[str, str]) -> pa.ChunkedArray:
        if value.column is not None:
            return rows[value.column]
        return self.codes.encoded_new(value.type, self.values(value, rows, types))

    def values(self, value: Scalar, rows: pa.Table, types: Mapping[str, str]) -> pa.ChunkedArray:
        read = {name: self.codes.decoded(types[name], rows[name], ARROW[types[name]]) for name in value.columns}
        found = value.of(read)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, rows.num_rows)
        return pa.chunked_array([found]) if isinstance(found, pa.Array) else found

    def filtered(self, rows: pa.Table, on: Condition, *below: Node) -> pa.Table:
        types = _types(*below)
        for one, two, safe in on.equal:
            a, b = (self.codes_of(side, rows, types) for side in (one, two))
            same = pc.equal(a, b)
            rows = rows.filter(same if safe else pc.and_(same, pc.not_equal(a, NULL)))
        for term in on.others:
            rows = rows.filter(self.values(term, rows, types))  # without those for which it is NULL
        return rows

    def joined(self, node: Join) -> pa.Table:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        on = Condition((), ()) if node.on is None else _condition(node.on, node.left, node.right)
        keys, rest = _across(on, set(node.left.columns), set(node.right.columns))
        pairs = []
        for number, (one, two, safe) in enumerate(keys):
            left, a = self.with_key(left, one, _types(node.left), f"__deltaic_left{number}")
            right, b = self.with_key(right, two, _types(node.right), f"__deltaic_right{number}")
            pairs.append((a, b))
            if not safe and left.num_rows < right.num_rows and node.kind is not JoinKind.ANTI:
                left = left.filter(pc.not_equal(left[a], NULL))
            elif not safe:
                right = right.filter(pc.not_equal(right[b], NULL))
        if node.kind is JoinKind.INNER:
            both = self.filtered(_met(left, right, pairs), rest, node.left, node.right)
            return both.select(list(node.columns))
        keep = node.kind is JoinKind.SEMI
        if pairs and not rest.equal and not rest.others:
            found = _matched(left, right.select([b for _, b in pairs]), pairs, keep=keep)
            return found.select(list(node.columns))
        numbered = left.append_column(_ROW, pa.array(range(left.num_rows), pa.int64()))
        both = self.filtered(_met(numbered, right, pairs), rest, node.left, node.right)
        matched = pc.is_in(numbered[_ROW], value_set=both[_ROW].unique())
        return left.filter(matched if keep else pc.invert(matched)).select(list(node.columns))

    def with_key(self, rows: pa.Table, key: Scalar, types: Mapping[str, str], name: str) -> tuple[pa.Table, str]:
        """The rows with a column of the key, and what that is called."""
        if key.column is not None:
            return rows, key.column
        return rows.append_column(name, self.codes_of(key, rows, types)), name


def _scalar(expr: Expr, types: Mapping[str, str]) -> Scalar:
    found = scalar(expr, types)
    if found is None:
        raise NotHere(expr.sql)
    return found


def _condition(expr: Expr, *below: Node) -> Condition:
    found = condition(expr, _types(*below))
    if found is None:
        raise NotHere(expr.sql)
    return found


def _across(on: Condition, left: set[str], right: set[str]) -> tuple[list[tuple[Scalar, Scalar, bool]], Condition]:
    """The terms that make a side equal to the other, the left one first; and those that do not."""
    keys, rest = [], []
    for one, two, safe in on.equal:
        if one.columns and two.columns and one.columns <= left and two.columns <= right:
            keys.append((one, two, safe))
        elif one.columns and two.columns and one.columns <= right and two.columns <= left:
            keys.append((two, one, safe))
        else:
            rest.append((one, two, safe))
    return keys, Condition(tuple(rest), on.others)


def _met(left: pa.Table, right: pa.Table, pairs: Sequence[tuple[str, str]]) -> pa.Table:
    """The rows of both sides that are equal in these columns."""
    if not pairs:
        if left.num_rows * right.num_rows > MOST:
            raise NotHere(f"{left.num_rows:,} rows with each of {right.num_rows:,}")
        left = left.append_column("__deltaic_left", pa.repeat(pa.scalar(0, pa.int64()), left.num_rows))
        right = right.append_column("__deltaic_right", pa.repeat(pa.scalar(0, pa.int64()), right.num_rows))
        pairs = [("__deltaic_left", "__deltaic_right")]
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    if left.num_rows <= right.num_rows:  # Arrow builds its table of the right side
        return right.join(left, theirs, ours, join_type="inner", coalesce_keys=False)
    return left.join(right, ours, theirs, join_type="inner", coalesce_keys=False)


def _matched(left: pa.Table, right: pa.Table, pairs: Sequence[tuple[str, str]], *, keep: bool) -> pa.Table:
    """The rows of the left with a match on the right, or those without one."""
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    if not left.num_rows or not right.num_rows:
        return left.slice(0, 0) if keep or not left.num_rows else left
    if right.num_rows > _PAIR * left.num_rows:  # only what can match
        few = left.select(list(dict.fromkeys(ours)))
        right = right.join(few, theirs, ours, join_type="left semi")
    return left.join(right, ours, theirs, join_type="left semi" if keep else "left anti").select(left.column_names)
