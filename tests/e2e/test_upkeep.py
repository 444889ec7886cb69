"""Upkeep after refreshes: files compacted, old ones vacuumed, the order of commits shortened; no view changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks import long_run
from deltalake import DeltaTable

from deltaic import Warehouse
from deltaic.errors import TimeError
from deltaic.store import upkeep
from tests.e2e.conftest import Kept, check_all, report_of

pytestmark = pytest.mark.local
A_SECOND = 1 / 3600


@contextmanager
def settings(wh: Warehouse, **told: object) -> Iterator[None]:
    for name, value in told.items():
        wh.spark.conf.set(f"spark.deltaic.{name}", str(value))
    try:
        yield
    finally:
        for name in told:
            wh.spark.conf.unset(f"spark.deltaic.{name}")


def folder(wh: Warehouse, view: str) -> Path:
    return Path(str(wh.engine.catalog.view_ref("default", view).path))


def data_files(table: Path) -> set[str]:
    return {
        file.name for file in table.rglob("*") if file.suffix in (".parquet", ".bin") and "_delta_log" not in str(file)
    }


def operations(wh: Warehouse, view: str) -> list[str]:
    return [str(commit["operation"]) for commit in wh.history(view)]


@pytest.mark.long
def test_files_are_compacted_whatever_wrote_them(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE s (id INT, k INT)")
    wh.sql("INSERT INTO s SELECT id, id % 3 FROM range(30)")
    plain = Kept(wh, "plain", "SELECT id AS `sum(id)`, k FROM s")
    parted = Kept(wh, "parted", "SELECT id, k FROM s", "PARTITIONED BY (k)")
    clustered = Kept(wh, "clustered", "SELECT id, k FROM s", "CLUSTER BY (k)")
    above = Kept(wh, "above", "SELECT k, count(*) AS n FROM plain GROUP BY k")
    views = [plain, parted, clustered, above]
    with settings(wh, compactFiles=3, checkpointCommits=4):
        for number in range(5):
            wh.sql(f"INSERT INTO s VALUES ({100 + number}, {number % 3})")
            reports = [view.refresh_only() for view in views]
            assert all("upkeep" in report.timings for report in reports)
        check_all(views)
        for view in ("plain", "parted", "clustered"):
            assert "OPTIMIZE" in operations(wh, view), view
        assert files_of(wh, "plain") <= 5
        assert files_of(wh, "parted") <= 3 + 4
        assert list((folder(wh, "plain") / "_delta_log").glob("*.checkpoint.parquet"))
        assert report_of(wh, "above").mode == "noop"  # compacting is no change
    layout = wh.sql(f"DESCRIBE DETAIL delta.`{folder(wh, 'clustered')}`").first()
    assert layout is not None
    assert layout["clusteringColumns"] == ["k"]


def files_of(wh: Warehouse, view: str) -> int:
    return len(DeltaTable(folder(wh, view)).file_uris())


@pytest.mark.long
def test_old_files_are_vacuumed(wh: Warehouse) -> None:
    """With deletion vectors in files, which must stay; a view above that is behind is computed anew."""
    wh.sql("CREATE TABLE s (id INT, k INT)")
    wh.sql("INSERT INTO s SELECT id, id % 3 FROM range(2000)")
    with settings(wh, retainHours=A_SECOND, vacuumHours=A_SECOND, writer="marks"):
        below = Kept(wh, "below", "SELECT id, k FROM s")
        above = Kept(wh, "above", "SELECT k, count(*) AS n FROM below GROUP BY k")
        seen = data_files(folder(wh, "below"))
        report_of(wh, "below", full=True)
        for number in range(2):
            wh.sql(f"DELETE FROM s WHERE id % 100 = {number}")
            report = below.refresh_only()
            assert report.written_by == "deletion vectors", report
            seen |= data_files(folder(wh, "below"))
            time.sleep(1.2)
        wh.sql("INSERT INTO s VALUES (7000, 1)")
        below.refresh_only()
        left = data_files(folder(wh, "below"))
        assert {Path(name).suffix for name in seen - left} == {".parquet", ".bin"}
        assert any(name.endswith(".bin") for name in left)
        report = report_of(wh, "above")
        assert report.mode == "full", report
        assert any("HISTORY_GONE" in reason for reason in report.reasons), report
        check_all([below, above])


@pytest.mark.long
def test_a_source_that_changed_longer_ago_than_its_retention(wh: Warehouse) -> None:
    """Spark refuses such versions though their files are there; a view that was not refreshed for a week needs them."""
    wh.engine.use_rs = False
    wh.sql("CREATE TABLE s (id INT) TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 1 seconds')")
    view = Kept(wh, "v", "SELECT id FROM s")
    wh.sql("INSERT INTO s VALUES (1)")
    wh.sql("INSERT INTO s VALUES (2)")
    time.sleep(1.2)
    wh.sql("DELETE FROM s WHERE id = 1")
    view.refresh("incremental")


def test_what_fails_in_upkeep_fails_no_refresh(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wh.sql("CREATE TABLE s (id INT)")
    view = Kept(wh, "v", "SELECT id FROM s")

    def fails(*_: object) -> bool:
        raise OSError("the disk is full")

    for name in ("compact", "vacuum", "checkpoint", "small_files"):
        monkeypatch.setattr(upkeep, name, fails)
    with settings(wh, compactFiles=1, vacuumHours=A_SECOND / 1000), caplog.at_level(logging.WARNING):
        for number in range(2):
            wh.sql(f"INSERT INTO s VALUES ({number})")
            view.refresh()
    told = [record.getMessage() for record in caplog.records if "looked after" in record.getMessage()]
    assert len(told) == 6, told
    assert "default.v: its old files could not be looked after: the disk is full" in told


@pytest.mark.long
def test_the_order_of_commits_is_shortened(wh: Warehouse) -> None:
    """What every view is past, and is older than times are kept for."""
    wh.script("CREATE TABLE s (id INT, k INT); CREATE TABLE u (k INT, w INT); INSERT INTO u VALUES (0, 5), (1, 6)")
    view = Kept(wh, "v", "SELECT s.id, u.w FROM s JOIN u ON s.k = u.k")
    wh.propagate("v")
    with settings(wh, retainHours=A_SECOND, compactFiles=2, keptFiles=2):
        times = []
        for number in range(7):
            wh.sql(f"INSERT INTO s VALUES ({number}, {number % 2})")
            wh.propagate("v")
            times.append(wh.apply("v").time)
            if number == 3:
                time.sleep(1.2)
        view.check()
        order = Path(str(wh.engine.catalog.hidden("times")[0].path))
        assert len(DeltaTable(order).file_uris()) <= 4
        with pytest.raises(TimeError, match="no longer recorded"):
            wh.table("v", as_of=times[0])
        assert len(wh.table("v", as_of=times[-2]).collect()) == 6
        assert len(wh.table("v", as_of=times[-1]).collect()) == 7
        wh.sql("INSERT INTO s VALUES (100, 0)")
        assert report_of(wh, "v").mode == "incremental"
        view.check()


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_thousand_refreshes() -> None:
    """Of one view, a row each: the last cost what the first did. BENCH_ROUNDS says how many there are."""
    windows = long_run.measured("appended")
    assert max(window["files"] for window in windows) <= 80
    assert max(window["median s"] for window in windows[-3:]) <= 1.5 * windows[1]["median s"] + 0.2
    assert windows[-1]["checkpoints"] > 1
    assert windows[-1]["Python MB"] <= windows[1]["Python MB"] + 100
