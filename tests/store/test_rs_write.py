"""delta-rs applying artifacts, without Spark; that Spark reads the same is tested with the view."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaic.errors import ConcurrentRefresh
from deltaic.store import rs_write
from deltaic.store.log import Log
from deltaic.store.rs_write import Transaction
from deltaic.store.table import table_at
from deltaic.store.write_sql import OP
from tests.store.tables import arrow_rows, comparable

Row = tuple[Any, ...]
POOLS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, -1, 100, 1000, 2**63 - 1, -(2**63)],
    pa.int8(): [None, 0, 1, -128],
    pa.date32(): [None, dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    pa.string(): [None, "", "it's", 'a "b"', "back\\slash", "x" * 200, "ü😀", "%_", "--", "a\nb", "a\0b", "\\'", "''"],
    pa.float64(): [None, 0.0, -0.0, 1.5, float("inf")],
    pa.binary(): [None, b"", b"\0\xff"],
    pa.bool_(): [None, True, False],
}


@pytest.mark.parametrize("seed", range(12))
def test_random_artifacts_replace_by_key(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(list(POOLS)) for _ in range(chance.randint(1, 3))]
    width = len(kinds)
    names = [f"k {number}'\"" for number in range(width)]
    schema = pa.schema([*zip(names, kinds, strict=True), ("v", pa.int64())])
    DeltaTable.create(str(tmp_path), schema)
    expected: Counter[Row] = Counter()
    for number in range(1, 7):
        plus = random_rows(chance, kinds, 15)
        minus = {comparable(row[:width]): row for row in random_rows(chance, kinds, 8 if number > 2 else 0)}
        rows = [(-1, *row) for row in minus.values()] + [(1, *row) for row in plus]
        artifact = arrow_rows(schema.insert(0, pa.field(OP, pa.int32())), rows)
        rs_write.apply(str(tmp_path), artifact, names, Transaction("deltaic", number, "{}"))
        expected = Counter({row: n for row, n in expected.items() if row[:width] not in minus})
        expected += Counter(map(comparable, plus))
        assert contents(tmp_path) == expected, (number, kinds)


def random_rows(chance: random.Random, kinds: Sequence[pa.DataType], most: int) -> list[Row]:
    count = chance.randint(0, most)
    return [(*(chance.choice(POOLS[kind]) for kind in kinds), chance.randint(0, 3)) for _ in range(count)]


def contents(path: Path) -> Counter[Row]:
    rows = pa.table(DeltaTable(str(path)).scan().read_all()).to_pylist()
    return Counter(comparable(row.values()) for row in rows)


def test_only_files_that_may_hold_a_key_are_read(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), (OP, pa.int32())])
    DeltaTable.create(str(tmp_path), pa.schema([("k", pa.int64())]))
    for number in range(4):
        rows = [(number * 1000 + one, 1) for one in range(1000)]
        rs_write.apply(str(tmp_path), arrow_rows(schema, rows), ["k"], Transaction("deltaic", number, "{}"))
    artifact = arrow_rows(schema, [(key, -1) for key in range(2500, 2600)])
    rs_write.apply(str(tmp_path), artifact, ["k"], Transaction("deltaic", 9, "{}"))
    commit = Log(table_at(tmp_path)).commit(5)
    assert (len(commit.removes), sum(contents(tmp_path).values())) == (1, 3900)


def test_a_stale_number_and_a_stale_version_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), (OP, pa.int32())])
    DeltaTable.create(str(tmp_path), pa.schema([("k", pa.int64())]))
    stale = DeltaTable(str(tmp_path))
    rs_write.apply(str(tmp_path), arrow_rows(schema, [(1, 1)]), ["k"], Transaction("deltaic", 5, "{}"))
    for number in (4, 5):
        with pytest.raises(ConcurrentRefresh):
            rs_write.commit_nothing(str(tmp_path), Transaction("deltaic", number, "{}"))
    with pytest.raises(Exception, match="Failed to commit transaction"):
        rs_write._append(stale, arrow_rows(pa.schema([("k", pa.int64())]), [(2,)]), Transaction("deltaic", 6, "{}"))
    assert contents(tmp_path) == Counter({(1,): 1})
