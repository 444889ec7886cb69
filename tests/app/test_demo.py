"""The demo at a tenth of its size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import RenderableType
from typer.testing import CliRunner

from deltaic.app.terminal import demo
from deltaic.app.terminal.cli import app
from deltaic.app.terminal.failure import ExitCode
from deltaic.app.terminal.retail import VIEWS, batches, tables
from deltaic.app.values.report import Report

SOME = ("CitySales", "SSFullInfo")


@pytest.fixture
def few_views(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "VIEWS", [view for view in VIEWS if view.name in SOME])
    monkeypatch.setattr(demo, "batches", lambda sales: batches(sales)[1:])


def test_a_small_demo(few_views: None, tmp_path: Path) -> None:
    keep = tmp_path / "retail"
    done = CliRunner().invoke(app, ["demo", "--rows", "20000", "--keep", str(keep), "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["equal"] is True
    assert told["nothing_changed"]["jobs"] == 0
    (batch,) = told["batches"]
    assert {view["view"]: view["mode"] for view in batch["views"]} == {
        "CitySales": "incremental",
        "SSFullInfo": "incremental",
    }
    assert all(view["equal"] and view["recompute_seconds"] > 0 for view in batch["views"])
    assert set(batch["change_rows"]) == {"sales", "stores"}
    assert (keep / "default" / "CitySales" / "_delta_log").is_dir()


def test_an_unequal_view_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("default.Unsold", "full", "recompute", ("LIMIT: all rows.",), rows_read=None, rows_changed=7)
    wrong = demo.Demo(10, [demo.Round(batches(10)[0], [demo.Checked(report, "NOT EXISTS", 0.5, equal=False)])])

    def fake(sales: int, keep: Path | None, tell: Callable[[RenderableType], None], *, bars: bool) -> demo.Demo:
        tell(demo.batch_shown(wrong.rounds[0], 1))
        tell(demo.summary(wrong))
        return wrong

    monkeypatch.setattr(demo, "run_demo", fake)
    done = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "120"})
    assert done.exit_code == ExitCode.FAILED
    shown = [line.split() for line in done.stdout.splitlines()]
    assert ["Unsold", "NOT", "EXISTS", "recompute", "?", "7", "0.00", "0.50", "NO"] in shown
    assert "0 of 1 refreshed views equal their query run anew: Unsold" in done.stdout
    assert "LIMIT: all rows." in done.stdout


def test_the_data_is_the_same_in_every_run() -> None:
    assert tables(1000) == tables(1000)
    assert len({view.name for view in VIEWS}) == len(VIEWS)
