"""Commits into tables that were dropped meanwhile, and commits that say anew what a table is. Without Spark."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaic.errors import ConcurrentRefresh, MissingError
from deltaic.store.files import metadata_of
from deltaic.store.log import Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.table import table_at

ROWS = pa.table({"k": pa.array([1, 2], pa.int64())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made(tmp_path / "v")
    return tmp_path / "v"


def made(folder: Path) -> None:
    view = OwnTable(table_at(folder))
    told = Progress(1, {}, "made").to_json()
    write_deltalake(folder, ROWS)
    view.overwrite_rs(ROWS, Progress(1, {}, told))


def looked_at(folder: Path) -> OwnTable:
    view = OwnTable(table_at(folder))
    view.last_refresh()
    return view


def test_a_dropped_table_stays_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs makes the folder anew and commits into it, as if nothing had happened."""
    from deltaic.store import rs_write

    real = rs_write._opened

    def dropped(path: str, transaction: rs_write.Transaction) -> DeltaTable:
        table = real(path, transaction)
        shutil.rmtree(path)
        return table

    view = looked_at(folder)
    monkeypatch.setattr(rs_write, "_opened", dropped)
    with pytest.raises(MissingError, match="was dropped meanwhile"):
        view.overwrite_rs(ROWS, Progress(2, {}, "refresh"))
    assert not folder.exists()


def test_a_table_that_is_gone_is_not_made_anew(folder: Path) -> None:
    view = looked_at(folder)
    shutil.rmtree(folder)
    with pytest.raises(MissingError, match="was dropped meanwhile"):
        view.redefine({"a": "b"}, Progress(2, {}, "refresh"), 1)
    assert not folder.exists()


def test_another_table_under_the_same_name_is_not_written(folder: Path) -> None:
    """Its refreshes are counted anew, so the number alone would fit."""
    view = looked_at(folder)
    shutil.rmtree(folder)
    made(folder)
    before = Log(table_at(folder)).version()
    with pytest.raises(ConcurrentRefresh, match="meanwhile"):
        view.overwrite_rs(ROWS, Progress(2, {}, "refresh"))
    assert Log(table_at(folder)).version() == before


def test_an_edit_since_it_was_looked_at_is_not_covered(folder: Path) -> None:
    view = looked_at(folder)
    write_deltalake(folder, ROWS, mode="append")
    with pytest.raises(ConcurrentRefresh, match="meanwhile"):
        view.overwrite_rs(ROWS, Progress(2, {}, "refresh"))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_properties_are_set_in_a_refresh(folder: Path, checkpoint: bool) -> None:
    if checkpoint:
        DeltaTable(folder).create_checkpoint()
        for commit in (folder / "_delta_log").glob("*.json"):
            commit.unlink()
    view = looked_at(folder)
    before = Log(table_at(folder)).snapshot()
    assert view.at is not None
    assert metadata_of(str(folder), view.at)["id"] == before.table_id
    view.redefine({"deltaic.definition": "another"}, Progress(2, {}, "alter"), view.at)
    after = Log(table_at(folder)).snapshot()
    assert after.properties == {**before.properties, "deltaic.definition": "another"}
    assert (after.table_id, after.schema_json, after.rows) == (before.table_id, before.schema_json, before.rows)
    assert DeltaTable(folder).transaction_version("deltaic") == 2
