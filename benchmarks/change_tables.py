"""Tables 1 and 2 of the change-table paper, scaled: rows read per table and seconds, each way of keeping the views.

The paper has 1,000,000,000 sales in 1,000,000 groups of a store and an item, and 10,000 new ones that reach 600 of
them; here there are BENCH_SALES in 9,900 groups, and the 10,000 new ones reach 600. Its formulas count the rows of
sources that are read, by an index where only some are wanted; Spark reads rows out of files. The techniques: change
tables ("auto"); insertions and deletions by appendix A ("quass") and by algorithm 6.1 of the counting paper
("counting"), which ask the old sales for the touched groups; the base rule, which asks the old and the new ones.

StoreRange is not in the paper: aggregates that a sum does not tell, from stored multiplicities.
"""

import json
import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks.results import check
from deltaic import Report, Warehouse

SALES = int(os.environ.get("BENCH_SALES", "3000000"))
NEW = 10_000
STORES, ITEMS, CITIES, CATEGORIES, STATES = 1_000, 10_000, 100, 1_000, 100
SOLD, TOUCHED = 990, 60
"""Stores that sell, ten items each, and those that sell the new sales."""
ROUNDS = {"auto": 3, "counting": 2, "quass": 2, "base": 2}

SISALES = """(SELECT storeID, itemID, sum(price) AS SumSISales, count(*) AS NumSISales
FROM sales WHERE date > DATE'1995-01-01' GROUP BY storeID, itemID)"""
VIEWS = {
    "CitySales": f"""SELECT city, sum(SumSISales) AS SumCiSales, sum(NumSISales) AS NumCiSales
FROM {SISALES} s JOIN stores ON s.storeID = stores.storeID GROUP BY city""",
    "CategorySales": f"""SELECT category, sum(SumSISales) AS SumCaSales, sum(NumSISales) AS NumCaSales
FROM {SISALES} s JOIN items ON s.itemID = items.itemID GROUP BY category""",
    "StoreRange": "SELECT storeID, count(DISTINCT itemID) AS items, median(CAST(price AS INT)) AS half FROM sales"
    " GROUP BY storeID",
    "SSFullInfo": """SELECT sales.storeID AS sold_at, itemID, date, price, stores.storeID, city, area, population
FROM sales FULL JOIN stores ON sales.storeID = stores.storeID
FULL JOIN InfoStates ON stores.state = InfoStates.state""",
}
OUTER = {"SSFullInfo", "StoreRange"}
"""Views without an aggregate below another one: appendix A and algorithm 6.1 have nothing to say about them."""
ASKED = TOUCHED * 10 * (SALES // (SOLD * 10))
"""Old sales of the groups that the new ones reach."""
BESIDE = {"CitySales": STORES, "CategorySales": ITEMS, "SSFullInfo": STORES + STATES, "StoreRange": 0}


def techniques(name: str) -> list[str]:
    return [technique for technique in ROUNDS if technique in ("auto", "base") or name not in OUTER]


def formula(name: str, technique: str) -> int | None:
    """Rows of sources that the paper counts."""
    asked = {"auto": 0, "counting": ASKED, "quass": ASKED}.get(technique)
    return None if asked is None or name == "StoreRange" else NEW + BESIDE[name] + asked


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        console, results = Console(width=150), list[dict[str, object]]()
        prepare(wh)
        for name, technique in [(view, technique) for view in VIEWS for technique in techniques(view)]:
            results.append(measured(wh, name, technique))
            console.print(
                f"{name}, {technique}: {results[-1]['seconds']:.2f} s, recompute {results[-1]['recompute']:.2f} s"
            )
        console.print(shown(results))
        keep(results)


def prepare(wh: Warehouse) -> None:
    wh.script(f"""
CREATE TABLE sales (storeID INT, itemID INT, date DATE, price DECIMAL(9, 2));
CREATE TABLE stores (storeID INT, city STRING, state STRING);
CREATE TABLE items (itemID INT, category STRING);
CREATE TABLE InfoStates (state STRING, area INT, population INT);
INSERT INTO InfoStates SELECT concat('State ', id), 1000 + id, 100000 + id FROM range({STATES});
INSERT INTO stores SELECT id, concat('City ', id DIV {STORES // CITIES}), concat('State ', id % 50)
  FROM range({STORES});
INSERT INTO items SELECT id, concat('Category ', id % {CATEGORIES}) FROM range({ITEMS});
INSERT INTO sales {sales(SALES, 1, SOLD)}
""")
    for name, query in VIEWS.items():
        for technique in techniques(name):
            pinned = f"TBLPROPERTIES (deltaic.technique = '{technique}')"
            wh.sql(f"CREATE MATERIALIZED VIEW {name}_{technique} {pinned} AS {query}")


def sales(rows: int, seed: int, stores: int) -> str:
    def below(bound: int, what: int) -> str:
        return f"CAST(pmod(xxhash64(id, {seed}, {what}), {bound}) AS INT)"

    return (
        f"SELECT {below(stores, 1)}, 10 * {below(stores, 1)} + {below(10, 2)}, DATE'1995-01-02' + {below(700, 3)}, "
        f"CAST({below(10000, 4)} / 100 AS DECIMAL(9, 2)) FROM range({rows})"
    )


def measured(wh: Warehouse, name: str, technique: str) -> dict[str, object]:
    """The best of some rounds, each with new sales; beside it the recompute, which must agree."""
    wh.refresh(f"{name}_{technique}")  # what other views' rounds have brought is not this one's
    reports: list[Report] = []
    recomputes: list[float] = []
    for number in range(ROUNDS[technique]):
        wh.sql(f"INSERT INTO sales {sales(NEW, 10 + number, TOUCHED)}")
        report = wh.refresh(f"{name}_{technique}")
        assert isinstance(report, Report)
        reports.append(report)
        started = time.perf_counter()
        wh.sql(VIEWS[name]).write.format("noop").mode("overwrite").save()
        recomputes.append(time.perf_counter() - started)
    check(wh, f"{name}_{technique}")
    best = min(reports, key=lambda report: report.seconds)
    read = dict(best.rows_read or {})
    of_view = read.pop(best.view, 0)
    return {
        "view": name,
        "technique": technique,
        "how": best.technique,
        "source rows": sum(read.values()),
        "the paper's": formula(name, technique),
        "view rows": of_view,
        "changed": best.rows_changed,
        "jobs": best.jobs,
        "seconds": best.seconds,
        "recompute": min(recomputes),
        "ratio": min(recomputes) / best.seconds,
    }


def shown(results: list[dict[str, object]]) -> Table:
    table = Table(title=f"{NEW:,} new sales of {SALES:,}: rows read and seconds")
    for column in results[0]:
        table.add_column(column, justify="left" if column in ("view", "technique", "how") else "right", no_wrap=True)
    for result in results:
        table.add_row(
            *(f"{v:.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v or "")
              for v in result.values())
        )  # fmt: skip
    return table


def keep(results: list[dict[str, object]]) -> None:
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "change_tables.json").write_text(json.dumps(results, indent=2))
