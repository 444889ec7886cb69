from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaic.algebra.quoting import quote
from deltaic.errors import HistoryGone
from deltaic.spark.session import forked
from deltaic.store.change import ChangePlan, plan_change, read_change_rs
from deltaic.store.gone import is_history_gone
from deltaic.store.log import Log
from deltaic.store.table import table_at, table_named
from tests.store.tables import change_rows, difference, make_table, netted, rows_at, subtracted

COLUMNS = ["id", "v", "p"]
ROWS = "(1, 10, 'a'), (2, 20, 'a'), (3, NULL, 'b'), (3, NULL, 'b'), (4, 40, 'it''s ü/%=')"


def check(
    spark: SparkSession, log: Log, kind: str, after: int, upto: int | None = None, *, allow_rs: bool = True
) -> ChangePlan:
    """The plan is of this kind, gives the right change, and no more rows than it says."""
    upto = log.version() if upto is None else upto
    if kind == "files":  # what delta-rs makes of a table that is small must be the same
        small = plan_change(log, after, upto, COLUMNS, allow_rs=allow_rs)
        assert small.kind in ("states-rs", "files")
        assert netted(spark, log, small, COLUMNS) == difference(spark, log.ref, after, upto)
    plan = plan_change(log, after, upto, COLUMNS, allow_rs=allow_rs and kind != "files")
    assert plan.kind == kind, plan
    assert netted(spark, log, plan, COLUMNS) == difference(spark, log.ref, after, upto)
    if plan.rows is not None:
        assert len(change_rows(spark, log, plan, COLUMNS)) <= plan.rows
    return plan


def do(spark: SparkSession, log: Log, *statements: str) -> None:
    for statement in statements:
        spark.sql(statement.format(t=log.ref.relation))


# --- nothing changed ------------------------------------------------------------------------------


def test_commits_that_change_no_rows_are_no_change(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    do(spark, log, f"INSERT INTO {{t}} VALUES {ROWS}", "INSERT INTO {t} VALUES (5, 5, 'e')")
    before = log.version()
    do(
        spark,
        log,
        "OPTIMIZE {t}",
        "VACUUM {t} RETAIN 1000 HOURS",
        "ALTER TABLE {t} SET TBLPROPERTIES ('a.b' = 'c')",
        "ALTER TABLE {t} ALTER COLUMN v COMMENT 'what it is'",
    )
    assert log.version() > before
    assert check(spark, log, "none", before).rows == 0
    check(spark, log, "none", before, before)


def test_a_version_that_went_back_is_lost_history(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryGone):
        plan_change(make_table(spark, tmp_path / "t"), 5, 0, COLUMNS)


# --- every operation, every way -------------------------------------------------------------------

OPERATIONS = [
    "INSERT INTO {t} VALUES (5, 50, 'e'), (5, 50, 'e')",
    "UPDATE {t} SET v = coalesce(v, 0) + 1 WHERE id <= 3",
    "UPDATE {t} SET p = 'a' WHERE id = 3",
    "DELETE FROM {t} WHERE id = 2",
    "MERGE INTO {t} t USING (SELECT * FROM VALUES (1L, 'new'), (9L, 'nine') s(id, p)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET p = s.p WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, 0, s.p)",
    "OPTIMIZE {t}",
    "DELETE FROM {t} WHERE p = 'new'",
    "INSERT INTO {t} REPLACE WHERE p = 'e' VALUES (6, 60, 'e')",
    "RESTORE TABLE {t} TO VERSION AS OF 3",
    "DELETE FROM {t} WHERE true",
    "RESTORE TABLE {t} TO VERSION AS OF 2",
    "INSERT OVERWRITE {t} VALUES (7, 70, 'g'), (1, 10, 'a')",
    "DELETE FROM {t}",
]


@pytest.mark.parametrize(
    ("feed", "vectors", "partition"),
    [(True, False, "p"), (True, True, ""), (False, False, ""), (False, True, "p")],
)
def test_every_operation_gives_its_change(
    spark: SparkSession, tmp_path: Path, feed: bool, vectors: bool, partition: str
) -> None:
    log = make_table(spark, tmp_path / "t", feed=feed, vectors=vectors, partition=partition)
    do(spark, log, f"INSERT INTO {{t}} VALUES {ROWS}", *OPERATIONS)
    newest = log.version()
    chance = random.Random(repr((feed, vectors, partition)))
    chain = sorted({1, newest, *chance.sample(range(2, newest), 6)})  # every operation is in one of its links
    history = {version: rows_at(spark, log.ref, version) for version in chain}
    ranges = [*pairwise(chain), (chain[0], chain[-1]), (chain[1], chain[-2])]
    for number, (after, upto) in enumerate(ranges):
        plan = plan_change(log, after, upto, COLUMNS, allow_rs=number % 2 == 0)
        assert plan.kind == "none" or plan.kind.startswith("feed" if feed else ("files", "states"))
        expected = subtracted(history[upto], history[after])
        assert netted(spark, log, plan, COLUMNS) == expected, (after, upto, plan)


def test_two_ways_of_reading_a_feed(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a'), (2, 2, 'b')", "UPDATE {t} SET v = 5 WHERE id = 1")
    assert check(spark, log, "feed-rs", 0).rows == 4
    assert "not wanted" in check(spark, log, "feed", 0, allow_rs=False).reason
    assert plan_change(log, 0, 2, COLUMNS, rs_rows=3).kind == "feed"


@pytest.mark.parametrize(
    ("vectors", "more"),
    [(True, ""), (False, ", 'delta.columnMapping.mode' = 'name'")],
    ids=["deletion vectors", "column mapping"],
)
def test_delta_rs_does_not_read_feeds_that_it_gets_wrong(
    spark: SparkSession, tmp_path: Path, vectors: bool, more: str
) -> None:
    log = make_table(spark, tmp_path / "t", vectors=vectors, more=more)
    do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a')")
    assert "misreads" in check(spark, log, "feed", 0).reason


def test_partition_values_that_need_encoding_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", partition="p")
    do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a')", "INSERT INTO {t} VALUES (1, 1, 'it''s ü/%=')")
    check(spark, log, "feed-rs", 0, 1)
    check(spark, log, "feed", 0, 2)


def test_instants_are_read_by_delta_rs_unless_stored_as_int96(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", "id BIGINT, t TIMESTAMP")
    wanted = "INSERT INTO {t} VALUES (1, timestamp'9000-01-01 00:00:00Z'), (2, timestamp'1600-01-01 00:00:00Z')"
    with forked(spark) as session:
        session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        do(session, log, wanted)
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        do(session, log, wanted)
    old, new = plan_change(log, 0, 1, ["id", "t"]), plan_change(log, 1, 2, ["id", "t"])
    assert (old.kind, new.kind, plan_change(log, 0, 2, ["id"]).kind) == ("feed", "feed-rs", "feed-rs")
    expected = difference(spark, log.ref, 0, 1)
    assert netted(spark, log, old, ["id", "t"]) == netted(spark, log, new, ["id", "t"]) == expected
    assert len(expected) == 2


def test_char_columns_are_padded_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", "id BIGINT, c CHAR(5), s STRUCT<c: CHAR(3)>, v VARCHAR(9)")
    do(spark, log, "INSERT INTO {t} VALUES (1, 'abc', struct('x'), 'y')")
    assert plan_change(log, 0, 1, ["id", "v"]).kind == "feed-rs"
    assert plan_change(log, 0, 1, ["id", "s"]).kind == "feed"
    plan = plan_change(log, 0, 1, ["id", "c"])
    assert netted(spark, log, plan, ["id", "c"]) == {(1, "abc  "): 1}


# --- the feed is not always on --------------------------------------------------------------------


def test_a_feed_that_was_off_for_a_part_is_not_used(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", feed=False)
    switch = "ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{}')"
    do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a')")  # 1: off
    do(
        spark,
        log,
        switch.format("true"),
        "INSERT INTO {t} VALUES (2, 2, 'b')",
        "DELETE FROM {t} WHERE id = 1",
    )
    check(spark, log, "files", 0)
    check(spark, log, "feed", 1, allow_rs=False)  # the commit that turns it on changes no rows
    do(spark, log, switch.format("false"), "INSERT INTO {t} VALUES (3, 3, 'c')")  # 5, 6
    check(spark, log, "files", 1)
    check(spark, log, "feed", 1, 5, allow_rs=False)
    do(spark, log, switch.format("true"), "DELETE FROM {t} WHERE id = 2")  # 7, 8
    check(spark, log, "files", 3)
    check(spark, log, "feed-rs", 6)


def test_columns_added_and_columns_that_became_others(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a')", "ALTER TABLE {t} ADD COLUMN (w INT)")
    do(spark, log, "INSERT INTO {t} VALUES (2, 2, 'b', 3)")
    plan = plan_change(log, 0, 3, COLUMNS)
    assert (plan.kind, plan.reason) == ("feed", "change feed, read by Spark (the table's columns were changed)")
    assert sorted(map(tuple, change_rows(spark, log, plan, COLUMNS))) == [(1, 1, "a", 1), (2, 2, "b", 1)]
    do(spark, log, "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 7L AS id, 'x' AS v, 'p' AS p")
    for allow_rs, kind in ((True, "states-rs"), (False, "files")):
        plan = plan_change(log, 3, 4, ["id", "p"], allow_rs=allow_rs)
        assert plan.kind == kind
        got = sorted(map(tuple, change_rows(spark, log, plan, ["id", "p"])))
        assert got == [(1, "a", -1), (2, "b", -1), (7, "p", 1)]


# --- without a feed -------------------------------------------------------------------------------


def test_optimized_files_are_not_read_unless_rows_in_them_changed(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", feed=False)
    do(spark, log, *[f"INSERT INTO {{t}} VALUES ({n}, {n}, 'a'), ({n}, {n}, 'a')" for n in range(4)])
    do(spark, log, "OPTIMIZE {t}", "INSERT INTO {t} VALUES (9, 9, 'i')")
    appended = check(spark, log, "files", 4)
    assert (appended.rows, appended.sql and appended.sql.count("VERSION AS OF")) == (1, 1)
    do(spark, log, "DELETE FROM {t} WHERE id = 2")
    mixed = check(spark, log, "files", 3)
    assert mixed.sql is not None
    assert mixed.sql.count("VERSION AS OF") == 2
    check(spark, log, "files", 4)


def test_a_deletion_vector_on_an_unchanged_file_is_a_change(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", feed=False, vectors=True)
    do(spark, log, "INSERT INTO {t} SELECT /*+ coalesce(1) */ id, 1, 'a' FROM range(50)")
    do(spark, log, "DELETE FROM {t} WHERE id = 7", "DELETE FROM {t} WHERE id = 8")
    assert len(netted(spark, log, check(spark, log, "files", 1), COLUMNS)) == 2
    check(spark, log, "files", 2)
    check(spark, log, "files", 0)


def test_files_are_skipped_by_partition_and_by_range(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", feed=False)
    for first in (0, 100, 200):
        do(
            spark,
            log,
            f"INSERT INTO {{t}} SELECT /*+ coalesce(1) */ id, NULL, 'a' FROM range({first}, {first + 9})",
        )
    before = log.version()
    do(spark, log, "INSERT INTO {t} VALUES (150, NULL, 'a')")
    plan = check(spark, log, "files", before)
    assert plan.sql is not None
    assert "BETWEEN 150 AND 150" in plan.sql
    parted = make_table(spark, tmp_path / "p", feed=False, partition="p")
    do(spark, parted, "INSERT INTO {t} VALUES (1, 1, 'a'), (2, 2, 'it''s ü/%='), (3, 3, NULL)")
    do(spark, parted, "DELETE FROM {t} WHERE p <=> 'it''s ü/%='")
    plan = check(spark, parted, "files", 1)
    assert plan.sql is not None
    assert r"`p` <=> CAST('it\'s ü/%=' AS STRING)" in plan.sql
    do(spark, parted, "INSERT INTO {t} VALUES (4, 4, NULL)", "UPDATE {t} SET v = 5 WHERE p IS NULL")
    check(spark, parted, "files", 2)


def test_a_shallow_clone_names_its_files_by_absolute_paths(spark: SparkSession, tmp_path: Path) -> None:
    origin = make_table(spark, tmp_path / "origin", feed=False, partition="p")
    do(spark, origin, f"INSERT INTO {{t}} VALUES {ROWS}")
    log = Log(table_at(tmp_path / "clone"), spark)
    do(spark, log, f"CREATE TABLE {{t}} SHALLOW CLONE {origin.ref.relation}")
    do(spark, log, "DELETE FROM {t} WHERE id = 3", "INSERT INTO {t} VALUES (8, 8, 'h')")
    check(spark, log, "files", 0)


def test_a_column_called_like_spark_s_own(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", "id BIGINT, v INT, p STRING, _metadata STRING", feed=False)
    do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a', 'x')", "DELETE FROM {t} WHERE id = 1")
    plan = plan_change(log, 0, 1, ["id", "_metadata"])
    assert [tuple(row) for row in change_rows(spark, log, plan, ["id", "_metadata"])] == [(1, "x", 1)]


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["we ird", "qu'ote", "ünï", "ba`ck", "pct%20x", "h#q?", "dot.ted"])
@pytest.mark.parametrize("feed", [True, False])
def test_odd_folders_and_columns(spark: SparkSession, tmp_path: Path, name: str, feed: bool) -> None:
    columns = f"{quote(name)} BIGINT, v INT, p STRING"
    more = ", 'delta.columnMapping.mode' = 'name'"
    log = make_table(spark, tmp_path / name, columns, feed=feed, more=more)
    do(
        spark,
        log,
        "INSERT INTO {t} VALUES (1, 1, 'a'), (2, 2, 'b')",
        f"DELETE FROM {{t}} WHERE {quote(name)} = 1",
    )
    for allow_rs in (True, False):
        plan = plan_change(log, 0, 2, [name, "p"], allow_rs=allow_rs)
        assert plan.kind == ("feed" if feed else "states-rs" if allow_rs and "%" not in name else "files")
        assert netted(spark, log, plan, [name, "p"]) == {(2, "b"): 1}
    assert netted(spark, log, plan_change(log, 0, 1, []), []) == {(): 2}


def test_a_table_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS store_names")
    for feed in ("true", "false"):
        spark.sql("DROP TABLE IF EXISTS store_names.t")
        spark.sql(
            f"CREATE TABLE store_names.t (id BIGINT, v INT, p STRING) USING delta "
            f"LOCATION '{tmp_path}/a b{feed}' TBLPROPERTIES ('delta.enableChangeDataFeed' = '{feed}')"
        )
        log = Log(table_named(spark, ["store_names", "t"]), spark)
        assert log.ref.path == f"{tmp_path}/a b{feed}"
        do(spark, log, "INSERT INTO {t} VALUES (1, 1, 'a')", "DELETE FROM {t} WHERE id = 1")
        check(spark, log, "feed-rs" if feed == "true" else "files", 0, 1)
        check(spark, log, "feed" if feed == "true" else "files", 0, 1, allow_rs=False)
        spark.sql("DROP TABLE store_names.t")


# --- history that is gone -------------------------------------------------------------------------


def vacuum(spark: SparkSession, log: Log) -> None:
    with forked(spark) as session:
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        do(session, log, "VACUUM {t} RETAIN 0 HOURS")


def failure(spark: SparkSession, sql: str) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what Spark raises is the question
        spark.sql(sql).collect()
    return caught.value


@pytest.mark.parametrize("feed", [True, False])
def test_vacuumed_files_are_recognised(spark: SparkSession, tmp_path: Path, feed: bool) -> None:
    log = make_table(spark, tmp_path / "t", feed=feed)
    do(spark, log, "INSERT INTO {t} SELECT id, 1, 'a' FROM range(10)", "DELETE FROM {t} WHERE id < 5")
    plan = plan_change(log, 1, 2, COLUMNS, allow_rs=False)
    vacuum(spark, log)
    assert is_history_gone(failure(spark, plan.sql or ""))
    assert is_history_gone(failure(spark, f"SELECT * FROM {log.ref.as_of(1)}"))
    if feed:
        with pytest.raises(Exception, match="not found") as caught:
            read_change_rs(log.ref, "feed-rs", 1, 2, COLUMNS)
        assert is_history_gone(caught.value)


def test_cleaned_up_log_files_are_recognised(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", more=", 'delta.checkpointInterval' = '2'")
    do(spark, log, *["INSERT INTO {t} VALUES (1, 1, 'a')"] * 5)
    for version in range(3):
        for file in (tmp_path / "t" / "_delta_log").glob(f"*{version:020}.*"):
            file.unlink()
    with pytest.raises(HistoryGone):
        plan_change(log, 0, 5, COLUMNS)
    assert is_history_gone(failure(spark, f"SELECT * FROM {log.ref.as_of(0)}"))
    assert is_history_gone(failure(spark, f"SELECT * FROM table_changes_by_path('{log.ref.path}', 1, 5)"))
    check(spark, log, "feed-rs", 4)


def test_versions_that_never_were_and_plain_mistakes(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    assert is_history_gone(failure(spark, f"SELECT * FROM {log.ref.as_of(99)}"))
    assert not is_history_gone(failure(spark, f"SELECT no_such FROM {log.ref.relation}"))
    assert not is_history_gone(failure(spark, "SELECT raise_error('boom')"))


# --- types ----------------------------------------------------------------------------------------

TYPED = {
    "a": ("TINYINT", "-128Y"),
    "b": ("SMALLINT", "-32768S"),
    "c": ("INT", "NULL"),
    "d": ("BIGINT", "9223372036854775807L"),
    "e": ("FLOAT", "float('nan')"),
    "f": ("DOUBLE", "-0.0D"),
    "g": ("DECIMAL(38,10)", "12345678901234567890.1234567891BD"),
    "h": ("STRING", "'it\\'s ü 😀'"),
    "i": ("BINARY", "X'00FF'"),
    "j": ("BOOLEAN", "true"),
    "k": ("DATE", "date'0001-01-01'"),
    "l": ("TIMESTAMP", "timestamp'9000-01-01 00:00:00.123456Z'"),
    "m": ("TIMESTAMP_NTZ", "timestamp_ntz'9999-12-31 23:59:59.999999'"),
    "n": ("ARRAY<INT>", "array(1, NULL)"),
    "o": ("MAP<STRING, TIMESTAMP>", "map('a', timestamp'2024-03-10 07:30:00Z', 'b', NULL)"),
    "p": ("STRUCT<x: INT, y: ARRAY<STRUCT<z: TIMESTAMP_NTZ, w: DECIMAL(5,2)>>>", "NULL"),
    "q": ("STRUCT<x: TINYINT>", "named_struct('x', 1Y)"),
    "r": ("VARCHAR(5)", "'abc'"),
}


@pytest.mark.parametrize("partition", ["", "b, d, j, k, r"])
def test_delta_rs_gives_the_same_types_and_values_as_spark(spark: SparkSession, tmp_path: Path, partition: str) -> None:
    ddl = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPED.items())
    log = make_table(spark, tmp_path / "t", ddl, partition=partition)
    with forked(spark) as session:
        session.conf.set("spark.sql.session.timeZone", "America/New_York")
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        do(session, log, f"INSERT INTO {{t}} VALUES ({', '.join(value for _, value in TYPED.values())})")
        kept = partition.split(", ")  # of NULL partitions delta-rs does not know the type
        nulls = ", ".join(value if name in kept else "NULL" for name, (_, value) in TYPED.items())
        do(session, log, f"INSERT INTO {{t}} VALUES ({nulls})")
        do(session, log, "UPDATE {t} SET c = 5 WHERE a IS NOT NULL")
        columns = list(TYPED)
        rs, plain = (plan_change(log, 0, 3, columns, allow_rs=allow) for allow in (True, False))
        assert (rs.kind, plain.kind) == ("feed-rs", "feed")
        assert netted(session, log, rs, columns) == netted(session, log, plain, columns)
        assert len(netted(session, log, rs, columns)) == 2
        instant = dt.datetime(9000, 1, 1, 0, 0, 0, 123456, tzinfo=dt.timezone.utc)
        assert any(row[11] == instant.astimezone().replace(tzinfo=None) for row in _rows(session, log, rs, columns))


def _rows(spark: SparkSession, log: Log, plan: ChangePlan, columns: Sequence[str]) -> list[tuple[object, ...]]:
    return [tuple(row) for row in change_rows(spark, log, plan, columns)]
