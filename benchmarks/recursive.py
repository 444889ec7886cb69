"""The closure of a graph, and the lengths of its paths, kept by DRed against computed again, as edges go and come.

Graphs: a hierarchy (a random tree with some more edges: parts, organisations), and a random graph in which most nodes
are in no cycle. BENCH_EDGES edges (100,000); BENCH_SHARES of them are deleted, and as many are inserted.
"""

import os
import random
import tempfile
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results
from deltaic import Report, Warehouse

EDGES = int(os.environ.get("BENCH_EDGES", "100000"))
SHARES = [float(share) for share in os.environ.get("BENCH_SHARES", "0.0001,0.001,0.01,0.1").split(",")]
ON_SPARK = 0.001
"""The share that is tried once more with all rounds on Spark."""
QUERIES = {
    "closure": "WITH RECURSIVE path(x, y) AS (SELECT s, d FROM {edges} UNION SELECT e.s, p.y"
    " FROM {edges} e JOIN path p ON e.d = p.x) SELECT * FROM path",
    "lengths": "WITH RECURSIVE path(x, y, n) AS (SELECT s, d, 1 FROM {edges} UNION SELECT e.s, p.y, p.n + 1"
    " FROM {edges} e JOIN path p ON e.d = p.x WHERE p.n < 100) SELECT x, y, min(n) AS n FROM path GROUP BY x, y",
}
Edge = tuple[int, int]


def hierarchy(chance: random.Random, edges: int) -> list[Edge]:
    nodes = int(edges / 1.02)
    tree = [(chance.randrange(child), child) for child in range(1, nodes)]
    more = [(chance.randrange(child), child) for child in chance.sample(range(1, nodes), edges - len(tree))]
    return tree + more


def scattered(chance: random.Random, edges: int) -> list[Edge]:
    nodes = int(edges / 0.8)
    return [(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(edges)]


GRAPHS = {"hierarchy": hierarchy, "random": scattered}
VIEWS = [("hierarchy", "closure"), ("random", "closure"), ("hierarchy", "lengths")]


def main() -> None:
    found = list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        for graph, view in VIEWS:
            chance, name = random.Random(1), f"{graph}_{view}"
            load(wh, name, GRAPHS[graph](chance, EDGES))
            for kept in ("kept", "again"):
                wh.sql(f"CREATE MATERIALIZED VIEW {name}_{kept} AS {QUERIES[view].format(edges=name)}")
            change(wh, name, chance, 10)
            refreshed(wh, f"{name}_kept")  # warms Spark up
            for share, on_spark in [*((share, False) for share in SHARES), (ON_SPARK, True)]:
                change(wh, name, chance, max(int(share * EDGES), 1))
                wh.spark.conf.set("spark.deltaic.roundsHere", 0 if on_spark else 5_000_000)
                rounds_on = "Spark" if on_spark else "driver"
                found.append({"graph": graph, "view": view, "share": share, "rounds on": rounds_on})
                found[-1].update(measured(wh, name))
                print(found[-1], flush=True)
            wh.spark.conf.unset("spark.deltaic.roundsHere")
            results.check(wh, f"{name}_kept")
    table = Table(title=f"Paths over {EDGES:,} edges: seconds")
    shown = [column for column in found[0] if column != "found"]
    for column in shown:
        table.add_column(column)
    for row in found:
        table.add_row(*(f"{row[c]:.2f}" if isinstance(row[c], float) and c != "share" else str(row[c]) for c in shown))
    Console().print(table)
    results.keep("recursive", found)


def load(wh: Warehouse, name: str, edges: list[Edge]) -> None:
    rows = pa.table({"s": [s for s, _ in edges], "d": [d for _, d in edges]})
    wh.spark.createDataFrame(rows).createOrReplaceTempView("edges_in")
    wh.sql(f"CREATE TABLE {name} AS SELECT s, d FROM edges_in")


def change(wh: Warehouse, name: str, chance: random.Random, edges: int) -> None:
    """As many edges go as come; those of a hierarchy come below one that was there."""
    rows = wh.sql(
        f"SELECT s, d FROM {name} ORDER BY xxhash64(s, d, {chance.randrange(10**6)}) LIMIT {2 * edges}"
    ).collect()
    gone = ", ".join(f"'{s}-{d}'" for s, d in rows[:edges])
    moved = ", ".join(f"({min(a.s, b.s)}, {max(a.d, b.d)})" for a, b in zip(rows[:edges], rows[edges:], strict=True))
    wh.sql(f"DELETE FROM {name} WHERE concat(s, '-', d) IN ({gone})")
    wh.sql(f"INSERT INTO {name} VALUES {moved}")


def refreshed(wh: Warehouse, view: str, *, full: bool = False) -> Report:
    report = wh.refresh(view, full=full)
    assert isinstance(report, Report)
    return report


def measured(wh: Warehouse, name: str) -> dict[str, object]:
    """One view is kept, another over the same edges is computed again."""
    kept, again = refreshed(wh, f"{name}_kept"), refreshed(wh, f"{name}_again", full=True)
    sums = "SELECT count(*), sum(xxhash64(x, y) % 1000003) FROM"
    rows = wh.sql(f"{sums} {name}_kept").collect()
    assert rows == wh.sql(f"{sums} {name}_again").collect(), name
    return {
        "view rows": rows[0][0],
        "changed": kept.rows_changed,
        "found": kept.rounds,
        "rounds": sum(int(told.split()[-2]) for told in kept.rounds),
        "jobs": kept.jobs,
        "by": kept.technique,
        "refresh": kept.seconds,
        "recompute": again.seconds,
        "times faster": again.seconds / kept.seconds,
    }
