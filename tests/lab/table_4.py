"""Table 4 of the change-table paper, a row a name: a view that the row carries, and one where its condition fails.

E1 is an aggregate over `facts`; `one` and `two` stand for E2. Tables as in tests/lab/towers.py.
"""

_E1 = "SELECT a, b, sum(n) AS t, count(*) AS c FROM facts GROUP BY a, b"

CARRIED = {
    "row 1 selection": f"SELECT a, sum(t) AS t, sum(c) AS c FROM ({_E1}) WHERE b > 0 GROUP BY a",
    "row 2 projection": f"SELECT k, sum(t) AS t FROM (SELECT a + 1 AS k, t FROM ({_E1})) GROUP BY k",
    "row 3 cross product": f"SELECT g, sum(t) AS t, sum(c) AS c FROM ({_E1}) CROSS JOIN one GROUP BY g",
    "row 4 join": f"SELECT g, sum(t) AS t, sum(c) AS c FROM ({_E1}) JOIN one USING (a) GROUP BY g",
    "row 5 union": f"SELECT a, sum(t) AS t FROM (SELECT a, t FROM ({_E1}) UNION ALL SELECT a, w FROM one) GROUP BY a",
    "row 6 aggregate": f"SELECT a, sum(t) AS t FROM (SELECT a, b, sum(t) AS t FROM ({_E1}) GROUP BY a, b) GROUP BY a",
    "row 6 filter clause": f"SELECT a, sum(t) FILTER (WHERE b > 0) AS t, sum(c) AS c FROM ({_E1}) GROUP BY a",
    "row 7 outer join": f"SELECT g, sum(t) AS t, sum(c) AS c FROM ({_E1}) q LEFT JOIN one ON one.a = q.a GROUP BY g",
    "semi join": f"SELECT a, sum(t) AS t FROM ({_E1}) q LEFT SEMI JOIN two ON two.b = q.b GROUP BY a",
    "explode": f"SELECT a, e, sum(t) AS t FROM ({_E1}) LATERAL VIEW explode(array(b, a)) x AS e GROUP BY a, e",
}

SINGULAR = {
    "row 1 having": (
        f"SELECT a, sum(t) AS t FROM ({_E1} HAVING sum(n) > 2) GROUP BY a",
        "a computed value decides what its rows meet",
    ),
    "row 4 join on a sum": (
        f"SELECT h, sum(t) AS t FROM ({_E1}) q JOIN two ON two.b = q.c GROUP BY h",
        "a computed value decides what its rows meet",
    ),
    "row 6 count of groups": (
        f"SELECT a, count(*) AS groups FROM ({_E1}) GROUP BY a",
        "what is summed up is not itself a sum or a count",
    ),
    "row 6 sum of a group column": (
        f"SELECT a, sum(b) AS t FROM ({_E1}) GROUP BY a",
        "what is summed up is not itself a sum or a count",
    ),
    "row 6 not distributive": (
        "SELECT a, sum(m) AS t FROM (SELECT a, b, max(n) AS m FROM facts GROUP BY a, b) GROUP BY a",
        "what is summed up is not itself a sum or a count",
    ),
    "row 6 group by a sum": (
        f"SELECT t, sum(c) AS c FROM ({_E1}) GROUP BY t",
        "a computed value decides what its rows meet",
    ),
    "row 7 full join": (
        f"SELECT g, sum(t) AS t FROM ({_E1}) q FULL JOIN one ON one.a = q.a GROUP BY g",
        "either side of a full join decides about rows of the other",
    ),
    "sum over the padded side": (
        f"SELECT one.g, sum(coalesce(t, 0)) AS t FROM one LEFT JOIN ({_E1}) q ON one.a = q.a GROUP BY one.g",
        "a sum over both sides of a join, or over the padded one",
    ),
    "distinct": (
        "SELECT a, count(*) AS n FROM (SELECT DISTINCT a, b FROM facts) GROUP BY a",
        "what is summed up is not itself a sum or a count",
    ),
    "window": (
        "SELECT a, sum(r) AS r FROM (SELECT a, t, rank() OVER (PARTITION BY a ORDER BY t) AS r"
        f" FROM ({_E1})) GROUP BY a",
        "Window is not linear",
    ),
}
