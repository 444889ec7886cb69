"""Sweeping up after killed processes, without Spark."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltaic.app.catalogs.folders import is_table, put_back, set_aside
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.unfinished import sweep, write_whole
from deltaic.store.lock import refresh_lock

ROWS = pa.table({"k": [1, 2]})


class Killed(BaseException):
    pass


@pytest.fixture
def catalog(tmp_path: Path) -> LocalCatalog:
    (tmp_path / "default").mkdir()
    (tmp_path / ".deltaic").mkdir()
    no_spark: Any = None
    return LocalCatalog(no_spark, tmp_path)


def half_made(folder: Path) -> Path:
    """Files, and no commit."""
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"half")
    return folder


def begin(catalog: LocalCatalog, make: Callable[[Path], object], ends: BaseException) -> None:
    with catalog.making("default", "t"):
        make(catalog.root / "default" / "t")
        raise ends


def notes(catalog: LocalCatalog) -> list[Path]:
    return list(catalog.notes.folder.glob("*"))


def test_a_table_that_was_never_finished_goes(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = catalog.root / "default" / "t"
    monkeypatch.setattr(catalog.notes, "settled", lambda _: None)  # a killed process settles nothing
    with pytest.raises(Killed):
        begin(catalog, half_made, Killed())
    monkeypatch.undo()
    assert len(notes(catalog)) == 1
    sweep(catalog)
    assert not folder.exists()
    assert notes(catalog) == []


def test_a_table_that_was_finished_stays(catalog: LocalCatalog) -> None:
    with pytest.raises(Killed):
        begin(catalog, lambda folder: write_deltalake(folder, ROWS), Killed())
    with catalog.making("default", "u"):
        half_made(catalog.root / "default" / "u")  # a table of another format has no log of ours
    sweep(catalog)
    assert notes(catalog) == []
    assert (catalog.root / "default" / "t").exists()
    assert (catalog.root / "default" / "u").exists()


def test_a_block_that_fails_leaves_nothing(catalog: LocalCatalog) -> None:
    with pytest.raises(ValueError, match="x"):
        begin(catalog, half_made, ValueError("x"))
    assert not (catalog.root / "default" / "t").exists()
    assert notes(catalog) == []


def test_what_nobody_noted_is_the_users(catalog: LocalCatalog) -> None:
    own = half_made(catalog.root / "default" / "raw")
    with catalog.making_table("default", "raw"):
        pass
    sweep(catalog)
    assert own.exists()


def test_hidden_tables_without_a_commit_or_a_view_go(catalog: LocalCatalog) -> None:
    own = catalog.root / ".deltaic"
    write_deltalake(catalog.root / "default" / "v", ROWS)
    write_deltalake(own / "kept" / "default" / "v", ROWS)
    write_deltalake(own / "kept" / "default" / "gone", ROWS)
    half_made(own / "times")
    half_made(own / "trash" / "x")
    half_made(own / "captured" / "default" / "c")
    sweep(catalog)
    assert [(f.parent.name, f.name) for f in catalog.hidden_folders()] == [("default", "v")]
    assert not list((own / "trash").glob("*"))


@pytest.mark.parametrize("is_view", [True, False])
def test_drafts_and_folders_for_files_go_from_views_only(
    catalog: LocalCatalog, is_view: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "is_view", lambda _: is_view)
    table = catalog.root / "default" / "v"
    write_deltalake(table, ROWS)
    draft, scratch = table / "_delta_log" / ".0.json.tmp", table / "deltaic-1"
    draft.write_text("")
    scratch.mkdir()
    sweep(catalog)
    assert draft.exists() is scratch.exists() is not is_view


def test_nothing_is_swept_while_somebody_writes(catalog: LocalCatalog) -> None:
    half_made(catalog.root / ".deltaic" / "times")
    with refresh_lock(catalog.root / ".deltaic" / "lock"):
        sweeper = threading.Thread(target=sweep, args=(catalog,))
        sweeper.start()
        sweeper.join()
        assert (catalog.root / ".deltaic" / "times").exists()
    sweep(catalog)
    assert not (catalog.root / ".deltaic" / "times").exists()


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "f", "one")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        write_whole(tmp_path / "f", "two")
    assert (tmp_path / "f").read_text() == "one"


def test_a_note_that_tells_of_something_else_does_nothing(catalog: LocalCatalog, tmp_path: Path) -> None:
    """Whoever sent the warehouse may have written it."""
    mine = tmp_path / "mine"
    mine.mkdir()
    catalog.notes.folder.mkdir()
    for number, place in enumerate((str(mine), "default/../mine", "mine", "..")):
        (catalog.notes.folder / f"{number}.json").write_text(json.dumps({"table": place}))
    (catalog.notes.folder / "cut.json").write_text("")
    elsewhere = tmp_path.parent / f"{tmp_path.name}_elsewhere"
    (elsewhere / "default" / "t").mkdir(parents=True)
    (catalog.root / ".deltaic" / "kept").symlink_to(elsewhere)
    sweep(catalog)
    assert mine.is_dir()
    assert (elsewhere / "default" / "t").is_dir()
    assert not (catalog.notes.folder / "cut.json").exists()


def test_what_was_set_aside_comes_back(catalog: LocalCatalog) -> None:
    place = catalog.root / "other" / "t"
    write_deltalake(catalog.root / ".deltaic" / "away" / "other" / "t" / "1", ROWS)
    put_back(catalog.root)
    assert is_table(place)
    whole = catalog.root / ".deltaic" / "away" / "other" / "t" / "2"
    write_deltalake(whole, ROWS)
    put_back(catalog.root)
    assert is_table(whole), "another table has its place"
    with set_aside(catalog.root, place, broken=False):
        assert not place.exists()
    assert is_table(place)
