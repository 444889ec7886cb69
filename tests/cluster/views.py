"""The kinds of views that a cluster is shown, their tables, and what happens to these."""

from deltaic import Warehouse
from tests.e2e.conftest import check_queries, rows
from tests.e2e.test_recursion import CLOSURE, closed
from tests.lab.oracle import difference

TABLES = """
CREATE TABLE s (k INT, v INT, x DOUBLE) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true);
CREATE TABLE u (k INT, w INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true);
CREATE TABLE edge (s INT, d INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true);
INSERT INTO s SELECT id % 40, id % 7, id / 8 FROM range(400);
INSERT INTO s VALUES (NULL, 1, 1.5), (NULL, NULL, NULL), (1, 1, 0.125);
INSERT INTO u SELECT id % 50, id % 11 FROM range(100);
INSERT INTO u VALUES (NULL, 3), (2, NULL);
INSERT INTO edge SELECT id, id + 1 FROM range(30)
"""
VIEWS = {
    "joined": "SELECT s.k, s.v, u.w FROM s JOIN u ON s.k = u.k WHERE u.w > 2",
    "paired": "SELECT s.k, s.v, u.w FROM s FULL JOIN u ON s.k = u.k",
    "grouped": "SELECT k, sum(v) AS t, avg(x) AS a, min(v) AS low, max(x) AS high, count(*) AS n FROM s GROUP BY k",
    "towered": "SELECT u.w, sum(g.t) AS t FROM u JOIN (SELECT k, sum(v) AS t FROM s GROUP BY k) g ON u.k = g.k"
    " GROUP BY u.w",
    "told_apart": "SELECT DISTINCT s.v, u.w FROM s JOIN u ON s.k = u.k",
    "without": "SELECT k FROM s EXCEPT SELECT k FROM u WHERE w < 9",
    "ranked": "SELECT k, v, x, sum(v) OVER (PARTITION BY k ORDER BY x, v) AS so_far FROM s",
    "lonely": "SELECT k, v FROM s WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = s.k AND u.w > 5)",
    "above": "SELECT k, v FROM s WHERE v > (SELECT avg(w) / 3 FROM u)",
}
PATH = f"{CLOSURE} SELECT x, y FROM path"
ALWAYS = "REFRESH POLICY INCREMENTAL"
"""However dear rounds by Spark are."""
CHANGES = (
    "DELETE FROM u WHERE k = 3; UPDATE s SET v = 9 WHERE k = 2; INSERT INTO s VALUES (3, 3, 0.5), (77, 1, 2.0);"
    "DELETE FROM edge WHERE s = 12; INSERT INTO edge VALUES (5, 20), (40, 41)",
    "INSERT INTO u VALUES (77, 10), (NULL, 8); DELETE FROM s WHERE k IS NULL OR k = 4; DELETE FROM u WHERE w = 10;"
    "INSERT INTO edge VALUES (12, 13); DELETE FROM edge WHERE d = 20",
)


class Views:
    """All of them in one warehouse; each is compared with its query run anew."""

    def __init__(self, wh: Warehouse, names: tuple[str, ...] = tuple(VIEWS)) -> None:
        self.wh, self.names, self.checks = wh, names, 0

    def make(self) -> None:
        self.wh.script(TABLES)
        for name in self.names:
            self.wh.sql(f"CREATE MATERIALIZED VIEW {name} {ALWAYS} AS {VIEWS[name]}")
        self.wh.sql(f"CREATE MATERIALIZED VIEW path {ALWAYS} AS {PATH}")

    def check(self, *names: str) -> None:
        chosen = [name for name in self.names if not names or name in names]
        if chosen:
            check_queries(self.wh, {name: VIEWS[name] for name in chosen})
        if not names or "path" in names:
            edges = {(row[0], row[1]) for row in self.wh.sql("SELECT s, d FROM edge").collect()}
            wrong = difference(list(closed(edges)), rows(self.wh, "SELECT * FROM path"))
            assert wrong is None, f"path is not the closure of edge: {wrong}"
        self.checks += len(chosen) + (not names or "path" in names)
