from __future__ import annotations

import datetime as dt
import decimal
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaic.algebra.quoting import quote
from deltaic.errors import ConcurrentRefresh, DeltaicError, ExistsError, UnsupportedError
from deltaic.plan.program import OP
from deltaic.spark.session import forked
from deltaic.store import rs_write
from deltaic.store.arrow import arrow_schema, arrow_to_spark
from deltaic.store.commit import Commit
from deltaic.store.gone import is_history_gone
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress, SourceState
from deltaic.store.table import table_at
from deltaic.store.write_sql import create_sql
from tests.store.tables import arrow_rows, comparable

SOURCES = {"default.sales": SourceState(7, "an-id", "id BIGINT")}
Row = tuple[Any, ...]


def progress(number: int, technique: str = "base") -> Progress:
    return Progress(number, SOURCES, technique, {"rows": 3})


def make_view(spark: SparkSession, path: Path, query: str, **options: Any) -> OwnTable:
    view = OwnTable(table_at(path), path.parent / ".deltaic" / "lock")
    view.apply_spark(spark, create_sql(view.ref.relation, query, **options), progress(1))
    return view


def contents(spark: SparkSession, view: OwnTable) -> Counter[Row]:
    return Counter(comparable(row) for row in spark.sql(f"SELECT * FROM {view.ref.relation}").collect())


def artifact_of(spark: SparkSession, view: OwnTable, rows: Sequence[Row]) -> pa.Table:
    """Rows of (op, columns...) with the view's types."""
    schema = arrow_schema(spark.sql(f"SELECT * FROM {view.ref.relation}").schema)
    schema = pa.schema([pa.field(OP, pa.int32()), *(field.with_nullable(True) for field in schema)])
    return arrow_rows(schema, rows)


def by_spark(spark: SparkSession, view: OwnTable, artifact: pa.Table, key: Sequence[str], number: int) -> Commit:
    schema = spark.sql(f"SELECT 1 AS {OP}, * FROM {view.ref.relation}").schema
    arrow_to_spark(spark, artifact, schema).createOrReplaceTempView("artifact")
    columns = [name for name in artifact.column_names if name != OP]
    if -1 in artifact[OP].to_pylist():
        return view.merge_spark(spark, view.merge_sql("artifact", key, columns), progress(number))
    return view.apply_spark(spark, view.append_sql("artifact", columns), progress(number))


def by_rs(spark: SparkSession, view: OwnTable, artifact: pa.Table, key: Sequence[str], number: int) -> Commit:
    return view.apply_rs(artifact, key, progress(number))


WAYS: dict[str, Callable[[SparkSession, OwnTable, pa.Table, Sequence[str], int], Commit]] = {
    "spark": by_spark,
    "rs": by_rs,
}
ways = pytest.mark.parametrize("way", WAYS)


# --- creating -------------------------------------------------------------------------------------


def test_a_view_is_made_with_content_and_progress_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(
        spark,
        tmp_path / "v",
        "SELECT id AS k, count(*) AS `count(1)` FROM range(3) GROUP BY id",
        properties={"deltaic.definition": "it's 100% \\ `q`", "deltaic.technique": "base"},
        comment="what it's for",
    )
    snapshot = view.log.snapshot()
    assert (snapshot.version, snapshot.rows, snapshot.columns) == (0, 3, ("k", "count(1)"))
    assert snapshot.properties["deltaic.definition"] == "it's 100% \\ `q`"
    assert not snapshot.change_feed
    said = Progress.of(view.log.commit(0))
    assert said is not None
    assert said == Progress(1, SOURCES, "base", {"rows": 3}, said.id)
    assert contents(spark, view) == Counter({(0, 1): 1, (1, 1): 1, (2, 1): 1})
    assert spark.sql(f"DESCRIBE DETAIL {view.ref.relation}").collect()[0]["description"] == "what it's for"


def test_a_view_can_be_partitioned_or_clustered(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT id % 2 AS `p q`, id FROM range(4)"
    parted = make_view(spark, tmp_path / "parted", query.replace("`p q`", "p"), partition_by=["p"])
    assert parted.log.snapshot().partition_columns == ("p",)
    assert parted.can_use_rs(parted.log.snapshot())
    clustered = make_view(spark, tmp_path / "clustered", query, cluster_by=["p q"])
    assert "clustering" in clustered.log.snapshot().features
    assert not clustered.can_use_rs(clustered.log.snapshot())


def test_creating_what_exists_is_refused_and_replacing_goes_on_counting(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    with pytest.raises(ExistsError):
        view.apply_spark(spark, create_sql(view.ref.relation, "SELECT 2 AS k"), progress(2))
    view.apply_spark(spark, create_sql(view.ref.relation, "SELECT 3 AS j", replace=True), progress(2))
    assert contents(spark, view) == Counter({(3,): 1})
    with pytest.raises(ConcurrentRefresh):
        view.apply_spark(spark, create_sql(view.ref.relation, "SELECT 4 AS j", replace=True), progress(2))


# --- the two ways of writing give the same table --------------------------------------------------

UTC = dt.timezone.utc
D = decimal.Decimal
POOLS: dict[str, list[Any]] = {
    "BIGINT": [None, 0, 1, -1, 2**63 - 1, -(2**63)],
    "TINYINT": [None, 0, 1, -128],
    "DOUBLE": [None, 0.0, -0.0, 1.5, float("inf"), float("-inf")],
    "FLOAT": [None, 0.0, -0.0, 1.5, float("nan")],
    "DECIMAL(38,10)": [None, D("0E-10"), D("12345678901234567890.1234567891"), D("-1.0000000000")],
    "DATE": [None, dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "TIMESTAMP": [
        None,
        dt.datetime(1600, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 3, 10, 7, 30, 0, 123456, tzinfo=UTC),
        dt.datetime(9000, 1, 1, tzinfo=UTC),
    ],
    "TIMESTAMP_NTZ": [None, dt.datetime(1600, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "STRING": [None, "", "it's", 'a "b"', "back\\slash", "`q`", "ünï😀", "x" * 200, "%s", "NULL"],
    "BINARY": [None, b"", b"\x00\xff", b"'"],
    "BOOLEAN": [None, True, False],
}
NAMES = ["k", "sum(v)", "a b", 'q"u', "back`tick", "ü", "SELECT", "dot.ted"]
KEY_TYPES = list(POOLS)
POOLS |= {
    "ARRAY<INT>": [None, [], [1, None]],
    "STRUCT<a: DOUBLE, b: DECIMAL(30,2)>": [None, {"a": None, "b": D("1.25")}],
    "MAP<STRING, TIMESTAMP>": [None, [], [("a", dt.datetime(9000, 1, 1, tzinfo=UTC)), ("b", None)]],
}


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_of_applying_random_artifacts_give_the_same_view(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    check_random_artifacts(spark, tmp_path, seed)


def check_random_artifacts(spark: SparkSession, tmp_path: Path, seed: int, steps: int = 3) -> int:
    """Apply artifacts by Spark to one table and by delta-rs to its twin; how many delta-rs could take."""
    chance = random.Random(seed)
    names = chance.sample(NAMES, 5)
    width = chance.randint(1, 3)
    types = [chance.choice(KEY_TYPES) for _ in range(width)]
    types += [chance.choice(list(POOLS)) for _ in range(5 - width)]
    key = names[:width]
    casts = [f"CAST(NULL AS {kind}) AS {quote(name)}" for kind, name in zip(types, names, strict=True)]
    options: dict[str, Any] = {"properties": {"delta.enableDeletionVectors": chance.choice(["true", "false"])}}
    twins = [make_view(spark, tmp_path / side, f"SELECT {', '.join(casts)} LIMIT 0", **options) for side in ("s", "r")]
    expected: Counter[Row] = Counter()
    taken = 0
    for number in range(2, steps + 2):
        minus = {comparable(row[:width]): row for row in _random_rows(chance, types) if number > 2}
        plus = _random_rows(chance, types)
        rows = [(-1, *row) for row in minus.values()] + [(1, *row) for row in plus]
        artifact = artifact_of(spark, twins[0], rows)
        by_spark(spark, twins[0], artifact, key, number)
        reason = twins[1].why_not_rs(artifact, key)
        taken += reason is None
        (by_rs if reason is None else by_spark)(spark, twins[1], artifact, key, number)
        kept = {row: count for row, count in expected.items() if row[:width] not in minus}
        expected = Counter(kept) + Counter(comparable(map(_collected, row)) for row in plus)
        for view in twins:
            assert contents(spark, view) == expected, (seed, number, view.ref.name, types, reason)
    return taken


def _random_rows(chance: random.Random, types: Sequence[str]) -> list[Row]:
    rows = [tuple(chance.choice(POOLS[kind]) for kind in types) for _ in range(chance.randint(0, 12))]
    return rows + rows[: chance.randint(0, 2)]


def _collected(value: Any) -> Any:
    """As Spark hands values to Python: instants in local time, without a zone."""
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, dict):
        return tuple(value.values())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: _collected(item) for key, item in value}
    return value


@ways
def test_keys_are_equal_as_spark_has_it(spark: SparkSession, tmp_path: Path, way: str) -> None:
    query = "SELECT * FROM VALUES (1L, -0.0D), (1L, 0.0D), (NULL, 1.0D), (2L, NULL), (3L, 3.0D) AS t(k, x)"
    view = make_view(spark, tmp_path / "v", query)
    rows = [(-1, 1, 0.0), (-1, None, 1.0), (-1, 2, None), (-1, 77, 7.0), (1, 3, 3.0), (1, 3, 3.0)]
    WAYS[way](spark, view, artifact_of(spark, view, rows), ["k", "x"], 2)
    assert contents(spark, view) == Counter({(3, 3.0): 3})


@ways
def test_nothing_taken_out_is_a_plain_append(spark: SparkSession, tmp_path: Path, way: str) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k, 'a' AS x")
    commit = WAYS[way](spark, view, artifact_of(spark, view, [(1, 1, "a"), (1, 2, None)]), ["k"], 2)
    assert commit.operation == "WRITE"
    assert not commit.removes
    assert contents(spark, view) == Counter({(1, "a"): 2, (2, None): 1})


@ways
@pytest.mark.parametrize("rows", [[], [(-1, 9, None)]])
def test_an_artifact_that_changes_nothing_still_commits_its_progress(
    spark: SparkSession, tmp_path: Path, way: str, rows: list[Row]
) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k, 'a' AS x")
    commit = WAYS[way](spark, view, artifact_of(spark, view, rows), ["k"], 2)
    assert (commit.version, commit.data_change) == (1, False)
    assert Progress.of(commit) is not None
    assert contents(spark, view) == Counter({(1, "a"): 1})


def test_a_partitioned_view_is_written_the_same_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT id AS k, concat('p ', id % 2, '/:%') AS p FROM range(6)"
    rows = [(-1, 1, "p 1/:%"), (-1, 2, "no such"), (1, 1, None), (1, 8, "p 0/:%")]
    left, right = (make_view(spark, tmp_path / side, query, partition_by=["p"]) for side in "lr")
    by_spark(spark, left, artifact_of(spark, left, rows), ["k"], 2)
    by_rs(spark, right, artifact_of(spark, right, rows), ["k"], 2)
    assert contents(spark, left) == contents(spark, right)
    assert sum(contents(spark, left).values()) == 6


def test_the_ways_can_alternate_in_one_session(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT id AS k, 0L AS x FROM range(50)")
    for number in range(2, 15):  # past a checkpoint, over each other's deletion vectors
        rows = [(-1, number, None), (1, number, number), (-1, number + 20, None), (1, number + 20, number)]
        way = WAYS["spark" if number % 4 == 0 else "rs"]
        way(spark, view, artifact_of(spark, view, rows), ["k"], number)
        pinned = spark.sql(f"SELECT sum(x), count(*) FROM {view.ref.as_of(number - 1)}").collect()[0]
        newest = spark.sql(f"SELECT sum(x), count(*) FROM {view.ref.relation}").collect()[0]
        assert pinned == newest
    rows_left = dict.fromkeys(range(50), 0)
    for number in range(2, 15):
        rows_left[number] = rows_left[number + 20] = number
    assert contents(spark, view) == Counter(rows_left.items())


def test_a_checkpoint_by_delta_rs_is_read_right_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 0L AS k", properties={"delta.checkpointInterval": "3"})
    for number in range(2, 12):
        by_rs(spark, view, artifact_of(spark, view, [(-1, number - 2), (1, number)]), ["k"], number)
    assert list((tmp_path / "v" / "_delta_log").glob("*.checkpoint.parquet"))
    assert contents(spark, view) == Counter({(10,): 1, (11,): 1})
    with pytest.raises(ConcurrentRefresh):
        by_spark(spark, view, artifact_of(spark, view, [(1, 5)]), ["k"], 11)


# --- what delta-rs must not be given --------------------------------------------------------------


def test_a_nan_key_is_spark_s_to_take_out(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT double('nan') AS k, 1 AS x")
    artifact = artifact_of(spark, view, [(-1, float("nan"), None), (1, float("nan"), 2)])
    assert "NaN" in (view.why_not_rs(artifact, ["k"]) or "")
    with pytest.raises(UnsupportedError):
        by_rs(spark, view, artifact, ["k"], 2)
    by_spark(spark, view, artifact, ["k"], 2)
    assert contents(spark, view) == Counter({("NaN", 2): 1})


def test_instants_that_someone_stored_as_int96_are_not_merged_by_delta_rs(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k, timestamp'9000-01-01 00:00:00Z' AS t")
    artifact = artifact_of(spark, view, [(-1, 2, None), (1, 2, None)])
    assert view.why_not_rs(artifact, ["k"]) is None
    spark.sql(f"INSERT INTO {view.ref.relation} VALUES (5, timestamp'9000-01-01 00:00:00Z')")
    assert view.why_not_rs(artifact, ["k"]) == "timestamps stored as INT96"
    assert view.why_not_rs(artifact.slice(1), ["k"]) is None  # an append copies nothing


@pytest.mark.parametrize(
    "alteration",
    ["ADD CONSTRAINT c CHECK (k > 0)", "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"],
)
def test_tables_with_more_than_delta_rs_knows_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, alteration: str
) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    assert view.can_use_rs(view.log.snapshot())
    spark.sql(f"ALTER TABLE {view.ref.relation} {alteration}")
    assert not view.can_use_rs(view.log.snapshot())
    commit = view.commit_progress_only(progress(2), spark)
    assert (commit.data_change, Progress.of(commit) is not None) == (False, True)
    with pytest.raises(UnsupportedError):
        view.commit_progress_only(progress(3))


SKIPPING = [
    ("f", "DOUBLE", "double('nan')"),
    ("f", "DOUBLE", "1.5D"),
    ("e", "FLOAT", "float('nan')"),
    ("g", "DECIMAL(20,2)", "123456789012345678.91BD"),
    ("h", "DECIMAL(38,18)", "-12345678901234567890.123456789012345678BD"),
    ("q", "DECIMAL(15,2)", "9999999999999.99BD"),
    ("s", "STRING", "repeat('é', 100)"),
    ("s", "STRING", "repeat('\U0010ffff', 100)"),
    ("t", "TIMESTAMP", "timestamp'2024-01-01 00:00:00.123456Z'"),
    ("n", "TIMESTAMP_NTZ", "timestamp_ntz'9999-12-31 23:59:59.999999'"),
]


def test_no_row_that_delta_rs_wrote_is_skipped_by_its_statistics(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: kind for name, kind, _ in SKIPPING}
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in kinds.items())
    view = make_view(spark, tmp_path / "v", f"SELECT 0 AS k, struct({nulls}) AS deep, {nulls}")
    for number, (name, kind, value) in enumerate(SKIPPING, 2):
        these = nulls.replace(f"CAST(NULL AS {kind}) AS {name}", f"{value} AS {name}")
        gone = f"SELECT -1 AS {OP}, -1 AS k, struct({nulls}) AS deep, {nulls}"
        come = f"SELECT 1 AS {OP}, {number} AS k, struct({these}) AS deep, {these}"
        by_rs(spark, view, spark.sql(f"{gone} UNION ALL {come}").toArrow(), ["k"], number)
        for column in (name, f"deep.{name}"):
            for test in (f"= {value}", f">= {value}", f"<= {value}"):
                query = f"SELECT count(*) FROM {view.ref.relation} WHERE {column} {test} AND k = {number}"
                assert spark.sql(query).collect()[0][0] == 1, (column, test)


# --- one refresh wins -----------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("rows", [[(1, 2)], [(-1, 1), (1, 2)], []], ids=["append", "merge", "nothing"])
def test_a_number_that_is_taken_is_refused(spark: SparkSession, tmp_path: Path, way: str, rows: list[Row]) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    artifact = artifact_of(spark, view, rows)
    for other in WAYS.values():
        with pytest.raises(ConcurrentRefresh):
            other(spark, view, artifact, ["k"], 1)
    WAYS[way](spark, view, artifact, ["k"], 2)
    left = contents(spark, view)
    for other in WAYS.values():
        with pytest.raises(ConcurrentRefresh):
            other(spark, view, artifact, ["k"], 2)
    assert (view.log.version(), contents(spark, view)) == (1, left)


@pytest.mark.parametrize("pair", [("spark", "spark"), ("spark", "rs"), ("rs", "rs")])
@pytest.mark.parametrize("rows", [[(1, 2)], [(-1, 1), (1, 2)]], ids=["append", "merge"])
def test_of_two_refreshes_at_once_one_wins(
    spark: SparkSession, tmp_path: Path, pair: tuple[str, str], rows: list[Row]
) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    artifact = artifact_of(spark, view, rows)
    outcomes = race(spark, view, artifact, pair)
    assert sorted(outcomes) == ["ConcurrentRefresh", "won"]
    assert view.log.version() == 1
    expected = {(2,): 1} if rows[0][0] == -1 else {(1,): 1, (2,): 1}
    assert contents(spark, view) == Counter(expected)


def race(spark: SparkSession, view: OwnTable, artifact: pa.Table, pair: tuple[str, str]) -> list[str]:
    outcomes: list[str] = []
    start = threading.Barrier(2)

    def one(way: str) -> None:
        with forked(spark) as session:
            start.wait()
            try:
                WAYS[way](session, view, artifact, ["k"], 2)
                outcomes.append("won")
            except DeltaicError as error:
                outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=one, args=(way,)) for way in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_without_the_lock_delta_itself_lets_one_win(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    view.lock = None
    assert sorted(race(spark, view, artifact_of(spark, view, [(1, 2)]), ("spark", "spark"))) == [
        "ConcurrentRefresh",
        "won",
    ]
    assert view.log.version() == 1


def test_a_failed_write_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    with forked(spark) as session:
        session.conf.set("spark.sql.sources.partitionOverwriteMode", "DYNAMIC")
        with pytest.raises(Exception, match="no_such_table") as caught:
            view.apply_spark(session, view.append_sql("no_such_table", ["k"]), progress(2))
        # an error that was its own cause was looked into for ever
        assert caught.value.__cause__ is not caught.value
        assert not is_history_gone(caught.value)
        assert session.conf.get("spark.sql.sources.partitionOverwriteMode") == "DYNAMIC"
        assert session.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
        assert session.conf.get("spark.databricks.delta.write.txnVersion", None) is None


def test_overwriting_takes_all_partitions_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT id, id % 2 AS p FROM range(4)", partition_by=["p"])
    with forked(spark) as session:
        session.conf.set("spark.sql.sources.partitionOverwriteMode", "DYNAMIC")
        view.apply_spark(session, view.overwrite_sql("SELECT 9L AS id, 0L AS p", ["id", "p"]), progress(2))
    assert contents(spark, view) == Counter({(9, 0): 1})
    assert view.log.snapshot().partition_columns == ("p",)


def test_what_a_commit_says_comes_back_in_the_history(spark: SparkSession, tmp_path: Path) -> None:
    view = make_view(spark, tmp_path / "v", "SELECT 1 AS k")
    view.commit_progress_only(progress(2, "nothing “new”"))
    history = spark.sql(f"DESCRIBE HISTORY {view.ref.relation}").collect()
    said = [json.loads(row["userMetadata"])["deltaic"] for row in history]
    assert [(one["refresh"], one["technique"]) for one in said] == [(2, "nothing “new”"), (1, "base")]
    assert deltalake.DeltaTable(str(view.ref.path)).transaction_version("deltaic") == 2


def test_a_commit_counts_though_something_failed_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may end between a commit and its answer."""
    deltalake.write_deltalake(tmp_path / "v", pa.table({"k": [1]}))
    view, real = OwnTable(table_at(tmp_path / "v")), rs_write.commit_nothing

    def fails(path: str, transaction: rs_write.Transaction) -> None:
        real(path, transaction)
        raise OSError("the connection is gone")

    monkeypatch.setattr(rs_write, "commit_nothing", fails)
    told = Progress.of(view.commit_progress_only(progress(2)))
    assert told is not None
    assert told.refresh == 2
    monkeypatch.setattr(rs_write, "commit_nothing", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        view.commit_progress_only(progress(3))
