"""Operators that Deltaic does not have, taught to it in the places that docs/extending.md names, and in no others.

`Repeat` gives each row as often as one of its columns says, three times at most. Its law: d(repeat E) = repeat dE.
`Both` gives the rows of two relations, in the columns of the first. Its law: d(A both B) = dA both dB.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from deltaic.algebra import printer, prune, stability
from deltaic.algebra.expr import col
from deltaic.algebra.nodes import WEIGHT_FIELD, Field, Item, Node, Operator, Project, Scan
from deltaic.algebra.reasons import Reason
from deltaic.algebra.trees import pass_through, walk, with_leaves
from deltaic.delta.rules import Derivation, ordered, sum_of
from deltaic.plan.choose import choose
from deltaic.sql import render
from tests.lab.case import Case, Column, Table, Type, View, identifier
from tests.lab.choice import SeededChoice
from tests.lab.duck import Duck
from tests.lab.histories import random_history, random_row
from tests.lab.keeper import DuckCatalog, KeptView, tables_of
from tests.lab.oracle import difference
from tests.lab.test_views import moved


@dataclass(frozen=True)
class Repeat(Operator):
    input: Node
    times: str

    def __post_init__(self) -> None:
        assert self.times in self.input.columns

    @property
    def schema(self) -> tuple[Field, ...]:
        return self.input.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Both(Operator):
    first: Node
    second: Node

    @property
    def schema(self) -> tuple[Field, ...]:
        return self.first.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.first, self.second)


def unstable_of_both(node: Both, judge: stability.Judge = stability._is_unstable) -> frozenset[str]:
    second = stability.unstable_columns(node.second, judge)
    below = {own for own, other in zip(node.columns, node.second.columns, strict=True) if other in second}
    return stability.unstable_columns(node.first, judge) | below


def delta_both(self: Derivation, node: Both) -> Node | None:
    first, second = self.delta(node.first), self.delta(node.second)
    terms = [] if first is None else [first]
    if second is not None:
        pairs = zip(node.schema, node.second.columns, strict=True)
        items = (Item(own.name, col(name), own.type, own.nullable) for own, name in pairs)
        terms.append(Project(second, (*items, pass_through(WEIGHT_FIELD))))
    return sum_of([ordered(term, node.columns) for term in terms])


DISPATCHES: dict[str, Any] = {
    "label": printer.label,
    "prune": prune._prune,
    "stability": stability.unstable_columns,
    "deciding": stability.deciding,
    "select": vars(render._Renderer)["select"].dispatcher,
    "delta": vars(Derivation)["_delta"].dispatcher,
}
"""All total dispatches over nodes."""
REPEAT: dict[str, Any] = {
    "label": lambda node: f"Repeat {node.times}",
    "prune": lambda node, needed: replace(node, input=prune._prune(node.input, needed | {node.times})),
    "stability": lambda node, judge=stability._is_unstable: stability.unstable_columns(node.input, judge),
    "deciding": lambda node: (col(node.times),),
    "select": lambda self, node: (
        f"SELECT {render._names(node.columns)} FROM {self.nested(node.input)}"
        f" JOIN (VALUES (1), (2), (3)) AS n(n_) ON n_ <= `{node.times}`"
    ),
    "delta": lambda self, node: (below := self.delta(node.input)) and Repeat(below, node.times),
}
BOTH: dict[str, Any] = {
    "label": lambda _node: "Both",
    "prune": lambda node, _needed: Both(prune.prune(node.first), prune.prune(node.second)),
    "stability": unstable_of_both,
    "deciding": lambda _node: (),
    "select": lambda self, node: (
        f"SELECT {render._names(node.columns)} FROM {self.nested(node.first)}"
        f" UNION ALL SELECT {render._names(node.second.columns)} FROM {self.nested(node.second)}"
    ),
    "delta": delta_both,
}


for place, dispatch in DISPATCHES.items():
    dispatch.register(Repeat, REPEAT[place])
    dispatch.register(Both, BOTH[place])


TABLES = (
    Table("r", (Column("k", Type.INT), Column("n", Type.INT), Column("v", Type.BIGINT))),
    Table("s", (Column("k", Type.INT), Column("w", Type.STRING))),
)
QUERIES = (
    "SELECT k, n, v FROM r WHERE v > 1",
    "SELECT k, sum(v) AS t, count(*) AS c, max(n) AS m FROM r GROUP BY k",
    "SELECT DISTINCT k, n FROM r",
    "SELECT r.v, s.w, r.n FROM r JOIN s ON r.k = s.k",
    "SELECT r.v, r.n, s.w FROM s LEFT JOIN r ON r.k = s.k",
    "SELECT w FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND r.n > 1)",
    "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n, v) AS p FROM r",
    "SELECT c, count(*) AS groups FROM (SELECT k, count(*) AS c, sum(n) AS t FROM r GROUP BY k) GROUP BY c",
)


def repeated(node: Node) -> Node:
    """What a tree is if every row of r stands there as often as its n says."""

    def turn(leaf: Node) -> Node:
        times = next((c.field.name for c in leaf.scanned if c.origin == "n"), None) if isinstance(leaf, Scan) else None
        return leaf if times is None else Repeat(leaf, times)  # type: ignore[return-value]

    return with_leaves(node, turn)


def doubled(node: Node) -> Node:
    """What a tree is if every row of r stands there twice."""

    def turn(leaf: Node) -> Node:
        if not isinstance(leaf, Scan) or leaf.source != "r":
            return leaf
        again = (replace(c, field=replace(c.field, name=f"{c.field.name}_again")) for c in leaf.scanned)
        return Both(leaf, replace(leaf, scanned=tuple(again)))  # type: ignore[return-value]

    return with_leaves(node, turn)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("turned", "operator"), [(repeated, Repeat), (doubled, Both)])
def test_a_new_operator_is_kept_like_any_other(
    duck: Duck, turned: Callable[[Node], Node], operator: type[Operator], query: str
) -> None:
    choice = SeededChoice(len(query))
    tables = tuple(replace(t, rows=tuple(random_row(choice, t.columns) for _ in range(20))) for t in TABLES)
    case = Case(tables, (View("v", query, ()),), random_history(choice, tables, {"r"}))
    duck.reset(case)
    view = KeptView(duck, case.views[0], DuckCatalog(duck, tables_of(case)))
    node = turned(view.lowered.node)
    assert any(isinstance(part, operator) for part in walk(node))
    view.way = choose(node)
    assert not isinstance(view.way, Reason)
    columns = zip(node.columns, view.names, strict=True)
    listed = ", ".join(f"`{own}` AS {identifier(name)}" for own, name in columns)
    anew = f"SELECT {listed} FROM ({render.render(node, view.relation)})"
    view.create()
    for batch in case.history:
        duck.snapshot()
        duck.apply(batch)
        view.refresh(frozenset(table.name for table in TABLES if moved(duck, table.name)))
        found = difference(duck.rows(anew), duck.rows(view.visible()))
        assert found is None, f"{query}:\n{found}"


@dataclass(frozen=True)
class Untaught(Operator):
    @property
    def schema(self) -> tuple[Field, ...]:
        return ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (Scan("r", ()),)


def test_a_place_that_was_not_taught_says_so() -> None:
    node: Any = Untaught()
    looks: list[Callable[[Any], object]] = [
        printer.label,
        prune.prune,
        stability.unstable_columns,
        stability.deciding,
        lambda node: render.render(node, str),
        Derivation(frozenset({"r"})).delta,
    ]
    for look in looks:
        with pytest.raises(TypeError, match=r"no (case|delta rule) for Untaught"):
            look(node)
