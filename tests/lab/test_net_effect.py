"""The laws of the net effect (Salem et al., definition 4.1), of the operators that deltas are made with.

As printed, a projection and a product of net effects are net; they are so only after equal rows are merged again.
"""

from collections import Counter

import pytest

from deltaic.algebra.expr import col, join_parts
from deltaic.algebra.nodes import WEIGHT, Field, Filter, Item, Join, JoinKind, Node, Project, Scan, ScanColumn, State
from deltaic.algebra.trees import pass_through
from deltaic.delta.netting import net
from deltaic.delta.rules import OTHER_WEIGHT, renamed_weight, sum_of
from deltaic.sql.render import render
from tests.lab.choice import SeededChoice
from tests.lab.duck import Duck

ROWS = (
    "SELECT CAST(x AS INT) AS x, CAST(y AS INT) AS y, CAST(d AS BIGINT) AS __deltaic_d FROM (VALUES {rows}) v(x, y, d)"
)


def delta(source: str) -> Node:
    columns = tuple(ScanColumn(Field(f"{source}_{name}", "int", True), name) for name in "xy")
    return Scan(source, columns, State.CHANGE)


def selected(node: Node, name: str) -> Node:
    return Filter(node, join_parts(col(name), " > 1"))


def projected(node: Node, name: str) -> Node:
    return Project(node, (pass_through(node.fields[name]), pass_through(node.fields[WEIGHT])))


def product(one: Node, two: Node) -> Node:
    joined = Join(one, renamed_weight(two), JoinKind.INNER, join_parts(col("r_y"), " <=> ", col("s_x")))
    weight = Item(WEIGHT, join_parts(col(WEIGHT), " * ", col(OTHER_WEIGHT)), "bigint", False)
    return Project(joined, (*(pass_through(joined.fields[n]) for n in ("r_x", "r_y", "s_y")), weight))


def named_alike(node: Node, like: Node) -> Node:
    """The columns of one relation under the names of another's."""
    pairs = zip(node.schema, like.schema, strict=True)
    return Project(node, tuple(Item(b.name, col(a.name), a.type, a.nullable) for a, b in pairs))


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed: int, duck: Duck) -> None:
    choice = SeededChoice(seed)
    for name in "rs":
        rows = [
            f"({choice.pick(('NULL', '1', '2', '3'))}, {choice.integer(1, 3)}, {choice.pick((-2, -1, 1, 1, 2))})"
            for _ in range(choice.integer(1, 12))
        ]
        duck.store(f"{name}_d", ROWS.format(rows=", ".join(rows)))

    def rows_of(node: Node) -> Counter[tuple[object, ...]]:
        return Counter(duck.rows(render(node, lambda scan: f"{scan.source}_d")))

    r, s = delta("r"), delta("s")
    s_too = named_alike(s, r)
    for one, *others in (
        (net(r), net(net(r))),
        (net(sum_of([r, s_too])), net(sum_of([net(r), s_too])), net(sum_of([net(r), net(s_too)]))),
        (net(product(r, s)), net(product(net(r), net(s))), net(product(net(r), s))),
        (net(selected(r, "r_x")), selected(net(r), "r_x")),
        (net(projected(r, "r_x")), net(projected(net(r), "r_x"))),
    ):
        assert all(rows_of(one) == rows_of(other) for other in others), one
    assert max(rows_of(net(r)).values(), default=1) == 1
