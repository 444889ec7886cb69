"""Rows marked by deletion vectors of Deltaic's own: Spark and delta-rs see the same rows, over checkpoints, beside
vectors of Spark's, after OPTIMIZE."""

from __future__ import annotations

import json
import random
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap
from pyspark.sql import SparkSession

from deltaic.errors import ConcurrentRefresh
from deltaic.store import marks
from deltaic.store.files import entries_of
from deltaic.store.log import Log
from deltaic.store.lookup import find_rows
from deltaic.store.own_table import OwnTable
from deltaic.store.rs_write import Transaction
from deltaic.store.state import read_state_rs
from deltaic.store.table import TableRef, table_at
from deltaic.store.upkeep import checkpoint
from deltaic.store.vectors import new_vectors, read_vector
from deltaic.store.write_sql import create_sql

QUERY = """SELECT id, CASE WHEN id % 10 = 0 THEN NULL ELSE concat('x', id % 20) END AS `a b`,
  CAST(id AS DECIMAL(20, 2)) / 4 AS d, timestamp_seconds(id) AS t, DATE'2020-01-01' AS day FROM range(0, 5000, 1, 2)"""
NEW = pa.schema([("id", pa.int64()), ("a b", pa.string()), ("d", pa.decimal128(24, 6)),
                 ("t", pa.timestamp("us", "UTC")), ("day", pa.date32())])  # fmt: skip


LAYOUTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "partitioned": {"partition_by": ("a b", "day")},
    "clustered": {"cluster_by": ("id", "a b")},
}


@pytest.fixture(params=LAYOUTS)
def table(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> TableRef:
    ref = table_at(tmp_path / "t")
    spark.sql(create_sql(ref.relation, QUERY, **LAYOUTS[request.param]))
    return ref


def replaced(ref: TableRef, gone: pa.Table, ids: list[int], number: int) -> int:
    assert ref.path is not None
    snapshot = Log(ref).snapshot()
    found = marks.find(ref.path, snapshot, gone)
    rows = pa.table({"id": ids, **{f.name: pa.nulls(len(ids), f.type) for f in list(NEW)[1:]}}, schema=NEW)
    files = marks.new_files(ref.path, snapshot, rows)
    marks.apply(ref.path, found, files, Transaction("deltaic", number, "{}"))
    checkpoint(OwnTable(ref), 10)
    return found.rows


def ids(spark: SparkSession, ref: TableRef) -> list[int]:
    by_spark = sorted(row[0] for row in spark.sql(f"SELECT id FROM {ref.relation}").collect())
    by_rs = sorted(read_state_rs(ref, Log(ref).version(), {"id": "id"})["id"].to_pylist())
    assert by_spark == by_rs
    return by_spark


def layout(spark: SparkSession, ref: TableRef) -> object:
    return spark.sql(f"DESCRIBE DETAIL {ref.relation}").select("partitionColumns", "clusteringColumns").first()


def test_a_history_of_marks(spark: SparkSession, table: TableRef) -> None:
    choice, there = random.Random(5), set(range(5000))
    before = layout(spark, table)
    assert marks.why_not(table.path, Log(table).snapshot(), ["id"]) is None
    for number in range(1, 25):  # past two checkpoints
        gone = set(choice.sample(range(6000), 400 if number % 3 else 3)) & there
        keys = pa.table({"id": pa.array(sorted(gone | {-1}), pa.int64())})
        assert replaced(table, keys, [10_000 + number], number) == len(gone)
        there = there - gone | {10_000 + number}
        if number == 6:
            spark.sql(f"DELETE FROM {table.relation} WHERE id BETWEEN 100 AND 300")
            there -= set(range(100, 301))
        if number == 14:
            spark.sql(f"OPTIMIZE {table.relation}")
        if number % 6 == 0:
            assert ids(spark, table) == sorted(there)
    assert ids(spark, table) == sorted(there)
    assert replaced(table, pa.table({"id": pa.array(sorted(there), pa.int64())}), [], 99) == len(there)
    assert ids(spark, table) == []
    assert layout(spark, table) == before
    assert entries_of(str(table.path), Log(table).version()) == []  # a file without a row is no longer there


def test_keys_of_several_columns_and_null(spark: SparkSession, table: TableRef) -> None:
    day = pa.array([18262, 18262], pa.int32()).cast(pa.date32())
    gone = pa.table({"a b": ["x1", None], "day": day})
    assert replaced(table, gone, [], 1) == 250 + 500
    left = spark.sql(f"SELECT count(*) FROM {table.relation} WHERE `a b` IS NULL OR `a b` = 'x1'").first()
    assert left == (0,)


def test_rows_by_key(table: TableRef) -> None:
    assert table.path is not None
    snapshot = Log(table).snapshot()
    keys = pa.table({"a b": ["x7", "nothing"]})
    found = find_rows(table.path, snapshot, keys, {"id": "i", "d": "d"}, None, 1000)
    assert found is not None
    assert found.looked_at >= found.rows.num_rows
    assert found.files >= 1
    assert sorted(found.rows["i"].to_pylist()) == [i for i in range(5000) if i % 20 == 7]
    assert found.rows["d"].type == pa.decimal128(24, 6)
    both = find_rows(table.path, snapshot, keys, {"a b": "x", "day": "y"}, None, 1000)
    assert both is not None
    assert both.rows.column_names == ["x", "y"]
    assert set(both.rows["x"].to_pylist()) == {"x7"}
    assert set(both.rows["y"].to_pylist()) == {date(2020, 1, 1)}
    assert find_rows(table.path, snapshot, keys, {"id": "i"}, None, 10) is None
    none = find_rows(table.path, snapshot, pa.table({"a b": ["nothing"]}), {"id": "i"}, None, 10)
    assert none is not None
    assert none.rows.num_rows == 0


def test_ranges_of_long_texts(spark: SparkSession, table: TableRef) -> None:
    assert table.path is not None
    snapshot = Log(table).snapshot()
    texts = ["y" * 40, "y" * 40 + "z", "\U0010ffff" * 40]
    for number, text in enumerate(texts):
        rows = pa.table({"id": [number], "a b": [text], "d": [None], "t": [None], "day": [None]}, schema=NEW)
        found = marks.find(table.path, snapshot, pa.table({"id": pa.array([], pa.int64())}))
        marks.apply(
            table.path, found, marks.new_files(table.path, snapshot, rows), Transaction("deltaic", number, "{}")
        )
        snapshot = Log(table).snapshot()
    for text in texts:
        assert spark.sql(f"SELECT count(*) FROM {table.relation} WHERE `a b` = '{text}'").first() == (1,)
    least = spark.sql(f"SELECT count(*) FROM {table.relation} WHERE `a b` > '{'y' * 39}'").first()
    assert least == (3,)


def test_of_two_writers_one_wins(table: TableRef) -> None:
    assert table.path is not None
    snapshot = Log(table).snapshot()
    found = marks.find(table.path, snapshot, pa.table({"id": pa.array([1], pa.int64())}))
    marks.apply(table.path, found, [], Transaction("deltaic", 1, "{}"))
    with pytest.raises(ConcurrentRefresh):
        marks.apply(table.path, found, [], Transaction("deltaic", 2, "{}"))


def test_vectors(tmp_path: Path) -> None:
    sets = [
        BitMap([3]),
        BitMap(range(0, 100_000, 3)),
        BitMap(range(50_000)),
        BitMap(random.Random(1).sample(range(10**6), 5000)),
    ]
    made = new_vectors([BitMap(each) for each in sets])
    assert made.file is not None
    (tmp_path / made.file).write_bytes(made.content)
    assert [d["storageType"] for d in made.descriptions] == ["u"] * 4  # Spark's VACUUM fails over "i"
    assert [read_vector(str(tmp_path), d) for d in made.descriptions] == sets
    assert [d["cardinality"] for d in made.descriptions] == [len(each) for each in sets]
    damaged = bytearray(made.content)
    damaged[20] ^= 1
    (tmp_path / made.file).write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="damaged"):
        read_vector(str(tmp_path), made.descriptions[0])


def test_ranges_of_wide_decimals_stay_exact(spark: SparkSession, tmp_path: Path) -> None:
    """Rounded to a DOUBLE, the smallest value of the file is larger than it is, and Spark would pass over its row."""
    ref = table_at(tmp_path / "t")
    digits = "CAST(12345678901234567.89 AS DECIMAL(38, 2))"
    query = f"SELECT CAST(id AS INT) AS id, {digits} + id AS d, CAST(id AS DECIMAL(9, 2)) / 4 AS e FROM range(100)"
    spark.sql(create_sql(ref.relation, f"SELECT /*+ REPARTITION(1) */ * FROM ({query})"))
    for number in (1, 2, 3):
        found = marks.find(str(ref.path), Log(ref).snapshot(), pa.table({"id": pa.array([number], pa.int32())}))
        marks.apply(str(ref.path), found, [], Transaction("deltaic", number, "{}"))
        if number == 2:
            checkpoint(OwnTable(ref), 1)
        assert spark.sql(f"SELECT id FROM {ref.relation} WHERE d = {digits}").collect() == [(0,)]
    kept = json.loads(entries_of(str(ref.path), Log(ref).version())[0]["stats"])
    assert (kept["minValues"]["e"], kept["maxValues"]["e"]) == (0, 24.75)
