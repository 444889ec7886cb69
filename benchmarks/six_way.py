"""The six-way join of Lee, Son and Kim over TPC-H: the view after changes of some size, each way of keeping it.

Every figure is beside a recompute in the same run: the query run anew and stored (INSERT OVERWRITE). "propagate" is the
time to find and keep the delta, "refresh" all of it, with the view readable at its new time.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results, tpch
from deltaic import Report, Warehouse

SHARES = [float(share) for share in os.environ.get("BENCH_SHARES", "0.0001,0.001,0.02,0.1").split(",")]
SMALL_TOO = [name == "small" for name in os.environ.get("BENCH_SMALL", "alone,small").split(",")]
"""A row of nation or region reaches a part of the view that is many times the change."""
SMALL = {True: "a row each", False: "left alone"}
TECHNIQUES = os.environ.get("BENCH_TECHNIQUES", "auto,counting,recompute").split(",")
PAUSE = 3
"""Seconds before each measurement, for Java to finish compiling what the changes ran."""
QUERY = """SELECT o_orderkey, l_linenumber, o_orderdate, o_totalprice, l_quantity, l_extendedprice, c_name, c_acctbal,
  s_name, s_acctbal, n_name, n_comment, r_name, r_comment
FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey
JOIN region ON n_regionkey = r_regionkey"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        console, found = Console(width=170), list[dict[str, object]]()
        prepare(wh, tpch.SCALE)
        rounds = [(share, small_too) for share in SHARES for small_too in SMALL_TOO]
        for number, (share, small_too) in enumerate(rounds, 1):
            tpch.change(wh, share, number, small_too=small_too)
            found += [measured(wh, technique, share, small_too) for technique in rotated(TECHNIQUES, number)]
            for result in found[-len(TECHNIQUES) :]:
                console.print(result)
            check(wh, TECHNIQUES)
        results.check(wh, *(f"v_{technique}" for technique in TECHNIQUES))
        console.print(shown(found, f"six-way join, TPC-H scale {tpch.SCALE:g}"))
        results.keep("six_way", found)
        for small_too in SMALL_TOO:
            plotted([f for f in found if f["nation, region"] == SMALL[small_too]], small_too)


def prepare(wh: Warehouse, scale: float) -> None:
    tpch.load(wh, tpch.data_folder(), scale)
    for technique in TECHNIQUES:
        pinned = f"TBLPROPERTIES (deltaic.technique = '{technique}')"
        wh.sql(f"CREATE MATERIALIZED VIEW v_{technique} {pinned} AS {QUERY}")
    warm_up(wh, TECHNIQUES)


def rotated(names: Sequence[str], number: int) -> list[str]:
    """Whoever is first in a round reads files that are in no cache yet."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def warm_up(wh: Warehouse, techniques: Sequence[str]) -> None:
    """One round that does not count: recomputing was warmed up by creating the views, the rest was not."""
    tpch.change(wh, min(SHARES), 0, small_too=False)
    for technique in techniques:
        wh.refresh(f"v_{technique}")


def plotted(found: list[dict[str, object]], small_too: bool) -> None:
    points = {
        technique: [(float(str(f["share"])), float(str(f["seconds"]))) for f in found if f["technique"] == technique]
        for technique in TECHNIQUES
    }
    title = f"six-way join, TPC-H scale {tpch.SCALE:g}, nation and region: {SMALL[small_too]}"
    results.lines(f"six_way_{'small' if small_too else 'alone'}", title, "share of the rows that changed", points)


def measured(wh: Warehouse, technique: str, share: float, small_too: bool) -> dict[str, object]:
    time.sleep(PAUSE)
    started = time.perf_counter()
    report = wh.refresh(f"v_{technique}")
    seconds = time.perf_counter() - started
    assert isinstance(report, Report)
    stages = dict(report.timings)
    return {
        "changed": f"{share:.2%}",
        "share": share,
        "nation, region": SMALL[small_too],
        "technique": technique,
        "how": report.technique,
        "seconds": seconds,
        "propagate": seconds - stages.get("write", 0.0),
        "delta rows": report.delta_rows,
        "source rows": sum((report.rows_read or {}).values()),
        "jobs": report.jobs,
        "written by": report.written_by,
    }


def check(wh: Warehouse, techniques: list[str]) -> None:
    sums = {}
    for technique in techniques:
        columns = ", ".join(f"`{name}`" for name in wh.table(f"v_{technique}").columns)
        row = wh.sql(f"SELECT count(*), sum(xxhash64({columns}) % 1000003) FROM v_{technique}").first()
        sums[technique] = tuple(row) if row else ()
    assert len(set(sums.values())) == 1, sums


def shown(results: list[dict[str, object]], title: str) -> Table:
    table = Table(title=title)
    for column in results[0]:
        table.add_column(
            column, justify="left" if column in ("nation, region", "technique", "how") else "right", no_wrap=True
        )
    for result in results:
        table.add_row(*(f"{v:.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v)
                        for v in result.values()))  # fmt: skip
    return table
