"""What a refresh is thought to cost, what is learnt from the past, and which keys rows at hand can reach."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltaic.algebra.expr import Expr, col, conjunction, join_parts
from deltaic.algebra.nodes import (
    Aggregate,
    Field,
    Filter,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    ScanColumn,
    State,
    UnionAll,
)
from deltaic.app.refresh.reach import equalities, reach
from deltaic.plan.cost import Learnt, Past


def test_learning() -> None:
    assert Learnt.of([]) == Learnt(1.0, 1.0)
    slow = [Past("full", 1.0, 4.0)]
    assert factors(slow) == pytest.approx((2.0, 2.0))  # half believed; a slow machine is slow at both
    both = [*slow * 2, *[Past("incremental", 2.0, 1.0)] * 3, Past("incremental", 2.0, 40.0)]
    assert factors(both) == pytest.approx((0.5, 4.0))  # one that stuck is passed over
    assert Learnt.of([Past("full", 1.0, 1000.0)]).full == 5.0
    recent = [Past("full", 1.0, 4.0)] * 9 + [Past("full", 1.0, 1.0)] * 5
    assert Learnt.of(recent).full == 1.0


def factors(past: list[Past]) -> tuple[float, float]:
    learnt = Learnt.of(past)
    return learnt.incremental, learnt.full


def equal(a: str, b: str) -> Expr:
    return join_parts(col(a), " = ", col(b))


def test_equalities() -> None:
    assert equalities(None) is None
    assert equalities(equal("a", "b")) == [("a", "b")]
    assert equalities(conjunction(equal("a", "b"), equal("c", "d"))) == [("a", "b"), ("c", "d")]
    assert equalities(join_parts(col("a"), " = ", col("b"), " AND ", col("c"), " = ", col("d"))) == [
        ("a", "b"),
        ("c", "d"),
    ]
    assert equalities(join_parts("((", col("a"), ") = (", col("b"), "))")) == [("a", "b")]
    for other in (" OR ", " AND NOT ", " + ", " <=> "):
        assert equalities(join_parts(equal("a", "b"), other, equal("c", "d"))) is None
    assert equalities(join_parts("NOT (", equal("a", "b"), ")")) is None
    assert equalities(join_parts(col("a"), " = ", col("b"), " = ", col("c"))) is None
    assert equalities(join_parts(col("a"), " < ", col("b"))) is None
    assert equalities(join_parts("abs(", col("a"), ") = ", col("b"))) is None


def scan(source: str, *names: str, state: State = State.NEW) -> Scan:
    return Scan(source, tuple(ScanColumn(Field(f"{n}#{source}", "int"), n) for n in names), state)


ROWS = {
    "r": pa.table({"a": pa.array([1, 2, 2, None], pa.int32()), "b": pa.array([10, 20, 30, 40], pa.int32())}),
    "s": pa.table({"b": pa.array([10, 30, 99, None], pa.int32()), "c": pa.array([7, 8, 9, 6], pa.int32())}),
    "wide": pa.table({"b": pa.array([10], pa.int64()), "c": pa.array([7], pa.int32())}),
    "empty": pa.table({"b": pa.array([], pa.int32())}),
}


def values(node: Node, column: str, bound: dict[str, Node] | None = None) -> list[int | None] | None:
    found = reach(node, frozenset({column}), lambda scan: ROWS.get(scan.source), bound or {})
    return None if found is None else sorted(found[column].to_pylist(), key=str)


def test_reach() -> None:
    r, s = scan("r", "a", "b"), scan("s", "b", "c")
    assert values(r, "a#r") == [1, 2, 2, None]
    joined = Join(r, s, JoinKind.INNER, equal("b#r", "b#s"))
    assert values(joined, "c#s") == [7, 8]
    assert values(Join(r, s, JoinKind.INNER, equal("b#s", "b#r")), "a#r") == [1, 2]
    assert values(Filter(joined, join_parts(col("c#s"), " > 7")), "c#s") == [7, 8]  # more than there are
    renamed = Project(joined, (Item("k", col("c#s"), "int"), Item("e", join_parts(col("a#r"), " + 1"), "int")))
    assert values(renamed, "k") == [7, 8]
    assert values(renamed, "e") is None
    union = UnionAll(
        (renamed, Project(s, (Item("x", col("c#s"), "int"), Item("y", col("c#s"), "int")))), renamed.schema
    )
    assert values(union, "k") == [6, 7, 7, 8, 8, 9]
    assert values(Ref("before", union.schema), "k", {"before": union}) == [6, 7, 7, 8, 8, 9]
    assert values(Ref("unknown", union.schema), "k") is None
    assert values(Join(r, s, JoinKind.LEFT, equal("b#r", "b#s")), "c#s") is None
    assert values(Join(r, s, JoinKind.INNER, join_parts(col("b#r"), " < ", col("b#s"))), "c#s") is None
    assert values(scan("elsewhere", "a"), "a#elsewhere") is None
    none = Project(scan("empty", "b"), (Item("x", col("b#empty"), "int"),))
    assert values(none, "x") == []
    assert values(Join(r, none, JoinKind.INNER, equal("b#r", "x")), "x") == []
    one_sided = join_parts(equal("b#r", "x"), " AND ", equal("a#r", "b#r"))
    assert values(Join(r, none, JoinKind.INNER, one_sided), "x") is None
    grouped = Aggregate(s, (Item("g", col("c#s"), "int"),))
    assert values(grouped, "g") == [6, 7, 8, 9]
    assert values(Join(grouped, r, JoinKind.SEMI, equal("g", "b#r")), "g") == [6, 7, 8, 9]  # more than there are
    wide = scan("wide", "b", "c")
    assert values(Join(r, wide, JoinKind.INNER, equal("b#r", "b#wide")), "c#wide") is None
