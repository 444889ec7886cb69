"""Change tables on Spark: the paper's examples with their figures, and what a change alone does not tell."""

import pytest

from deltaic import Warehouse
from deltaic.errors import ConfigurationError, NameProblem
from tests.e2e.conftest import Kept, check_all, report_of, rows

RETAIL = """
CREATE TABLE stores (storeID INT, city STRING, state STRING);
CREATE TABLE items (itemID INT, category STRING);
CREATE TABLE sales (storeID INT, itemID INT, date DATE, price INT);
INSERT INTO stores VALUES (1, 'X', 'S1'), (2, 'X', 'S1'), (3, 'Y', 'S2');
INSERT INTO items VALUES (1, 'C1'), (2, 'C1'), (3, 'C2'), (2, 'C2');
INSERT INTO sales VALUES (1, 1, DATE'1995-02-01', 300), (1, 1, DATE'1995-02-01', 200), (2, 1, DATE'1995-03-01', 90),
  (3, 2, DATE'1995-03-01', 100), (3, 3, DATE'1995-03-01', 110), (3, 3, DATE'1994-03-01', 5)
"""
SISALES = """SELECT storeID, itemID, sum(price) AS SumSISales, count(*) AS NumSISales
FROM sales WHERE date > DATE'1995-01-01' GROUP BY storeID, itemID"""
CITY = f"""SELECT city, sum(SumSISales) AS SumCiSales, sum(NumSISales) AS NumCiSales
FROM ({SISALES}) s, stores WHERE s.storeID = stores.storeID GROUP BY city"""
CATEGORY = f"""SELECT category, sum(SumSISales) AS SumCaSales, sum(NumSISales) AS NumCaSales
FROM ({SISALES}) s, items WHERE s.itemID = items.itemID GROUP BY category"""


def test_examples_1_3_and_4(wh: Warehouse) -> None:
    """C1 goes from 690 to 860 and C2 from 210 to 330, and no sale that was there before is read."""
    wh.script(RETAIL)
    city, category = Kept(wh, "CitySales", CITY), Kept(wh, "CategorySales", CATEGORY)
    shown = "SELECT category, SumCaSales, NumCaSales FROM CategorySales ORDER BY category"
    assert rows(wh, shown) == [("C1", 690, 4), ("C2", 210, 2)]
    wh.sql("INSERT INTO sales VALUES (1, 1, DATE'1995-05-01', 70), (2, 1, DATE'1995-05-01', 80),"
           " (3, 2, DATE'1995-05-01', 20), (1, 3, DATE'1995-05-01', 100), (1, 3, DATE'1993-05-01', 7)")  # fmt: skip
    for view in (city, category):
        report = view.refresh()
        assert report.technique == "change tables"
        assert report.rows_read is not None
        assert report.rows_read["default.sales"] == 5
    assert rows(wh, shown) == [("C1", 860, 7), ("C2", 330, 4)]
    # the paper's deletion: all sales of the second category go, and so does its row
    wh.sql("DELETE FROM sales WHERE itemID IN (2, 3)")
    assert category.refresh().rows_read == {"default.sales": 6, "default.items": 4, "default.CategorySales": 2}
    assert rows(wh, shown) == [("C1", 740, 5)]
    # a change beside the aggregate reads it; both at once fold into one commit
    wh.script("UPDATE stores SET city = 'Z' WHERE storeID = 1; INSERT INTO sales VALUES (1, 2, DATE'1996-01-01', 9)")
    city.refresh()
    category.refresh()


FULL_INFO = """SELECT s.storeID AS sold_at, s.itemID, s.price, st.storeID, st.state, i.state AS known, i.area
FROM sales s FULL JOIN stores st ON s.storeID = st.storeID FULL JOIN infostates i ON st.state = i.state"""


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, pytest.param(False, marks=pytest.mark.long)])
def test_example_2(wh: Warehouse, use_rs: bool) -> None:
    """Nested full joins: sales come and go, stores get their first and lose their last, and no old sale is read."""
    wh.engine.use_rs = use_rs
    wh.script(
        RETAIL
        + """; CREATE TABLE infostates (state STRING, area INT);
INSERT INTO infostates VALUES ('S1', 10), ('S2', 20), ('S3', 30);
INSERT INTO stores VALUES (4, 'W', 'S3'), (5, 'W', 'S1');
INSERT INTO sales VALUES (9, 1, DATE'1995-01-02', 1)"""
    )
    view = Kept(wh, "SSFullInfo", FULL_INFO)
    alone = "SELECT storeID FROM SSFullInfo WHERE sold_at IS NULL ORDER BY 1"
    assert rows(wh, alone) == [(4,), (5,)]
    for change, count, left in (
        ("INSERT INTO sales VALUES (4, 1, DATE'1995-06-01', 3), (4, 1, DATE'1995-06-01', 3)", 2, [(5,)]),
        ("DELETE FROM sales WHERE storeID = 4 OR (storeID = 1 AND price = 300)", 3, [(4,), (5,)]),
        ("UPDATE sales SET storeID = 5 WHERE storeID = 2", 2, [(2,), (4,)]),
        ("DELETE FROM sales", 6, [(1,), (2,), (3,), (4,), (5,)]),
    ):
        wh.sql(change)
        report = view.refresh()
        assert report.technique == "change tables (outer joins)"
        assert report.rows_read is not None
        if use_rs:  # Spark reads the change anew wherever it is used
            assert report.rows_read["default.sales"] == count, "only the change"
        assert rows(wh, alone) == left
    wh.sql("DELETE FROM stores WHERE storeID = 3")
    wh.script("INSERT INTO stores VALUES (4, 'V', 'S9'); INSERT INTO sales VALUES (3, 1, DATE'1996-01-01', 7)")
    view.refresh()
    assert "only its change is read" not in wh.explain("SSFullInfo")
    wh.sql("INSERT INTO sales VALUES (3, 1, DATE'1996-01-01', 8)")
    assert "default.sales: version" in (told := wh.explain("SSFullInfo"))
    assert "at most 1 change rows; only its change is read" in told
    assert "__deltaic_m1r tells which rows of default.stores have no match" in told


@pytest.mark.long
def test_example_5(wh: Warehouse) -> None:
    """A match that takes the place of a padded row adds nothing to COUNT(*), where the printed rule gives 2."""
    wh.script("""CREATE TABLE R (A INT, B INT, C INT); CREATE TABLE S (D INT, E INT);
CREATE TABLE T (A INT, B INT, L INT); INSERT INTO R VALUES (6, 1, 1), (4, 1, 1);
INSERT INTO T VALUES (6, 1, 0), (4, 1, 0)""")
    query = """SELECT A, B, sum(D) AS F, sum(E) AS H, count(*) AS Num FROM (R FULL JOIN S ON C = D) JOIN T USING (A, B)
WHERE A > 5 GROUP BY A, B"""
    view = Kept(wh, "V", query)
    assert rows(wh, "SELECT * FROM V") == [(6, 1, None, None, 1)]
    for change, row in (
        ("INSERT INTO S VALUES (1, 9)", (6, 1, 1, 9, 1)),
        ("INSERT INTO S VALUES (1, 5), (2, 2)", (6, 1, 2, 14, 2)),
        ("DELETE FROM S WHERE D = 1", (6, 1, None, None, 1)),
        ("INSERT INTO R VALUES (6, 1, 2)", (6, 1, 2, 2, 2)),
    ):
        wh.sql(change)
        assert view.refresh().technique == "change tables"
        assert rows(wh, "SELECT * FROM V") == [row]


PARTS = """SELECT k, count(*) AS n, count(v) AS nv, sum(v) AS s, avg(v) AS av, avg(i) AS ai, sum(i) AS si,
  min(i) AS lo, max(x) AS hi, sum(x) AS sx, avg(x) AS ax, bool_or(i > 3) AS any3, bit_or(i) AS bits,
  sum(v) FILTER (WHERE i > 1) AS s1, max(i) - min(i) AS spread, var_samp(i) AS vi, stddev_pop(v) AS sv,
  covar_pop(i, v) AS cv, max_by(v, struct(i, v)) AS mv, bit_xor(i) AS xi FROM t GROUP BY k"""
OTHERS = {
    "one": "SELECT count(*) AS n, sum(i) AS s, min(i) AS lo FROM t",
    "d": "SELECT DISTINCT k, i FROM t",
    "u": "SELECT k FROM t UNION SELECT i FROM t",
    "r": "SELECT k, i, sum(v) AS s FROM t GROUP BY ROLLUP (k, i)",
    "h": "SELECT k, sum(i) AS s, min(i) AS lo FROM t GROUP BY k HAVING sum(i) > 3 OR count(*) = 1",
    "e": "SELECT k + 1 AS k1, sum(i) + 1 AS s FROM t WHERE i IS NOT NULL GROUP BY k + 1 HAVING k1 > 0",
}
HISTORY = (
    "INSERT INTO t VALUES (1, 5, 1.10, 0.1D), (4, 1, NULL, 0.2D), (NULL, NULL, 2.20, NULL)",
    "DELETE FROM t WHERE i = 2",
    "UPDATE t SET i = i - 3 WHERE k = 1",
    "INSERT INTO t VALUES (2, -9, 0, 9D); DELETE FROM t WHERE i = -9",
    "DELETE FROM t WHERE k IS NULL OR k = 4",
    "MERGE INTO t USING (SELECT 1 AS k) q ON t.k = q.k WHEN MATCHED AND t.i < 2 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET v = NULL",
    "DELETE FROM t",
    "INSERT INTO t VALUES (1, NULL, NULL, NULL)",
)


@pytest.mark.long
def test_an_aggregate_of_the_padded_side_reads_only_its_change(wh: Warehouse) -> None:
    wh.script(RETAIL + "; INSERT INTO stores VALUES (4, 'W', 'S3'), (5, 'W', 'S1'), (NULL, NULL, NULL)")
    view = Kept(wh, "sold", """SELECT city, count(s.price) AS n, sum(s.price) AS total, avg(s.price + 1) AS mean
FROM stores st LEFT JOIN sales s ON s.storeID = st.storeID GROUP BY city""")  # fmt: skip
    assert ("W", 0, None, None) in rows(wh, "SELECT * FROM sold")
    for change, count in (
        ("INSERT INTO sales VALUES (4, 1, DATE'1995-06-01', 3), (4, 1, DATE'1995-06-01', 3), (1, 1, NULL, NULL)", 3),
        ("DELETE FROM sales WHERE storeID = 4 AND price = 3", 2),
        ("UPDATE sales SET storeID = 5 WHERE price = 90", 2),
    ):
        wh.sql(change)
        report = view.refresh()
        assert report.technique == "change tables"
        assert report.rows_read is not None
        assert report.rows_read["default.sales"] == count, "only the change"
    wh.script("DELETE FROM stores WHERE storeID = 5; INSERT INTO stores VALUES (1, 'Q', 'S1')")
    view.refresh()
    assert "an outer join, whose padded rows no aggregate counts" in wh.explain("sold")


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, False])
def test_every_part_through_a_history(wh: Warehouse, use_rs: bool, pytestconfig: pytest.Config) -> None:
    wh.engine.use_rs = use_rs
    wh.sql("CREATE TABLE t (k INT, i INT, v DECIMAL(9, 2), x DOUBLE)")
    wh.sql("INSERT INTO t VALUES (1, 1, 1.5, 0.5D), (1, 2, 2.5, 0.3D), (2, 2, NULL, 1e300D), (2, 7, 3, -1e300D)")
    views = [Kept(wh, "parts", PARTS), *(Kept(wh, name, query) for name, query in OTHERS.items())]
    for change in HISTORY if pytestconfig.getoption("--fuzz") else HISTORY[:2]:
        wh.script(change)
        for view in views:
            assert view.refresh_only(None).technique in ("change tables", "none")
        check_all(views)


DISTINCTS = {
    "d": """SELECT k, count(DISTINCT i) AS n, sum(DISTINCT v) AS s, avg(DISTINCT i) AS m, sum(v) AS t, min(i) AS lo,
  count(DISTINCT i, v) AS both, count(DISTINCT w) FILTER (WHERE i > 1) AS w FROM t GROUP BY k""",
    "q": """SELECT k, percentile(i, 0.3) AS p, percentile(v, array(0.1, 0.9)) AS ps, median(i) AS mid,
  array_sort(collect_set(w)) AS ws, count(*) AS n FROM t GROUP BY k""",
    "one": "SELECT count(DISTINCT k) AS n, median(v) AS mid, size(collect_set(i)) AS s FROM t",
    "h": "SELECT k, count(DISTINCT w) AS n FROM t GROUP BY k HAVING count(DISTINCT w) > 1",
    "above": "SELECT n, count(*) AS groups FROM d GROUP BY n",
}
DISTINCT_HISTORY = (
    "INSERT INTO t VALUES (1, 1, 1.10, 'a'), (1, 2, 1.10, 'z'), (NULL, 1, NULL, NULL), (7, 3, 2.5, '')",
    "DELETE FROM t WHERE i = 1 AND k = 1",
    "UPDATE t SET v = v + 1, w = 'a' WHERE k % 2 = 0",
    "DELETE FROM t WHERE k = 7 OR k IS NULL; INSERT INTO t VALUES (1, 1, 1.10, 'a')",
    "INSERT INTO t VALUES (2, NULL, NULL, NULL); UPDATE t SET k = 3 WHERE k = 2",
)


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, False])
def test_multiplicities(wh: Warehouse, use_rs: bool, pytestconfig: pytest.Config) -> None:
    """No old row of the source is read, and views above see none of the hidden ones."""
    wh.engine.use_rs = use_rs
    wh.script("""CREATE TABLE t (k INT, i INT, v DECIMAL(9, 2), w STRING);
INSERT INTO t SELECT id % 5, id % 7, id % 11 / 4, nullif(substr('abcd', CAST(id % 5 AS INT), 1), '')
FROM range(0, 2000, 1, 1)""")
    views = [Kept(wh, name, query) for name, query in DISTINCTS.items()]
    check_all(views)
    for statements in DISTINCT_HISTORY if pytestconfig.getoption("--fuzz") else DISTINCT_HISTORY[::3]:
        wh.script(statements)
        for view in views:
            report = view.refresh_only(None)
            if view.name in ("d", "q", "h"):
                assert report.technique == "change tables (multiplicities)"
                assert report.rows_read is not None
                change = report.change_rows["default.t"] or 0
                assert report.rows_read["default.t"] <= change or view.name == "d", "d has a minimum that may go away"
        check_all(views)
    assert "multiplicities: how often each w is in its group" in wh.explain("h")
    wh.sql("DELETE FROM t WHERE v > 0.2")  # now the views have more rows than their source
    assert Kept.refresh(views[0]).technique == "base (keys)"
    Kept.refresh(views[4])


@pytest.mark.long
@pytest.mark.parametrize("technique", ["auto", "base"])
def test_a_null_group_that_comes_is_written_by_spark(wh: Warehouse, technique: str) -> None:
    """Delta's MERGE with deletion vectors fails over a NULL key that is to go and is not there."""
    wh.engine.use_rs = False
    wh.script("CREATE TABLE t (k INT, v INT); INSERT INTO t SELECT id % 3, id FROM range(0, 40, 1, 1)")
    view = Kept(
        wh, "s", "SELECT k, sum(v) AS s FROM t GROUP BY k", f"TBLPROPERTIES (deltaic.technique = '{technique}')"
    )
    for change in (
        "INSERT INTO t VALUES (NULL, 1), (9, 1)",
        "INSERT INTO t VALUES (NULL, 2)",
        "DELETE FROM t WHERE v < 3",
    ):
        wh.sql(change)
        assert view.refresh().written_by == "spark"


def test_only_untold_groups_are_computed_again(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (k INT, i INT)")
    wh.sql("INSERT INTO t SELECT id % 3, id FROM range(30)")
    view = Kept(wh, "lows", "SELECT k, min(i) AS lo FROM t GROUP BY k")
    wh.sql("DELETE FROM t WHERE i IN (9, 10, 11)")
    told = view.refresh()
    assert told.rows_read == {"default.t": 3, "default.lows": 3}, "no minimum went away"
    wh.sql("DELETE FROM t WHERE i = 0")
    untold = view.refresh()
    assert untold.rows_read is not None
    assert untold.rows_read["default.t"] > 3
    assert untold.rows_changed == 2


@pytest.mark.long
def test_what_a_review_found(wh: Warehouse) -> None:
    """Wide decimals, line breaks inside texts and names, nested keys, numbers that overflow in the change only."""
    wh.sql("CREATE TABLE t (k INT, s STRING, x DECIMAL(28, 10), b BIGINT, a ARRAY<INT>, v VARIANT)")
    first = (
        "SELECT 1, concat('a', chr(10), 'b'), 1.0000000001, -9223372036854775808, array(1), parse_json('{\"a\": 1}')"
    )
    wh.sql(f"INSERT INTO t {first}")
    wh.sql("INSERT INTO t SELECT 2, concat('a', chr(10), '  b'), 2, 1, array(2), parse_json('{\"a\": 5}')")
    views = [
        Kept(wh, "wide", "SELECT k, sum(x) AS s, avg(b) AS m FROM t GROUP BY k"),
        Kept(wh, "breaks", "SELECT k FROM (SELECT k, s FROM t WHERE s = 'a\nb') WHERE k > 0"),
        Kept(wh, "named", "SELECT k AS `a\nb`, min(x) AS lo FROM t GROUP BY k"),
        Kept(wh, "nested", "SELECT a, max(k) AS m FROM t GROUP BY a"),
        Kept(wh, "variants", "SELECT k, max(variant_get(v, '$.a', 'int')) AS a FROM t GROUP BY k"),
    ]
    over = Kept(wh, "over", "SELECT k, sum(b) AS s FROM t GROUP BY k")
    assert rows(wh, "SELECT k FROM breaks") == [(1,)]
    wh.sql("INSERT INTO t SELECT 1, 'c', 3.0000000007, 7, array(0), parse_json('{\"a\": 7}')")
    for view in (*views, over):
        view.refresh()
    wh.sql("DELETE FROM t WHERE b < 0")
    assert "OVERFLOW" in over.refresh("full").reasons[0]
    with pytest.raises(NameProblem, match="is a materialized view"):
        wh.sql("CREATE OR REPLACE VIEW over AS SELECT 1 AS k")
    with pytest.raises(NameProblem, match="is a materialized view"):
        wh.sql("ALTER VIEW over RENAME TO under")


@pytest.mark.long
@pytest.mark.parametrize("ansi", [pytest.param("true", marks=pytest.mark.long), "false"])
def test_sums_that_may_not_fit(wh: Warehouse, ansi: str) -> None:
    """Sums of products have 38 digits: they are added up like others, and computed again where they did not fit."""
    wh.sql("CREATE TABLE t (k INT, x DECIMAL(38, 4), y DECIMAL(15, 2), z DECIMAL(15, 2))")
    wh.sql("INSERT INTO t VALUES (1, 1.0001, 2, 0.05), (1, NULL, 7, 0.1), (2, 6e33BD, 1, 0), (3, 6e33BD, NULL, 0)")
    wh.sql(f"SET spark.sql.ansi.enabled = {ansi}")
    products = Kept(
        wh, "products", "SELECT k, sum(y * (1 - z)) AS p, sum(y * (1 - z) * (1 + z)) AS q FROM t GROUP BY k"
    )
    wide = Kept(wh, "wide", "SELECT k, sum(x) AS s FROM t GROUP BY k")
    tower = Kept(wh, "tower", "SELECT count(s) AS n FROM (SELECT k, sum(x) AS s FROM t GROUP BY k)")
    views = [products, wide, tower]

    def refresh(change: str) -> str:
        wh.script(change)
        reports = [report_of(wh, view.name) for view in views]
        check_all(views)
        assert reports[0].technique == "change tables", reports[0]
        return reports[1].technique + "".join(reports[1].reasons)

    few = "INSERT INTO t VALUES (1, -0.0002, 3, 0.07), (4, NULL, NULL, 1); DELETE FROM t WHERE x = 1.0001"
    assert refresh(few) == "change tables"
    assert "OVERFLOW" in refresh("UPDATE t SET x = -x, y = -y WHERE k = 2")
    if ansi == "false":
        refresh("INSERT INTO t VALUES (3, 6e33BD, 1, 0)")
        assert (3, None) in rows(wh, "SELECT k, s FROM wide")
        refresh("DELETE FROM t WHERE k = 3 AND y = 1")
        assert (3, None) not in rows(wh, "SELECT k, s FROM wide")
    wh.sql("RESET spark.sql.ansi.enabled")


@pytest.mark.long
def test_what_a_review_of_outer_joins_found(wh: Warehouse) -> None:
    wh.script("""CREATE TABLE s (i INT, d DOUBLE, st STRING); CREATE TABLE r (j INT, st STRING);
INSERT INTO s VALUES (1, 0.0D, ''), (2, -0.0D, 'a'), (3, 1.0D, NULL); INSERT INTO r VALUES (1, 'x'), (2, '-0.0')""")
    legacy = "spark.sql.legacy.statisticalAggregate"
    wh.sql(f"SET {legacy}=true")
    variance = Kept(wh, "legacy", "SELECT i, var_samp(d) AS v FROM s GROUP BY i")
    wh.sql(f"RESET {legacy}")
    twice = "SELECT q.x, r.st FROM (SELECT i AS x, i AS y FROM s) q LEFT JOIN r ON q.x = r.j AND q.y + 0 = r.j"
    views = [
        Kept(wh, "one_column_twice_in_a_key", twice),
        Kept(wh, "equal_floats_that_differ", "SELECT s.i FROM s LEFT SEMI JOIN r ON CAST(s.d AS STRING) = r.st"),
        Kept(wh, "floats_alone", "SELECT s.i, r.j FROM s LEFT JOIN r ON CAST(s.d AS STRING) = r.st"),
        Kept(wh, "by_span", "SELECT count(*) AS n FROM s GROUP BY make_dt_interval(i)"),
        Kept(wh, "longest", "SELECT st, max_by(i, make_dt_interval(i)) AS longest FROM s GROUP BY st"),
        Kept(wh, "on_span", "SELECT q.i, r.j FROM (SELECT i, make_dt_interval(i) AS iv FROM s) q"
                            " LEFT JOIN r ON q.iv = make_dt_interval(r.j)"),
    ]  # fmt: skip
    parted = Kept(wh, "parted", "SELECT s.i, s.st, r.j FROM s LEFT JOIN r ON s.st = r.st", "PARTITIONED BY (st)")
    for change in (
        "INSERT INTO r VALUES (4, '0.0'), (3, ''); DELETE FROM r WHERE st = '-0.0'",
        "INSERT INTO s VALUES (7, -0.0D, 'x'); DELETE FROM r WHERE j = 1; INSERT INTO r VALUES (9, '-0.0')",
    ):
        wh.script(change)
        for view in views:
            view.refresh_only(None)
        check_all(views)
        wh.refresh("parted")  # it may recompute: the '' that it deletes is a NULL in its table
        assert rows(wh, "SELECT count(*) FROM parted") == rows(wh, f"SELECT count(*) FROM ({parted.query})")
    wh.sql(f"SET {legacy}=true")
    variance.refresh()
    wh.sql(f"RESET {legacy}")


@pytest.mark.long
def test_what_a_review_of_multiplicities_found(wh: Warehouse) -> None:
    # hidden rows in a change feed that delta-rs reads
    feed = """TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'none',
  delta.enableDeletionVectors = false)"""
    wh.script("CREATE TABLE t (k INT, v INT, w INT); INSERT INTO t SELECT id % 3, id % 2, id % 5 FROM range(60)")
    below = [
        Kept(wh, "bags", "SELECT k, count(DISTINCT v) AS c, min(w) AS lo FROM t GROUP BY k", feed),
        Kept(wh, "some", "SELECT k, sum(w) AS c FROM t GROUP BY k HAVING sum(w) > 41", feed),
    ]
    above = [
        Kept(wh, "over_bags", "SELECT count(*) AS n, sum(c) AS s, count(lo) AS l FROM bags"),
        Kept(wh, "rows_of_bags", "SELECT k, c FROM bags"),
        Kept(wh, "over_some", "SELECT * FROM some"),
    ]
    for values in ("(1, 77, 3)", "(9, 7, 3), (2, 1, 1)"):
        wh.sql(f"INSERT INTO t VALUES {values}")
        for view in (*below, *above):
            view.refresh()
    with pytest.raises(ConfigurationError, match="no change feed"):
        wh.sql("CREATE MATERIALIZED VIEW f TBLPROPERTIES (delta.enableChangeDataFeed = true) AS SELECT * FROM t")
    # a hidden column whose type became another one
    wh.script("CREATE TABLE q (k INT, v DATE); INSERT INTO q SELECT 1, DATE'2020-01-01' FROM range(5)")
    days = Kept(wh, "days", "SELECT k, count(DISTINCT v) AS c FROM q GROUP BY k")
    wh.script("""CREATE OR REPLACE TABLE q (k INT, v TIMESTAMP);
INSERT INTO q SELECT 1, timestamp_seconds(1577836800 + 3600 * (id % 3)) FROM range(12)""")
    days.refresh("full")
    wh.sql("DELETE FROM q WHERE v = timestamp_seconds(1577836800)")
    days.refresh()
    # an error that only a padded row would make
    wh.script("CREATE TABLE y (k INT, a INT, b INT); INSERT INTO y VALUES (1, 10, 5), (0, 20, 5), (2, 1, 1)")
    call = "sum((100 / coalesce(y.b, 0)) * y.a) AS s"
    padded = Kept(wh, "padded", f"SELECT t.k, {call} FROM t LEFT JOIN y ON t.k = y.k WHERE t.k < 3 GROUP BY t.k")
    wh.sql("INSERT INTO y VALUES (1, 3, 4)")
    padded.refresh()


def test_an_unstable_filter_on_an_aggregate(wh: Warehouse) -> None:
    """Which row is first is luck: what it counts cannot be taken back later."""
    wh.sql("CREATE TABLE t (k INT, v INT)")
    ranked = "(SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY k) AS rn FROM t)"
    query = f"SELECT k, max(v) FILTER (WHERE rn = 1) AS m FROM {ranked} GROUP BY k"
    assert "change tables" not in wh.explain(f"CREATE MATERIALIZED VIEW v AS {query}")


@pytest.mark.long
def test_groups_that_having_hides(wh: Warehouse) -> None:
    """They are stored and not shown, to people and to views above alike."""
    wh.sql("CREATE TABLE t (k INT, i INT)")
    wh.sql("INSERT INTO t VALUES (1, 1), (2, 5), (3, 2)")
    view = Kept(wh, "large", "SELECT k, sum(i) AS s FROM t GROUP BY k HAVING sum(i) >= 5")
    above = Kept(wh, "above", "SELECT count(*) AS n, sum(s) AS s FROM large")
    changes = ("INSERT INTO t VALUES (1, 4)", "DELETE FROM t WHERE k = 2", "INSERT INTO t VALUES (2, 1)")
    for change in (*changes, "UPDATE t SET i = 9 WHERE k = 3"):
        wh.sql(change)
        report = view.refresh_only()
        assert report.rows_read is not None
        assert report.rows_read["default.t"] <= 2, "only the change"
        above.refresh_only(None)
        check_all([view, above])
    assert len(rows(wh, "SELECT * FROM large")) == 2


def test_what_having_guards_against(wh: Warehouse) -> None:
    """Nothing is computed of groups that are stored and not shown; nor of rows that an outer join might have padded."""
    wh.script("""CREATE TABLE t (k INT, a INT, b INT); INSERT INTO t VALUES (1, 10, 2), (1, 4, 1), (2, 3, 1), (3, 1, 0);
      CREATE TABLE r (k INT, v DOUBLE, w DOUBLE); INSERT INTO r VALUES (1, 1.5, 2), (2, 2.5, 5), (3, 1, 1)""")
    sums = "SELECT k, sum(a) AS s, sum(b) AS n FROM t GROUP BY k HAVING sum(b) <> 0"
    guarded = [
        Kept(wh, "ratio", f"SELECT k, s / n AS r FROM ({sums})"),
        Kept(wh, "nested", f"SELECT k FROM ({sums}) WHERE 10 / n > 2"),
    ]
    divided = "SELECT t.a, sum(r.v / (10 / coalesce(r.w, 0))) AS s FROM t LEFT JOIN r ON t.k = r.k GROUP BY t.a"
    kept = [*guarded, Kept(wh, "divided", divided)]
    for change in ("INSERT INTO t VALUES (2, 3, -1)", "INSERT INTO t VALUES (3, 2, 4)", "DELETE FROM t WHERE b < 0"):
        wh.sql(change)
        for view in kept:
            view.refresh()


@pytest.mark.long
def test_pinned_techniques(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (k INT, i INT) TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    wh.sql("INSERT INTO t VALUES (1, 10), (1, 10), (2, 30), (NULL, NULL)")
    query = (
        "SELECT n, count(*) AS c, sum(s) AS s FROM (SELECT k, count(*) AS n, sum(i) AS s FROM t GROUP BY k) GROUP BY n"
    )
    names = {"auto": "change tables", "base": "base (keys)", "counting": "counting", "quass": "quass"}
    views = {name: Kept(wh, name, query, f"TBLPROPERTIES (deltaic.technique = '{name}')") for name in names}
    for change in ("INSERT INTO t VALUES (2, 5); UPDATE t SET i = NULL WHERE i = 10", "DELETE FROM t WHERE k = 2"):
        wh.script(change)
        assert {name: view.refresh().technique for name, view in views.items()} == names
    assert "Incremental by counting" in wh.explain("counting")


@pytest.mark.long
def test_an_extreme_beside_a_count_above_an_outer_join(wh: Warehouse) -> None:
    """The change needs fewer columns of the other table than the group that is computed again."""
    wh.script("""CREATE TABLE s (id INT, k INT, name STRING); CREATE TABLE u (k INT, w INT);
      INSERT INTO s VALUES (1, 1, 'a'), (2, 2, 'a'), (3, 3, 'b'); INSERT INTO u VALUES (1, 1), (2, 5), (3, NULL)""")
    views = [
        Kept(wh, join, f"SELECT s.name, max(u.w) AS m, count(*) AS n FROM s {join} JOIN u ON s.k = u.k GROUP BY s.name")
        for join in ("left", "full")
    ]
    for change in ("DELETE FROM u WHERE k = 2", "INSERT INTO u VALUES (2, 0), (9, 9)", "DELETE FROM u WHERE k > 2"):
        wh.sql(change)
        for view in views:
            view.refresh()
