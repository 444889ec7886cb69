"""The lab checks itself: views run on DuckDB, seeds repeat, the oracle sees what it must."""

from collections import Counter
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.lab.case import Case, Column, Row, Statement, Table, Type, View
from tests.lab.dialect import to_duckdb
from tests.lab.duck import COUNT, Duck, DuckFailed
from tests.lab.generate import case_of, cases
from tests.lab.oracle import difference
from tests.lab.shrink import shrink

SEEDS = range(60)


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck()


def small_case() -> Case:
    table = Table("t", (Column("k", Type.INT), Column("s", Type.STRING)), ((1, "a"), (1, "a"), (None, "b"), (2, None)))
    history = (
        (Statement("t", "insert", "INSERT INTO t VALUES (1, 'a'), (3, 'o\\'b')"),),
        (Statement("t", "overwrite", "INSERT OVERWRITE t SELECT k + 1, s FROM t WHERE k IS NOT NULL"),),
    )
    return Case((table,), (View("v", "SELECT k FROM t", (Column("k", Type.INT),)),), history)


# ------------------------------------------------------------------------------------------------- generator


def test_a_seed_gives_the_same_case_again() -> None:
    scripts = [case_of(seed).script() for seed in range(20)]
    assert scripts == [case_of(seed).script() for seed in range(20)]
    assert len(set(scripts)) == 20


def test_views_and_histories_run_on_duckdb(duck: Duck) -> None:
    views, failures = 0, []
    for seed in SEEDS:
        case = case_of(seed)
        duck.reset(case)
        try:
            for view in case.views:
                views += 1
                duck.store(view.name, view.sql)
                names = [name for name, _, _ in duck.schema(f"SELECT * FROM {view.name}")]
                assert names == [column.name for column in view.columns], f"seed {seed} {view.sql}"
            for batch in case.history:
                duck.apply(batch)
            for view in case.views:
                duck.store(view.name, view.sql)
        except DuckFailed as failed:
            failures.append(f"seed {seed}: {failed}")
    assert len(failures) < views / 100, "\n".join(failures)


def test_generated_views_are_varied() -> None:
    seen = Counter(feature for seed in range(400) for feature in case_of(seed).features)
    missing = [feature for feature in EVERY_CONSTRUCT if not seen[feature]]
    assert not missing


EVERY_CONSTRUCT = [
    "where",
    "distinct",
    "star",
    "star.except",
    "star.qualified",
    "lateral_alias",
    "values",
    "derived_table",
    "cte",
    "cte.twice",
    "self_join",
    "view_over_view",
    "qualify",
    "having",
    "join.inner",
    "join.cross",
    "join.left",
    "join.right",
    "join.full",
    "join.semi",
    "join.anti",
    "join.using",
    "join.natural",
    "join.unequal",
    "join.null_safe",
    "group",
    "group.global",
    "group.expression",
    "group.ordinal",
    "group.alias",
    "group.rollup",
    "group.cube",
    "group.sets",
    "group.grouping",
    "group.grouping_id",
    "agg.count_star",
    "agg.count",
    "agg.sum",
    "agg.extreme",
    "agg.avg",
    "agg.count_distinct",
    "agg.spread",
    "agg.boolean",
    "agg.by",
    "agg.filter",
    "set.union_all",
    "set.union",
    "set.intersect",
    "set.intersect_all",
    "set.except",
    "set.except_all",
    "subquery.in",
    "subquery.not_in",
    "subquery.exists",
    "subquery.not_exists",
    "subquery.scalar",
    "subquery.scalar_correlated",
    "subquery.correlated",
    "subquery.under_or",
    "subquery.select_list",
    "subquery.in_case",
    "window.rank",
    "window.dense_rank",
    "window.row_number",
    "window.whole",
    "window.running",
    "window.frame",
    "window.lag",
    "window.lead",
    "window.several",
    "lateral_view.explode",
    "depth.3",
]


@settings(max_examples=10, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_hypothesis_draws_cases_that_run(duck: Duck, case: Case) -> None:
    duck.reset(case)
    for view in case.views:
        duck.store(view.name, view.sql)


def test_shrinking_keeps_the_failure_and_little_else(duck: Duck) -> None:
    def fails(case: Case) -> bool:
        if "MAX" not in case.views[0].sql:
            return False
        try:
            duck.reset(case)
            return bool(duck.rows(case.views[0].sql))
        except DuckFailed:
            return False

    seed = next(seed for seed in range(500) if len(case_of(seed).views[0].sql) > 250 and fails(case_of(seed)))
    smaller = shrink(case_of(seed), fails, most_tries=120)
    assert fails(smaller)
    assert len(smaller.script()) < len(case_of(seed).script()) / 2


# ---------------------------------------------------------------------------------------------------- oracle


def test_equal_multisets_have_no_difference() -> None:
    rows = [(1, "a", None), (1, "a", None), (2, None, Decimal("1.50"))]
    assert difference(rows, [rows[2], rows[0], rows[1]]) is None
    assert difference([(Decimal("1.5"), date(2024, 1, 1))], [(Decimal("1.50"), date(2024, 1, 1))]) is None


def test_a_count_that_differs_is_seen() -> None:
    found = difference([(1,), (1,), (2,)], [(1,), (2,), (2,)])
    assert found is not None
    assert str(found) == "missing: 1 rows\n  -1 (1)\nsurplus: 1 rows\n  +1 (2)"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (None, 0),
        (None, ""),
        (None, float("nan")),
        (True, 1),
        (False, None),
        (0.0, None),
        (1.0, 1.1),
        ("a", "A"),
    ],
)
def test_values_that_differ_are_seen(one: object, two: object) -> None:
    assert difference([(7, one)], [(7, two)]) is not None
    assert difference([(7, one)], [(7, one)]) is None
    assert difference([(7, two)], [(7, two)]) is None


def test_rounding_is_forgiven_and_more_is_not() -> None:
    assert difference([("a", 0.1 + 0.2)], [("a", 0.3)]) is None
    assert difference([("a", 0.1 + 0.2 - 0.3)], [("a", 0.0)]) is None
    assert difference([("a", 1e12)], [("a", 1e12 + 1)]) is None
    assert difference([("a", 0.3)], [("a", 0.3001)]) is not None
    assert difference([("a", float("inf"))], [("a", -float("inf"))]) is not None


def test_rows_are_paired_even_where_rounding_changes_their_order() -> None:
    up, down = 0.30000000000000004, 0.3
    assert difference([(up, 5.0), (down, 7.0)], [(down, 5.0), (up, 7.0)]) is None
    assert difference([(up, 5.0), (down, 7.0), (up, 5.0)], [(down, 5.0), (up, 7.0), (down, 7.0)]) is not None


# ------------------------------------------------------------------------------------------------------ duck


def test_the_change_is_signed_and_one_row_comes_and_goes() -> None:
    duck = Duck(small_case())
    duck.snapshot()
    duck.apply(small_case().history[0])
    assert duck.change("t") == "t__change"
    expected: list[Row] = [(1, "a", 1), (3, "o'b", 1), (1, "a", 1), (1, "a", -1)]
    assert difference(duck.rows("SELECT * FROM t__change"), expected) is None
    assert duck.only_grew("t")
    duck.apply(small_case().history[1])
    duck.change("t")
    assert not duck.only_grew("t")
    expected = [(None, "b", -1), (2, None, -1), (3, None, 1), (4, "o'b", 1), (2, "a", -1)]
    expected += [(1, "a", -1)] * 2 + [(2, "a", 1)] * 4
    assert difference(duck.rows("SELECT * FROM t__change"), expected) is None
    assert duck.schema("SELECT * FROM t__change") == [
        ("k", "int", True),
        ("s", "string", True),
        (COUNT, "bigint", True),
    ]


def test_types_are_named_as_spark_names_them() -> None:
    duck = Duck(small_case())
    query = (
        "SELECT k, COUNT(*) AS n, s, SUM(k) AS t, CAST(NULL AS DECIMAL(12,3)) AS p, DATE '2024-01-01' AS d,"
        " TRUE AS f, 1.5D AS x, ARRAY(k) AS l FROM t GROUP BY k, s"
    )
    types = [type_ for _, type_, _ in duck.schema(query)]
    assert types == [
        "int",
        "bigint",
        "string",
        "bigint",
        "decimal(12,3)",
        "date",
        "boolean",
        "double",
        "array<int>",
    ]


def test_a_statement_that_duckdb_refuses_is_shown() -> None:
    with pytest.raises(DuckFailed, match="nowhere"):
        Duck().rows("SELECT * FROM nowhere")


# --------------------------------------------------------------------------------------------------- dialect


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k <=> NULL AS r FROM t", [(False,), (False,), (True,), (False,)]),
        ("SELECT k FROM t LEFT SEMI JOIN t AS u ON t.k < u.k OR t.s = u.s", [(1,), (1,), (None,)]),
        ("SELECT k FROM t LEFT ANTI JOIN t AS u ON t.k < u.k OR t.s = u.s", [(2,)]),
        ("SELECT k, GROUPING_ID() AS g FROM t WHERE k = 2 GROUP BY k WITH ROLLUP", [(2, 0), (None, 1)]),
        ("SELECT k, s FROM t WHERE k = 2 GROUP BY k, s GROUPING SETS ((k), (s))", [(2, None), (None, None)]),
        ("SELECT k, COUNT(*) AS c FROM t WHERE k > 9 GROUP BY CUBE (k)", []),
        ("SELECT COUNT_IF(k > 9) AS c FROM t WHERE k > 9", [(0,)]),
        ("SELECT ARRAY_JOIN(ARRAY_SORT(COLLECT_SET(s)), ',') AS c FROM t WHERE k = 2", [("",)]),
        ("SELECT k IN (SELECT 2 FROM t) AS r FROM t WHERE k IS NULL", [(False,)]),
        ("SELECT k NOT IN (SELECT 2 FROM t) AS r FROM t WHERE k IS NULL", [(False,)]),
        ("SELECT k NOT IN (SELECT 2 FROM t WHERE k > 9) AS r FROM t WHERE k IS NULL", [(True,)]),
        ("SELECT x FROM t LATERAL VIEW EXPLODE(SEQUENCE(1, 0)) l AS x WHERE k = 2", [(1,), (0,)]),
        ("SELECT x FROM t LATERAL VIEW OUTER EXPLODE(SPLIT(s, ',')) l AS x WHERE k = 2", [(None,)]),
        ("SELECT p, x FROM t LATERAL VIEW POSEXPLODE(ARRAY(k, 7)) l AS p, x WHERE k = 2", [(0, 2), (1, 7)]),
        (
            "SELECT x, y FROM t LATERAL VIEW STACK(2, k, s, 9, 'q') l AS x, y WHERE k = 2",
            [(2, None), (9, "q")],
        ),
        ("SELECT x FROM t LATERAL VIEW EXPLODE(ARRAY_REPEAT(s, k)) l AS x WHERE k = 1", [("a",), ("a",)]),
        ("SELECT x FROM t, LATERAL EXPLODE(ARRAY(k, 7)) AS l(x) WHERE k = 2", [(2,), (7,)]),
        ("SELECT DATE_ADD(DATE '2024-01-31', 1) AS d", [(date(2024, 2, 1),)]),
        ("SELECT TRUNC(DATE '2024-01-31', 'MM') AS d", [(date(2024, 1, 1),)]),
        ("SELECT DAYOFWEEK(DATE '2024-01-07') AS d", [(1,)]),
        ("SELECT PMOD(-7, 3) AS m, ANY(k > 1) AS a, EVERY(k > 1) AS e FROM t", [(2, True, False)]),
        ("SELECT k FROM t EXCEPT ALL SELECT 1", [(1,), (2,), (None,)]),
        ("SELECT `k` AS `a b` FROM `t` WHERE `k` IS NOT NULL AND (k > 1) IS NOT FALSE", [(2,)]),
        ("SELECT k FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY 1 ORDER BY k, s) = 1", [(None,)]),
        ("SELECT CONCAT(s, 'x') AS r FROM t WHERE k = 2", [(None,)]),
    ],
)
def test_spark_sql_means_on_duckdb_what_it_means_on_spark(query: str, expected: list[tuple[object, ...]]) -> None:
    found = difference(expected, Duck(small_case()).rows(query))
    assert found is None, f"{found}\n{to_duckdb(query)}"


def test_hashes_are_equal_for_equal_rows_only() -> None:
    rows = Duck(small_case()).rows("SELECT k, s, XXHASH64(k, s) AS h FROM t")
    assert len({row[2] for row in rows}) == len({row[:2] for row in rows})
    assert all(isinstance(row[2], int) and -(2**63) <= row[2] < 2**63 for row in rows)
