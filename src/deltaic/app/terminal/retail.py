"""The demo's data: the retail warehouse of the change-table paper, views over it, and days of changes.

The paper (Gupta and Mumick, "Incremental Maintenance of Aggregate and Outerjoin Expressions") has stores, items,
sales and InfoStates, and the views SISales, CitySales, CategorySales and SSFullInfo. Everything here is plain SQL, and
made by hashing, so that every run has the same rows. Prices are DECIMAL, so sums are exact and can be
compared exactly; CategorySales alone has a DOUBLE.
"""

from __future__ import annotations

from dataclasses import dataclass

STORES, CITIES, STATES, ITEMS, CATEGORIES = 200, 50, 10, 1000, 25
FIRST_DAY, DAYS = "DATE'1994-07-01'", 549
"""To the end of 1995; the sales of the batches come on the days after."""


@dataclass(frozen=True)
class View:
    name: str
    kind: str
    """What the view is there to show."""
    query: str


@dataclass(frozen=True)
class Batch:
    title: str
    statements: tuple[str, ...]


def tables(sales: int) -> list[str]:
    """The statements that make and fill the four tables."""
    return [
        f"CREATE TABLE stores AS SELECT {_store('id + 1')} FROM range(0, {STORES}, 1, 1)",
        # An item can belong to several categories: every tenth has a second one.
        f"""CREATE TABLE items AS
SELECT CAST(id + 1 AS INT) AS itemID, concat('Category ', id % {CATEGORIES}) AS category
FROM range(0, {ITEMS}, 1, 1) UNION ALL
SELECT CAST(id + 1 AS INT), concat('Category ', (id + 7) % {CATEGORIES}) FROM range(0, {ITEMS}, 10, 1)""",
        f"""CREATE TABLE InfoStates AS
SELECT concat('State ', id) AS state, CAST(50000 + id * 7919 % 40000 AS INT) AS area,
  CAST(1000000 + id * 104729 AS INT) AS population
FROM range(0, {STATES}, 1, 1)""",
        # Sales arrive day by day, so a table's files follow the date; nothing else is in order.
        f"CREATE TABLE sales AS SELECT {_sale(f'id * {DAYS} div {sales}', 1)} FROM range(0, {sales}, 1, 6)",
    ]


def _store(number: str) -> str:
    """A city lies in one state, and has several stores."""
    return (
        f"CAST({number} AS INT) AS storeID, concat('City ', ({number}) % {CITIES}) AS city, "
        f"concat('State ', ({number}) % {CITIES} % {STATES}) AS state"
    )


def _sale(day: str, seed: int) -> str:
    """The last stores and items sell nothing, so that there is something to find missing."""

    def anything_below(bound: int, what: int) -> str:
        return f"pmod(xxhash64(id, {seed}, {what}), {bound})"

    return (
        f"CAST(1 + {anything_below(STORES - 10, 1)} AS INT) AS storeID, "
        f"CAST(1 + {anything_below(ITEMS - 20, 2)} AS INT) AS itemID, "
        f"{FIRST_DAY} + CAST({day} AS INT) AS date, CAST({anything_below(10000, 3)} / 100 AS DECIMAL(9, 2)) AS price"
    )


VIEWS = [
    View(
        "CitySales",
        "sum of a sum over a join",
        """WITH SISales AS (
  SELECT storeID, itemID, sum(price) AS SumSISales, count(*) AS NumSISales
  FROM sales WHERE date > DATE'1995-01-01' GROUP BY storeID, itemID)
SELECT city, sum(SumSISales) AS SumCiSales, sum(NumSISales) AS NumCiSales
FROM SISales, stores WHERE SISales.storeID = stores.storeID GROUP BY city""",
    ),
    View(
        "CategorySales",
        "average of DOUBLEs, HAVING",
        """SELECT category, avg(CAST(price AS DOUBLE)) AS AvgPrice, sum(price) AS SumCaSales
FROM sales JOIN items USING (itemID) WHERE date > DATE'1995-01-01'
GROUP BY category HAVING sum(price) > 50.00 * count(*)""",
    ),
    View(
        "SSFullInfo",
        "full and left outer joins",
        """SELECT st.storeID, st.city, s.itemID, s.price, info.population
FROM stores st
FULL JOIN (SELECT * FROM sales WHERE date >= DATE'1995-12-24') s ON s.storeID = st.storeID
LEFT JOIN InfoStates info ON info.state = st.state""",
    ),
    View(
        "TopItems",
        "window, QUALIFY: 3 per store",
        """SELECT storeID, itemID, sum(price) AS total,
  rank() OVER (PARTITION BY storeID ORDER BY sum(price) DESC) AS place
FROM sales GROUP BY storeID, itemID QUALIFY place <= 3""",
    ),
]


def batches(sales: int) -> list[Batch]:
    """A quiet day, and a day on which everything happens: a change of about one sale in three hundred each."""
    few = max(sales // 300, 3)
    return [
        Batch(
            "New sales arrive",
            (f"INSERT INTO sales SELECT {_sale(str(DAYS), 2)} FROM range(0, {few}, 1, 1)",),
        ),
        Batch(
            "Returns, corrections and moves, in two tables at once",
            (
                "DELETE FROM sales WHERE storeID IN (7, 30) AND date >= DATE'1995-12-20'",
                "UPDATE sales SET storeID = 12, price = price / 2 WHERE storeID = 11 AND date >= DATE'1995-12-24'",
                f"INSERT INTO stores SELECT {_store(f'{STORES} + id + 1')} FROM range(0, 3, 1, 1)",
                "UPDATE stores SET city = 'City 3', state = 'State 3' WHERE storeID = 5",
            ),
        ),
    ]
