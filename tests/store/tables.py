"""Small Delta tables for the store's tests, and comparing rows as multisets with Spark's own equality."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.quoting import quote_list
from deltaic.store.arrow import arrow_to_spark
from deltaic.store.change import ChangePlan, read_change_rs
from deltaic.store.log import Log
from deltaic.store.table import TableRef, table_at


def make_table(
    spark: SparkSession,
    path: Path,
    columns: str = "id BIGINT, v INT, p STRING",
    *,
    feed: bool = True,
    vectors: bool = False,
    partition: str = "",
    more: str = "",
) -> Log:
    """A new table; its log."""
    ref = table_at(path)
    clause = f"PARTITIONED BY ({partition})" if partition else ""
    spark.sql(
        f"CREATE TABLE {ref.relation} ({columns}) USING delta {clause} TBLPROPERTIES ("
        f"'delta.enableChangeDataFeed' = '{str(feed).lower()}', "
        f"'delta.enableDeletionVectors' = '{str(vectors).lower()}'{more})"
    )
    return Log(ref, spark)


def rows_at(spark: SparkSession, ref: TableRef, version: int) -> Counter[Any]:
    return Counter(comparable(row) for row in spark.sql(f"SELECT * FROM {ref.as_of(version)}").collect())


def difference(spark: SparkSession, ref: TableRef, after: int, upto: int) -> dict[Any, int]:
    """What a change must net to, by definition."""
    return subtracted(rows_at(spark, ref, upto), rows_at(spark, ref, after))


def subtracted(new: Counter[Any], old: Counter[Any]) -> dict[Any, int]:
    counts = new.copy()
    counts.subtract(old)
    return {row: count for row, count in counts.items() if count}


def netted(spark: SparkSession, log: Log, plan: ChangePlan, columns: Sequence[str]) -> dict[Any, int]:
    """The change that a plan gives, netted."""
    counts: Counter[Any] = Counter()
    for row in change_rows(spark, log, plan, columns):
        counts[comparable(row[:-1])] += row[-1]
    return {row: count for row, count in counts.items() if count}


def change_rows(spark: SparkSession, log: Log, plan: ChangePlan, columns: Sequence[str]) -> list[Any]:
    if plan.kind == "none":
        return []
    if plan.sql is None:
        return change_by_rs(spark, log, plan, columns).collect()
    assert plan.sql is not None
    return spark.sql(plan.sql).collect()


def change_by_rs(spark: SparkSession, log: Log, plan: ChangePlan, columns: Sequence[str]) -> DataFrame:
    shape = spark.sql(f"SELECT {quote_list(columns)}, 1L AS {WEIGHT} FROM {log.ref.relation}").schema
    return arrow_to_spark(spark, read_change_rs(log.ref, plan.kind, plan.after, plan.upto, columns), shape)


def comparable(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row that equals another one exactly if Spark calls all their values equal."""
    return tuple(_comparable(value) for value in row)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return tuple(sorted((_comparable(key), _comparable(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_comparable(item) for item in value)
    return value


def arrow_rows(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
