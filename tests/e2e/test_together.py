"""Several refreshers and writers at once: one wins, the others find its work done or go on from it."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

import deltaic
from deltaic import Warehouse
from deltaic.app.pipeline.service import Service
from deltaic.errors import ConcurrentRefresh, DeltaicError, NotIncremental
from tests.e2e.conftest import Kept, check_all, report_of


def test_two_refreshers_of_one_view(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    view = Kept(wh, "v", "SELECT k, sum(v) AS t FROM s GROUP BY k")
    wh.sql("INSERT INTO s VALUES (1, 5)")
    with ThreadPoolExecutor(3) as pool:
        modes = sorted(report.mode for report in pool.map(lambda _: report_of(wh, "v"), range(3)))
    assert modes == ["incremental", "noop", "noop"]
    view.check()


@pytest.mark.parametrize("use_rs", [True, False])
def test_without_the_lock_the_second_of_two_fails(wh: Warehouse, use_rs: bool) -> None:
    """The number of a refresh is a Delta transaction: what the lock would forbid, the commit refuses."""
    from deltaic.app.refresh.refresher import Refresher

    wh.engine.use_rs = use_rs
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    view = Kept(wh, "v", "SELECT k, sum(v) AS t FROM s GROUP BY k")
    wh.sql("INSERT INTO s VALUES (1, 5)")
    refresher = Refresher(wh.engine)
    first, second = (refresher.planner.plan(wh.definition("v")) for _ in range(2))
    refresher.execute(first)
    with pytest.raises(ConcurrentRefresh):
        refresher.execute(second)
    view.check()


def test_writers_while_refreshing(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    view = Kept(wh, "v", "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k")

    def write() -> None:
        for number in range(4):
            wh.sql(f"INSERT INTO s VALUES ({number % 3}, {number})")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            wh.refresh("v")
        writing.result()
    view.refresh(None)


def test_a_hand_edited_view_is_recomputed(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    view = Kept(wh, "v", "SELECT k, sum(v) AS t FROM s GROUP BY k")
    place = wh.engine.view_table(wh.definition("v")).ref.relation
    wh.spark.sql(f"OPTIMIZE {place}")
    wh.sql("INSERT INTO s VALUES (1, 5)")
    view.refresh("incremental")
    wh.spark.sql(f"DELETE FROM {place} WHERE k = 1")
    report = view.refresh("full")
    assert "VIEW_EDITED" in report.reasons[0]


def test_the_same_warehouse_twice(spark: SparkSession, tmp_path: Path) -> None:
    with deltaic.open(tmp_path / "w") as one, deltaic.open(tmp_path / "w") as two:
        one.script("CREATE TABLE s (k INT); INSERT INTO s VALUES (1)")
        one.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM s")
        two.sql("INSERT INTO s VALUES (2)")
        assert report_of(two, "v").mode == "incremental"
        assert report_of(one, "v").mode == "noop"


def test_views_refreshed_together_read_a_change_once(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT, w INT); INSERT INTO s VALUES (1, 1, 1), (2, 2, 2)")
    queries = ["SELECT k, sum(v) AS t FROM s GROUP BY k", "SELECT k, sum(v) AS t, max(w) AS m FROM s GROUP BY k",
               "SELECT v FROM s WHERE v > 0"]  # fmt: skip
    views = [Kept(wh, f"v{number}", query) for number, query in enumerate(queries)]
    wh.script("INSERT INTO s VALUES (1, 5, NULL), (3, 3, 3); UPDATE s SET w = 9 WHERE k = 2")
    reports = wh.refresh()
    assert isinstance(reports, list)
    # 2 rows inserted, 1 before and 1 after the update; the second view needs a column more
    assert [(report.rows_read or {})["default.s"] for report in reports] == [4, 4, 0]
    check_all(views)


@pytest.mark.long
def test_views_refreshed_together_read_a_change_once_by_spark(wh: Warehouse) -> None:
    wh.engine.use_rs = False
    wh.script("CREATE TABLE s (k INT, v INT, `w-w` INT); INSERT INTO s VALUES (1, 1, 1), (2, 2, 2)")
    wh.script("CREATE TABLE r (k INT); INSERT INTO r VALUES (1), (2)")
    queries = ["SELECT k, sum(v) AS t FROM s GROUP BY k", "SELECT k, max(`w-w`) AS m FROM s GROUP BY k",
               "SELECT v, r.k FROM s JOIN r USING (k)", "SELECT count(*) AS n FROM s"]  # fmt: skip
    views = [Kept(wh, f"v{number}", query) for number, query in enumerate(queries)]
    wh.script("INSERT INTO s VALUES (1, 5, NULL), (3, 3, 3); UPDATE s SET `w-w` = 9 WHERE k = 2")
    wh.sql("INSERT INTO r VALUES (3)")
    reports = wh.refresh()
    assert isinstance(reports, list)
    assert {report.mode for report in reports} == {"incremental"}
    assert [(report.rows_read or {})["default.s"] for report in (reports[0], reports[3])] == [4, 0]
    check_all(views)
    assert not [table for table in wh.spark.catalog.listTables("global_temp") if table.name.startswith("deltaic_")]


@pytest.mark.long
def test_views_refreshed_together_may_know_a_table_by_two_names_and_ages(wh: Warehouse) -> None:
    wh.engine.use_rs = False
    wh.script("CREATE TABLE s (k INT, v INT) TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    wh.sql("INSERT INTO s VALUES (1, 1), (2, 2)")
    views = [Kept(wh, "a", "SELECT k, max(v) AS m FROM s GROUP BY k")]
    wh.script("INSERT INTO s VALUES (3, 3); ALTER TABLE s ADD COLUMNS (w INT)")
    folder = wh.engine.source_ref("default.s")
    assert folder is not None
    for name, table in (("b", "s"), ("c", f"delta.`{folder.path}`")):
        views.append(Kept(wh, name, f"SELECT k, sum(w) AS w FROM {table} GROUP BY k"))
    wh.script("DELETE FROM s WHERE k = 1; INSERT INTO s VALUES (4, 4, 4)")
    wh.refresh()
    check_all(views)


def test_a_view_that_cannot_be_refreshed_stops_only_those_that_read_it(wh: Warehouse) -> None:
    wh.script(
        "CREATE TABLE a (k INT, v INT); CREATE TABLE b (k INT); INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1)"
    )
    wh.sql("CREATE MATERIALIZED VIEW low REFRESH POLICY INCREMENTAL STRICT AS SELECT * FROM a")
    wh.sql("CREATE MATERIALIZED VIEW above AS SELECT k FROM low")
    last = Kept(wh, "z", "SELECT k, count(*) AS n FROM b GROUP BY k")
    wh.script("ALTER TABLE a ADD COLUMN w INT; INSERT INTO b VALUES (1)")
    with pytest.raises(NotIncremental, match="low"):
        wh.refresh()
    last.check()
    assert report_of(wh, "z").mode == "noop"
    assert [row["refreshes"] for row in wh.views() if row["view"] == "default.above"] == [1]


@pytest.mark.long
@pytest.mark.local
def test_a_view_whose_world_is_gone_stops_no_others(wh: Warehouse, tmp_path: Path) -> None:
    """A table elsewhere that is away, and the schema that a view was made in."""
    away = tmp_path / "away"
    wh.spark.sql("SELECT 1 AS k").write.format("delta").save(str(away))
    wh.script("CREATE TABLE b (k INT); INSERT INTO b VALUES (1); CREATE SCHEMA passing; USE passing")
    wh.sql("CREATE MATERIALIZED VIEW default.made_there AS SELECT k FROM default.b WHERE k > 0")
    wh.script("USE default; DROP SCHEMA passing")
    wh.sql(f"CREATE MATERIALIZED VIEW afar AS SELECT k FROM delta.`{away}`")
    kept = [Kept(wh, f"z{n}", f"SELECT k, count(*) + {n} AS n FROM b GROUP BY k") for n in range(2)]
    wh.propagate("afar")
    shutil.rmtree(away)
    wh.sql("INSERT INTO b VALUES (3)")
    wh.propagate("z0")
    assert wh.apply("z0").mode == "incremental"
    kept[0].check()
    assert len(wh.table("z1", as_of=2).collect()) == 1
    wh.sql("INSERT INTO b VALUES (1), (2)")
    with pytest.raises(DeltaicError, match=r"default\.(afar|made_there)"):
        wh.refresh()
    check_all(kept)
    assert {view.refresh_only("noop").mode for view in kept} == {"noop"}
    behind = {row["view"]: row["commits_behind"] for row in wh.views()}
    assert behind["default.afar"] == {f"delta.`{away}`": None}
    assert behind["default.z0"] == {"default.b": 0}
    told = list(Service(wh.engine, lag=0).round(Event()))
    assert sorted(line.split(":")[0] for line in told) == ["default.afar", "default.made_there"]


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, False])
def test_views_refreshed_together_compute_a_common_delta_once(wh: Warehouse, use_rs: bool) -> None:
    wh.engine.use_rs = use_rs
    wh.spark.conf.set("spark.deltaic.commonRows", "0")
    wh.script("CREATE TABLE o (id INT, c STRING, day INT); CREATE TABLE l (o INT, q INT, p DECIMAL(9,2))")
    wh.script("INSERT INTO o VALUES (1, 'a', 1), (2, 'b', 1), (3, NULL, 2)")
    wh.script("INSERT INTO l VALUES (1, 5, 1.5), (1, 7, 2), (2, 1, 9), (3, 4, 4), (NULL, 1, 1)")
    join = "FROM o JOIN l ON o.id = l.o WHERE q > 0"
    queries = [
        f"SELECT c, sum(q) AS q {join} GROUP BY c",
        f"SELECT day, sum(p) AS p, count(*) AS n {join} GROUP BY day",
        "SELECT o.id, p FROM l AS x(o2, q, p) JOIN o ON o.id = x.o2 WHERE q > 0",  # the same, told otherwise
        "SELECT o.id, q FROM o JOIN l ON o.id = l.o WHERE q > 1",  # another one
    ]
    views = [Kept(wh, f"v{number}", query) for number, query in enumerate(queries)]
    for changes in (
        "INSERT INTO l VALUES (2, 8, 3), (2, 8, 3), (3, -1, 0); UPDATE o SET c = 'b' WHERE id = 3",
        "DELETE FROM l WHERE o = 1; UPDATE l SET q = -q WHERE o = 3; DELETE FROM o WHERE id = 2",
        "INSERT INTO o VALUES (2, 'z', 5)",
    ):
        wh.script(changes)
        reports = wh.refresh()
        assert isinstance(reports, list)
        assert {report.mode for report in reports} == {"incremental"}
        check_all(views)
        read = [
            sum((report.rows_read or {}).get(table, 0) for table in ("default.o", "default.l")) for report in reports
        ]
        assert read[0] > 0
        assert read[1] == 0, read
    wh.spark.conf.unset("spark.deltaic.commonRows")
    assert not [table for table in wh.spark.catalog.listTables("global_temp") if table.name.startswith("deltaic_")]


def test_an_edit_is_not_hidden_by_what_is_applied_over_it(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    view = Kept(wh, "v", "SELECT k, v FROM s WHERE v > 0")
    wh.sql("INSERT INTO s VALUES (3, 3)")
    wh.propagate("v")
    wh.spark.sql(f"DELETE FROM {wh.engine.view_table(wh.definition('v')).ref.relation} WHERE k = 1")
    with pytest.raises(NotIncremental, match="VIEW_EDITED"):
        wh.apply("v")
    assert "VIEW_EDITED" in view.refresh("full").reasons[0]


def test_an_edit_that_comes_while_a_refresh_is_written_is_noticed_by_the_next(wh: Warehouse) -> None:
    """Delta lets two appends pass one another, whoever makes them."""
    from deltaic.app.refresh.refresher import Refresher

    wh.engine.use_rs = False
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    view = Kept(wh, "v", "SELECT k, v FROM s WHERE v > 0")
    wh.sql("INSERT INTO s VALUES (3, 3)")
    refresher = Refresher(wh.engine)
    plan = refresher.planner.plan(wh.definition("v"))
    place = plan.table.ref.relation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plan.table, "_refuse_if_lost", lambda *_: wh.spark.sql(f"INSERT INTO {place} SELECT * FROM {place}")
        )
        refresher.execute(plan)
    assert "VIEW_EDITED" in view.refresh("full").reasons[0]


@pytest.mark.local
def test_a_name_that_is_taken_is_not_taken_away(wh: Warehouse) -> None:
    """By a table that is not Delta's, or a view of Spark's own."""
    wh.spark.range(3).write.format("parquet").saveAsTable("p")
    wh.spark.sql("CREATE VIEW plain AS SELECT 1 AS one")
    for name in ("p", "plain"):
        with pytest.raises(Exception, match="ALREADY_EXISTS"):
            wh.sql(f"CREATE TABLE {name} (k INT)")
    assert wh.spark.table("p").count() == 3
    assert wh.spark.table("plain").count() == 1
    wh.spark.sql("DROP TABLE p")
