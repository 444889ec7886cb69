"""The tables and views of a soak: every kind of view that there is, over tables that stay small."""

from __future__ import annotations

import random

from tests.e2e.test_recursion import CLOSURE

TABLES = """
CREATE TABLE s (k INT, v INT, x DOUBLE); CREATE TABLE edge (s INT, d INT);
CREATE TABLE u (k INT, w INT) TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 200 seconds');
INSERT INTO s SELECT id % 40, id % 7, id / 8 FROM range(400);
INSERT INTO s VALUES (NULL, 1, 1.5), (NULL, NULL, NULL), (1, 1, 0.125);
INSERT INTO u SELECT id % 50, id % 11 FROM range(100); INSERT INTO u VALUES (NULL, 3), (2, NULL);
INSERT INTO edge SELECT id, id + 1 FROM range(12)
"""
GROUPED = "SELECT k, sum(v) AS t, avg(x) AS a, min(v) AS low, max(x) AS high, count(*) AS n FROM s GROUP BY k"
ALTERED = "SELECT k, sum(v) AS t, count(*) AS n FROM s WHERE v > 1 GROUP BY k"
VIEWS: dict[str, tuple[str, str]] = {
    "joined": ("", "SELECT s.k, s.v, u.w FROM s JOIN u ON s.k = u.k WHERE u.w > 2"),
    "paired": ("", "SELECT s.k, s.v, u.w FROM s FULL JOIN u ON s.k = u.k"),
    "grouped": ("", GROUPED),
    "by_keys": ("", "SELECT k, count(DISTINCT v) AS n, sort_array(collect_list(v)) AS all_v FROM s GROUP BY k"),
    "towered": (
        "",
        "SELECT u.w, sum(g.t) AS t FROM u JOIN (SELECT k, sum(v) AS t FROM s GROUP BY k) g ON u.k = g.k GROUP BY u.w",
    ),
    "reduced": (
        "TBLPROPERTIES (deltaic.counts = false)",
        "SELECT DISTINCT s.v, u.w FROM s JOIN u ON s.k = u.k",
    ),
    "without": (
        "TBLPROPERTIES (deltaic.strata = true)",
        "SELECT s.v FROM s JOIN (SELECT k FROM u EXCEPT SELECT v FROM s) x ON s.k = x.k",
    ),
    "ranked": ("", "SELECT k, v, x, sum(v) OVER (PARTITION BY k ORDER BY x, v) AS so_far FROM s"),
    "lonely": ("", "SELECT k, v FROM s WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = s.k AND u.w > 5)"),
    "beyond": ("", "SELECT k, v FROM s WHERE v > (SELECT avg(w) / 3 FROM u)"),
    "path": ("", f"{CLOSURE} SELECT x, y FROM path"),
    "parted": ("PARTITIONED BY (v)", "SELECT k, v, x FROM s"),
    "clustered": ("CLUSTER BY (k)", "SELECT k, v, x FROM s WHERE k IS NOT NULL"),
    "rolled": ("", "SELECT s.v, u.w, s.x FROM s JOIN u ON s.k = u.k WHERE s.v > 2"),
    "over": ("", "SELECT n, count(*) AS groups, sum(t) AS t FROM grouped GROUP BY n"),
    "fleeting": ("", "SELECT k, max(v) AS high FROM s GROUP BY k HAVING count(*) > 3"),
}
DATALOG = "reach(Y) :- edge(0, Y). reach(Z) :- reach(Y), edge(Y, Z)."


def created(name: str) -> str:
    clauses, query = VIEWS[name]
    return f"CREATE MATERIALIZED VIEW {name} {clauses} AS {query}"


def change(choice: random.Random) -> str:
    """One statement on one table; what is put in and what is taken out are about as much."""
    k, v, w = choice.randrange(45), choice.randrange(8), choice.randrange(12)
    x = choice.randrange(1000) / 8
    a, b = choice.sample(range(14), 2)
    some = f"SELECT CAST(id * 7 % 40 AS INT), CAST(id % 7 AS INT), id / 8 FROM range({choice.randrange(1, 15)})"
    return choice.choice([
        f"INSERT INTO s {some}",
        f"INSERT INTO s VALUES ({k}, {v}, {x}), ({k}, {v}, {x}), (NULL, {v}, NULL)",
        f"DELETE FROM s WHERE k = {k} OR (k IS NULL AND v = {v})",
        f"DELETE FROM s WHERE x > {x} AND v = {v}",
        f"UPDATE s SET v = {v}, x = {x} WHERE k = {k}",
        f"INSERT INTO u VALUES ({k}, {w}), (NULL, {w})",
        f"INSERT INTO u SELECT CAST(id AS INT), {w} FROM range({choice.randrange(1, 9)})",
        f"DELETE FROM u WHERE k = {k} OR w = {w}",
        f"UPDATE u SET w = {w} WHERE k < {k // 4}",
        f"MERGE INTO u USING (SELECT {k} AS k, {w} AS w) n ON u.k = n.k WHEN MATCHED THEN UPDATE SET w = n.w"
        " WHEN NOT MATCHED THEN INSERT *",
        f"INSERT INTO edge VALUES ({a}, {b})",
        f"DELETE FROM edge WHERE s = {a}",
        f"DELETE FROM edge WHERE d = {b} AND s > 5",
        f"INSERT INTO edge SELECT DISTINCT {a}, CAST(id AS INT) FROM range({b})",
    ])  # fmt: skip
