"""A thousand refreshes: whether the last of them cost what the first did, in time, in files and in memory."""

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results
from benchmarks.processes import java_of, live, resident
from deltaic import Report, Warehouse

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "1000"))
KINDS = tuple(os.environ.get("BENCH_KINDS", "appended,grouped,marked,rolled,above").split(","))
WINDOWS = 10
STORES = 1_000
ROWS = 20_000
VIEWS = {
    "appended": "SELECT id, store, amount * 2 AS doubled FROM sales WHERE amount >= 0.5",
    "grouped": "SELECT store, sum(amount) AS total, count(*) AS n FROM sales GROUP BY store",
    "marked": "SELECT store, sum(amount) AS total, max(id) AS last FROM sales GROUP BY store",
    "rolled": "SELECT s.id, s.store, s.amount, t.town FROM sales s JOIN stores t ON s.store = t.store",
    "above": "SELECT n, count(*) AS stores, sum(total) AS total FROM below GROUP BY n",
}


def main() -> None:
    found = [measured(kind) for kind in KINDS]
    for kind in found:
        Console(width=170).print(shown(kind[0]["view"], kind))
    results.keep("long_run", [window for kind in found for window in kind])


def measured(kind: str) -> list[dict[str, Any]]:
    """One row comes in before each refresh; the source is put together now and then, as its owner would."""
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        prepare(wh, kind)
        refresh, windows = refreshing(wh, kind), []
        for window in range(WINDOWS):
            reports = []
            for number in range(ROUNDS // WINDOWS):
                insert(Path(folder), window * ROUNDS + number)
                started = time.perf_counter()
                report = refresh()
                assert report.mode in ("incremental", "propagated"), report
                reports.append((time.perf_counter() - started, report.jobs))
            windows.append({"view": kind, "refreshes": (window + 1) * (ROUNDS // WINDOWS),
                            **told(reports), **sizes(Path(folder), kind), **memory()})  # fmt: skip
            print({key: windows[-1][key] for key in windows[-1]}, flush=True)
            if window + 1 < WINDOWS:
                wh.sql("OPTIMIZE sales")
        results.check(wh, kind)
        return windows


def prepare(wh: Warehouse, kind: str) -> None:
    wh.sql("CREATE TABLE sales (id BIGINT, store BIGINT, amount DOUBLE)")
    wh.sql(f"INSERT INTO sales SELECT id, id % {STORES}, id % 100 / 100 FROM range({ROWS})")
    wh.sql(f"CREATE TABLE stores AS SELECT id AS store, concat('town ', id % 50) AS town FROM range({STORES})")
    if kind == "above":
        wh.sql(f"CREATE MATERIALIZED VIEW below AS {VIEWS['grouped']}")
    if kind == "marked":
        wh.sql("SET spark.deltaic.writer = marks")
    wh.sql(f"CREATE MATERIALIZED VIEW {kind} REFRESH POLICY INCREMENTAL AS {VIEWS[kind]}")


def insert(folder: Path, number: int) -> None:
    row = {"id": [ROWS + number], "store": [number % STORES], "amount": [0.75]}
    write_deltalake(folder / "warehouse" / "default" / "sales", pa.table(row), mode="append")


def refreshing(wh: Warehouse, kind: str) -> Callable[[], Report]:
    def one(name: str) -> Report:
        report = wh.refresh(name)
        assert isinstance(report, Report)
        return report

    def rolled() -> Report:
        wh.propagate("rolled")
        return wh.apply("rolled")

    def above() -> Report:
        one("below")
        return one("above")

    return {"rolled": rolled, "above": above}.get(kind, lambda: one(kind))


def told(reports: list[tuple[float, int | None]]) -> dict[str, Any]:
    seconds = sorted(spent for spent, _ in reports)
    jobs = [count for _, count in reports if count is not None]
    return {"median s": statistics.median(seconds), "longest s": seconds[-1],
            "jobs": statistics.median(jobs) if jobs else None}  # fmt: skip


def sizes(folder: Path, kind: str) -> dict[str, Any]:
    """Of the view's own table, and of what Deltaic keeps beside it."""
    table = folder / "warehouse" / "default" / kind
    files = [file for file in table.rglob("*") if file.is_file()]
    log = [file for file in files if file.parent.name == "_delta_log"]
    hidden = [file for file in (folder / "warehouse" / ".deltaic").rglob("*") if file.is_file()]
    return {
        "files": len(DeltaTable(table).file_uris()),
        "on disk": len(files) - len(log),
        "log": len(log),
        "checkpoints": sum(".checkpoint." in file.name for file in log),
        "MB": round(sum(file.stat().st_size for file in files) / 1e6, 1),
        "hidden": len(hidden),
        "hidden MB": round(sum(file.stat().st_size for file in hidden) / 1e6, 1),
    }


def memory() -> dict[str, Any]:
    """Megabytes: of this process, of its JVM, and what of the JVM's is in use once garbage is gone."""
    gc.collect()
    java = java_of(os.getpid())
    return {"Python MB": resident(os.getpid()), "JVM MB": resident(java) if java else None, "live MB": live(java)}


def shown(view: str, windows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{view}: {ROUNDS} refreshes, one row each")
    for column in windows[0]:
        if column != "view":
            table.add_column(column, justify="right")
    for window in windows:
        cells = [f"{v:.3f}" if isinstance(v, float) and k.endswith(" s") else str(v) for k, v in window.items()]
        table.add_row(*cells[1:])
    return table
