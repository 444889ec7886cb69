"""Ordinary changes of sources, tables without a feed and elsewhere, odd values, views over views.

What is not ordinary is in test_misbehaving.py."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltaic
from deltaic import Warehouse
from deltaic.app.catalogs.session import SessionCatalog
from deltaic.app.pipeline.pipeline import Pipeline
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.engine import Engine
from deltaic.app.values.definition import Definition
from deltaic.errors import HistoryGone, NameProblem, NotIncremental, UnsupportedError
from tests.e2e.conftest import Keep, Kept, report_of, rows
from tests.e2e.misfortunes import vacuumed

SETUP = """
CREATE TABLE s (k INT, v INT, note STRING);
INSERT INTO s VALUES (1, 10, 'a'), (1, 20, 'b'), (2, 30, 'c'), (NULL, 40, 'd'), (1, 10, 'a')
"""
GROUPED = "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k"
FILTERED = "SELECT k, v + 1 AS w FROM s WHERE v > 5"


@pytest.fixture
def both(wh: Warehouse) -> list[Kept]:
    wh.script(SETUP)
    return [Kept(wh, "g", GROUPED), Kept(wh, "f", FILTERED)]


OPERATIONS = {
    "merge": "MERGE INTO s USING (SELECT 1 AS k, 7 AS v UNION ALL SELECT 9, 9) n ON s.k = n.k"
    " WHEN MATCHED AND s.v = 20 THEN DELETE WHEN MATCHED THEN UPDATE SET v = n.v"
    " WHEN NOT MATCHED THEN INSERT (k, v) VALUES (n.k, n.v)",
    "update": "UPDATE s SET k = 2, v = v * 2 WHERE k = 1",
    "delete one of two equal": "DELETE FROM s WHERE k = 1 AND v = 10; INSERT INTO s VALUES (1, 10, 'a')",
}


@pytest.mark.parametrize(
    "operation", ["merge", *(pytest.param(o, marks=pytest.mark.long) for o in OPERATIONS if o != "merge")]
)
def test_operations(wh: Warehouse, both: list[Kept], operation: str) -> None:
    wh.script(OPERATIONS[operation])
    for view in both:
        view.refresh()
    wh.sql("INSERT INTO s VALUES (1, 99, 'z')")
    for view in both:
        view.refresh()


def test_what_is_read_behind_a_query_s_back(wh: Warehouse) -> None:
    """A view whose tables are not all known would stay as it is when they change: it is refused."""
    wh.script(SETUP)
    wh.script("""
      CREATE FUNCTION total() RETURNS BIGINT RETURN SELECT sum(v) FROM s;
      CREATE FUNCTION rows_of() RETURNS TABLE (k INT) RETURN SELECT k FROM s;
      CREATE FUNCTION more(x INT) RETURNS INT RETURN x + 1;
      CREATE FUNCTION letters(x STRING) RETURNS STRING RETURN SELECT max(note) FROM s
    """)
    try:
        for query in (
            "SELECT k FROM IDENTIFIER('s')",
            "WITH c AS (TABLE s) SELECT k FROM c",
            "SELECT k, count(*) AS n FROM table_changes('s', 0) GROUP BY k",
            "SELECT k, total() AS t FROM s",
            "SELECT k, default.total() AS t FROM s",
            "SELECT s.k FROM s JOIN rows_of() r ON s.k = r.k",
            "SELECT k, trim(BOTH letters(note) FROM note) AS t FROM s",
        ):
            with pytest.raises(UnsupportedError, match=r"the query reads \S*s otherwise than by its name"):
                wh.sql(f"CREATE MATERIALIZED VIEW refused AS {query}")
        assert wh.views() == []
        # what reads no table may still be another function tomorrow
        own = Kept(wh, "own", "SELECT default.more(k) AS k, note FROM s")
        dated = Kept(
            wh, "dated", "SELECT default.s.k, current_date() > DATE '2020-01-01' AS past FROM default.s LIMIT 99"
        )
        quoted = Kept(wh, "quoted", "SELECT k, `current_date` > DATE '2020-01-01' AS past FROM s")
        hourly = Kept(wh, "hourly", "SELECT k, TIMESTAMP '0:30' > TIMESTAMP '2020-01-01' AS past FROM s")
        still = Kept(wh, "still", "SELECT s.k FROM s TABLESAMPLE (100 PERCENT) REPEATABLE (1) WHERE s.v > 1")
        wh.sql("CREATE OR REPLACE FUNCTION more(x INT) RETURNS INT RETURN x + 2")
        assert "UNKNOWN_FUNCTION" in own.refresh("full").reasons[0]
        for view in (dated, quoted, hourly):
            view.refresh("full")
        still.refresh("noop")
        checks = wh.check()
        assert isinstance(checks, list)
        verdicts = {check.view.removeprefix("default."): check.verdict for check in checks}
        assert {verdicts[name] for name in ("own", "dated", "quoted", "hourly")} == {"uncertain"}
    finally:
        wh.script("DROP FUNCTION total; DROP FUNCTION rows_of; DROP FUNCTION more; DROP FUNCTION letters")


def test_a_temporary_view_is_no_source(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql("CREATE TEMPORARY VIEW s AS SELECT 'x' AS k, DATE '2020-01-01' AS v, 1 AS note")
    try:
        wh.sql(f"CREATE MATERIALIZED VIEW g AS {GROUPED}")
        wh.sql("CREATE MATERIALIZED VIEW l AS SELECT note, v FROM s ORDER BY v LIMIT 1")
        wh.sql("INSERT INTO default.s VALUES (1, 1, 'z')")
        assert [report.mode for report in wh.refresh_all()] == ["incremental", "full"]
        assert rows(wh, "SELECT * FROM l") == [("z", 1)]
        assert rows(wh, "SELECT t, n FROM g WHERE k = 1") == [(41, 4)]
    finally:
        wh.sql("DROP VIEW s")


@pytest.mark.long
def test_commits_without_rows_are_no_work(wh: Warehouse, both: list[Kept]) -> None:
    wh.sql("INSERT INTO s VALUES (6, 6, 'f')")
    for view in both:
        view.refresh()
    wh.sql("OPTIMIZE s")
    wh.sql("VACUUM s")
    for view in both:
        report = view.refresh("noop")
        assert report.jobs == 0
    wh.sql("ALTER TABLE s SET TBLPROPERTIES ('note' = 'changed')")
    for view in both:
        view.refresh("noop")
    wh.sql("DELETE FROM s WHERE k = 1")
    for view in both:
        view.refresh()


def test_a_table_without_a_feed_is_compared_by_files(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT) TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    wh.sql("INSERT INTO s VALUES (1, 10), (1, 10), (2, 30)")
    views = [Kept(wh, "g", "SELECT k, sum(v) AS t FROM s GROUP BY k"), Kept(wh, "f", "SELECT v FROM s")]
    for change in (
        "INSERT INTO s VALUES (1, 5)",
        "UPDATE s SET v = 11 WHERE v = 10",
        "OPTIMIZE s; DELETE FROM s WHERE v = 11",
        "DELETE FROM s",
    ):
        wh.script(change)
        for view in views:
            view.refresh()
    feed = rows(wh, "SHOW TBLPROPERTIES s ('delta.enableChangeDataFeed')")
    assert feed[0][1] == "false", "the feed is the user's to switch on"


@pytest.mark.long
@pytest.mark.local
@pytest.mark.parametrize("layout", ["folders", pytest.param("one folder", marks=pytest.mark.long)])
def test_files_whose_names_do_not_tell_them(wh: Warehouse, tmp_path: Path, layout: str) -> None:
    """As Hive names them, one name in every partition; and names that Spark shows otherwise than the log."""
    place = tmp_path / "t"
    for p in (1, 2, 3):
        folder, name = (place / f"p={p}.0", "000000_0") if layout == "folders" else (place, f"my data {p}.parquet")
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([p, p, 10 - p], pa.int32())}), folder / name)
    partitions = "PARTITIONED BY (p DOUBLE)" if layout == "folders" else ""
    wh.sql(f"CONVERT TO DELTA parquet.`{place}` {partitions}")
    wh.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    wh.engine.use_rs = False
    view = Kept(wh, "v", f"SELECT * FROM delta.`{place}`")
    for change in (
        f"DELETE FROM delta.`{place}` WHERE id = 1",
        f"INSERT INTO delta.`{place}` SELECT * FROM delta.`{place}` WHERE id = 3",
        f"UPDATE delta.`{place}` SET id = 5 WHERE id IN (7, 9)",
    ):
        wh.sql(change)
        view.refresh()


@pytest.mark.long
def test_what_the_log_and_its_reader_do_not_tell(wh: Warehouse) -> None:
    """Partitions that are NULL, -0.0 beside 0.0, and the blanks of a CHAR that is one no more."""
    wh.script(
        "CREATE TABLE o (id INT, p INT) PARTITIONED BY (p); INSERT INTO o VALUES (1, 1), (3, NULL);"
        " CREATE TABLE z (x DOUBLE) TBLPROPERTIES (delta.enableChangeDataFeed = false); INSERT INTO z VALUES (0.0D);"
        " CREATE TABLE c (id INT, c CHAR(5)); INSERT INTO c VALUES (1, 'ab');"
        " CREATE TABLE m (m MAP<STRING, INT>); INSERT INTO m VALUES (map('A', 1, 'a', 2)), (map('A', 1, 'a', 3))"
    )
    kept = [
        Kept(wh, "vo", "SELECT p, id FROM o"),
        Kept(wh, "vz", "SELECT CAST(x AS STRING) AS s, count(*) AS n FROM z GROUP BY CAST(x AS STRING)"),
        Kept(wh, "vc", "SELECT c, length(c) AS l FROM c"),
        Kept(wh, "vm", "SELECT m.A AS x, m.a AS y, count(*) AS n FROM m GROUP BY m.A, m.a"),
    ]
    wh.script(
        "INSERT OVERWRITE o SELECT 8, 1 UNION ALL SELECT 9, NULL; UPDATE z SET x = -0.0D;"
        " ALTER TABLE c ALTER COLUMN c TYPE STRING; INSERT INTO m VALUES (map('A', 1, 'a', 3))"
    )
    for view, mode in zip(kept, ("incremental", "incremental", "full", "incremental"), strict=True):
        view.refresh(mode)


@pytest.mark.long
def test_a_delta_table_elsewhere(wh: Warehouse, tmp_path: Path) -> None:
    place = tmp_path / "over there" / "t"
    wh.spark.sql(f"CREATE TABLE delta.`{place}` (a INT) USING delta")
    wh.spark.sql(f"INSERT INTO delta.`{place}` VALUES (1), (2)")
    view = Kept(wh, "v", f"SELECT a, count(*) AS n FROM delta.`{place}` GROUP BY a")
    wh.spark.sql(f"INSERT INTO delta.`{place}` VALUES (2)")
    view.refresh()


@pytest.mark.long
def test_a_used_column_that_changes_recomputes(wh: Warehouse, keep: Keep) -> None:
    wh.script(SETUP)
    view = keep("SELECT * FROM s")
    strict = keep("SELECT * FROM s", "strict", "REFRESH POLICY INCREMENTAL STRICT")
    wh.sql("ALTER TABLE s ADD COLUMN extra STRING")
    wh.sql("INSERT INTO s VALUES (1, 1, 'n', 'e')")
    report = view.refresh("full")
    assert "SOURCE_SCHEMA" in report.reasons[0]
    with pytest.raises(NotIncremental, match="SOURCE_SCHEMA"):
        wh.refresh("strict")
    assert len(rows(wh, "SELECT * FROM strict")) == 5, "a refused refresh changes nothing"
    assert report_of(wh, "strict", full=True).mode == "full"
    strict.check()


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, False])
def test_texts_that_are_not_utf8(wh: Warehouse, use_rs: bool) -> None:
    """Spark's strings hold any bytes; delta-rs cannot read them, and the change feed has others for them."""
    wh.engine.use_rs = use_rs
    odd = "CAST(X'FF61' AS STRING)"
    wh.script(
        "CREATE TABLE s (k STRING, v INT, a ARRAY<STRING>, m MAP<INT, STRUCT<p: STRING>>, t TIMESTAMP);"
        f"INSERT INTO s (k, v) VALUES ('a', 1), ({odd}, 2)"
    )
    queries = {
        "g": "SELECT hex(k) AS h, k, sum(v) AS t FROM s GROUP BY k",
        "p": "SELECT k, v FROM s WHERE v > 0",
        "n": "SELECT hex(a[0]) AS a, hex(m[1].p) AS p, count(t) AS c, count(v) AS n FROM s GROUP BY 1, 2",
    }
    views = [Kept(wh, name, query) for name, query in queries.items()]
    for batch in (
        f"INSERT INTO s (k, v) VALUES ({odd}, 5), (CAST(X'FE' AS STRING), 1)",
        f"INSERT INTO s VALUES ('b', 5, array({odd}), map(1, named_struct('p', {odd})), TIMESTAMP'2024-01-01')",
        "DELETE FROM s WHERE hex(k) = 'FF61'",
    ):
        wh.sql(batch)
        for view in views:
            view.refresh("incremental")


@pytest.mark.long
def test_char_columns_are_compared_as_spark_does(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, c CHAR(5), d CHAR(3)); INSERT INTO s VALUES (1, 'a', 'a'), (2, 'b', 'x')")
    conditions = {"a": "c = 'a'", "b": "c IN ('a', 'z')", "c": "c = d"}
    views = [Kept(wh, name, f"SELECT k, c FROM s WHERE {condition}") for name, condition in conditions.items()]
    wh.sql("INSERT INTO s VALUES (3, 'a', 'a'), (4, 'zz', 'q')")
    for view in views:
        assert view.refresh("incremental").delta_rows == 1
    wh.engine.use_rs = False  # and as the key of a view that Spark writes
    by_char = Kept(wh, "by_char", "SELECT DISTINCT c FROM s")
    wh.script("INSERT INTO s VALUES (5, 'a', 'q'), (6, 'new', 'q'); DELETE FROM s WHERE c = 'zz'")
    by_char.refresh("incremental")


@pytest.mark.long
def test_float_sums_do_not_drift(wh: Warehouse, keep: Keep) -> None:
    wh.sql("CREATE TABLE s (k INT, x DOUBLE)")
    wh.sql("INSERT INTO s SELECT id % 3, 1e15 * (id % 2) + 0.1 FROM range(300)")
    view = keep("SELECT k, sum(x) AS t, avg(x) AS a FROM s GROUP BY k")
    for step in range(3):
        wh.sql(f"INSERT INTO s VALUES (0, 1e18), (1, {step}.3)")
        view.refresh()
        wh.sql("DELETE FROM s WHERE x = 1e18")
        view.refresh()


def test_views_over_views(wh: Warehouse) -> None:
    wh.script(SETUP)
    low = Kept(wh, "low", GROUPED)
    high = Kept(wh, "high", "SELECT n, count(*) AS groups, sum(t) AS t FROM low GROUP BY n")
    for change in ("INSERT INTO s VALUES (2, 1, 'x')", "DELETE FROM s WHERE k = 1", "UPDATE s SET k = 7"):
        wh.sql(change)
        reports = wh.refresh()
        assert isinstance(reports, list)
        assert [r.view for r in reports] == ["default.low", "default.high"]
        assert {r.mode for r in reports} == {"incremental"}
        low.check()
        high.check()


def test_a_view_is_read_by_its_name_only(wh: Warehouse) -> None:
    """By its folder nobody would know that it is refreshed first, nor which of its rows are shown."""
    wh.script("CREATE TABLE r (k INT, v INT); INSERT INTO r VALUES (1, 1), (2, 2)")
    wh.sql("CREATE MATERIALIZED VIEW base AS SELECT k, sum(v) AS t FROM r GROUP BY k HAVING count(*) > 1")
    ref = wh.engine.view_table(wh.definition("base")).ref
    for statement in ("CREATE MATERIALIZED VIEW over", "ALTER MATERIALIZED VIEW base"):
        with pytest.raises(NameProblem, match=r"is the table of the materialized view default\.base"):
            wh.sql(f"{statement} AS SELECT k, t FROM delta.`{ref.path}/`")
    if isinstance(wh.engine.catalog, SessionCatalog):
        with pytest.raises(NameProblem, match=r"is the table of the materialized view default\.base"):
            wh.sql(f"CREATE MATERIALIZED VIEW over AS SELECT k, t FROM {ref.relation}")
    assert [view["view"] for view in wh.views()] == ["default.base"]


@pytest.mark.local
def test_another_warehouse_s_view_is_no_table(wh: Warehouse, tmp_path: Path) -> None:
    wh.script("CREATE TABLE r (k INT, v INT); INSERT INTO r VALUES (1, 1), (2, 2)")
    wh.sql("CREATE MATERIALIZED VIEW base AS SELECT k, sum(v) AS t FROM r GROUP BY k HAVING count(*) > 1")
    folder = wh.engine.view_table(wh.definition("base")).ref.path
    wh.close()
    with deltaic.open(tmp_path / "other") as other, pytest.raises(NameProblem, match="rows that are not shown"):
        other.sql(f"CREATE MATERIALIZED VIEW over AS SELECT k, t FROM delta.`{folder}`")


@pytest.mark.long
def test_a_tower_of_views_is_asked_once(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each floor stands on two others, so that 34 ways lead from the highest to the ground."""
    wh.script(SETUP)
    floors = ["SELECT k, v FROM s", "SELECT k, max(v) AS v FROM v0 GROUP BY k"]
    floors += [f"SELECT x.k, x.v FROM v{n + 1} x WHERE x.k IN (SELECT k FROM v{n})" for n in range(7)]
    tower = [Kept(wh, f"v{n}", query) for n, query in enumerate(floors)]
    asked: Counter[str] = Counter()
    is_of_now = Engine._is_of_now

    def counted(self: Engine, compiled: Compiled, *rest: Any) -> bool:
        asked[compiled.definition.name] += 1
        return is_of_now(self, compiled, *rest)

    monkeypatch.setattr(Engine, "_is_of_now", counted)
    wh.engine.compiled(wh.engine.definition("v8"))
    assert set(asked.values()) == {1}
    wh.sql("INSERT INTO s VALUES (2, 1, 'x'), (9, 9, 'y')")
    wh.refresh()
    for view in tower:
        view.check()


@pytest.mark.long
def test_only_schemas_that_are_read_are_asked(remote: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(8):
        remote.sql(f"CREATE SCHEMA elsewhere{n}")
    remote.script("CREATE TABLE elsewhere3.s (a INT); INSERT INTO elsewhere3.s VALUES (1)")
    view = Kept(remote, "v", "SELECT a, count(*) AS n FROM elsewhere3.s GROUP BY a")
    remote.sql("INSERT INTO elsewhere3.s VALUES (1), (2)")
    asked: list[str] = []
    views_in = SessionCatalog._views_in

    def counted(self: SessionCatalog, schema: str, like: str) -> list[str]:
        asked.append(schema)
        return views_in(self, schema, like)

    monkeypatch.setattr(SessionCatalog, "_views_in", counted)
    view.refresh()
    assert set(asked) <= {"default", "elsewhere3"}


@pytest.mark.long
def test_many_views_at_one_time(wh: Warehouse) -> None:
    wh.script(SETUP)
    views = [Kept(wh, "a", GROUPED), Kept(wh, "b", FILTERED)]
    wh.sql("INSERT INTO s VALUES (8, 8, 'h')")
    reports = wh.refresh()
    assert isinstance(reports, list)
    assert len({tuple(r.versions.items()) for r in reports}) == 1
    for view in views:
        view.check()


@pytest.mark.long
def test_spark_and_delta_rs_give_the_same_view(wh: Warehouse, both: list[Kept]) -> None:
    for change in ("INSERT INTO s VALUES (1, 6, 'x'), (1, 6, 'x')", "DELETE FROM s WHERE v = 10"):
        for use_rs in (True, False):
            wh.engine.use_rs = use_rs
            wh.sql(change)
            for view in both:
                report = view.refresh(None)
                if report.mode != "noop":
                    assert report.written_by == ("delta-rs" if use_rs else "spark")
    wh.engine.use_rs = True


@pytest.mark.long
def test_a_common_time_that_is_vacuumed_meanwhile(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    wh.script(SETUP)
    views = [Kept(wh, "g", GROUPED), Kept(wh, "f", FILTERED)]
    wh.sql("UPDATE s SET v = v + 1")
    pinned, meanwhile = Pipeline.pins, ["UPDATE s SET v = v + 1", "vacuum"]

    def pins(pipeline: Pipeline, order: list[Definition]) -> dict[str, int]:
        found = pinned(pipeline, order)
        while meanwhile:
            what = meanwhile.pop(0)
            vacuumed(wh, "s") if what == "vacuum" else wh.sql(what)
        return found

    monkeypatch.setattr(Pipeline, "pins", pins)
    reports = wh.refresh()
    assert isinstance(reports, list)
    assert [report.reasons[0].split(":")[0] for report in reports] == ["HISTORY_GONE"] * 2
    for view in views:
        view.check()
    meanwhile += ["UPDATE s SET v = v + 1", "vacuum"]
    with pytest.raises(HistoryGone, match="the versions of its sources that it is refreshed to are vacuumed"):
        Pipeline(wh.engine).refreshed(full=True, again=False)
    for view in views:
        view.refresh("full")


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, pytest.param(False, marks=pytest.mark.long)])
def test_days_that_the_feed_has_as_others(wh: Warehouse, use_rs: bool) -> None:
    """The Julian calendar left out ten days, and so do Java's old dates, through which a feed may come."""
    wh.engine.use_rs = use_rs
    wh.script(
        "SET spark.sql.session.timeZone = America/New_York; CREATE TABLE s (k INT, d DATE, t TIMESTAMP, a ARRAY<DATE>);"
        "INSERT INTO s VALUES (1, DATE'1582-10-05', TIMESTAMP'1582-10-10 00:00:00', array(DATE'1582-10-10')),"
        " (2, DATE'1582-10-04', TIMESTAMP'1582-10-04 23:59:59', NULL), (3, NULL, NULL, NULL)"
    )
    views = [
        Kept(wh, "days", "SELECT CAST(d AS STRING) AS d, count(*) AS n FROM s GROUP BY d"),
        Kept(wh, "instants", "SELECT k, CAST(t AS STRING) AS t FROM s"),
        Kept(wh, "nested", "SELECT k, CAST(a AS STRING) AS a FROM s"),
    ]
    wh.script("UPDATE s SET k = k + 10; INSERT INTO s SELECT k + 1, d, t, a FROM s WHERE k < 13")
    for view in views:
        view.refresh("incremental")
