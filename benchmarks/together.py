"""Views with a join in common, refreshed together: its delta computed once for all, or by each."""

import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results, tpch
from deltaic import Warehouse

SHARES = [float(share) for share in os.environ.get("BENCH_SHARES", "0.001,0.01").split(",")]
JOIN = "FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey"
QUERIES = {
    "by_segment": f"SELECT c_mktsegment, sum(l_extendedprice) AS price, count(*) AS n {JOIN} GROUP BY c_mktsegment",
    "by_priority": f"SELECT o_orderpriority, sum(l_quantity) AS quantity {JOIN} GROUP BY o_orderpriority",
    "by_nation_and_mode": f"SELECT c_nationkey, l_shipmode, count(*) AS n {JOIN} GROUP BY c_nationkey, l_shipmode",
    "by_day": f"SELECT o_orderdate, sum(l_extendedprice * (1 - l_discount)) AS price {JOIN} GROUP BY o_orderdate",
}


def main() -> None:
    found = list[dict[str, float]]()
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        tpch.load(wh, tpch.data_folder())
        for name, query in QUERIES.items():
            wh.sql(f"CREATE MATERIALIZED VIEW {name} REFRESH POLICY INCREMENTAL AS {query}")
        refreshed(wh, SHARES[0], 0, shared=True)  # warms Spark up
        for number, share in enumerate(SHARES):
            shared, apart = (refreshed(wh, share, 2 * number + n, shared=n == 1) for n in (1, 2))
            found.append({"changed": share, "shared": shared, "not shared": apart, "times": apart / shared})
        results.check(wh, *QUERIES)
    table = Table(title=f"four views over one join, TPC-H scale {tpch.SCALE:g}: seconds to refresh all")
    for column in found[0]:
        table.add_column(column)
    for row in found:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    Console().print(table)
    results.keep("together", found)


def refreshed(wh: Warehouse, share: float, number: int, *, shared: bool) -> float:
    """Seconds for all views after another change of this share."""
    tpch.change(wh, share, number, small_too=False)
    wh.spark.conf.set("spark.deltaic.commonRows", 0 if shared else 10**12)
    started = time.perf_counter()
    wh.refresh()
    return time.perf_counter() - started
