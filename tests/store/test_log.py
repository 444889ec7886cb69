from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaic.errors import HistoryGone, SourceError
from deltaic.store.commit import parse_commit
from deltaic.store.log import Log, last_commit_with_marker
from deltaic.store.table import TableRef, features, table_at, table_named
from tests.store.tables import make_table


def in_catalog_only(log: Log, spark: SparkSession) -> Log:
    """The same table as one that is not on this machine."""
    return Log(TableRef(log.ref.name, log.ref.relation, None), spark)


def test_versions_and_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", partition="p", vectors=True)
    spark.sql(f"INSERT INTO {log.ref.relation} VALUES (1, 1, 'a'), (2, 2, 'a'), (3, 3, NULL)")
    assert log.version() == 1
    old, new = log.snapshot(0), log.snapshot()
    assert (old.version, old.rows, old.files, old.bytes) == (0, 0, 0, 0)
    assert (new.version, new.rows, new.columns) == (1, 3, ("id", "v", "p"))
    assert new.files is not None
    assert new.files >= 2
    assert new.bytes
    assert new.change_feed
    assert new.partition_columns == ("p",)
    assert {"deletionVectors", "changeDataFeed", "appendOnly"} <= new.features
    assert new.table_id == old.table_id == spark.sql(f"DESCRIBE DETAIL {log.ref.relation}").collect()[0]["id"]


def test_asking_for_the_version_is_cheap(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    start = time.perf_counter()
    for _ in range(100):
        log.version()
    assert (time.perf_counter() - start) / 100 < 0.005


def test_a_table_made_anew_in_the_same_folder_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    first, commit = log.snapshot(), log.commit(0)
    shutil.rmtree(tmp_path / "t")
    again = make_table(spark, tmp_path / "t", "other STRING")
    assert again.snapshot().table_id != first.table_id
    assert log.snapshot().columns == ("other",)
    assert log.commit(0) != commit


def test_a_replaced_table_keeps_its_log(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    first = log.snapshot()
    spark.sql(f"CREATE OR REPLACE TABLE {log.ref.relation} USING delta AS SELECT 1 AS x")
    assert log.version() == 1
    assert (log.snapshot(0), log.snapshot().columns) == (first, ("x",))


def test_what_commits_say(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", vectors=True)
    table = log.ref.relation
    spark.sql(f"INSERT INTO {table} SELECT /*+ coalesce(1) */ id, 1, 'a' FROM range(10)")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('x.y' = 'z')")
    created, inserted, deleted, altered = log.commits(-1, 3)
    assert [commit.version for commit in (created, inserted, deleted, altered)] == [0, 1, 2, 3]
    assert created.metadata is not None
    assert created.metadata.change_feed
    assert [commit.data_change for commit in (created, inserted, deleted, altered)] == [
        False,
        True,
        True,
        False,
    ]
    assert [file.rows for file in inserted.adds] == [10]
    assert [file.rows for file in deleted.adds] == [9]
    assert deleted.adds[0].path == deleted.removes[0].path == inserted.adds[0].path
    assert not deleted.cdc  # with deletion vectors Delta tells the feed's rows from those
    assert deleted.operation_metrics["numDeletedRows"] == "1"
    assert altered.operation == "SET TBLPROPERTIES"
    assert created.timestamp is not None
    assert abs(created.timestamp / 1000 - time.time()) < 600
    assert log.commits(3, 3) == []


def test_rows_kept_for_the_feed_are_a_change_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    spark.sql(f"INSERT INTO {log.ref.relation} SELECT /*+ coalesce(1) */ id, 1, 'a' FROM range(10)")
    spark.sql(f"UPDATE {log.ref.relation} SET v = 2 WHERE id = 3")
    commit = log.commit(2)
    assert (len(commit.adds), len(commit.removes), len(commit.cdc)) == (1, 1, 1)
    assert commit.data_change


def test_a_commit_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    for _ in range(2):
        spark.sql(f"INSERT INTO {log.ref.relation} VALUES (1, 1, 'a')")
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    assert len(log.commits(1, 2)) == 1
    with pytest.raises(HistoryGone, match="version 1 is no longer"):
        log.commits(0, 2)
    with pytest.raises(HistoryGone):
        log.snapshot(77)


def test_the_same_log_through_spark_alone(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "a b", partition="p", more=", 'delta.checkpointInterval' = '1'")
    spark.sql(f"INSERT INTO {log.ref.relation} VALUES (1, 1, 'a')")
    spark.sql(f"DELETE FROM {log.ref.relation}")
    far = in_catalog_only(log, spark)
    assert far.version() == log.version() == 2
    assert far.commits(-1, 2) == log.commits(-1, 2)
    assert far.commits(2, 2) == []
    near, seen = log.snapshot(), far.snapshot()
    assert (seen.table_id, seen.columns, seen.partition_columns) == (near.table_id, near.columns, ("p",))
    assert (seen.properties, seen.features, seen.files) == (near.properties, near.features, near.files)
    (tmp_path / "a b" / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(HistoryGone):
        far.commits(-1, 1)


def test_what_is_not_a_delta_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    spark.sql("CREATE TABLE IF NOT EXISTS store_log_parquet (id INT) USING parquet")
    for bad in ("plain", "missing"):
        log = Log(table_at(tmp_path / bad), spark)
        for ask in (log.version, log.snapshot):
            with pytest.raises(SourceError, match="not a Delta table") as caught:
                ask()
            assert caught.value.hint
        with pytest.raises(SourceError):
            in_catalog_only(log, spark).version()
    for name in ("store_log_parquet", "store_log_nowhere"):
        with pytest.raises(SourceError):
            table_named(spark, ["default", name])
    spark.sql("DROP TABLE store_log_parquet")
    with pytest.raises(SourceError):
        Log(TableRef("far", "far", None))


def test_features_named_and_implied() -> None:
    assert features(1, 2, []) == {"appendOnly", "invariants"}
    assert "columnMapping" in features(2, 5, [])
    assert {"changeDataFeed", "generatedColumns", "checkConstraints"} <= features(1, 4, [])
    assert features(3, 7, ["deletionVectors"]) == {"deletionVectors"}


# --- markers --------------------------------------------------------------------------------------


def marked(spark: SparkSession, log: Log, text: str) -> None:
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", text)
    try:
        spark.sql(f"INSERT INTO {log.ref.relation} VALUES (1, 1, 'a')")
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")


def test_the_newest_commit_of_ours_and_what_others_did_since(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", feed=False)
    table = log.ref.relation
    assert last_commit_with_marker(log) is None
    marked(spark, log, json.dumps({"deltaic": {"refresh": 1}}))
    marked(spark, log, json.dumps({"deltaic": {"refresh": 2}}))
    found = last_commit_with_marker(log)
    assert found is not None
    assert (found.commit.marker, found.later, found.harmed) == ({"refresh": 2}, (), False)
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"VACUUM {table} RETAIN 1000 HOURS")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('x.y' = 'z')")
    found = last_commit_with_marker(log)
    assert found is not None
    assert (found.commit.version, len(found.later) >= 2, found.harmed) == (2, True, False)
    spark.sql(f"ALTER TABLE {table} ADD COLUMN (w INT)")
    found = last_commit_with_marker(log)
    assert found is not None
    assert [foreign.harmful for foreign in found.later][-1]
    assert found.harmed


@pytest.mark.parametrize("text", ["just words", "[1]", '{"other": 1}', '{"deltaic": 1}', "{"])
def test_rows_from_others_are_harmful_whatever_they_say(spark: SparkSession, tmp_path: Path, text: str) -> None:
    log = make_table(spark, tmp_path / "t")
    marked(spark, log, json.dumps({"deltaic": {"refresh": 1}}))
    marked(spark, log, text)
    found = last_commit_with_marker(log)
    assert found is not None
    assert (found.commit.version, found.harmed) == (1, True)
    assert found.later[0].commit.user_metadata == text


def test_a_marker_beyond_the_log_is_none(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t")
    marked(spark, log, json.dumps({"deltaic": {"refresh": 1}}))
    spark.sql(f"INSERT INTO {log.ref.relation} VALUES (1, 1, 'a')")
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    assert last_commit_with_marker(log) is None


def test_a_commit_without_commit_info() -> None:
    commit = parse_commit(3, '{"add":{"path":"f","size":1,"partitionValues":{},"dataChange":false}}\n\n')
    assert (commit.operation, commit.user_metadata, commit.data_change) == ("", None, False)
    assert commit.adds[0].rows is None
