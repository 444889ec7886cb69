"""Spark reads PostgreSQL over JDBC, by several connections at once, and all of them in one snapshot."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltaic.spark.session import add_postgres_driver
from deltaic.store.postgres.capture import start_capture
from deltaic.store.postgres.captured_log import XID
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.texts import jdbc_source
from tests.store.postgres_server import PASSWORD, Database
from tests.store.test_postgres import every_type
from tests.store.test_postgres_capture import Writers, counted


@pytest.fixture
def with_driver(spark: SparkSession) -> SparkSession:
    add_postgres_driver(spark)
    return spark


def test_live_types_are_those_of_the_log(with_driver: SparkSession, database: Database) -> None:
    table = every_type(database)
    database.run("INSERT INTO t (id, c13, c14) VALUES (3, '1883-11-18 12:00', '0001-01-01 00:00Z')")
    database.run("INSERT INTO t (id, c12, c13) VALUES (4, '1582-10-10', '1582-10-10 00:00')")
    with LiveRead(table.server, [table]) as read:
        frame = read.frame(with_driver, table)
        assert [field.dataType.simpleString() for field in frame.schema][1:] == [
            column.spark for column in table.columns()
        ][1:]
        rows = frame.orderBy("id").toArrow()
        direct = read.arrow(table).sort_by("id")
    assert rows.cast(direct.schema).to_pylist() == direct.to_pylist()


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
def test_live_values_that_spark_cannot_hold(with_driver: SparkSession, database: Database, value: str) -> None:
    database.run("CREATE TABLE t (x date)", f"INSERT INTO t VALUES ('{value}')")
    with LiveRead(database.server, [database.table()]) as read, pytest.raises(Exception, match="Spark cannot hold"):
        read.frame(with_driver, database.table()).collect()


def test_live_partitions_see_one_state_while_others_write(with_driver: SparkSession, database: Database) -> None:
    """Each partition reads at another moment, and so does a second run of the same frame."""
    database.run("CREATE TABLE t (a int, b text)")
    database.run("INSERT INTO t SELECT i, repeat('wide', 200) FROM generate_series(1, 500) i")
    table = database.table()
    with Writers(database, 3) as writers:
        for partitions in (None, 1, 3, 7):
            with LiveRead(table.server, [table]) as read:
                frame = read.frame(with_driver, table, partitions=partitions)
                assert frame.rdd.getNumPartitions() == (partitions or 1)
                before = writers.commits
                first = counted(frame.toArrow())
                while writers.commits < before + 20:
                    time.sleep(0.01)
                database.run("UPDATE t SET b = b || '!' WHERE a > 100", "VACUUM t")
                second = counted(frame.toArrow())
                assert first == second == counted(read.arrow(table))
    with LiveRead(table.server, [table]) as read:
        assert counted(read.frame(with_driver, table, partitions=2).toArrow()) != first


def test_live_columns_and_filters(with_driver: SparkSession, database: Database) -> None:
    database.run("CREATE TABLE t (a int, b text, at timestamptz)")
    database.run(
        "INSERT INTO t SELECT i, 'b' || i, '2024-01-01Z'::timestamptz + i * interval '1d' FROM generate_series(1, 9) i"
    )
    with LiveRead(database.server, [database.table()]) as read:
        frame = read.frame(with_driver, database.table(), ["b", "at"], partitions=2)
        assert frame.columns == ["b", "at"]
        found = frame.where("b IN ('b2', 'b3') AND at > timestamp'2024-01-03 12:00:00Z'").toArrow().to_pylist()
        assert frame.count() == 9
        plans: Any = frame
        assert PASSWORD not in f"{frame} {plans._jdf.queryExecution().toString()}"
    assert found == [{"b": "b3", "at": dt.datetime(2024, 1, 4, tzinfo=dt.timezone.utc)}]


def test_live_reads_outside_of_the_snapshot_fail(with_driver: SparkSession, database: Database) -> None:
    """Never other rows: not if the connection does not join, and not after the read has ended."""
    database.run("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
    table = database.table()
    with LiveRead(database.server, [table]) as read:
        frame = read.frame(with_driver, table)
        assert Counter(row.a for row in frame.collect()) == {1: 1}
        database.run("INSERT INTO t VALUES (2)")
        source, where = jdbc_source(table, table.columns()), read._ranges(table, 1)
        options = {"user": database.server.user, "password": PASSWORD, "driver": "org.postgresql.Driver"}
        # In a transaction per statement the one that joins is over before the query begins.
        each = {**options, "sessionInitStatement": read._init(), "fetchsize": "0"}
        for wrong in (options, each):
            with pytest.raises(Exception, match="not in the snapshot"):
                with_driver.read.jdbc(read._url(), source, predicates=where, properties=wrong).collect()
        database.run("DELETE FROM t", "VACUUM t")
        assert Counter(row.a for row in frame.collect()) == {1: 1}
    with pytest.raises(Exception, match="snapshot"):
        frame.collect()


def test_live_log_is_read_by_spark(with_driver: SparkSession, database: Database, tmp_path: Path) -> None:
    """Start, plus the rows that a read saw, by Spark alone: what a term of a view does."""
    table, path = every_type(database), tmp_path / "log"
    with start_capture([(table, path)], database.name, "slot", set_identity=True) as started:
        start = started.read.arrow(table)
        database.run("UPDATE t SET c1 = 7 WHERE id = 1", "DELETE FROM t WHERE id = 2")
        with LiveRead(table.server, [table]) as read:
            database.run("INSERT INTO t (id, c3) VALUES (9, 'NaN'), (10, '-Infinity')")
            started.capture.catch_up(read)
            started.capture.step()
            log = with_driver.read.format("delta").load(str(path))
            seen = log.where(read.visibility.condition(XID))
            now = read.frame(with_driver, table)
    assert [field.dataType for field in log.select(*now.columns).schema] == [field.dataType for field in now.schema]
    assert (log.count(), seen.count(), start.num_rows) == (5, 3, 2)
    assert log.where("isnan(c3)").count() == 1


def test_live_reads_over_connect(with_driver: SparkSession, connect: SparkSession, database: Database) -> None:
    database.run("CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 1000)")
    with LiveRead(database.server, [database.table()]) as read:
        frame = read.frame(connect, database.table(), partitions=2)
        database.run("DELETE FROM t")
        assert frame.selectExpr("sum(a)").collect()[0][0] == 500500
