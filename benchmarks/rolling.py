"""Propagation in steps against one refresh: the longest step and the whole, as the interval varies.

Orders and lines of TPC-H come and go in many commits. One view is refreshed over all of them at once; copies of it are
propagated by intervals of different sizes, or rolled with an interval of its own for each source, and then applied.
What rolling costs beyond propagating are its overlaps, which are terms of their own.
"""

import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results, tpch
from deltaic import Report, Warehouse

BATCHES = int(os.environ.get("BENCH_BATCHES", "10"))
SHARE = float(os.environ.get("BENCH_SHARE", "0.0002"))
STEP_ROWS = (500, 5_000, 1_000_000)
QUERY = (
    "SELECT c_mktsegment, l_shipmode, o_orderpriority, sum(l_extendedprice) AS price, count(*) AS n"
    " FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey"
    " GROUP BY c_mktsegment, l_shipmode, o_orderpriority"
)
ROLLED = "TBLPROPERTIES (deltaic.interval.orders = '4', deltaic.interval.lineitem = '2')"


def main() -> None:
    found = list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        tpch.load(wh, tpch.data_folder())
        views = {"refreshed": "", "warm": "", "rolled": ROLLED, **{f"by_{rows}": "" for rows in STEP_ROWS}}
        for name, properties in views.items():
            wh.sql(f"CREATE MATERIALIZED VIEW {name} {properties} REFRESH POLICY INCREMENTAL AS {QUERY}")
            if name not in ("refreshed", "warm"):
                wh.propagate(name)  # begins its kept delta
        tpch.refresh_functions(wh, SHARE, 1000)
        for name in views:  # warms Spark up
            wh.refresh(name)
            if name not in ("refreshed", "warm"):
                wh.propagate(name)
        for number in range(BATCHES):
            tpch.refresh_functions(wh, SHARE, number)
        report = wh.refresh("refreshed")
        assert isinstance(report, Report)
        found.append({"by": "one refresh", "steps": 1, "longest": report.seconds, "all": report.seconds, "apply": None})
        for rows in STEP_ROWS:
            wh.spark.conf.set("spark.deltaic.propagateRows", rows)
            found.append({"by": f"steps of {rows:,} rows", **measured(wh, f"by_{rows}")})
        wh.spark.conf.unset("spark.deltaic.propagateRows")
        found.append({"by": "rolled, 4 and 2 commits", **measured(wh, "rolled")})
        results.check(wh, *(name for name in views if name != "warm"))
    table = Table(title=f"TPC-H scale {tpch.SCALE:g}, {4 * BATCHES} commits: seconds")
    for column in found[0]:
        table.add_column(column)
    for row in found:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    results.keep("rolling", found)


def measured(wh: Warehouse, name: str) -> dict[str, object]:
    started = time.perf_counter()
    steps = [report.seconds for report in wh.propagate(name)]
    spent = time.perf_counter() - started
    return {"steps": len(steps), "longest": max(steps), "all": spent, "apply": wh.apply(name).seconds}
