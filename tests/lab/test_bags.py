"""Stored multiplicities: DISTINCT calls kept from the change and the view alone, and exactly."""

import pytest

from deltaic.algebra.nodes import Scan, State
from deltaic.algebra.trees import walk
from deltaic.plan.maintain import VIEW, Known, Maintenance, Way
from deltaic.plan.program import program_for
from tests.lab.case import Case, View
from tests.lab.duck import Duck
from tests.lab.keeper import keep_case
from tests.lab.outer_trees import outer_tables
from tests.lab.test_views import problem

KEPT = {
    "count": "SELECT a, count(DISTINCT b) AS n FROM r GROUP BY a",
    "sum beside sums": "SELECT a, sum(DISTINCT v) AS d, sum(v) AS s, count(*) AS n, min(v) AS m FROM r GROUP BY a",
    "average": "SELECT a, avg(DISTINCT b) AS m, count(DISTINCT b) AS n FROM r GROUP BY a",
    "two bags": "SELECT a, count(DISTINCT b) AS n, count(DISTINCT v) AS m FROM r GROUP BY a",
    "several columns": "SELECT a, count(DISTINCT b, v) AS n FROM r GROUP BY a",
    "computed": "SELECT a % 2 AS g, count(DISTINCT b + 1) AS n FROM r GROUP BY a % 2",
    "filtered": "SELECT a, count(DISTINCT b) FILTER (WHERE v > 0) AS n, count(DISTINCT b) AS m FROM r GROUP BY a",
    "no groups": "SELECT count(DISTINCT a) AS n, sum(DISTINCT b) AS s FROM r",
    "having": "SELECT a, count(DISTINCT b) AS n FROM r GROUP BY a HAVING count(DISTINCT b) > 1",
    "over a join": "SELECT s.c, count(DISTINCT r.b) AS n FROM r JOIN s ON r.a = s.a GROUP BY s.c",
    "over an outer join": "SELECT s.c, count(DISTINCT r.b) AS n FROM s LEFT JOIN r ON r.a = s.a GROUP BY s.c",
    "median": "SELECT a, median(b) AS m, percentile(b, 0.25D) AS q, count(DISTINCT v) AS n FROM r GROUP BY a",
    "set": "SELECT a, sort_array(collect_set(b)) AS l, count(DISTINCT b) AS n FROM r GROUP BY a",
    "the group hidden": "SELECT count(DISTINCT b) AS n, sum(v) AS t FROM r GROUP BY a",
}


def kept_way(duck: Duck, query: str) -> Maintenance:
    tables, history = outer_tables(1)
    case = Case(tables, (View("v0", query, ()),), history, 1)
    duck.reset(case)
    way = keep_case(duck, case)[0][-1].way
    assert isinstance(way, Maintenance)
    return way


@pytest.mark.parametrize("name", KEPT)
def test_no_old_row_is_read(name: str, duck: Duck) -> None:
    way = kept_way(duck, KEPT[name])
    assert way.way is Way.CHANGES
    assert way.bags
    program = program_for(way, Known(frozenset({"r"})))
    assert program is not None
    read = {(n.source, n.state) for b in program.bindings for n in walk(b.node) if isinstance(n, Scan)}
    assert read - {("s", State.NEW)} == {("r", State.CHANGE), (VIEW, State.NEW)}


def test_the_cheaper_way_is_taken(duck: Duck) -> None:
    """A view with more rows than its source, as where hardly a value comes twice, computes touched groups anew."""
    way = kept_way(duck, KEPT["count"])
    few, many = ({"r": rows, VIEW: 100} for rows in (100, 101))
    assert way.by_groups(Known(frozenset({"r"}), frozenset(), few))
    assert not way.by_groups(Known(frozenset({"r"}), frozenset(), many))
    program = program_for(way, Known(frozenset({"r"}), frozenset(), few))
    assert program is not None
    assert VIEW not in {n.source for b in program.bindings for n in walk(b.node) if isinstance(n, Scan)}


@pytest.mark.parametrize("name", KEPT)
def test_executed(name: str, duck: Duck, pytestconfig: pytest.Config) -> None:
    for seed in range(100 if pytestconfig.getoption("--fuzz") else 2):
        tables, history = outer_tables(seed)
        assert problem(duck, Case(tables, (View("v0", KEPT[name], ()),), history, seed)) is None
