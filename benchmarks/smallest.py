"""The smallest refresh: one row inserted into one source of a million, and where the time of it goes."""

import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results
from deltaic import Report, Warehouse

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
VIEWS = {
    "filter_and_project": "SELECT id, store, amount * 2 AS doubled FROM sales WHERE amount > 0.5",
    "grouped_sum": "SELECT store, sum(amount) AS total, count(*) AS n FROM sales GROUP BY store",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        prepare(wh)
        found = [measured(wh, name, use_rs) for name in VIEWS for use_rs in (True, False)]
        Console(width=150).print(shown(found, noop(wh)))
        wh.refresh()
        results.check(wh, *(f"`{name}`" for name in VIEWS))
        results.keep("smallest", found)


def prepare(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE sales (id BIGINT, store INT, amount DOUBLE)")
    wh.sql(f"INSERT INTO sales SELECT id, CAST(id % 1000 AS INT), rand(7) FROM range({ROWS})")
    for name, query in VIEWS.items():
        wh.sql(f"CREATE MATERIALIZED VIEW `{name}` REFRESH POLICY INCREMENTAL AS {query}")


def measured(wh: Warehouse, name: str, use_rs: bool) -> dict[str, object]:
    """Medians of the warm rounds, the first two left out."""
    wh.engine.use_rs = use_rs
    reports: list[Report] = []
    recomputes: list[float] = []
    for number in range(ROUNDS):
        wh.sql(f"INSERT INTO sales VALUES ({ROWS + number}, 7, 0.9)")
        report = wh.refresh(f"`{name}`")
        assert isinstance(report, Report)
        assert report.mode == "incremental", report
        reports.append(report)
        if number >= 2:
            started = time.perf_counter()
            wh.sql(VIEWS[name]).write.format("noop").mode("overwrite").save()
            recomputes.append(time.perf_counter() - started)
    warm = sorted(reports[2:], key=lambda report: report.seconds)
    middle = warm[len(warm) // 2]
    return {
        "view": name,
        "written by": middle.written_by,
        "seconds": middle.seconds,
        "best": warm[0].seconds,
        "jobs": middle.jobs,
        "rows read": sum((middle.rows_read or {}).values()),
        "timings": {stage: round(spent, 3) for stage, spent in middle.timings.items()},
        "query alone": statistics.median(recomputes),
    }


def noop(wh: Warehouse) -> float:
    name = next(iter(VIEWS))
    wh.refresh(f"`{name}`")
    times = []
    for _ in range(20):
        report = wh.refresh(f"`{name}`")
        assert isinstance(report, Report)
        times.append(report.seconds)
    return statistics.median(times)


def shown(found: list[dict[str, object]], idle: float) -> Table:
    title = f"One row into {ROWS:,}: a warm refresh (median of {ROUNDS - 2}); nothing changed: {idle * 1000:.1f} ms"
    table = Table(title=title)
    for column in ("view", "written by", "seconds", "best", "jobs", "rows read", "timings", "query alone"):
        table.add_column(column, justify="left" if column in ("view", "timings", "written by") else "right")
    for result in found:
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in result.values()]
        table.add_row(*cells)
    return table
