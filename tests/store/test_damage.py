"""What is broken of a table, without Spark."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaic.errors import HistoryGone
from deltaic.store.damage import damaged_files, properties_in
from deltaic.store.log import Log
from deltaic.store.table import table_at

PROPERTY = "delta.logRetentionDuration"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three commits of a file each; the second one sets a property."""
    rows = pa.table({"a": [1, 2, 3]})
    place = tmp_path / "a table"
    deltalake.write_deltalake(place, rows, configuration={PROPERTY: "interval 1 day"})
    deltalake.DeltaTable(place).alter.set_table_properties({PROPERTY: "interval 2 days"})
    deltalake.write_deltalake(place, rows, mode="append")
    return place


def test_files_that_are_gone_or_cut(table: Path) -> None:
    log = Log(table_at(table))
    assert damaged_files(log, 2) == []
    gone, cut = sorted(table.glob("*.parquet"))
    size = gone.stat().st_size
    gone.unlink()
    cut.write_bytes(cut.read_bytes() + b"x")
    assert sorted(damaged_files(log, 2)) == sorted(
        [f"{gone.name} is gone", f"{cut.name} has {size + 1:,} bytes and not {size:,}"]
    )


def test_a_log_needs_every_commit_after_its_checkpoint(table: Path) -> None:
    """delta-rs reads a log with a gap as if nothing were missing."""
    log, files = Log(table_at(table)), table / "_delta_log"
    deltalake.DeltaTable(table).create_checkpoint()
    deltalake.write_deltalake(table, pa.table({"a": [4]}), mode="append")
    (files / f"{0:020}.json").unlink()
    assert log.version() == 3
    deltalake.write_deltalake(table, pa.table({"a": [5]}), mode="append")
    (files / f"{3:020}.json").unlink()
    with pytest.raises(HistoryGone, match="version 3 is missing in its log"):
        log.snapshot()
    assert log.snapshot(2).rows == 6


def test_properties_are_found_in_what_is_left(table: Path) -> None:
    log = table / "_delta_log"
    assert [found.get(PROPERTY) for found in properties_in(table)] == ["interval 2 days", "interval 1 day"]
    (log / f"{1:020}.json").write_text('{"metaData": {"id"\n\x00garbage')
    assert [found.get(PROPERTY) for found in properties_in(table)] == ["interval 1 day"]
    (log / f"{1:020}.json").unlink()
    (log / f"{0:020}.json").unlink()
    assert list(properties_in(table)) == []


def test_properties_are_found_in_checkpoints(table: Path) -> None:
    deltalake.DeltaTable(table).create_checkpoint()
    for file in (table / "_delta_log").glob("*.json"):
        file.unlink()
    assert [found.get(PROPERTY) for found in properties_in(table)] == ["interval 2 days"]
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint*.parquet")
    checkpoint.write_bytes(b"garbage")
    assert list(properties_in(table)) == []


def test_what_a_garbled_log_says_of_properties(table: Path) -> None:
    log = table / "_delta_log"
    (log / f"{3:020}.json").write_text('{"metaData": null}\n{"metaData": {"configuration": null}}\n')
    pq.write_table(pa.table({"other": [1]}), log / f"{4:020}.checkpoint.parquet")
    assert [found.get(PROPERTY) for found in properties_in(table)][-2:] == ["interval 2 days", "interval 1 day"]
