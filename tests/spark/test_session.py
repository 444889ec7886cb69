"""The embedded session, and the private copies of it."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltaic.errors import SetupError
from deltaic.spark import session as sessions
from deltaic.spark.session import configure, forked, has_delta, is_connect, local_session


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> SparkSession.Builder:
    monkeypatch.setattr(sessions, "delta_jars", lambda: ["/jars/delta-spark.jar"])
    return SparkSession.Builder()


def options(builder: SparkSession.Builder) -> dict[str, str]:
    return dict(builder._options)


def test_configure_sets_what_delta_needs(builder: SparkSession.Builder) -> None:
    assert options(configure(builder)) == {
        "spark.sql.extensions": sessions.DELTA_EXTENSION,
        "spark.jars": "/jars/delta-spark.jar",
        "spark.sql.catalog.spark_catalog": sessions.DELTA_CATALOG,
    }


def test_configure_keeps_what_the_user_set(builder: SparkSession.Builder) -> None:
    builder.config("spark.jars", "/mine.jar").config("spark.sql.extensions", "com.example.Mine")
    found = options(configure(configure(builder)))
    assert found["spark.jars"] == "/mine.jar,/jars/delta-spark.jar"
    assert found["spark.sql.extensions"] == f"com.example.Mine,{sessions.DELTA_EXTENSION}"


def test_configure_without_jars(builder: SparkSession.Builder) -> None:
    assert "spark.jars" not in options(configure(builder, jars=False))


@pytest.mark.parametrize(("master", "cores"), [("local[3]", 3), ("local[2,4]", 2), ("local", 1)])
def test_cores_of_a_master(master: str, cores: int) -> None:
    assert sessions.cores_of(master) == cores


def test_a_cluster_keeps_its_own_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "delta_jars", list)
    assert "spark.sql.shuffle.partitions" not in sessions._settings("spark://127.0.0.1:7077")
    assert sessions._settings("local[2]")["spark.sql.shuffle.partitions"] == "2"


def test_an_active_session_is_used_again(spark: SparkSession) -> None:
    assert has_delta(spark)
    assert not is_connect(spark)
    spark.createDataFrame([], "k INT")  # makes it the active one, whatever ran before
    assert _same(local_session(), spark)
    with pytest.raises(SetupError, match="cannot be set"):
        local_session(extra={"spark.sql.warehouse.dir": "/elsewhere"})


def test_a_session_without_delta_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "has_delta", lambda session: False)
    with pytest.raises(SetupError, match=r"deltaic\.configure"):
        local_session()


def test_tables_are_delta_with_a_change_feed(spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE TABLE session_t (k INT, v STRING)")
    spark.sql("INSERT INTO session_t VALUES (1, 'a'), (2, 'b')")
    source = "(SELECT 2 AS k, 'c' AS v) s"
    spark.sql(f"MERGE INTO session_t t USING {source} ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v")
    changes = spark.sql("SELECT v, _change_type FROM table_changes('session_t', 2) ORDER BY v").collect()
    assert [tuple(row) for row in changes] == [("b", "update_preimage"), ("c", "update_postimage")]
    assert spark.sql("SELECT v FROM session_t VERSION AS OF 1 WHERE k = 2").collect()[0].v == "b"


def test_failed_analysis_prints_nothing(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM no_such_table")
    assert capfd.readouterr() == ("", "")


def test_a_fork_has_the_settings_and_keeps_its_own(spark: SparkSession) -> None:
    parent = spark.newSession()
    parent.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    parent.conf.set("spark.sql.ansi.enabled", "false")
    parent.conf.set("spark.sql.deltaic.unknown.to.spark", "x")
    parent.conf.set("spark.databricks.delta.commitInfo.userMetadata", "not for the fork")
    parent.conf.unset("spark.sql.shuffle.partitions")
    parent.sql("CREATE DATABASE IF NOT EXISTS elsewhere")
    parent.catalog.setCurrentDatabase("elsewhere")
    with forked(parent) as child:
        assert child.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert child.conf.get("spark.sql.ansi.enabled") == "false"
        assert child.conf.get("spark.sql.deltaic.unknown.to.spark") == "x"
        assert child.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
        assert child.conf.get("spark.sql.shuffle.partitions") == "200"
        assert child.catalog.currentDatabase() == "elsewhere"
        child.conf.set("spark.sql.session.timeZone", "UTC")
        child.range(1).createOrReplaceTempView("of_the_child")
    assert parent.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert not parent.catalog.tableExists("of_the_child")


def test_a_fork_does_not_stay_the_active_session(spark: SparkSession) -> None:
    spark.createDataFrame([], "k INT")
    with forked(spark) as child:
        child.createDataFrame([(1,)], "k INT").collect()
    assert _same(SparkSession.active(), spark)


def _same(one: SparkSession, other: SparkSession) -> bool:
    """Whether two Python objects stand for one session; PySpark wraps the JVM's anew at times."""
    mark = "spark.sql.deltaic.test.mark"
    one.conf.set(mark, "here")
    try:
        return other.conf.get(mark, None) == "here"
    finally:
        one.conf.unset(mark)


def test_a_fork_over_connect(connect: SparkSession) -> None:
    assert has_delta(connect)
    assert is_connect(connect)
    connect.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    connect.conf.set("spark.databricks.delta.commitInfo.userMetadata", "not for the fork")
    with forked(connect) as child:
        assert child.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert child.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
        child.conf.set("spark.sql.session.timeZone", "UTC")
    assert connect.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    connect.conf.unset("spark.sql.session.timeZone")
    connect.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    assert connect.range(3).count() == 3, "the end of a fork leaves its parent alone"
