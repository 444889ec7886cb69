"""Queries that sqlglot and Spark read differently, and settings that change what a query means: a view is what Spark
says, under the settings of its creator."""

from dataclasses import replace

import pytest

from deltaic import Warehouse
from deltaic.app.values.definition import RECORDED_IN_FORCE
from deltaic.errors import UnsupportedError
from tests.e2e.conftest import Kept, rows

TABLES = """
CREATE TABLE s (a INT, b INT, d DATE); CREATE TABLE t (a INT, b INT);
INSERT INTO s VALUES (1, 1, DATE '2024-01-01'), (2, NULL, NULL), (NULL, 3, DATE '2024-01-02'), (2, 2, NULL);
INSERT INTO t VALUES (1, NULL), (2, 1), (5, 5)
"""
CHANGE = "INSERT INTO s VALUES (2, 1, DATE '2024-02-01'), (4, NULL, NULL); DELETE FROM t WHERE a = 2"
READ_OTHERWISE = {
    "SELECT a, a + 1 AS x, 1 + a AS y, count(*) AS n FROM s GROUP BY GROUPING SETS ((a), (a + 1))": "SEMANTICS",
    "FROM s |> WHERE a > 1 |> RIGHT JOIN t ON s.a = t.a |> SELECT s.a, t.b": "UNSUPPORTED_SYNTAX",
    "SELECT a, b FROM s WHERE NOT ((a IN (SELECT b FROM t)) IS NULL)": "UNSUPPORTED_SYNTAX",
    "SELECT a FROM s WHERE d < 'today'": "NON_DETERMINISTIC",
    "SELECT a FROM s WHERE a > 1 = (b > 1) IN (SELECT b > 0 FROM t)": "UNSUPPORTED_SYNTAX",
    "SELECT a, b - 9 AS b, count(*) OVER (PARTITION BY d) AS n FROM s QUALIFY n < 9 AND b > 0": "UNSUPPORTED_SYNTAX",
}


@pytest.mark.parametrize(
    "query", [next(iter(READ_OTHERWISE)), *(pytest.param(q, marks=pytest.mark.long) for q in list(READ_OTHERWISE)[1:])]
)
def test_what_is_read_otherwise_is_computed_by_its_text(wh: Warehouse, query: str) -> None:
    wh.script(TABLES)
    view = Kept(wh, "v", query)
    view.check()
    wh.script(CHANGE)
    wh.engine.forget("default.v")  # as in another process, which does not try it again
    assert READ_OTHERWISE[query] in view.refresh("full").reasons[0]


READ_OTHERWISE_UNDER = {
    "spark.sql.groupByOrdinal = false": "SELECT 1 AS one, count(*) AS n FROM s GROUP BY 1",
    "spark.sql.legacy.setopsPrecedence.enabled = true": "SELECT a FROM s UNION"
    " SELECT a FROM t INTERSECT SELECT b FROM t",
    "spark.sql.legacy.ctePrecedencePolicy = LEGACY": "WITH q AS (SELECT a FROM s), r AS (WITH q AS (SELECT a FROM t)"
    " SELECT * FROM q) SELECT * FROM r",
    "spark.sql.ansi.relationPrecedence = true": "SELECT s.b, r.a FROM s, t RIGHT JOIN s AS r ON t.a = r.a",
}


@pytest.mark.long
@pytest.mark.parametrize("setting", READ_OTHERWISE_UNDER)
def test_settings_under_which_spark_reads_otherwise(wh: Warehouse, setting: str) -> None:
    wh.script(TABLES)
    key, _, value = setting.partition(" = ")
    try:
        wh.spark.conf.set("spark.sql.ansi.enabled", "true")
        wh.spark.conf.set(key, value)
        view = Kept(wh, "v", READ_OTHERWISE_UNDER[setting])
        view.check()
        wh.script(CHANGE)
        assert f"otherwise under {setting}".lower() in view.refresh("full").reasons[0].lower()
    finally:
        wh.spark.conf.unset(key)
        wh.spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.long
def test_texts_with_a_collation_of_their_own(wh: Warehouse) -> None:
    """Delta does not store them: a group of one cannot be kept by it, whether it is shown or not."""
    wh.script("CREATE TABLE c (a STRING, b INT); INSERT INTO c VALUES ('x', 1), ('X', 2), (NULL, 3), ('y', 4)")
    view = Kept(wh, "v", "SELECT count(*) AS n, sum(b) AS t FROM c GROUP BY a COLLATE UTF8_LCASE")
    view.check()
    wh.sql("INSERT INTO c VALUES ('Y', 5), ('z', 6)")
    assert "UNGROUPABLE_TYPE" in view.refresh("full").reasons[0]
    equal = Kept(wh, "equal", "SELECT b FROM c WHERE a COLLATE UTF8_LCASE = 'X'")
    wh.sql("INSERT INTO c VALUES ('x', 7), ('z', 8)")
    equal.refresh(None)


def test_settings_that_somebody_set_since(wh: Warehouse) -> None:
    """Those that were not set when the view was made are not set by a refresh either."""
    wh.script(TABLES)
    texts = "SELECT to_json(struct(a, b)) AS j, try_to_timestamp('2020-1-5', 'yyyy-MM-dd') AS parsed FROM s"
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {texts}")
    wh.sql("INSERT INTO s VALUES (7, NULL, NULL)")
    changed = {"spark.sql.jsonGenerator.ignoreNullFields": "false", "spark.sql.legacy.timeParserPolicy": "LEGACY"}
    try:
        for key, value in changed.items():
            wh.spark.conf.set(key, value)
        wh.refresh("v")
    finally:
        for key in changed:
            wh.spark.conf.unset(key)
    assert rows(wh, "SELECT * FROM v WHERE j LIKE '%7%'") == [('{"a":7}', None)]


def test_settings_that_nobody_set_are_recorded_too(wh: Warehouse) -> None:
    """The default time zone is the machine's, and the next refresh may be another one's."""
    wh.script("CREATE TABLE e (id INT, ts TIMESTAMP); INSERT INTO e VALUES (1, TIMESTAMP'2024-06-01 02:00:00Z')")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT id, hour(ts) AS h FROM e")
    recorded = wh.definition("v").settings
    assert {key: recorded[key] for key in RECORDED_IN_FORCE} == {k: wh.spark.conf.get(k) for k in RECORDED_IN_FORCE}
    here = recorded["spark.sql.session.timeZone"]
    elsewhere = replace(wh.definition("v"), settings={**recorded, "spark.sql.session.timeZone": "Asia/Tokyo"})
    for definition, hour in ((wh.definition("v"), 2), (elsewhere, 11)):
        with wh.engine.session_for(definition) as session:
            assert session.sql("SELECT hour(ts) FROM e").first() == (hour,), here


@pytest.mark.long
def test_functions_of_the_grammar_and_joins_without_a_condition(wh: Warehouse) -> None:
    wh.script("""CREATE TABLE e (id INT NOT NULL, p INT NOT NULL, ts TIMESTAMP); CREATE TABLE n (id INT NOT NULL);
      INSERT INTO e VALUES (1, 1, TIMESTAMP'2024-06-01 02:00:00Z'), (2, 5, NULL); INSERT INTO n VALUES (5)""")
    views = [
        Kept(wh, "seconds", "SELECT id, unix_timestamp(ts) AS x FROM e"),
        Kept(
            wh, "added", "SELECT timestampadd(day, id, ts) AS x, timestampdiff(HOUR, ts, date'2024-07-01') AS y FROM e"
        ),
        Kept(wh, "opened", "SELECT e.id, c FROM e JOIN LATERAL explode(array(1, p)) AS z(c)"),
        Kept(wh, "outside", "SELECT id FROM e WHERE p NOT IN (SELECT id FROM n)"),
    ]
    wh.script("INSERT INTO e VALUES (7, 8, now()); INSERT INTO n VALUES (1); DELETE FROM n WHERE id = 5")
    for view in views:
        view.refresh()


@pytest.mark.long
def test_names_and_words_that_mean_something_else_inside(wh: Warehouse) -> None:
    """A struct's fields are called as the user's columns, though no made-up row passes the filter that would tell;
    LIKE ANY is no aggregate, exists() over an array no subquery, and `rows` may be a column."""
    wh.script("""CREATE TABLE t (id INT, k STRING, n INT, arr ARRAY<INT>, rows INT);
      INSERT INTO t VALUES (1, 'SKU-0000001', 1, array(1, 2), 1), (2, 'b', 2, NULL, 1);
      INSERT INTO t VALUES (3, 'SKU-0000003', NULL, array(5), 2)""")
    where = "WHERE k LIKE 'SKU-%' AND length(k) = 11"
    views = [
        Kept(wh, "flat", f"SELECT id, to_json(struct(id, t.N, (n), n + 1, upper(k) AS u)) AS j FROM t {where}"),
        Kept(wh, "grouped", f"SELECT k, to_json(struct(k, count(*), max(n) AS m)) AS j FROM t {where} GROUP BY k"),
        Kept(wh, "latest", f"SELECT k, max(struct(id, n)).n AS n FROM t {where} GROUP BY k"),
        Kept(wh, "shown", "SELECT id, struct(id, n) AS s FROM t"),
        Kept(wh, "words", "SELECT k, count(*) AS c FROM t GROUP BY k HAVING k LIKE ANY ('SKU%', 'z%')"),
        Kept(wh, "inside", "SELECT id, exists(arr, x -> x > n) AS b FROM t WHERE exists(arr, x -> x > 0)"),
        Kept(wh, "framed", "SELECT id, count(*) OVER (PARTITION BY t.rows) AS c FROM t"),
    ]
    for change in ("INSERT INTO t VALUES (4, 'SKU-0000001', 9, array(0, 7), 2)", "DELETE FROM t WHERE id = 1"):
        wh.sql(change)
        for view in views:
            view.refresh()
    wh.sql("CREATE FUNCTION number(x INT) RETURNS INT RETURN x + (SELECT max(id) FROM default.t)")
    try:
        with pytest.raises(UnsupportedError, match="otherwise than by its name"):
            wh.sql("CREATE MATERIALIZED VIEW hidden AS SELECT id, number(n) AS j FROM t")
    finally:
        wh.sql("DROP FUNCTION number")
