"""Section 6 and table 5 of the change-table paper, a row a name. V1 is `r FULL JOIN s`, and `r` is what changes.

Tables as in tests/lab/outer_trees.py. G, in the paper's words, are the columns of `s`.
"""

_V1 = "SELECT r.a AS ra, r.b AS rb, r.v, s.a AS sa, s.c AS sc FROM r FULL JOIN s ON r.a = s.a"

TOLD = {
    "theorem 2": _V1,
    "theorem 2, left": "SELECT s.a, s.c, r.v FROM s LEFT JOIN r ON r.a = s.a",
    "theorem 2, right": "SELECT s.a, s.c, r.v FROM r RIGHT JOIN s ON r.a = s.a AND s.c > 0",
    "theorem 2, no equality": "SELECT s.a, r.v FROM s LEFT JOIN r ON r.a < s.a",
    "one column twice in a key": (
        "SELECT q.x, r.v FROM (SELECT a AS x, a AS y FROM s) q LEFT JOIN r ON q.x = r.a AND q.y = r.b"
    ),
    "row 1 selection": f"SELECT * FROM ({_V1}) WHERE sc > 0",
    "row 2 projection": f"SELECT v FROM ({_V1})",
    "row 3 cross product": f"SELECT * FROM ({_V1}) CROSS JOIN z",
    "row 4 join": f"SELECT q.*, t.w FROM ({_V1}) q JOIN t ON t.c = q.sc",
    "row 5 union": f"SELECT ra, sc FROM ({_V1}) UNION ALL SELECT b, c FROM t",
    "row 6 outer join": f"SELECT q.*, t.b FROM ({_V1}) q LEFT JOIN t ON t.c = q.sc",
    "row 7b full join": f"SELECT q.*, t.b FROM ({_V1}) q FULL JOIN t ON t.c = q.sc",
    "row 7b on the padded side": f"SELECT q.*, t.c AS tc FROM ({_V1}) q FULL JOIN t ON t.b = q.rb",
    "three full joins": (
        f"SELECT q.*, t.b AS tb, z.c AS zc FROM ({_V1}) q FULL JOIN t ON t.c = q.sc FULL JOIN z ON z.c = t.c"
    ),
}
"""Neither insertions into `r` nor deletions from it read the rest of `r`."""

ONLY_INSERTIONS = {
    "row 1 a filter on the padded side": f"SELECT * FROM ({_V1}) WHERE v > 0",
    "row 1 only padded rows": f"SELECT * FROM ({_V1}) WHERE ra IS NULL",
    "row 4 a join on the padded side": f"SELECT q.*, t.w FROM ({_V1}) q JOIN t ON t.b = q.rb",
    "row 4 a semi join on the padded side": f"SELECT * FROM ({_V1}) q LEFT SEMI JOIN t ON t.b = q.rb",
}
"""The condition on deletions fails: the view does not show every match, so they are counted in `r`."""

_LEFT = "s LEFT JOIN r ON r.a = s.a"

PASSED_OVER = {
    "sums and counts": f"SELECT s.c, sum(r.v) AS t, count(r.b) AS n, avg(r.v) AS m FROM {_LEFT} GROUP BY s.c",
    "computed": f"SELECT s.c, sum(-(r.v) * 2 + s.a) AS t, covar_pop(s.a, r.v) AS n FROM {_LEFT} GROUP BY s.c",
    "by a filter of its own": f"SELECT s.c, count(*) FILTER (WHERE r.v > 0 AND s.a > 0) AS n FROM {_LEFT} GROUP BY s.c",
    "no groups": f"SELECT sum(r.v) AS t FROM {_LEFT}",
    "a join beside": f"SELECT t.w, sum(r.v) AS t FROM {_LEFT} JOIN t ON t.c = s.c WHERE s.a <> 1 GROUP BY t.w",
    "an outer join above": f"SELECT t.w, sum(r.v) AS t FROM {_LEFT} LEFT JOIN t ON t.c = s.c GROUP BY t.w",
    "below another aggregate": (
        f"SELECT c, sum(t) AS t FROM (SELECT s.a, s.c, sum(r.v) AS t FROM {_LEFT} GROUP BY s.a, s.c) GROUP BY c"
    ),
}
"""An aggregate that passes over padded rows: neither insertions nor deletions read the rest of `r`."""

COUNTED = {
    "all rows count": f"SELECT s.c, count(*) AS n, sum(r.v) AS t FROM {_LEFT} GROUP BY s.c",
    "NULL counts": f"SELECT s.c, sum(coalesce(r.v, 1)) AS t FROM {_LEFT} GROUP BY s.c",
    "an error before the NULL": f"SELECT s.c, sum(1 / coalesce(r.v, 1) * r.v) AS t FROM {_LEFT} GROUP BY s.c",
    "a NULL would pass": f"SELECT s.c, count_if(r.v IS NULL OR r.v > 0) AS n FROM {_LEFT} GROUP BY s.c",
    "grouped by the padded side": f"SELECT r.b, sum(r.v) AS t FROM {_LEFT} GROUP BY r.b",
    "filtered by the padded side": f"SELECT s.c, sum(r.v) AS t FROM {_LEFT} WHERE r.b IS NULL OR r.b > 1 GROUP BY s.c",
    "below an aggregate": f"SELECT sa, count(*) AS n, sum(v) AS t FROM ({_V1}) GROUP BY sa",
    "example 5": (
        f"SELECT ra, rb, sum(sa) AS f, sum(sc) AS h, count(*) AS num FROM ({_V1}) q"
        " JOIN t ON t.b = q.ra AND t.c = q.rb WHERE ra > 0 GROUP BY ra, rb"
    ),
    "on the right of a left join": f"SELECT t.b, q.v FROM t LEFT JOIN ({_V1}) q ON t.c = q.sc",
    "a full join below a filter": f"SELECT q.*, t.b AS tb FROM ({_V1}) q FULL JOIN t ON t.c = q.sc WHERE t.b > 0",
    "semi join": "SELECT s.a, s.c FROM s LEFT SEMI JOIN r ON r.a = s.a",
    "anti join": "SELECT s.a, s.c FROM s LEFT ANTI JOIN r ON r.a = s.a",
}
"""The view does not show who stands alone: matches are counted in `r` as it is now, and its past is not read."""
