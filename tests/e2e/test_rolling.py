"""Propagate and apply on Spark: at every time up to the high-water mark a view is its query as of then."""

import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import deltaic
from deltaic import Report, Warehouse
from deltaic.app.pipeline.service import Service
from deltaic.app.rolling.clock import Clock
from deltaic.app.rolling.kept import KeptDelta
from deltaic.errors import ConfigurationError, DeltaicError, HistoryGone, NameProblem, NotIncremental, TimeError
from tests.e2e.conftest import Kept, rows
from tests.lab.oracle import difference

TABLES = """
CREATE TABLE r (k INT, v INT); CREATE TABLE s (k INT, w INT); CREATE TABLE z (w INT, name STRING);
INSERT INTO r VALUES (1, 1), (1, 1), (2, 2), (NULL, 3); INSERT INTO s VALUES (1, 10), (2, 20), (3, 30);
INSERT INTO z VALUES (10, 'a'), (11, 'b'), (20, 'c'), (30, NULL)
"""
VIEWS = {
    "joined": "SELECT r.k, v, w FROM r JOIN s ON r.k = s.k",
    "three": "SELECT r.v, z.name FROM r JOIN s ON r.k = s.k JOIN z ON z.w = s.w",
    "with_itself": "SELECT a.v, b.v AS w, s.w AS x FROM r a JOIN r b ON a.k = b.k JOIN s ON s.k = a.k",
    "grouped": "SELECT z.name, count(*) AS n, sum(v) AS t, min(v) AS m FROM r JOIN s ON r.k = s.k JOIN z ON z.w = s.w"
    " GROUP BY z.name",
    "of_union": "SELECT k, v FROM r WHERE v > 1 UNION ALL SELECT k, w FROM s",
    "by_key": "SELECT k, sort_array(collect_list(v)) AS c FROM r GROUP BY k",
    "distinct_values": "SELECT DISTINCT v FROM r JOIN s ON r.k = s.k",
}
Bag = list[tuple[object, ...]]
HISTORY = [
    "INSERT INTO r VALUES (3, 7), (3, 7)",
    "DELETE FROM s WHERE k = 1",
    "INSERT INTO z VALUES (20, 'cc')",
    "INSERT INTO s VALUES (1, 11), (1, 11)",
    "UPDATE r SET v = 9 WHERE k = 2",
    "DELETE FROM r WHERE k = 1",
    "UPDATE s SET k = 3 WHERE k = 2",
    "INSERT INTO r VALUES (3, 8), (1, 4)",
    "DELETE FROM z WHERE name IS NULL",
]
ROLLED = "TBLPROPERTIES (deltaic.interval.r = '1', deltaic.interval.s = '3')"


class Recorded:
    """Views, and what their queries gave after every commit."""

    def __init__(self, wh: Warehouse, views: dict[str, str], properties: str = "") -> None:
        self.wh, self.views = wh, views
        for name, query in views.items():
            wh.sql(f"CREATE MATERIALIZED VIEW {name} {properties} AS {query}")
        self.wanted: dict[int, dict[str, Bag]] = {}
        self.see()

    def see(self) -> None:
        newest = max(Clock(self.wh.engine).standing(self.wh.definition(name)).order.newest for name in self.views)
        self.wanted[newest] = {name: rows(self.wh, query) for name, query in self.views.items()}

    def commit(self, *statements: str) -> None:
        for statement in statements:
            self.wh.sql(statement)
            self.see()

    def at(self, name: str, at: int) -> Bag:
        return self.wanted[max((t for t in self.wanted if t <= at), default=min(self.wanted))][name]

    def check(self, name: str, at: int) -> None:
        found = difference(self.at(name, at), rows(self.wh, f"SELECT * FROM {name}"))
        assert found is None, f"{name} at time {at}:\n{found}"

    def check_looked_at(self, name: str, at: int) -> None:
        found = self.wh.table(name, as_of=at)
        found.createOrReplaceTempView("looked_at")
        assert difference(self.at(name, at), rows(self.wh, "SELECT * FROM looked_at")) is None, f"{name} as of {at}"


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ("", ["grouped"]),
        pytest.param("", ["joined", "of_union"], marks=pytest.mark.long),
        pytest.param(ROLLED, ["three"], marks=pytest.mark.long),
        pytest.param("", ["with_itself", "by_key", "distinct_values", "three"], marks=pytest.mark.long),
        pytest.param(ROLLED, ["with_itself", "grouped", "joined"], marks=pytest.mark.long),
    ],
)
def test_any_time_up_to_the_mark(wh: Warehouse, properties: str, names: list[str]) -> None:
    wh.script(TABLES)
    recorded = Recorded(wh, {name: VIEWS[name] for name in names}, properties)
    recorded.commit(*HISTORY[:5])
    for name in names[::2]:
        wh.propagate(name, steps=2)  # stopped in the middle
    recorded.commit(*HISTORY[5:])
    for name in names:
        assert ("by roll (" if properties else "by propagate") in wh.explain(name, propagate=True)
        reports = wh.propagate(name)
        assert wh.explain(name, propagate=True).endswith("Propagate now: nothing to do")
        assert all(report.mode == "propagated" for report in reports)
        moment = Clock(wh.engine).standing(wh.definition(name))
        assert moment.view_time is not None
        times = range(moment.view_time, moment.order.newest + 1)
        recorded.check_looked_at(name, random.Random(name).choice(times))
        for at in sorted(random.Random(name).sample(times, 3)):
            report = wh.apply(name, to=at)
            assert report.mode in ("incremental", "noop"), report
            read = sum((report.rows_read or {}).get(f"default.{table}", 0) for table in "rsz")
            assert read == 0 or name in ("by_key", "grouped")  # the rows of a key, and of a group that lost its least
            recorded.check(name, at)
        wh.apply(name)
        recorded.check(name, moment.order.newest)


@pytest.mark.long
def test_a_step_is_as_large_as_it_is_told_to_be(wh: Warehouse) -> None:
    wh.script(TABLES)
    recorded = Recorded(wh, {"joined": VIEWS["joined"]})
    recorded.commit(*HISTORY)
    wh.spark.conf.set("spark.deltaic.propagateRows", "2")
    try:
        assert len(wh.propagate("joined", steps=2)) == 2
        kept = KeptDelta(wh.engine, wh.definition("joined")).now()
        assert kept is not None
        newest = Clock(wh.engine).standing(wh.definition("joined")).order.newest
        assert kept.mark < newest
        with pytest.raises(TimeError, match="after the high-water mark"):
            wh.apply("joined", to=newest)
        assert len(wh.propagate("joined")) >= 3
        assert not wh.propagate("joined")
        wh.apply("joined", to=kept.mark)
        recorded.check("joined", kept.mark)
    finally:
        wh.spark.conf.unset("spark.deltaic.propagateRows")


@pytest.mark.long
def test_refresh_as_of(wh: Warehouse) -> None:
    """Also of views whose delta has no times: their sources are read as they were."""
    wh.script(TABLES)
    views = {
        "padded": "SELECT r.v, s.w FROM r LEFT JOIN s ON r.k = s.k",
        "joined": VIEWS["joined"],
        "ranked": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, k) AS n FROM r WHERE k IS NOT NULL",
    }
    recorded = Recorded(wh, views)
    times, history = list(recorded.wanted), [statement for statement in HISTORY if " z " not in statement]
    recorded.commit(*history[:4])
    stamp = datetime.now().isoformat(" ")
    time.sleep(0.05)
    recorded.commit(*history[4:])
    later = [t for t in recorded.wanted if t > times[-1]]
    for name in views:
        recorded.check_looked_at(name, later[5])
        wh.sql(f"REFRESH MATERIALIZED VIEW {name} TIMESTAMP AS OF '{stamp}'")
        recorded.check(name, later[3])
        wh.sql(f"REFRESH MATERIALIZED VIEW {name} VERSION AS OF {later[6]}")
        recorded.check(name, later[6])
        recorded.check_looked_at(name, later[3])  # it was there once
        with pytest.raises(TimeError, match="is before that"):
            wh.refresh(name, as_of=later[1])
        wh.refresh(name)
        recorded.check(name, later[-1])
    with pytest.raises(NotIncremental, match="outer joins"):
        wh.propagate("padded")


@pytest.mark.long
def test_where_a_timestamp_is_another_type_to_sql(wh: Warehouse) -> None:
    """What Spark calls a timestamp is TIMESTAMP_LTZ, whatever TIMESTAMP means in the session's texts."""
    wh.script(
        "SET spark.sql.session.timeZone = Europe/Berlin; SET spark.sql.timestampType = TIMESTAMP_NTZ;"
        "CREATE TABLE at (k INT, t TIMESTAMP_LTZ); INSERT INTO at VALUES (1, '2024-01-01 12:00:00'), (2, NULL)"
    )
    kept = [
        Kept(wh, "latest", "SELECT k, max(t) AS t FROM at GROUP BY k"),
        Kept(wh, "either", "SELECT t FROM at UNION ALL SELECT CAST('2024-03-31 02:30:00' AS TIMESTAMP) FROM at"),
    ]
    wh.sql(
        "CREATE MATERIALIZED VIEW reached AS WITH RECURSIVE r (k, t) AS"
        " (SELECT k, t FROM at UNION SELECT k - 1, t FROM r WHERE k > 0) SELECT k, t FROM r"
    )
    wh.sql("INSERT INTO at VALUES (1, '2024-07-01 12:00:00'), (3, '2024-10-27 02:30:00')")
    for view in kept:
        wh.propagate(view.name)
        wh.apply(view.name)
        view.check()
    wh.refresh("reached")
    by_hand = rows(wh, "SELECT DISTINCT k - d, t FROM at LATERAL VIEW explode(sequence(0, k)) AS d")
    assert difference(by_hand, rows(wh, "SELECT * FROM reached")) is None


def test_times_that_are_none(wh: Warehouse) -> None:
    wh.script(TABLES)
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM r")
    times: dict[int | str, str] = {
        99: "after the newest commit",
        0: "times begin with 1",
        "2999-01-01": "in the future",
        "2001-01-01": "before the first recorded commit",
        "2026-01-01 00:00:00 Mars/Base": "not a timestamp",
        "soon": "not a timestamp",
    }
    for as_of, told in times.items():
        asking: list[Callable[[], object]] = [
            partial(wh.refresh, "v", as_of=as_of),
            partial(wh.table, "v", as_of=as_of),
        ]
        for ask in asking:
            with pytest.raises(TimeError, match=told):
                ask()
        with pytest.raises(TimeError, match="no kept delta"):
            wh.apply("v", to=as_of)


@pytest.mark.long
def test_a_kept_delta_begins_anew(wh: Warehouse) -> None:
    """Where the view is altered, recomputed past it, or a source becomes another table."""
    wh.script(TABLES)
    recorded = Recorded(wh, {"joined": VIEWS["joined"]})
    recorded.commit(*HISTORY[:3])
    wh.propagate("joined")
    recorded.commit(HISTORY[3])
    wh.refresh("joined", full=True)
    with pytest.raises(TimeError, match="no kept delta"):
        wh.apply("joined")
    wh.propagate("joined")
    wh.sql("ALTER MATERIALIZED VIEW joined AS SELECT r.k, v, w FROM r JOIN s ON r.k = s.k WHERE v > 1")
    recorded.views["joined"] += " WHERE v > 1"
    recorded.see()
    recorded.commit(HISTORY[4])
    wh.propagate("joined")
    wh.apply("joined")
    recorded.check("joined", max(recorded.wanted))
    for query in (f"{VIEWS['joined']} WHERE v > 2", "SELECT r.k, v, w FROM r LEFT JOIN s ON r.k = s.k"):
        wh.sql(f"ALTER MATERIALIZED VIEW joined AS {query}")
        now = datetime.now()
        assert difference(rows(wh, query), [tuple(row) for row in wh.table("joined", as_of=now).collect()]) is None
        told = wh.refresh("joined", as_of=now)
        assert isinstance(told, Report)
        assert told.mode == "noop"
    wh.sql("DROP MATERIALIZED VIEW joined")
    wh.sql(f"CREATE MATERIALIZED VIEW joined AS {VIEWS['joined']}")
    with pytest.raises(TimeError, match="no kept delta"):
        wh.apply("joined")


@pytest.mark.long
def test_a_past_that_is_gone(wh: Warehouse) -> None:
    """Files that VACUUM took, and log entries that a clean-up took: said clearly, and mended by a refresh."""
    wh.script(TABLES)
    recorded = Recorded(wh, {"joined": VIEWS["joined"]})
    recorded.commit("UPDATE r SET v = v + 1", "UPDATE r SET v = v + 2", "DELETE FROM s WHERE k = 1")
    wh.spark.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    wh.sql("VACUUM r RETAIN 0 HOURS")
    with pytest.raises(HistoryGone, match="cannot be propagated: HISTORY_GONE: a past state"):
        wh.propagate("joined")
    wh.refresh("joined")
    recorded.see()
    recorded.commit("INSERT INTO s VALUES (1, 5)")
    wh.propagate("joined")
    wh.apply("joined")
    recorded.check("joined", max(recorded.wanted))

    recorded.commit("INSERT INTO r VALUES (1, 77)", "INSERT INTO r VALUES (2, 78)", "INSERT INTO r VALUES (2, 79)")
    path = wh.engine.source_ref("default.r")
    assert path is not None
    assert path.path is not None
    DeltaTable(path.path).create_checkpoint()
    logs = sorted((Path(path.path) / "_delta_log").glob("*.json"))
    for gone in logs[:-1]:
        gone.unlink()
    with pytest.raises(DeltaicError) as told:
        wh.propagate("joined")
    assert told.value.hint
    wh.refresh("joined")
    recorded.check("joined", max(recorded.wanted))
    wh.sql("INSERT INTO r VALUES (1, 80)")
    wh.propagate("joined")
    wh.apply("joined")
    assert difference(rows(wh, VIEWS["joined"]), rows(wh, "SELECT * FROM joined")) is None


@pytest.mark.long
@pytest.mark.local
def test_a_source_that_is_put_back_from_a_copy(wh: Warehouse, tmp_path: Path) -> None:
    """Its commits are others than those whose times are recorded, though they have their numbers."""
    wh.script("CREATE TABLE s (k INT); INSERT INTO s VALUES (1)")
    view = Kept(wh, "v", "SELECT k FROM s WHERE k > 0")
    folder, copy = tmp_path / "wh" / "default" / "s", tmp_path / "copy"
    shutil.copytree(folder, copy)
    wh.propagate("v")
    for more in (1, 3):  # commits after the copy that was put back: fewer than there were, and more
        wh.script("INSERT INTO s VALUES (2); INSERT INTO s VALUES (3)")
        wh.propagate("v")
        wh.apply("v")
        view.check()
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        wh.script(";".join(f"INSERT INTO s VALUES ({10 + n})" for n in range(more)))
        assert view.refresh("full").reasons[0].startswith("SOURCE_REWOUND")
        wh.sql("INSERT INTO s VALUES (5)")
        assert sorted(wh.table("v", as_of=datetime.now()).collect()) == sorted(wh.sql(view.query).collect())
        wh.propagate("v")
        wh.apply("v")
        view.check()
        shutil.rmtree(copy)
        shutil.copytree(folder, copy)


@pytest.mark.long
def test_what_a_view_is_past_is_forgotten(wh: Warehouse) -> None:
    wh.script(TABLES)
    recorded = Recorded(wh, {"joined": VIEWS["joined"], "three": VIEWS["three"]})
    wh.spark.conf.set("spark.deltaic.keptFiles", "2")
    wh.spark.conf.set("spark.deltaic.propagateRows", "1")
    try:
        recorded.commit(*HISTORY[:6], "INSERT INTO z VALUES (1, 'no source of it')", HISTORY[6])
        wh.propagate("joined")
        at = max(t for t in recorded.wanted) - 1
        wh.apply("joined", to=at)
        recorded.check("joined", at)
        kept = KeptDelta(wh.engine, wh.definition("joined")).now()
        assert kept is not None
        assert kept.since == at - 1
        assert wh.spark.sql(f"SELECT min(__deltaic_time) > {at} FROM {kept.table.ref.relation}").first() == (True,)
        wh.apply("joined")
        recorded.check("joined", max(recorded.wanted))
    finally:
        wh.spark.conf.unset("spark.deltaic.keptFiles")
        wh.spark.conf.unset("spark.deltaic.propagateRows")


@pytest.mark.long
def test_what_a_kept_delta_cannot_give(wh: Warehouse) -> None:
    """Then the view is computed anew, as of that very time; and a text that is not UTF-8 is read by Spark."""
    wh.script("""
      CREATE TABLE b (k INT, v BIGINT);
      INSERT INTO b VALUES (1, -9223372036854775807), (2, 1);
      CREATE TABLE o (t STRING, n INT); INSERT INTO o VALUES ('a', 1), (CAST(X'FF61' AS STRING), 2)
    """)
    views = {"sums": "SELECT k, sum(v) AS t FROM b GROUP BY k", "texts": "SELECT hex(t) AS h, t, n FROM o"}
    recorded = Recorded(wh, views)
    recorded.commit("INSERT INTO b VALUES (2, 2)")
    before = max(recorded.wanted)
    recorded.commit("UPDATE b SET v = -v WHERE k = 1")  # what changed is twice as much as a BIGINT holds
    last = max(recorded.wanted)
    assert wh.propagate("sums")
    wh.apply("sums", to=before)
    recorded.check("sums", before)
    recorded.check_looked_at("sums", last)
    assert "OVERFLOW" in wh.apply("sums").reasons[0]
    recorded.check("sums", last)

    recorded.commit("INSERT INTO o VALUES (CAST(X'FF62' AS STRING), 3), ('\ufffd', 4)", "DELETE FROM o WHERE n = 2")
    assert wh.propagate("texts")
    recorded.check_looked_at("texts", max(recorded.wanted) - 1)
    wh.apply("texts", to=max(recorded.wanted) - 1)
    recorded.check("texts", max(recorded.wanted) - 1)
    wh.apply("texts")
    recorded.check("texts", max(recorded.wanted))


def test_the_service_keeps_views_at_their_lag(wh: Warehouse) -> None:
    wh.script(TABLES)
    below = "TBLPROPERTIES (deltaic.lag = 'downstream')"
    wh.sql(f"CREATE MATERIALIZED VIEW base {below} AS {VIEWS['joined']}")
    sums = "SELECT k, sum(w) AS t FROM base GROUP BY k"
    wh.sql(f"CREATE MATERIALIZED VIEW top TBLPROPERTIES (deltaic.lag = '2 seconds') AS {sums}")
    wh.sql("CREATE MATERIALIZED VIEW rare TBLPROPERTIES (deltaic.schedule = 'every 2 days') AS SELECT v FROM r")
    wh.sql("CREATE MATERIALIZED VIEW alone AS SELECT v FROM r")
    stop, told = Event(), list[str]()
    service = Thread(target=lambda: wh.run(stop, tell=told.append))
    service.start()
    try:
        for statement in HISTORY:
            wh.sql(statement)
        wanted = rows(wh, f"SELECT k, sum(w) AS t FROM ({VIEWS['joined']}) GROUP BY k")
        ends = time.time() + 300
        while difference(wanted, rows(wh, "SELECT * FROM top")) is not None and time.time() < ends:
            time.sleep(0.2)
    finally:
        stop.set()
        service.join()
    assert difference(wanted, rows(wh, "SELECT * FROM top")) is None, told
    assert any("default.top: incremental" in line for line in told), told
    assert not any("rare" in line or "alone" in line for line in told), told
    status = {view["view"]: view for view in wh.views()}
    assert status["default.top"]["lag_seconds"] == 0
    assert status["default.rare"]["commits_waiting"] > 0
    with pytest.raises(ConfigurationError, match="not a duration"):
        wh.sql("CREATE MATERIALIZED VIEW w TBLPROPERTIES (deltaic.lag = 'soon') AS SELECT v FROM r")


@pytest.mark.long
def test_a_timestamp_means_what_was_committed_by_then(wh: Warehouse) -> None:
    """Also where only another view, over other sources, was looked at in between."""
    wh.script(TABLES)
    recorded = Recorded(wh, {"joined": VIEWS["joined"]})
    wh.sql("CREATE MATERIALIZED VIEW other AS SELECT v FROM r")
    wh.propagate("other")
    wh.sql("INSERT INTO s VALUES (1, 77)")
    wanted, stamp = rows(wh, VIEWS["joined"]), datetime.now()
    time.sleep(0.05)
    wh.sql("INSERT INTO r VALUES (1, 55)")
    wh.propagate("other")
    wh.table("joined", as_of=stamp).createOrReplaceTempView("looked_at")
    assert difference(wanted, rows(wh, "SELECT * FROM looked_at")) is None
    recorded.see()
    wh.sql("CREATE OR REPLACE MATERIALIZED VIEW joined AS SELECT r.k, v + 1 AS v, w FROM r JOIN s ON r.k = s.k")
    wh.sql("INSERT INTO r VALUES (1, 56)")
    wh.refresh("joined")
    with pytest.raises(TimeError, match="is not kept"):
        wh.table("joined", as_of=stamp)  # what another query gave then is not asked for
    wh.sql("ALTER TABLE r ADD COLUMN more INT")
    wh.sql("CREATE OR REPLACE MATERIALIZED VIEW joined AS SELECT r.*, w FROM r JOIN s ON r.k = s.k")
    newest = Clock(wh.engine).standing(wh.definition("joined")).order.newest
    wh.sql("INSERT INTO r VALUES (1, 57, 1)")
    wh.table("joined", as_of=newest)
    with pytest.raises(NameProblem, match="reads no source"):
        wh.sql("CREATE MATERIALIZED VIEW w TBLPROPERTIES (deltaic.interval.nope = '1') AS SELECT v FROM r")


@pytest.mark.long
def test_nested_values_are_kept(wh: Warehouse) -> None:
    wh.script(TABLES)
    wh.sql("CREATE TABLE n (k INT, s STRUCT<p: INT, q: STRING>, l ARRAY<STRING>)")
    wh.sql("INSERT INTO n VALUES (1, named_struct('p', 1, 'q', 'z'), array('a', NULL))")
    recorded = Recorded(wh, {"nested": "SELECT n.s, n.l, s.w FROM n JOIN s ON n.k = s.k"})
    recorded.commit("INSERT INTO n VALUES (2, named_struct('p', 1, 'q', NULL), NULL), (2, NULL, array('b'))")
    recorded.commit("DELETE FROM n WHERE k = 1", "INSERT INTO n SELECT * FROM n")
    wh.propagate("nested")
    wh.apply("nested")
    recorded.check("nested", max(recorded.wanted))


@pytest.mark.long
def test_sources_that_the_service_must_recompute_for(wh: Warehouse) -> None:
    wh.script(TABLES)
    lag = "TBLPROPERTIES (deltaic.lag = '1 second')"
    wh.sql(f"CREATE MATERIALIZED VIEW v {lag} AS SELECT r.*, s.w FROM r JOIN s ON r.k = s.k")
    service = Service(wh.engine, None)
    changes = (
        "INSERT INTO r VALUES (1, 2)",
        "CREATE OR REPLACE TABLE r (k INT, v INT); INSERT INTO r VALUES (1, 5)",
        "ALTER TABLE r ADD COLUMN more INT; INSERT INTO r VALUES (2, 2, 2)",
        "UPDATE s SET w = 3 WHERE k = 1",
    )
    for change in changes:
        wh.script(change)
        time.sleep(1)
        told = list(service.round(Event()))
        assert any(line.startswith("default.v: ") for line in told), told
        assert (
            difference(rows(wh, "SELECT r.*, s.w FROM r JOIN s ON r.k = s.k"), rows(wh, "SELECT * FROM v")) is None
        ), told


@pytest.mark.long
@pytest.mark.parametrize("how", ["classic", "connect"])
def test_in_a_catalog_of_the_sessions_own(
    spark: SparkSession, how: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    session = request.getfixturevalue("connect") if how == "connect" else spark.newSession()
    wh = deltaic.open(spark=session, path=str(tmp_path / "mv"))
    wh.sql(f"CREATE SCHEMA rolled LOCATION '{tmp_path / 'rolled'}'")
    wh.sql("USE rolled")
    try:
        wh.script(re.sub(r"(CREATE TABLE [^;]*)", r"\1 USING delta", TABLES))
        recorded = Recorded(wh, {name: VIEWS[name] for name in (["joined"] if how == "connect" else VIEWS)})
        recorded.commit(*HISTORY[:3])
        newest = max(recorded.wanted)
        for name in recorded.views:
            wh.propagate(name)
            recorded.check_looked_at(name, newest - 1)
            wh.apply(name, to=newest - 2)
            recorded.check(name, newest - 2)
        recorded.commit(HISTORY[4])
        for number, name in enumerate(recorded.views):
            if number:
                wh.apply(name, to=newest)
            else:
                wh.refresh(name, as_of=newest)
            recorded.check(name, newest)
            wh.sql(f"DROP MATERIALIZED VIEW {name}")
    finally:
        wh.sql("USE default")
        wh.sql("DROP SCHEMA rolled CASCADE")


KILLED = """
import os, sys
import deltaic
from deltaic.app.refresh.run import Run

left = int(sys.argv[2])

def dies(self, step, small, take=Run.take):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    take(self, step, small)

Run.take = dies
with deltaic.open(sys.argv[1]) as wh:
    wh.spark.conf.set("spark.deltaic.propagateRows", "2")
    wh.propagate("three")
    wh.apply("three", to=int(sys.argv[3]))
os._exit(0)
"""


@pytest.mark.long
def test_killed_while_writers_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Another process propagates and is killed at its steps, one further each time, while this one commits."""
    chance = random.Random(7)
    with deltaic.open(tmp_path / "wh") as wh:
        wh.script(TABLES)
        recorded = Recorded(wh, {"three": VIEWS["three"]})
        for killed_after in (1, 4, 7, 11, 30):
            newest = max(recorded.wanted)
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                KILLED,
                str(tmp_path / "wh"),
                str(killed_after),
                str(newest),
            ]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
                while other.poll() is None:
                    recorded.commit(chance.choice(HISTORY))
            assert other.returncode in (0, 9)
            wh.propagate("three")
            own = Clock(wh.engine).standing(wh.definition("three")).view_time
            assert own is not None
            recorded.check("three", own)
            at = chance.choice([t for t in recorded.wanted if t >= own])
            wh.apply("three", to=at)
            recorded.check("three", at)
