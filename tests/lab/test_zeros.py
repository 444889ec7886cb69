"""0.0 and -0.0 are equal, and not the same to every function: what is made of them is exact."""

from collections import Counter

import pytest

from deltaic.algebra.nodes import Field
from deltaic.algebra.recursion import Component
from deltaic.plan.kept import body_of
from deltaic.plan.maintain import Known, Maintenance
from deltaic.plan.program import timed_program
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from tests.lab.case import Case, Column, Table, Type, View
from tests.lab.choice import SeededChoice
from tests.lab.duck import COUNT, Duck
from tests.lab.keeper import DuckCatalog, KeptView, tables_of
from tests.lab.test_recursion import Kept

TABLES = (
    Table("t", (Column("g", Type.INT), Column("d", Type.DOUBLE), Column("e", Type.INT)), ()),
    Table("u", (Column("x", Type.INT), Column("s", Type.STRING)), ()),
)
Row = tuple[object, ...]
VALUES = (0.0, -0.0, 0.0, -0.0, 1.5, None)


def row_of(choice: SeededChoice, table: str) -> Row:
    if table == "t":
        return choice.integer(0, 2), choice.pick(VALUES), choice.integer(0, 3)
    return choice.integer(0, 2), choice.pick(("0.0", "-0.0", "1.5"))


class Tables:
    """Tables, and changes that say which of two equal rows went: DuckDB's own difference of two states would not."""

    def __init__(self, duck: Duck, seed: int) -> None:
        self.duck, self.choice = duck, SeededChoice(seed)
        self.rows = {table.name: [row_of(self.choice, table.name) for _ in range(5)] for table in TABLES}
        for name, rows in self.rows.items():
            self.insert(name, rows)

    def insert(self, name: str, rows: list[Row]) -> None:
        for row in rows:
            self.duck._run(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row))

    def move(self) -> frozenset[str]:
        self.duck.snapshot()
        moved = set[str]()
        for name, rows in self.rows.items():
            gone = [rows.pop(self.choice.integer(0, len(rows) - 1)) for _ in range(self.choice.integer(0, len(rows)))]
            come = [row_of(self.choice, name) for _ in range(self.choice.integer(0, 2))]
            come += [(row[0], -row[1], row[2]) for row in gone if name == "t" and isinstance(row[1], float)]
            if gone or come:
                moved.add(name)
            rows.extend(come)
            self.duck._run(f"DELETE FROM {name}")
            self.insert(name, rows)
            change = f"{name}__change"
            self.duck._run(f"CREATE OR REPLACE TABLE {change} AS SELECT *, 1::BIGINT AS {COUNT} FROM {name} LIMIT 0")
            self.insert(change, [(*row, sign) for side, sign in ((gone, -1), (come, 1)) for row in side])
        return frozenset(moved)


def shown(rows: list[Row]) -> Counter[str]:
    return Counter(map(repr, rows))


TEXT = "CAST(d AS STRING)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT g, min({TEXT}) AS m FROM t GROUP BY g",
        f"SELECT g, max({TEXT}) AS m, max(e) AS f, count({TEXT}) AS n FROM t GROUP BY g",
        f"SELECT bool_or({TEXT} = '-0.0') AS b, bit_xor(CAST({TEXT} = '-0.0' AS INT)) AS x FROM t",
        f"SELECT g, max_by(e, concat({TEXT}, g, e)) AS m FROM t GROUP BY g",
        f"SELECT {TEXT} AS s, count(*) AS n, min(e) AS m FROM t GROUP BY 1",
        f"SELECT DISTINCT g, {TEXT} AS s FROM t",
        f"SELECT g, count(DISTINCT {TEXT}) AS n FROM t GROUP BY g",
        f"SELECT u.x, t.g FROM u LEFT JOIN t ON u.s = {TEXT}",
        f"SELECT t.g, {TEXT} AS s, u.x FROM t FULL JOIN u ON u.s = {TEXT} AND u.x = t.g",
        f"SELECT x FROM u LEFT ANTI JOIN t ON u.s = {TEXT}",
        f"SELECT x FROM u WHERE s IN (SELECT {TEXT} FROM t WHERE t.e > u.x)",
        f"SELECT g, {TEXT} AS s, rank() OVER (PARTITION BY g ORDER BY {TEXT}) AS r FROM t",
        f"SELECT min({TEXT}) AS m FROM (SELECT t.d FROM t JOIN u ON t.g = u.x)",
    ],
)
@pytest.mark.parametrize("technique", ["auto", "base"])
def test_what_is_made_of_zeros(query: str, technique: str, duck: Duck, pytestconfig: pytest.Config) -> None:
    case = Case(TABLES, (), ())
    for seed in range(200 if pytestconfig.getoption("--fuzz") else 6):
        duck.reset(case)
        tables = Tables(duck, seed)
        view = KeptView(duck, View("v", query, ()), DuckCatalog(duck, tables_of(case)), technique)
        assert isinstance(view.way, Maintenance)
        view.create()
        for _ in range(3):
            moved = tables.move()
            view.refresh(moved)
            assert shown(duck.rows(view.visible())) == shown(duck.rows(query)), seed


@pytest.mark.parametrize(
    "query",
    ["SELECT g, CAST(max(d) AS STRING) AS m FROM t GROUP BY g", "SELECT g, atan2(min(d), -1D) AS m FROM t GROUP BY g"],
)
def test_an_extreme_that_turns(query: str, duck: Duck) -> None:
    case = Case((Table("t", TABLES[0].columns, ((1, -0.0, 1), (2, 5.0, 1))),), (), ())
    duck.reset(case)
    view = KeptView(duck, View("v", query, ()), DuckCatalog(duck, tables_of(case)))
    view.create()
    duck.snapshot()
    duck._run("UPDATE t SET d = 0.0 WHERE g = 1")
    duck._run(
        f"CREATE TABLE t__change AS FROM (VALUES (1, '-0.0'::DOUBLE, 1, -1), (1, 0.0, 1, 1)) AS r(g, d, e, {COUNT})"
    )
    view.refresh(frozenset({"t"}))
    assert shown(duck.rows(view.visible())) == shown(duck.rows(query))


def test_a_kept_delta_has_both(duck: Duck) -> None:
    case = Case(TABLES[:1], (), ())
    duck.reset(case)
    query = "SELECT g, count_if(CAST(d AS STRING) = '-0.0') AS n FROM t GROUP BY g"
    view = KeptView(duck, View("v", query, ()), DuckCatalog(duck, tables_of(case)))
    assert isinstance(view.way, Maintenance)
    body = body_of(view.way)
    assert not isinstance(body, str)
    program = timed_program(body, Known(frozenset({"t"})), None)
    assert program is not None
    rows = f"(VALUES (1, '-0.0'::DOUBLE, 1, -1, 7), (1, 0.0, 1, 1, 7)) AS r(g, d, e, {COUNT}, __deltaic_time)"
    duck._run(f"CREATE TABLE t__change AS FROM {rows}")
    for binding in program.bindings[:-1]:
        duck.store(binding.name, render(binding.node, view.relation))
    found = duck.rows(render(program.bindings[-1].node, view.relation))
    assert len(found) == 2


class KeptTexts(Kept):
    def lowered(self, sql: str) -> tuple[Component, ...]:
        numbers: dict[str, tuple[Field, ...]] = {
            "e": (Field("a", "int"), Field("b", "int")),
            "n": (Field("a", "int"), Field("x", "double")),
        }
        return lower(*parse_query(sql), DuckCatalog(self.duck, numbers)).components

    def check_coded(self, *_: object) -> None:
        pass


def test_a_leaf_of_a_recursion(duck: Duck) -> None:
    numbers = (Column("a", Type.INT), Column("b", Type.INT))
    pairs = Table("n", (Column("a", Type.INT), Column("x", Type.DOUBLE)), ((2, -0.0), (1, 3.0)))
    duck.reset(Case((Table("e", numbers, ((1, 1), (1, 2), (2, 3))), pairs), (), ()))
    query = """WITH RECURSIVE r(a, s) AS (SELECT a, CAST(a AS STRING) FROM e
UNION SELECT n.a, CAST(n.x AS STRING) FROM r JOIN n ON r.a = n.a) SELECT * FROM r"""
    view = KeptTexts(duck, query)
    duck.snapshot()
    duck._run("DELETE FROM n WHERE a = 2")
    duck._run("INSERT INTO n VALUES (2, 0.0)")
    duck._run(f"CREATE TABLE n__change AS FROM (VALUES (2, '-0.0'::DOUBLE, -1), (2, 0.0, 1)) AS r(a, x, {COUNT})")
    view.refresh(frozenset({"n"}))
    found = sorted(view.rows(view.predicates[0]), key=repr)
    assert found == [(1, "1"), (1, "3.0"), (2, "0.0"), (2, "2")]
