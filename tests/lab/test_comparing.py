"""What a check compares how: told from the algebra, without Spark."""

from collections.abc import Iterator

import pytest

from deltaic.algebra.nodes import Field, Node
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import Reason
from deltaic.plan.choose import choose
from deltaic.plan.comparing import How, settled, stored_terms, terms_of, ties
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from tests.lab.duck import Duck
from tests.lab.keeper import DuckCatalog

FIELDS = (("id", "int"), ("k", "int"), ("name", "string"), ("v", "decimal(10,2)"), ("x", "double"), ("d", "date"))
E, S, R, C = How.EXACT, How.SORTED, How.ROUNDED, How.CHOSEN


@pytest.fixture(scope="module")
def catalog() -> Iterator[DuckCatalog]:
    duck = Duck()
    yield DuckCatalog(duck, {"s": tuple(Field(*field) for field in FIELDS)})
    duck.close()


def tree(query: str, catalog: DuckCatalog) -> Node:
    parsed, text = parse_query(query)
    return prune(lower(parsed, text, catalog).node)


@pytest.mark.parametrize(
    ("query", "hows"),
    [
        ("SELECT k, sum(v) AS t, count(*) AS n, max(x) AS m FROM s GROUP BY k", [E, E, E, E]),
        ("SELECT k, sum(x) AS t, avg(x) AS a, stddev(x) AS d FROM s GROUP BY k", [E, R, R, R]),
        ("SELECT k, sum(x) / count(*) AS a, coalesce(sum(x), 0) AS c FROM s GROUP BY k", [E, R, R]),
        ("SELECT k, CASE WHEN count(*) > 1 THEN sum(x) END AS a FROM s GROUP BY k", [E, R]),
        ("SELECT k, round(sum(x), 2) AS r, CAST(sum(x) AS DECIMAL(10,2)) AS c FROM s GROUP BY k", [E, R, R]),
        ("SELECT k, sum(x) > 3 AS large, concat(sum(x), '!') AS told FROM s GROUP BY k", [E, C, C]),
        ("SELECT k, collect_list(name) AS l, first(name) AS f, max_by(name, v) AS m FROM s GROUP BY k", [E, S, C, C]),
        ("SELECT id, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM s", [E, C]),
        ("SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM s", [E, E]),
        ("SELECT id, sum(x) OVER (PARTITION BY k) AS r FROM s", [E, R]),
    ],
)
def test_how_columns_are_compared(catalog: DuckCatalog, query: str, hows: list[How]) -> None:
    terms = terms_of(tree(query, catalog))
    assert [column.how for column in terms.columns] == hows
    assert terms.exact == (set(hows) == {E})


def test_a_rounded_number_may_be_off_by_a_digit(catalog: DuckCatalog) -> None:
    columns = terms_of(tree("SELECT round(sum(x), 2) AS r, floor(sum(x)) AS f FROM s", catalog)).columns
    assert [column.step for column in columns] == [0.01, 1.0]


def test_what_numbers_are_made_of_is_computed_beside_them(catalog: DuckCatalog) -> None:
    query = "SELECT k, sum(x) - sum(id * x) AS net, avg(x) * 2 AS twice FROM s GROUP BY k HAVING count(*) > 0"
    terms = terms_of(tree(query, catalog))
    net, twice = terms.columns[1:]
    assert len(net.sizes) == 2
    assert not twice.sizes
    assert terms.root is not None
    assert set(net.sizes) <= set(terms.root.columns)
    sql = render(terms.root, lambda scan: scan.source)
    assert sql.count("sum(abs(CAST(") == 2


def test_unstable_decisions_are_told(catalog: DuckCatalog) -> None:
    assert terms_of(tree("SELECT k FROM s GROUP BY k HAVING sum(x) > 1", catalog)).decided_by
    assert terms_of(tree("SELECT DISTINCT t FROM (SELECT sum(x) AS t FROM s GROUP BY k)", catalog)).decided_by
    assert not terms_of(tree("SELECT k FROM s GROUP BY k HAVING sum(v) > 1", catalog)).decided_by


def test_where_no_rows_tie_an_order_settles_everything(catalog: DuckCatalog) -> None:
    query = "SELECT id, name FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC, id) = 1"
    root = tree(query, catalog)
    assert terms_of(root).decided_by
    (tied,) = ties(root)
    sql = render(prune(tied), lambda scan: scan.source)
    assert "row_number() OVER (PARTITION BY" in sql
    assert "rank() OVER (PARTITION BY" in sql
    assert terms_of(settled(root)).exact
    assert not ties(tree("SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id) AS t FROM s", catalog))


def test_what_a_view_stores_is_compared_too(catalog: DuckCatalog) -> None:
    way = choose(tree("SELECT k, avg(x) AS a, sum(v) AS t, count(DISTINCT name) AS c FROM s GROUP BY k", catalog))
    assert not isinstance(way, Reason)
    terms = stored_terms(way, way.root)
    by_name = dict(zip(way.root.columns, terms.columns, strict=True))
    hidden = [by_name[name] for name in way.hidden]
    assert any(column.how is R and column.sizes for column in hidden)
    assert any(column.zero for column in hidden)
    assert terms.root is not None
    assert set(terms.root.columns) > set(way.root.columns)
