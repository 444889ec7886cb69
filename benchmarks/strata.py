"""Sets inside a view, stored with their counts or not: what a refresh takes, and what the planner thinks it takes.

TPC-H's tables. In the changes called "quiet" the same rows are derived before and after, another number of times: no
set changes, and with its counts stored a refresh ends there. In the others orders come and go with their lines.
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

SHARE = float(os.environ.get("BENCH_SHARE", "0.001"))
QUERIES = {
    "exists": "SELECT o_orderkey, o_orderpriority FROM orders WHERE EXISTS (SELECT 1 FROM lineitem"
    " WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)",
    "not_in": "SELECT p_partkey, p_name FROM part WHERE p_partkey NOT IN (SELECT l_partkey FROM lineitem"
    " WHERE l_shipmode = 'RAIL' AND l_quantity > 45)",
    "distinct": "SELECT c_mktsegment, count(*) AS n, sum(c_acctbal) AS balance FROM customer JOIN (SELECT DISTINCT"
    " o_custkey, l_suppkey FROM orders JOIN lineitem ON l_orderkey = o_orderkey) ON c_custkey = o_custkey"
    " GROUP BY c_mktsegment",
    "except": "SELECT s_name, s_acctbal FROM supplier JOIN (SELECT ps_suppkey, ps_partkey FROM partsupp EXCEPT"
    " SELECT l_suppkey, l_partkey FROM lineitem) ON s_suppkey = ps_suppkey",
}
FORMS = ("true", "false")


def main() -> None:
    found, console = list[dict[str, object]](), Console(width=130)
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        tpch.load(wh, tpch.data_folder())
        for name, query in QUERIES.items():
            explained = [row[0] for row in wh.sql(f"EXPLAIN CREATE MATERIALIZED VIEW {name} AS {query}").collect()]
            console.print(name, *explained[explained.index(next(s for s in explained if "Predicted" in s)) :], sep="\n")
            for form in FORMS:
                told = f"TBLPROPERTIES (deltaic.strata = '{form}') REFRESH POLICY INCREMENTAL"
                wh.sql(f"CREATE MATERIALIZED VIEW {name}_{form} {told} AS {query}")
        for number, kind in enumerate(("quiet", "quiet", "orders", "orders")):
            change(wh, kind, number)
            for name, query in QUERIES.items():
                started = time.perf_counter()
                wh.sql(query).write.format("noop").mode("overwrite").save()
                full = time.perf_counter() - started
                times = {f"strata {form}": measured(wh, f"{name}_{form}") for form in FORMS}
                if number % 2:
                    found.append({"view": name, "change": kind, **times, "query": full})
                    results.check(wh, *(f"{name}_{form}" for form in FORMS))
    table = Table(title=f"TPC-H scale {tpch.SCALE:g}, {SHARE:.2%} changed: seconds")
    for column in found[0]:
        table.add_column(column)
    for row in found:
        table.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)
    results.keep("strata", found)


def change(wh: Warehouse, kind: str, number: int) -> None:
    if kind == "orders":
        tpch.refresh_functions(wh, SHARE / 2, number)
        return
    picked = f"pmod(xxhash64(l_orderkey, {number}), 1000000) < {SHARE * 1_000_000:.0f}"
    listed = ", ".join("l_linenumber + 10" if f.name == "l_linenumber" else f.name for f in wh.table("lineitem").schema)
    wh.sql(f"INSERT INTO lineitem SELECT {listed} FROM lineitem WHERE {picked}")


def measured(wh: Warehouse, view: str) -> float:
    started = time.perf_counter()
    report = wh.refresh(view)
    assert isinstance(report, Report)
    assert report.mode == "incremental", report
    return time.perf_counter() - started
