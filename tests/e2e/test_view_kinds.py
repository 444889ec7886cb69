"""Every operator, kept through a history on real Spark and Delta."""

import pytest

from deltaic import Warehouse
from deltaic.app.refresh import run
from tests.e2e.conftest import Kept, check_all, report_of

SETUP = """
CREATE TABLE s (id INT, k INT, name STRING, v DECIMAL(10,2), x DOUBLE, d DATE);
CREATE TABLE u (k INT, w INT, tag STRING);
INSERT INTO s VALUES (1, 1, 'a', 1.50, 0.1, DATE'2024-01-01'), (2, 1, 'b', 2.50, 0.2, DATE'2024-01-02'),
  (3, 2, 'a', NULL, 0.3, NULL), (4, NULL, 'c', 4.00, NULL, DATE'2024-02-01'),
  (4, NULL, 'c', 4.00, NULL, DATE'2024-02-01'),
  (5, 3, NULL, -1.00, 0.7, DATE'2024-03-01');
INSERT INTO u VALUES (1, 10, 'p'), (1, 20, 'q'), (2, 30, 'p'), (NULL, 40, 'r'), (9, 50, NULL)
"""

HISTORY = [
    "INSERT INTO s VALUES (6, 2, 'd', 9.25, 1.1, DATE'2024-03-02'), (1, 1, 'a', 1.50, 0.1, DATE'2024-01-01')",
    "DELETE FROM s WHERE id = 2; UPDATE s SET k = 2 WHERE k = 1; UPDATE u SET k = NULL WHERE w = 30;"
    " INSERT INTO u VALUES (3, 60, 's'), (2, 30, 'p')",
    "DELETE FROM u; INSERT INTO s SELECT id + 10, k, name, v, x, d FROM s",
]

KINDS = {
    "project": "SELECT id, upper(name) AS n, v * 2 AS w FROM s WHERE v > 1 OR name IS NULL",
    "inner join": "SELECT s.id, u.w, s.name FROM s JOIN u ON s.k = u.k",
    "self join": "SELECT a.id AS i, b.id AS j FROM s a JOIN s b ON a.k = b.k AND a.id < b.id",
    "cross join": "SELECT s.id, u.tag FROM s CROSS JOIN u WHERE s.id > u.w",
    "theta join": "SELECT s.id, u.w FROM s JOIN u ON s.id * 10 < u.w",
    "left join": "SELECT s.id, u.w FROM s LEFT JOIN u ON s.k = u.k AND u.w > 10",
    "right join": "SELECT s.id, u.w FROM s RIGHT JOIN u ON s.k = u.k",
    "full join": "SELECT s.id, u.w FROM s FULL JOIN u ON s.k <=> u.k",
    "semi join": "SELECT * FROM s LEFT SEMI JOIN u ON s.k = u.k",
    "anti join": "SELECT id, name FROM s LEFT ANTI JOIN u ON s.k = u.k",
    "using": "SELECT * FROM s JOIN u USING (k)",
    "full using": "SELECT k, id, w FROM s FULL JOIN u USING (k)",
    "natural": "SELECT * FROM s NATURAL LEFT JOIN u",
    "group": "SELECT k, count(*) AS n, sum(v) AS s, min(d) AS lo, avg(x) AS a FROM s GROUP BY k",
    "filter clause": "SELECT name, sum(v) FILTER (WHERE k = 1) AS a, count(DISTINCT k) AS c"
    " FROM s GROUP BY name",
    "having": "SELECT k, sum(v) AS t FROM s GROUP BY k HAVING count(*) > 1",
    "having float": "SELECT k, sum(x) AS t FROM s GROUP BY k HAVING sum(x) > 0.3",
    "rollup": "SELECT k, name, grouping_id() AS g, count(*) AS n FROM s GROUP BY ROLLUP (k, name)",
    "cube": "SELECT k, name, sum(v) AS n FROM s GROUP BY CUBE (k, name)",
    "sets": "SELECT k, name, count(*) AS n FROM s GROUP BY GROUPING SETS ((k), (name), ())",
    "global": "SELECT count(*) AS n, sum(v) AS t, max(name) AS m FROM s",
    "distinct": "SELECT DISTINCT k, name FROM s",
    "union": "SELECT k FROM s UNION SELECT k FROM u",
    "union all": "SELECT k, name FROM s UNION ALL SELECT k, tag FROM u",
    "intersect": "SELECT k FROM s INTERSECT SELECT k FROM u",
    "intersect all": "SELECT k FROM s INTERSECT ALL SELECT k FROM u",
    "except": "SELECT k FROM s EXCEPT SELECT k FROM u",
    "except all": "SELECT k FROM s EXCEPT ALL SELECT k FROM u",
    "in": "SELECT id FROM s WHERE k IN (SELECT k FROM u WHERE w > 10)",
    "not in": "SELECT id FROM s WHERE k NOT IN (SELECT k FROM u)",
    "not in or": "SELECT id FROM s WHERE k NOT IN (SELECT k FROM u) OR id = 1",
    "exists": "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM u WHERE u.k = s.k AND u.w > s.id)",
    "not exists": "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k <=> s.k)",
    "exists in list": "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.k = s.k) AS e,"
    " k IN (SELECT k FROM u) AS i FROM s",
    "scalar": "SELECT id, (SELECT max(w) FROM u WHERE u.k = s.k) AS m, (SELECT count(*) FROM u) AS c FROM s",
    "scalar filter": "SELECT id FROM s WHERE v > (SELECT min(w) FROM u WHERE u.k = s.k) - 10",
    "cte twice": "WITH q AS (SELECT k, count(*) AS n FROM s GROUP BY k)"
    " SELECT a.k, b.n FROM q a JOIN q b ON a.n = b.n",
    "derived": "SELECT t.k, t.n + 1 AS m FROM (SELECT k, sum(v) AS n FROM s GROUP BY k) t WHERE t.n > 0",
    "agg over agg": "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM s GROUP BY k) GROUP BY n",
    "agg join": "SELECT u.tag, t.a FROM (SELECT k, avg(x) AS a FROM s GROUP BY k) t JOIN u ON t.k = u.k",
    "agg over join": "SELECT u.tag, sum(s.v) AS t, max(s.d) AS m FROM s JOIN u ON s.k = u.k GROUP BY u.tag",
    "agg over outer": "SELECT s.name, count(u.w) AS n FROM s LEFT JOIN u ON s.k = u.k GROUP BY s.name",
    "window": "SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r,"
    " sum(v) OVER (PARTITION BY k) AS t FROM s",
    "two windows": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id, v, name, x, d) AS r,"
    " count(*) OVER (PARTITION BY name) AS c FROM s",
    "qualify": "SELECT id, k FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY id, x, v, name) <= 2",
    "named window": "SELECT id, max(v) OVER w AS m FROM s WINDOW w AS (PARTITION BY name)",
    "latest and join": "SELECT t.id, u.w FROM (SELECT id, k FROM s QUALIFY row_number() OVER"
    " (PARTITION BY name ORDER BY id DESC, k, v, x, d) = 1) t JOIN u ON t.k = u.k",
    "values": "SELECT s.id, t.label FROM s JOIN (VALUES (1, 'one'), (2, 'two')) AS t(k, label) ON s.k = t.k",
    "explode": "SELECT id, e FROM s LATERAL VIEW OUTER explode(array(k, id)) AS e",
    "explode in list": "SELECT id, explode(sequence(1, abs(k))) AS e FROM s WHERE k IS NOT NULL",
    "lateral alias": "SELECT id + 1 AS a, a * 2 AS b FROM s",
    "group by all": "SELECT k, upper(name) AS n, count(*) AS c FROM s GROUP BY ALL",
    "group by ordinal": "SELECT year(d) AS y, count(*) AS c FROM s GROUP BY 1",
    "collect": "SELECT k, sort_array(collect_list(name)) AS l, stddev(x) AS sd FROM s GROUP BY k",
    "no from": "SELECT 1 AS one, 'x' AS two",
    "order by": "SELECT id, k FROM s ORDER BY id",
    "scalar over scalar": "SELECT id, CASE WHEN m > (SELECT count(*) FROM u WHERE u.tag = t.name) THEN m END AS c FROM"
    " (SELECT s.id, s.name, (SELECT max(w) FROM u WHERE u.k = s.k) AS m FROM s LEFT SEMI JOIN u ON s.k = u.k) t",
}  # fmt: skip


GROUPS = 28


@pytest.mark.parametrize("group", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, GROUPS))])
def test_kept_through_a_history(wh: Warehouse, group: int) -> None:
    wh.script(SETUP)
    kinds = list(KINDS.items())[group::GROUPS]
    views = [Kept(wh, kind.replace(" ", "_"), query, "REFRESH POLICY INCREMENTAL STRICT") for kind, query in kinds]
    check_all(views)
    for batch in HISTORY:
        wh.script(batch)
        for view in views:
            view.refresh_only(None)
        check_all(views)


PARTITIONED = "SELECT s.id, s.k, s.name, s.d, u.w FROM s LEFT JOIN u ON s.k = u.k"
MARKED = ["having"], ["project", "left join", "inner join", "group", "distinct", "union all", "window", "not in"]


@pytest.mark.long
@pytest.mark.parametrize("kinds_marked", MARKED, ids=["0", "1"])
def test_kept_by_marking_rows(wh: Warehouse, monkeypatch: pytest.MonkeyPatch, kinds_marked: list[str]) -> None:
    """As large views are: rows that go are marked in their files; in this process, and where the delta is Spark's."""
    wh.script(SETUP)
    wh.script("CREATE TABLE twins (a INT, b STRING); INSERT INTO twins VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL)")
    kinds = {**{kind: KINDS[kind] for kind in kinds_marked}, "twins of": "SELECT a, b FROM twins"}
    views = [Kept(wh, f"`{kind}`", query, "REFRESH POLICY INCREMENTAL STRICT") for kind, query in kinds.items()]
    parted = {"d": PARTITIONED, "name": "SELECT k, name, sum(v) AS t FROM s GROUP BY k, name"}
    views += [Kept(wh, f"by_{column}", query, f"PARTITIONED BY ({column})") for column, query in parted.items()]
    views.append(Kept(wh, "clustered", PARTITIONED, "CLUSTER BY (name, id)"))
    twins = [
        "DELETE FROM twins WHERE a = 2",
        "INSERT INTO twins VALUES (1, 'x'), (3, 'z')",
        "UPDATE twins SET b = NULL",
    ]
    wh.spark.conf.set("spark.deltaic.writer", "marks")
    wh.spark.conf.set("spark.deltaic.compactFiles", "1")
    try:
        for number, batch in enumerate(HISTORY):
            wh.script(batch)
            wh.script(twins[number % len(twins)])
            monkeypatch.setattr(run, "DELTA_ROWS", -1 if number % 2 else 1_000_000)
            reports = [view.refresh_only(None) for view in views]
            assert all(r.written_by in ("deletion vectors", "") for r in reports), reports
            check_all(views)
        assert any(commit["operation"] == "OPTIMIZE" for commit in wh.history("`twins of`"))
    finally:
        wh.spark.conf.unset("spark.deltaic.writer")
        wh.spark.conf.unset("spark.deltaic.compactFiles")


def test_a_change_that_is_undone_leaves_the_view_as_it_is(wh: Warehouse) -> None:
    wh.script(SETUP)
    view = Kept(wh, "v", KINDS["inner join"])
    wh.script("INSERT INTO s VALUES (77, 1, 'x', 1, 1, NULL); DELETE FROM s WHERE id = 77")
    assert view.refresh().rows_changed == 0
    assert view.refresh("noop").jobs == 0


def test_empty_tables(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); CREATE TABLE u (k INT)")
    kinds = {
        "join_": "SELECT s.v FROM s JOIN u ON s.k = u.k",
        "count_": "SELECT count(*) AS n, sum(v) AS t FROM s",
        "anti_": "SELECT v FROM s WHERE k NOT IN (SELECT k FROM u)",
    }
    views = [Kept(wh, name, query) for name, query in kinds.items()]
    wh.sql("INSERT INTO s VALUES (1, 1), (NULL, 2)")
    for view in views:
        view.refresh()
    wh.script("INSERT INTO u VALUES (NULL)")
    for view, mode in zip(views, ("incremental", "noop", "incremental"), strict=True):
        view.refresh(mode)
    wh.script("DELETE FROM s; DELETE FROM u")
    for view in views:
        view.refresh()


@pytest.mark.long
def test_a_small_view_that_is_recomputed_is_written_without_spark(wh: Warehouse) -> None:
    wh.script("CREATE TABLE t (k INT, s STRING); INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')")
    top = Kept(wh, "top", "SELECT k, s FROM t ORDER BY k DESC LIMIT 2", "PARTITIONED BY (s)")
    for use_rs, change in ((True, "INSERT INTO t VALUES (4, 'd')"), (False, "DELETE FROM t"), (True, "DELETE FROM t")):
        wh.engine.use_rs = use_rs
        wh.script(f"{change}; INSERT INTO t VALUES (0, 'z')")
        report = top.refresh("full")
        assert report.written_by == ("delta-rs" if use_rs else "spark")


@pytest.mark.long
def test_what_a_review_of_marks_found(wh: Warehouse) -> None:
    """Column mapping by id, odd ends of lines in statistics, dates after 9999, times after OPTIMIZE, no figures."""
    wh.script("""
      CREATE TABLE s (k INT, n INT) USING delta; CREATE TABLE odd (k STRING, n INT);
      CREATE TABLE days (k INT, d DATE, t TIMESTAMP);
      INSERT INTO s VALUES (1, 1), (2, 2); INSERT INTO odd VALUES ('a\u2028b', 1), ('c\u0085d', 2), ('z', 3);
      INSERT INTO days SELECT 1, make_date(12000, 1, 1), timestamp_micros(18446744073709552)""")
    days = "CAST(d AS STRING) AS d, unix_micros(t) AS t, count(*) AS c FROM days GROUP BY k, d, t"
    clauses = "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
    views = [
        Kept(wh, "by_id", "SELECT k, sum(n) AS n FROM s GROUP BY k", clauses),
        Kept(wh, "lines", "SELECT k, sum(n) AS n FROM odd GROUP BY k"),
        Kept(wh, "all_days", f"SELECT k, {days}"),
    ]
    wh.sql("CREATE MATERIALIZED VIEW days_only AS SELECT k, d, t FROM days")
    for key, value in (("writer", "marks"), ("compactFiles", "1")):
        wh.spark.conf.set(f"spark.deltaic.{key}", value)
    wh.spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        views.append(Kept(wh, "untold", "SELECT k, n FROM s WHERE n > 0"))
        wh.spark.conf.unset("spark.databricks.delta.stats.collect")
        for number in range(3):
            wh.script(f"INSERT INTO s VALUES ({number}, 4); INSERT INTO odd VALUES ('a\u2028b', {number})")
            wh.script("INSERT INTO days SELECT 1, make_date(12000, 1, 1), timestamp_micros(18446744073709552)")
            report_of(wh, "days_only")
            for view in views:
                view.refresh()
            shown = wh.sql("SELECT k, CAST(d AS STRING), unix_micros(t) FROM days_only").collect()
            assert shown == [(1, "+12000-01-01", 18446744073709552)] * (number + 2)
    finally:
        for key in ("spark.deltaic.writer", "spark.deltaic.compactFiles", "spark.databricks.delta.stats.collect"):
            wh.spark.conf.unset(key)
