"""The measured jobs and rows are those that really were: tables of known size, one file per insert."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from deltaic.spark import metrics
from deltaic.spark.metrics import Measurement, ScanRead, measure, normal_path

ROWS = 1000


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables in a folder whose name has spaces, a comma, brackets, and more than Spark would print."""
    root = tmp_path_factory.mktemp("metrics") / ("a long, [odd] folder " + "x" * 100)
    for table, files in (("big", 2), ("small", 1)):
        for number in range(files):
            data = spark.range(number * ROWS, (number + 1) * ROWS, 1, 1).selectExpr("id AS k", "id % 7 AS v")
            data.write.format("delta").mode("append").save(str(root / table))
    return root


def table(place: Path, name: str) -> str:
    return f"delta.`{place / name}`"


def test_a_query(spark: SparkSession, place: Path) -> None:
    with measure(spark) as measured:
        spark.sql(f"SELECT v, count(*) FROM {table(place, 'big')} GROUP BY v").toArrow()
    assert measured.scans == [ScanRead(str(place / "big"), 2 * ROWS, 2)]
    assert measured.jobs is not None
    assert measured.jobs >= 1


def test_skipped_files_are_not_read(spark: SparkSession, place: Path) -> None:
    with measure(spark) as measured:
        spark.sql(f"SELECT * FROM {table(place, 'big')} WHERE k < 10").collect()
    assert measured.scans == [ScanRead(str(place / "big"), ROWS, 1)]


def test_a_join_with_itself_and_an_old_version(spark: SparkSession, place: Path) -> None:
    big, small = table(place, "big"), table(place, "small")
    with measure(spark) as measured:
        spark.sql(f"SELECT a.k FROM {big} a JOIN {big} VERSION AS OF 0 b USING (k) JOIN {small} USING (k)").toArrow()
    assert measured.rows_by_relation() == {str(place / "big"): 3 * ROWS, str(place / "small"): ROWS}


def test_a_change_feed(spark: SparkSession, place: Path) -> None:
    with measure(spark) as measured:
        spark.sql(f"SELECT * FROM table_changes_by_path('{place / 'big'}', 1)").toArrow()
    assert measured.scans == [ScanRead(str(place / "big"), ROWS, None, changes=True)]


def test_writes_and_merge(spark: SparkSession, place: Path) -> None:
    target = table(place, "target")
    with measure(spark) as written:
        spark.table(table(place, "small")).write.format("delta").save(str(place / "target"))
    assert written.rows_by_relation() == {str(place / "small"): ROWS}
    with measure(spark) as inserted:
        spark.sql(f"INSERT INTO {target} SELECT * FROM {table(place, 'big')} WHERE k >= {ROWS}")
    assert inserted.rows_by_relation() == {str(place / "big"): ROWS}
    with measure(spark) as merged:
        spark.sql(
            f"MERGE INTO {target} t USING (SELECT * FROM {table(place, 'small')} WHERE k < 5) s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET v = -1"
        )
    # It looks through both files for rows to change, then rewrites the one that has some.
    assert merged.scans is not None
    of_target = [scan for scan in merged.scans if scan.relation == str(place / "target")]
    assert of_target == [
        ScanRead(str(place / "target"), 2 * ROWS, 2),
        ScanRead(str(place / "target"), ROWS, 1),
    ]
    # Delta does not materialize a source that is itself a Delta table, so each of the two reads it.
    assert merged.rows_by_relation() == {str(place / "small"): 2 * ROWS, str(place / "target"): 3 * ROWS}
    assert merged.jobs is not None
    assert merged.jobs > 2


def test_a_cached_plan_is_read_once(spark: SparkSession, place: Path) -> None:
    frame = spark.table(table(place, "small")).persist()
    with measure(spark) as first:
        frame.toArrow()
    with measure(spark) as second:
        frame.toArrow()
    frame.unpersist()
    assert first.rows_by_relation() == {str(place / "small"): ROWS}
    assert second.scans == []


def test_a_table_of_the_catalog_is_known_by_its_path(spark: SparkSession, place: Path) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS of_the_catalog USING delta LOCATION '{place / 'small'}'")
    with measure(spark) as measured:
        spark.table("of_the_catalog").toArrow()
    assert measured.scans == [ScanRead(str(place / "small"), ROWS, 1)]


def test_nothing_and_rows_from_memory(spark: SparkSession) -> None:
    with measure(spark) as nothing:
        pass
    assert (nothing.jobs, nothing.scans) == (0, [])
    with measure(spark) as memory:
        spark.sql("SELECT * FROM VALUES (1), (2) AS t(a) ORDER BY a").toArrow()
    assert memory.scans == []


def test_nested_blocks_both_count(spark: SparkSession, place: Path) -> None:
    with measure(spark) as outer:
        spark.table(table(place, "small")).toArrow()
        with measure(spark) as inner:
            spark.table(table(place, "big")).toArrow()
    assert inner.rows_by_relation() == {str(place / "big"): 2 * ROWS}
    assert outer.rows_by_relation() == {str(place / "small"): ROWS, str(place / "big"): 2 * ROWS}


def test_other_threads_are_not_counted(spark: SparkSession, place: Path) -> None:
    def read(name: str) -> Measurement:
        with measure(spark) as measured:
            for _ in range(3):
                spark.table(table(place, name)).toArrow()
        return measured

    with ThreadPoolExecutor(2) as pool:
        big, small = pool.map(read, ("big", "small"))
    assert big.rows_by_relation() == {str(place / "big"): 6 * ROWS}
    assert small.rows_by_relation() == {str(place / "small"): 3 * ROWS}


def test_a_thread_of_the_block_is_counted_if_it_inherits(spark: SparkSession, place: Path) -> None:
    with measure(spark) as measured:
        thread = InheritableThread(target=lambda: spark.table(table(place, "small")).toArrow(), session=spark)
        thread.start()
        thread.join()
    assert measured.rows_by_relation() == {str(place / "small"): ROWS}


@pytest.mark.parametrize("broken", ["_last_execution", "_read_status_store"])
def test_what_cannot_be_measured_is_none(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*args: Any) -> None:
        raise AttributeError("another Spark")

    monkeypatch.setattr(metrics, broken, fail)
    with measure(spark) as measured:
        assert spark.range(3).count() == 3
    assert (measured.jobs, measured.scans, measured.rows_by_relation()) == (None, None, None)


def test_an_error_in_the_block_passes(spark: SparkSession) -> None:
    with pytest.raises(KeyError), measure(spark):
        raise KeyError
    assert not spark.sparkContext.getJobTags()


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:/tmp/a", "/tmp/a"),
        ("file:///tmp/a/", "/tmp/a"),
        ("/tmp/a", "/tmp/a"),
        ("s3a://bucket/a/", "s3a://bucket/a"),
    ],
)
def test_one_spelling_for_one_place(given: str, path: str) -> None:
    assert normal_path(given) == path


SHOWN = {"number of output rows": "12,345", "number of files read": "3"}


def test_scans_as_plans_show_them() -> None:
    location = "FileScan parquet [a#1] Location: PreparedDeltaFileIndex(1 paths)[{}], PartitionFilters: []"
    named = metrics._scan_of("Scan parquet spark_catalog.default.t", location.format("s3a://b/t"), SHOWN)
    assert named == ScanRead("s3a://b/t", 12345, 3)
    cut = metrics._scan_of("Scan parquet spark_catalog.default.t", "Location: PreparedDeltaFileIndex(1 pa...", SHOWN)
    assert cut == ScanRead("spark_catalog.default.t", 12345, 3)
    assert metrics._scan_of("Scan json ", location.format("file:/t/_delta_log/0.json"), SHOWN) is None
    assert metrics._scan_of("Scan parquet ", location.format("file:/t"), {}) is None


def test_over_connect_a_query_tells_what_it_read(connect: SparkSession, place: Path) -> None:
    with measure(connect) as measured:
        for query in (
            f"SELECT v, count(*) FROM {table(place, 'big')} GROUP BY v",
            f"SELECT * FROM table_changes_by_path('{place / 'big'}', 1)",
        ):
            frame = connect.sql(query)
            frame.toArrow()
            measured.note(frame)
    assert measured.jobs is None
    assert measured.scans == [
        ScanRead("", 2 * ROWS, 2),
        ScanRead(str(place / "big"), ROWS, None, changes=True),
    ]


def test_over_connect_nothing_noted_is_not_measured(connect: SparkSession) -> None:
    with measure(connect) as measured:
        frame = connect.range(3)
    measured.note(frame)
    assert (measured.jobs, measured.scans) == (None, None)
