"""Large and deep queries: kept, or recomputed with a reason, or refused; never a blow-up, nor an error of Python's."""

from collections.abc import Callable

import pytest

from deltaic.algebra.reasons import Code, NotLowered, Reason
from deltaic.algebra.trees import sources
from deltaic.errors import ParseError, UnsupportedError
from deltaic.plan.choose import choose
from deltaic.plan.refreshing import full_query, refresh_steps
from deltaic.plan.steps import SourceRead, StoredView
from deltaic.sql.extent import check_extent
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from tests.sql.whole_numbers import WIDE, WholeNumbers


def joined(count: int, how: str = "JOIN") -> str:
    return "SELECT t0.id FROM t0 " + " ".join(f"{how} t{n} ON t{n - 1}.id = t{n}.id" for n in range(1, count))


def nested(count: int, opening: str, inmost: str, closing: str) -> str:
    return opening * count + inmost + closing * count


def doubled(count: int, body: str) -> str:
    """Common table expressions, each of which reads the one before it twice."""
    ctes = [f"c{n} AS ({body.replace('below', f'c{n - 1}')})" for n in range(1, count + 1)]
    return f"WITH c0 AS (SELECT id FROM t0), {', '.join(ctes)} SELECT id FROM c{count}"


def columns(count: int, pattern: str) -> str:
    return ", ".join(pattern.replace("#", str(n)) for n in range(count))


KEPT = {
    "30 joins": joined(30),
    "15 left joins": joined(15, "LEFT JOIN"),
    "an IN list of 10,000": f"SELECT id FROM t0 WHERE k IN ({', '.join(map(str, range(10_000)))})",
    "5,000 columns": f"SELECT {columns(WIDE, 'c#')} FROM wide",
    "1,000 expressions": f"SELECT {columns(1_000, 'c# + 1 AS d#')} FROM wide",
    "500 sums": f"SELECT k, {columns(500, 'sum(c#) AS d#')} FROM wide GROUP BY k",
    "500 groups": f"SELECT count(*) AS n FROM wide GROUP BY {columns(500, 'c#')}",
    "1,000 branches": " UNION ALL ".join(f"SELECT id, k FROM t{n % 50}" for n in range(1_000)),
    "500 branches of a set": " UNION ".join(f"SELECT id, k FROM t{n % 50}" for n in range(500)),
    "1,000 ANDs": "SELECT id FROM t0 WHERE " + " AND ".join(f"k <> {n}" for n in range(1_000)),
    "1,000 ORs": "SELECT id FROM t0 WHERE " + " OR ".join(f"k = {n}" for n in range(1_000)),
    "a sum of 5,000 terms": f"SELECT {' + '.join(['id'] * 5_000)} AS x FROM t0",
    "200 parentheses": f"SELECT {nested(200, '(', 'id', ')')} AS x FROM t0",
    "200 CASEs": f"SELECT {nested(200, 'CASE WHEN k > 1 THEN ', 'id', ' ELSE 0 END')} AS x FROM t0",
    "200 function calls": f"SELECT {nested(200, 'abs(', 'id', ')')} AS x FROM t0",
    "a CASE of 2,000": f"SELECT CASE {columns(2_000, 'WHEN k = # THEN #').replace(', ', ' ')} END AS x FROM t0",
    "a name of 10,000 characters": f"SELECT id AS `{'x' * 10_000}` FROM t0",
    "a text of a million characters": f"SELECT id, '{'x' * 1_000_000}' AS s FROM t0",
    "50 subqueries in FROM": nested(50, "SELECT id FROM (", "SELECT id FROM t0", ")"),
    "30 subqueries in WHERE": nested(30, "SELECT id FROM t0 WHERE id IN (", "SELECT id FROM t0", ")"),
    "20 scalar subqueries": nested(20, "SELECT max(id) AS id FROM t0 WHERE id = (", "SELECT max(id) FROM t0", ")"),
    "64 grouping sets": f"SELECT k, count(*) AS n FROM wide GROUP BY GROUPING SETS ({columns(64, '(c#, k)')})",
    "a CUBE of 12": f"SELECT count(*) AS n FROM wide GROUP BY CUBE ({columns(12, 'c#')})",
    "1,000 expressions, of which one is read": f"WITH {columns(1_000, 'e# AS (SELECT id FROM t0)')} SELECT id FROM e7",
    "2,000 rows": f"SELECT * FROM VALUES {columns(2_000, '(#, #)')} AS v(a, b)",
    "groups that double": "SELECT k, count(*) AS n FROM "
    + nested(40, "(SELECT k + k AS k FROM ", "t0", ")")
    + " GROUP BY k",
    "30 recursive rules": "WITH RECURSIVE p AS (SELECT id, k FROM t0 "
    + " ".join(f"UNION SELECT p.id, t{n}.k FROM p JOIN t{n} ON p.k = t{n}.id" for n in range(30))
    + ") SELECT id, k FROM p",
}
TOO_LARGE = {
    "500 joins": joined(500),
    "100 left joins": joined(100, "LEFT JOIN"),
    "200 subqueries in FROM": nested(200, "SELECT id FROM (", "SELECT id FROM t0", ")"),
    "200 subqueries in WHERE": nested(200, "SELECT id FROM t0 WHERE id IN (", "SELECT id FROM t0", ")"),
    "200 EXISTS": nested(200, "SELECT id FROM t0 a WHERE EXISTS (", "SELECT id FROM t0", ")"),
    "subqueries below NOT, each asked twice": nested(
        20, "SELECT id FROM t0 WHERE NOT (k = 1 OR id IN (", "SELECT id FROM t0", "))"
    ),
    "aliases that double": f"SELECT id AS a0, {', '.join(f'a{n} + a{n} AS a{n + 1}' for n in range(40))} FROM t0",
    "partitions that double": "SELECT k, sum(k) OVER (PARTITION BY k) AS n FROM "
    + nested(40, "(SELECT k + k AS k FROM ", "t0", ")"),
    "expressions that double": doubled(8, "SELECT a.id FROM below a JOIN below b ON a.id = b.id"),
}
REFUSED = {
    "5,000 parentheses": (ParseError, f"SELECT {nested(5_000, '(', 'id', ')')} AS x FROM t0"),
    "5,000 NOTs": (ParseError, f"SELECT id FROM t0 WHERE {'NOT ' * 5_000} k = 1"),
    "expressions that double 30 times": (
        UnsupportedError,
        doubled(30, "SELECT a.id FROM below a JOIN below b ON a.id = b.id"),
    ),
    "branches that double 300 times": (
        UnsupportedError,
        doubled(300, "SELECT id FROM below UNION ALL SELECT id FROM below"),
    ),
    "a CUBE of 16": (UnsupportedError, f"SELECT count(*) AS n FROM wide GROUP BY CUBE ({columns(16, 'c#')})"),
    "a CUBE of 5,000": (UnsupportedError, f"SELECT count(*) AS n FROM wide GROUP BY {columns(WIDE, 'c#')} WITH CUBE"),
    "100 CUBEs": (UnsupportedError, f"SELECT count(*) AS n FROM wide GROUP BY {columns(100, 'CUBE (c#, k)')}"),
}


def planned(query: str, technique: str = "auto") -> Reason | None:
    """Why a query is recomputed; None if it is kept. Everything is planned that is before Spark is asked to run."""
    tree, text = parse_query(query)
    check_extent(tree, text)
    try:
        lowered = lower(tree, text, WholeNumbers())
    except NotLowered as refusal:
        return refusal.reason
    way = choose(lowered.node, technique, components=lowered.components)
    if isinstance(way, Reason):
        return way
    rules = [rule for component in lowered.components for p in component.predicates for rule in p.rules]
    names = {name for tree in (way.root, *rules) for name in sources(tree) if not name.startswith("@")}
    reads = {name: SourceRead(name, name, 1, 2, "feed", "SELECT 1", change_rows=10, rows=1_000) for name in names}
    view = StoredView("v", 7, dict(zip(way.root.columns, (*lowered.names, *way.hidden), strict=True)))
    assert full_query(way, reads, view)
    refresh_steps(way, reads, view)
    return None


@pytest.mark.parametrize("name", KEPT)
def test_large_queries_that_are_kept(name: str) -> None:
    assert planned(KEPT[name]) is None


@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_large_to_be_kept(name: str) -> None:
    reason = planned(TOO_LARGE[name])
    assert reason is not None
    assert reason.code is Code.TOO_LARGE
    assert reason.hint is not None


@pytest.mark.parametrize("name", REFUSED)
def test_too_large_to_be_run(name: str) -> None:
    kind, query = REFUSED[name]
    with pytest.raises(kind) as refused:
        planned(query)
    assert refused.value.hint is not None


@pytest.mark.parametrize("technique", ["base", "blakeley", "reducing", "reduce+"])
def test_techniques_whose_work_doubles_with_each_join(technique: str) -> None:
    reason = planned(joined(40).replace("SELECT", "SELECT DISTINCT"), technique)
    assert reason is not None
    assert reason.code is Code.TOO_LARGE


@pytest.mark.parametrize(
    ("write", "most"),
    [
        (lambda n: nested(n, "SELECT max(id) AS id FROM t0 WHERE id = (", "SELECT max(id) FROM t0", ")"), 3),
        (lambda n: nested(n, "SELECT id FROM t0 WHERE k = 1 OR id IN (", "SELECT id FROM t0", ")"), 3),
        (lambda n: " UNION ALL ".join(["SELECT id FROM t0"] * n), 1),
        (lambda n: f"SELECT {columns(n, 'sum(c#) OVER (PARTITION BY k) AS d#')} FROM wide", 2),
    ],
    ids=["scalar subqueries", "subqueries in OR", "branches", "windows"],
)
def test_spark_is_asked_as_often_as_the_query_is_long(write: Callable[[int], str], most: int) -> None:
    """A subquery that was lowered twice, and one inside it too, would ask 2^20 questions."""
    catalog = WholeNumbers()
    lower(*parse_query(write(20)), catalog)
    assert catalog.asked <= most * 20
