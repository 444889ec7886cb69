"""The statements, what bad input gets, and that nothing is half done."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltaic
from deltaic import Warehouse
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.unfinished import write_whole
from deltaic.errors import (
    ComputeError,
    ConfigurationError,
    DeltaicError,
    DependencyError,
    ExistsError,
    MissingError,
    NameProblem,
    NotIncremental,
    ParseError,
    SetupError,
    SourceError,
    TypeNotStorable,
    UnsupportedError,
)
from deltaic.spark.session import is_connect
from tests.e2e.conftest import Kept, report_of, rows

BAD: list[tuple[str, type[DeltaicError], str]] = [
    ("CREATE MATERIALIZED VIEW w AS SELECT nope FROM t", NameProblem, "line 1, column 38"),
    ("CREATE MATERIALIZED VIEW w AS\nSELECT a\nFROM missing", DeltaicError, "line 3, column 6"),
    ("CREATE MATERIALIZED VIEW w AS SELECT a, a FROM t", NameProblem, "stands twice"),
    ("CREATE MATERIALIZED VIEW w AS SELECT a FROM t JOIN t u", NameProblem, "(?i)ambiguous"),
    ("CREATE MATERIALIZED VIEW w AS SELECT a FROM w", DeltaicError, "w"),
    ("CREATE MATERIALIZED VIEW w (x, y) AS SELECT a FROM t", NameProblem, "2 column names"),
    ("CREATE MATERIALIZED VIEW v AS SELECT a FROM t", ExistsError, "already a materialized view"),
    ("CREATE MATERIALIZED VIEW t AS SELECT a FROM t", ExistsError, "already"),
    ("CREATE MATERIALIZED VIEW __deltaic_x AS SELECT a FROM t", NameProblem, "Deltaic's own"),
    ("CREATE MATERIALIZED VIEW w AS SELECT a AS __deltaic_x FROM t", NameProblem, "Deltaic's own"),
    ("CREATE MATERIALIZED VIEW w AS DELETE FROM t", ParseError, "a query is expected"),
    ("CREATE MATERIALIZED VIEW w AS SELECT a FROM t WHERE", DeltaicError, "line 1"),
    ("CREATE MATERIALIZED VIEW w AS SELECT a, unix_timestamp('now') AS z FROM t", ComputeError, "CANNOT_PARSE"),
    ("CREATE MATERIALIZED VIEW w AS SELECT NULL AS n", TypeNotStorable, "void"),
    ("CREATE MATERIALIZED VIEW w AS SELECT INTERVAL 1 DAY AS i", TypeNotStorable, "interval"),
    ("CREATE MATERIALIZED VIEW w AS SELECT * FROM plain", SourceError, "not a Delta table"),
    ("CREATE MATERIALIZED VIEW w TBLPROPERTIES ('deltaic.nope' = '1') AS SELECT 1 AS a", ConfigurationError, "nope"),
    ("CREATE MATERIALIZED VIEW w TBLPROPERTIES ('deltaic.technique' = 'magic') AS SELECT 1 AS a",
     ConfigurationError, "magic"),
    ("CREATE MATERIALIZED VIEW w PARTITIONED BY (z) AS SELECT a FROM t", NameProblem, "no column z"),
    ("CREATE MATERIALIZED VIEW w REFRESH POLICY INCREMENTAL STRICT AS SELECT a FROM t ORDER BY a LIMIT 1",
     NotIncremental, "LIMIT"),
    ("CREATE MATERIALIZED VIEW w AS WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT max(n) FROM r) SELECT * FROM r",
     UnsupportedError, "an aggregate"),
    ("REFRESH MATERIALIZED VIEW nope", MissingError, "nope"),
    ("REFRESH MATERIALIZED VIEW v VERSION AS OF x", ParseError, "a number is expected"),
    ("REFRESH MATERIALIZED VIEW v TIMESTAMP AS OF 5", ParseError, "a text in quotes is expected"),
    ("ALTER MATERIALIZED VIEW nope AS SELECT 1 AS a", MissingError, "nope"),
    ("DROP MATERIALIZED VIEW nope", MissingError, "nope"),
    ("DROP TABLE t", DependencyError, "read by default.v"),
    ("DROP TABLE v", NameProblem, "is a materialized view"),
    ("DROP VIEW v", NameProblem, "is a materialized view"),
    ("CREATE TABLE v (a INT)", ExistsError, "already"),
    ("CREATE MATERIALIZED VIEW w", ParseError, "AS is expected"),
    ("SELECT 1; SELECT 2", ParseError, "one statement"),
]  # fmt: skip


@pytest.fixture
def small(wh: Warehouse) -> Warehouse:
    wh.script("CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
    wh.spark.sql("SELECT 1 AS a").createOrReplaceTempView("plain")
    return wh


def test_bad_input_is_refused_and_changes_nothing(small: Warehouse, tmp_path: Path) -> None:
    root = tmp_path
    before = sorted(str(p.relative_to(root)) for p in root.rglob("*") if ".deltaic" not in str(p))
    assert before
    for statement, kind, pattern in BAD:
        with pytest.raises(kind, match=pattern) as caught:
            small.sql(statement)
        assert caught.value.code, statement
    after = sorted(str(p.relative_to(root)) for p in root.rglob("*") if ".deltaic" not in str(p))
    assert before == after
    assert report_of(small, "v").mode == "noop"


def test_create_replace_alter_drop(small: Warehouse) -> None:
    small.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT b FROM t")
    assert rows(small, "SELECT * FROM v ORDER BY a") == [(1, 1), (2, 1)]
    small.sql("CREATE OR REPLACE MATERIALIZED VIEW v (letter) TBLPROPERTIES ('team' = 'Ann') AS SELECT b FROM t")
    assert rows(small, "SELECT letter FROM v ORDER BY letter") == [("x",), ("y",)]
    small.sql("ALTER MATERIALIZED VIEW v AS SELECT a * 10 AS z FROM t")
    assert rows(small, "SELECT z FROM v ORDER BY z") == [(10,), (20,)]
    assert small.engine.view_table(small.definition("v")).log.snapshot().properties["team"] == "Ann"
    small.sql("INSERT INTO t VALUES (3, 'z')")
    assert report_of(small, "v").mode == "incremental"
    small.sql("CREATE MATERIALIZED VIEW w AS SELECT max(z) AS m FROM v")
    with pytest.raises(DependencyError, match=r"default\.w"):
        small.sql("DROP MATERIALIZED VIEW v")
    with pytest.raises(DependencyError, match="read itself"):
        small.sql("ALTER MATERIALIZED VIEW v AS SELECT m AS z FROM w")
    small.sql("DROP MATERIALIZED VIEW w")
    small.sql("DROP MATERIALIZED VIEW v")
    small.sql("DROP MATERIALIZED VIEW IF EXISTS v")
    small.sql("DROP TABLE t")
    assert rows(small, "SHOW MATERIALIZED VIEWS") == []


def test_what_a_view_shows_of_itself(small: Warehouse) -> None:
    small.sql("INSERT INTO t VALUES (1, 'w')")
    shown = "\n".join(str(row[0]) for row in rows(small, "EXPLAIN REFRESH MATERIALIZED VIEW v"))
    assert "Incremental by change tables" in shown
    assert "MERGE INTO" in shown
    assert "Aggregate by" in shown
    report = report_of(small, "v")
    assert report.rows_read == {"default.t": 1, "default.v": 2}
    assert report.versions == {"default.t": 2}
    assert (report.jobs is None) == is_connect(small.spark)
    assert "incremental" in report._repr_html_()
    history = rows(small, "DESCRIBE HISTORY v")
    assert len(history) == 2
    (status,) = small.views()
    assert status["commits_behind"] == {"default.t": 0}
    planned = small.explain("CREATE MATERIALIZED VIEW w AS SELECT a FROM t ORDER BY a LIMIT 3")
    assert "LIMIT" in planned


def test_a_view_that_recomputes_says_why(small: Warehouse) -> None:
    queries = {
        "LIMIT": "SELECT a FROM t ORDER BY a LIMIT 1",
        "WINDOW_NO_PARTITION": "SELECT a, rank() OVER (ORDER BY a) AS r FROM t",
        "NON_DETERMINISTIC": "SELECT a, current_date() AS d FROM t",
    }
    for code, query in queries.items():
        small.sql(f"CREATE MATERIALIZED VIEW q_{code} AS {query}")
        small.sql("INSERT INTO t VALUES (9, 'q')")
        report = report_of(small, f"q_{code}")
        assert report.mode == "full"
        assert report.reasons[0].startswith(code)
        assert "line 1" in report.reasons[0] or code == "LIMIT"
    assert report_of(small, "q_NON_DETERMINISTIC").mode == "full", "time moves even where tables do not"
    small.refresh("q_LIMIT")
    small.sql("DELETE FROM t WHERE a = -1")
    assert report_of(small, "q_LIMIT").mode == "noop", "its answer is decided by the tables, and these did not change"


@pytest.mark.local
def test_a_warehouse_that_is_closed(wh: Warehouse) -> None:
    wh.close()
    for work in (lambda: wh.sql("SELECT 1"), wh.refresh, wh.views, lambda: wh.table("t")):
        with pytest.raises(SetupError, match="is closed"):
            work()
    wh.close()


@pytest.mark.local
def test_a_view_whose_folder_goes_while_it_is_open(wh: Warehouse, tmp_path: Path) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1)")
    for name in ("p", "q", "r"):
        wh.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k, sum(v) AS t FROM s GROUP BY k")
        shutil.rmtree(tmp_path / "wh" / "default" / name)
    wh.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS p AS SELECT k FROM s")
    assert rows(wh, "SELECT * FROM p") == [(1,)]
    with pytest.raises(MissingError):
        wh.sql("DROP MATERIALIZED VIEW q")
    wh.sql("CREATE TABLE q (x INT)")
    assert rows(wh, "SELECT * FROM q") == []
    with pytest.raises(NameProblem):
        wh.sql("CREATE MATERIALIZED VIEW over AS SELECT k FROM r")
    wh.sql("CREATE MATERIALIZED VIEW over AS SELECT k FROM p")
    shutil.rmtree(tmp_path / "wh" / "default" / "p")
    with pytest.raises(NameProblem, match=r"default\.over"):
        wh.refresh("over")
    with pytest.raises(NameProblem, match="cannot be renamed"):
        wh.sql("ALTER TABLE over RENAME TO d")
    with pytest.raises(ConfigurationError, match="append-only"):
        wh.sql("CREATE MATERIALIZED VIEW ao TBLPROPERTIES ('delta.appendOnly' = 'true') AS SELECT k FROM s")


@pytest.mark.long
def test_odd_names(wh: Warehouse) -> None:
    wh.sql(
        "CREATE TABLE t (`a b` INT, `c.d` STRING, `select` INT, `ü'\"` INT)"
        " TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    )
    wh.sql("INSERT INTO t VALUES (1, 'x', 2, 3), (1, 'y', 2, 4)")
    query = "SELECT `a b`, `select` AS `from`, count(`c.d`) AS `n(1)`, sum(`ü'\"`) FROM t GROUP BY `a b`, `select`"
    views = [Kept(wh, name, query) for name in ("`my view`", "`o'hara; DROP TABLE t --`", "`über`", "`order`", "`a.b`")]
    wh.sql("INSERT INTO t VALUES (1, 'z', 2, 5), (NULL, NULL, NULL, NULL)")
    for view in views:
        view.refresh()
    assert wh.table("`my view`").columns == ["a b", "from", "n(1)", "sum(ü'\")"]
    assert rows(wh, "SELECT count(*) FROM t") == [(4,)]
    over = Kept(wh, "over", "SELECT `from` FROM `my view`")
    wh.refresh()
    over.check()


def test_comments_cannot_reach_the_sql(wh: Warehouse) -> None:
    wh.script("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    text = "SELECT a -- ) AS x; DROP TABLE t\n, /* ' \" ` */ a + 1 AS b FROM t -- the end"
    wh.sql(f"CREATE MATERIALIZED VIEW v COMMENT 'it''s; \\'quoted\\'' AS {text}")
    wh.sql("INSERT INTO t VALUES (2)")
    assert report_of(wh, "v").mode == "incremental"
    assert rows(wh, "SELECT * FROM v ORDER BY a") == [(1, 2), (2, 3)]


def test_a_warehouse_survives_closing(spark: object, tmp_path: Path) -> None:
    with deltaic.open(tmp_path / "w") as wh:
        wh.sql("CREATE SCHEMA other")
        wh.script("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); CREATE TABLE other.o (a INT)")
        wh.sql("SET spark.sql.session.timeZone = Asia/Tokyo")
        wh.sql(
            "CREATE MATERIALIZED VIEW other.v AS SELECT a, CAST(TIMESTAMP'2024-01-01 00:00:00Z' AS STRING) AS s"
            " FROM default.t"
        )
        with pytest.raises(SetupError, match="is open"):
            deltaic.open(tmp_path / "x")
    with deltaic.open(tmp_path / "w") as wh:
        assert wh.spark.conf.get("spark.sql.session.timeZone") != "Asia/Tokyo"
        wh.sql("INSERT INTO t VALUES (2)")
        assert report_of(wh, "other.v").mode == "incremental"
        stamps = {row[1] for row in rows(wh, "SELECT * FROM other.v")}
        assert stamps == {"2024-01-01 09:00:00"}, "the settings of the creator hold"
        assert rows(wh, "SELECT * FROM other.o") == []
        wh.sql("INSERT INTO other.o VALUES (7)")
    with deltaic.open(tmp_path / "w") as wh:
        assert rows(wh, "SELECT * FROM other.o") == [(7,)], "Spark deletes the folder of a schema that is dropped"
        wh.sql("CREATE SCHEMA third")
        wh.spark.range(2).write.format("delta").saveAsTable("third.made")
        with pytest.raises(UnsupportedError, match="has no other location"):
            wh.sql(f"CREATE SCHEMA fourth LOCATION '{tmp_path / 'fourth'}'")
        with pytest.raises(DependencyError, match="is not empty: there is made"):
            wh.sql("DROP SCHEMA third CASCADE")
    with deltaic.open(tmp_path / "w") as wh:
        assert rows(wh, "SELECT count(*) FROM third.made") == [(2,)]
        wh.sql("DROP TABLE third.made")
        wh.sql("DROP SCHEMA third")
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == [".deltaic", "default", "other"]
    (tmp_path / "w" / "lost+found").mkdir()
    with deltaic.open(tmp_path / "w") as wh:  # such a folder is none of the warehouse's
        assert rows(wh, "SELECT * FROM other.o") == [(7,)]


def test_a_session_of_the_users_own(spark: object, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    wh = deltaic.open(spark=spark.newSession(), path=str(tmp_path / "mv"))
    wh.sql("CREATE SCHEMA IF NOT EXISTS mine LOCATION " + repr(str(tmp_path / "mine")))
    wh.sql("USE mine")
    try:
        wh.script("CREATE TABLE t (a INT, b INT) USING delta; INSERT INTO t VALUES (1, 1), (2, 2)")
        view = Kept(wh, "v", "SELECT a, sum(b) AS s FROM t GROUP BY a")
        wh.sql("INSERT INTO t VALUES (2, 5)")
        view.refresh()
        wh.sql("DELETE FROM t WHERE a = 1")
        view.refresh()
        assert [v["view"] for v in wh.views()] == ["mine.v"]
        with pytest.raises(NameProblem, match="names of letters, digits and underscores only"):
            wh.sql("CREATE MATERIALIZED VIEW `odd name` AS SELECT a FROM t")
        wh.sql("CREATE MATERIALIZED VIEW w AS SELECT a FROM t")
        shutil.rmtree(tmp_path / "mv" / "mine" / "__deltaic_mv_w")
        wh.sql("INSERT INTO t VALUES (3, 3)")
        with pytest.raises(DeltaicError, match=r"mine\.w"):
            wh.refresh()
        view.check()
        with pytest.raises(DependencyError, match="mine"):
            wh.sql("DROP SCHEMA mine CASCADE")
        assert {v["view"]: v["policy"] is None for v in wh.views()} == {"mine.v": False, "mine.w": True}
        wh.sql("DROP MATERIALIZED VIEW v")
        wh.sql("DROP MATERIALIZED VIEW w")
        assert rows(wh, "SHOW TABLES IN mine") == [("mine", "t", False)]
    finally:
        wh.sql("USE default")
        wh.sql("DROP SCHEMA mine CASCADE")


@pytest.mark.local
def test_what_is_dropped_is_what_was_named(wh: Warehouse, tmp_path: Path) -> None:
    """Not a table under a temporary view's name, nor one that a view reads by its folder."""
    wh.script("CREATE TABLE t (k INT); INSERT INTO t VALUES (1), (2)")
    wh.table("t").where("k = 1").createOrReplaceTempView("t")
    wh.sql("DROP TABLE t")
    assert rows(wh, "SELECT count(*) FROM t") == [(2,)]
    wh.sql(f"CREATE TABLE IF NOT EXISTS t (k INT) USING delta LOCATION '{tmp_path / 'elsewhere'}'")
    folder = wh.engine.source_ref("default.t")
    assert folder is not None
    wh.sql(f"CREATE MATERIALIZED VIEW v AS SELECT k FROM delta.`{folder.path}`")
    with pytest.raises(DependencyError, match=r"default\.v"):
        wh.sql("DROP TABLE t")
    wh.sql("DROP MATERIALIZED VIEW v")
    wh.sql("DROP TABLE t")
    assert not Path(str(folder.path)).exists()
    wh.close()
    with deltaic.open(tmp_path / "wh") as again:
        assert [row["tableName"] for row in again.sql("SHOW TABLES").collect()] == []


@pytest.mark.local
def test_names_that_another_process_made(wh: Warehouse, tmp_path: Path) -> None:
    """A refresh finds them, though nobody has asked for anything by SQL since."""
    wh.script("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
    catalog = wh.engine.catalog
    assert isinstance(catalog, LocalCatalog)
    # As if both were new, and told by somebody else: Spark here does not know them.
    catalog.unregister("default", "v")
    catalog.hide("default", "t")
    catalog.attached.clear()
    write_whole(catalog.told, "told by another process")
    wh.engine.forget("default.v")
    write_deltalake(tmp_path / "wh" / "default" / "t", pa.table({"k": pa.array([7], pa.int32())}), mode="append")
    assert report_of(wh, "v").mode == "incremental"
    assert sorted(rows(wh, "SELECT * FROM v")) == [(1,), (7,)]


@pytest.mark.local
def test_tables_by_their_folders(wh: Warehouse, tmp_path: Path) -> None:
    place = f"delta.`{tmp_path / 'over there'}`"
    wh.sql(f"CREATE TABLE {place} (k INT)")
    wh.sql(f"INSERT INTO {place} VALUES (1), (2)")
    wh.sql(f"CREATE MATERIALIZED VIEW v AS SELECT k FROM {place} WHERE k > 1")
    assert rows(wh, "SELECT * FROM v") == [(2,)]
    with pytest.raises(DependencyError):
        wh.sql(f"DROP TABLE {place}")


@pytest.mark.local
@pytest.mark.parametrize("place", ["", "LOCATION '{elsewhere}'"], ids=["of the warehouse", "elsewhere"])
def test_a_table_is_partitioned_otherwise(wh: Warehouse, tmp_path: Path, place: str) -> None:
    """Delta leaves what Spark's catalog cannot take the next time, and says so once that is committed."""
    elsewhere = place.format(elsewhere=tmp_path / "elsewhere")
    wh.sql(f"CREATE TABLE t USING delta {elsewhere} AS SELECT 1 AS k, 'a' AS s")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
    for more in (1, 2):
        wh.sql("CREATE OR REPLACE TABLE t (k INT, s STRING) PARTITIONED BY (k)")
        wh.sql(f"INSERT INTO t VALUES ({more}, 'b')")
        wh.refresh("v")
        assert rows(wh, "SELECT * FROM v") == [(more, 1)]
    wh.sql("CREATE TABLE IF NOT EXISTS t (k INT) PARTITIONED BY (k)")
    wh.sql("ALTER TABLE t ADD COLUMN z INT")
    assert rows(wh, "SELECT s, z FROM t") == [("b", None)]
