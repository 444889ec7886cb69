"""Small tables read by delta-rs have the rows that Spark reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaic.spark.session import forked
from deltaic.store.arrow import arrow_to_spark
from deltaic.store.log import Log
from deltaic.store.state import read_state_rs, why_no_rs_state
from tests.store.tables import comparable, make_table, rows_at
from tests.store.test_change import TYPED, do


def by_rs(spark: SparkSession, log: Log, version: int, columns: list[str]) -> Counter[object]:
    assert why_no_rs_state(log, version, columns) is None
    schema = spark.sql(f"SELECT * FROM {log.ref.relation}").schema
    rows = read_state_rs(log.ref, version, dict(zip(columns, columns, strict=True)))
    return Counter(comparable(row) for row in arrow_to_spark(spark, rows, schema).collect())


@pytest.mark.parametrize("mapping", [pytest.param("none", marks=pytest.mark.long), "name"])
def test_two_readers_of_a_state_agree(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    mode = f", 'delta.columnMapping.mode' = '{mapping}'"
    log = make_table(spark, tmp_path / "t", vectors=True, partition="p", more=mode)
    do(
        spark,
        log,
        "INSERT INTO {t} VALUES (1, 1, 'a'), (2, NULL, 'b'), (2, NULL, 'b'), (3, 3, NULL)",
        "DELETE FROM {t} WHERE id = 1",
        "UPDATE {t} SET v = 9 WHERE id = 2",
        "DELETE FROM {t} WHERE p = 'b'",
        "RESTORE {t} TO VERSION AS OF 2",
        "OPTIMIZE {t}",
    )
    for version in (0, 2, 3, 4, 5, log.version()):
        assert by_rs(spark, log, version, ["id", "v", "p"]) == rows_at(spark, log.ref, version)


def test_types_and_values(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", ", ".join(f"{name} {kind}" for name, (kind, _) in TYPED.items()))
    with forked(spark) as session:
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        do(session, log, f"INSERT INTO {{t}} VALUES ({', '.join(value for _, value in TYPED.values())})")
        do(session, log, f"INSERT INTO {{t}} VALUES ({', '.join('NULL' for _ in TYPED)})")
        assert by_rs(session, log, 2, list(TYPED)) == rows_at(session, log.ref, 2)


def test_what_is_spark_s_to_read(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(spark, tmp_path / "t", "id BIGINT, t TIMESTAMP, c CHAR(3)")
    do(spark, log, "INSERT INTO {t} VALUES (1, timestamp'1500-01-01 00:00:00', 'a'), (2, NULL, 'b')")
    assert why_no_rs_state(log, 1, ["id"]) is None
    assert "INT96" in (why_no_rs_state(log, 1, ["t"]) or "")
    assert "CHAR" in (why_no_rs_state(log, 1, ["id", "c"]) or "")
    assert "how many rows" in (why_no_rs_state(log, 1, []) or "")
    assert why_no_rs_state(log, 1, ["id"], most_rows=1) == "large"
