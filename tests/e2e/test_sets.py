"""Sets of rows kept without counts: the worked cases of Furukawa and Elmagarmid, on Spark and Delta."""

import pytest

from deltaic import Report, Warehouse
from deltaic.errors import ConfigurationError, NameProblem
from tests.e2e.conftest import Kept, check_all, report_of

FIGURE_1 = """
CREATE TABLE r1 (a STRING, b STRING); CREATE TABLE r2 (b STRING, c STRING, d STRING);
CREATE TABLE r3 (d STRING, e STRING);
INSERT INTO r1 VALUES ('a1', 'b1'), ('a2', 'b2'), ('a2', 'b3'), ('a2', 'b4');
INSERT INTO r2 VALUES ('b1', 'c1', 'd1'), ('b2', 'c2', 'd1'), ('b2', 'c2', 'd2'), ('b3', 'c2', 'd2'),
  ('b4', 'c2', 'd2'), ('b4', 'c3', 'd3');
INSERT INTO r3 VALUES ('d1', 'e1'), ('d1', 'e4'), ('d2', 'e2'), ('d2', 'e4'), ('d3', 'e3');
"""
ACE = "SELECT DISTINCT a, c, e FROM r1 JOIN r2 USING (b) JOIN r3 USING (d)"
FIGURES = {  # candidates and existing rows after one, two and three relations: figures 5 to 9
    "naive": [(1, 2), (2, 3), (4, 5)],
    "rie": [(1, 2), (2, 2), (4, 4)],
    "ric": [(1, 2), (1, 3), (1, 5)],
    "reduce": [(1, 2), (1, 2), (1, 4)],
    "reduce+": [(1, 2), (1, 1), (1, 2)],
}


def pinned(technique: str) -> str:
    return f"TBLPROPERTIES (deltaic.technique = '{technique}')"


@pytest.mark.long
def test_figures_1_to_9(wh: Warehouse) -> None:
    wh.script(FIGURE_1)
    views = {name: Kept(wh, f"v_{n}", ACE, pinned(name)) for n, name in enumerate((*FIGURES, "mu2"))}
    free = Kept(wh, "free", ACE, "TBLPROPERTIES (deltaic.counts = false)")
    wh.sql("DELETE FROM r1 WHERE a = 'a2' AND b = 'b2'")
    for name, view in views.items():
        report = view.refresh_only()
        assert report.technique == name
        assert report.rows_changed == 1  # (a2, c2, e1)
        assert all(stage.comes == 0 for stage in report.stages)
        if name in FIGURES:
            assert [(stage.goes, stage.stays) for stage in report.stages] == FIGURES[name], name
    assert "default.r1 with default.r3: 0 may come, 1 may go, 2 stay" in wh.explain("v_4")
    assert free.refresh_only().technique == "reducing"
    check_all([*views.values(), free])
    assert "__deltaic" not in str(
        wh.spark.read.format("delta").load(str(wh.engine.view_table(wh.definition("free")).ref.path)).columns
    )


def sizes(report: Report) -> list[tuple[int, int, int]]:
    return [(stage.comes, stage.goes, stage.stays) for stage in report.stages]


def read_of(report: Report, *tables: str) -> int:
    return sum((report.rows_read or {})[f"default.{table}"] for table in tables)


@pytest.mark.long
def test_reducing_ends_when_no_candidates_are_left(wh: Warehouse) -> None:
    """Whatever is left to be joined is not read: the report shows it."""
    wh.script(FIGURE_1)
    views = [Kept(wh, f"v_{n}", ACE, pinned(name)) for n, name in enumerate(("reduce+", "mu2", "reduce"))]
    wh.script("INSERT INTO r1 VALUES ('a2', 'b3'); INSERT INTO r2 VALUES ('b9', 'c9', 'd9')")
    for view in views:
        report = view.refresh_only()
        assert report.rows_changed == 0
        assert read_of(report, "r3") == 0
        if view.name == "v_0":
            assert sizes(report)[0] == (0, 0, 3)  # ('a2', 'b3') was there: r2 is not read for it
    check_all(views)


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, False])
def test_sets_through_a_history(wh: Warehouse, use_rs: bool) -> None:
    wh.engine.use_rs = use_rs
    wh.script(FIGURE_1)
    names = ("naive", "reduce", "reduce+", "mu2")
    views = [Kept(wh, f"v_{n}", ACE, pinned(name)) for n, name in enumerate(names)]
    others = [
        "SELECT DISTINCT x.a, y.a AS other FROM r1 x JOIN r1 y ON x.b = y.b",
        "SELECT DISTINCT r1.a, r2.c FROM r1 JOIN r2 ON r1.b < r2.b WHERE r2.d <> 'd3' OR r1.a IS NULL",
        "SELECT DISTINCT e FROM r3",
    ]
    views += [Kept(wh, f"w_{n}", query, "TBLPROPERTIES (deltaic.counts = false)") for n, query in enumerate(others)]
    for changes in (
        "DELETE FROM r1 WHERE b = 'b2'; INSERT INTO r1 VALUES ('a2', 'b1'), ('a2', 'b1'), (NULL, 'b4')",
        "UPDATE r2 SET d = 'd1' WHERE b = 'b4'; DELETE FROM r3 WHERE e = 'e4'; UPDATE r1 SET a = 'a1' WHERE a IS NULL",
    ):
        wh.script(changes)
        for view in views:
            view.refresh_only(None)
        check_all(views)


@pytest.mark.long
def test_a_key_in_the_view(wh: Warehouse) -> None:
    """What a deletion takes out is told by the view alone, what an insertion brings by the others alone."""
    wh.script("CREATE TABLE c (id INT, town STRING); CREATE TABLE o (id INT, c INT, item STRING)")
    wh.script(
        "INSERT INTO c VALUES (1, 'x'), (2, 'y'), (3, 'x'); INSERT INTO o VALUES (1, 1, 'i'), (2, 1, 'i'), (3, 2, 'j')"
    )
    query = "SELECT DISTINCT c.id, c.town, o.item FROM c JOIN o ON o.c = c.id"
    free = "deltaic.counts = 'false', deltaic.key.c = 'id'"
    keyed = Kept(wh, "keyed", query, f"TBLPROPERTIES ({free})")
    plain = Kept(wh, "plain", query, "TBLPROPERTIES (deltaic.counts = false)")
    wh.sql("DELETE FROM c WHERE id = 1")
    assert read_of(keyed.refresh_only(), "c", "o") == 1  # the deleted row, of the change
    assert read_of(plain.refresh_only(), "c") > 1  # those with the same id, and a row of its own
    wh.script("UPDATE c SET town = 'z' WHERE id = 2; INSERT INTO c VALUES (1, 'x')")
    keyed.refresh_only()
    plain.refresh_only()
    check_all([keyed, plain])
    with pytest.raises(NameProblem, match=r"no column nothing"):
        wh.sql(f"CREATE MATERIALIZED VIEW w TBLPROPERTIES (deltaic.key.c = 'nothing') AS {query}")
    with pytest.raises(NameProblem, match="reads no source d"):
        wh.sql(f"CREATE MATERIALIZED VIEW w TBLPROPERTIES (deltaic.key.d = 'id') AS {query}")


@pytest.mark.long
def test_a_view_that_has_another_key_than_before(wh: Warehouse) -> None:
    """Its table is the same; what it reads is not."""
    wh.script("CREATE TABLE s (a INT, b INT); INSERT INTO s VALUES (1, 1), (1, 2); CREATE TABLE t (a INT, c INT)")
    wh.sql("INSERT INTO t VALUES (1, 9)")
    wh.sql("CREATE MATERIALIZED VIEW low AS SELECT a, max(b) AS b FROM s GROUP BY a")
    wh.sql("CREATE MATERIALIZED VIEW middle AS SELECT a, b FROM low WHERE b > 0")
    query = "SELECT DISTINCT m.a, t.c FROM middle m JOIN t ON m.a = t.a"
    view = Kept(wh, "v", query, "TBLPROPERTIES (deltaic.counts = false)")
    for statement in (
        "INSERT INTO s VALUES (2, 2)",
        "CREATE OR REPLACE MATERIALIZED VIEW low AS SELECT a, b FROM s",
        "DELETE FROM s WHERE b = 1",
    ):
        wh.sql(statement)
        wh.refresh()
        view.check()


@pytest.mark.long
def test_values_that_are_equal_and_not_the_same(wh: Warehouse) -> None:
    """A zero and a negative one are grouped together: what is shown of them is not to be carried by groups."""
    wh.script("CREATE TABLE x (k INT, v DOUBLE, m VARIANT); CREATE TABLE y (k INT, w STRING)")
    wh.script("INSERT INTO x VALUES (1, 0.0, parse_json('{\"p\": 1}')); INSERT INTO y VALUES (1, 'p')")
    free = "TBLPROPERTIES (deltaic.counts = false)"
    join = "FROM x JOIN y ON x.k = y.k"
    views = [
        Kept(wh, "v", f"SELECT DISTINCT concat(CAST(x.v AS STRING), y.w) AS t {join}", free),
        Kept(wh, "w", f"SELECT DISTINCT CAST(variant_get(x.m, '$.p') AS INT) + length(y.w) AS t {join}", free),
        Kept(wh, "u", f"SELECT DISTINCT x.k, y.w {join} WHERE x.v >= 0", pinned("reduce")),
    ]
    wh.sql("INSERT INTO x VALUES (1, CAST('-0.0' AS DOUBLE), parse_json('{\"p\": 2}'))")
    reports = [view.refresh_only(None) for view in views]
    assert [report.technique for report in reports] == ["base (keys)", "base (keys)", "base (keys)"]
    check_all(views)


def test_a_technique_that_does_not_fit(wh: Warehouse) -> None:
    wh.script(FIGURE_1)
    query = "SELECT a, count(*) AS n FROM r1 GROUP BY a"
    wh.sql(f"CREATE MATERIALIZED VIEW v {pinned('reduce')} AS {query}")
    wh.sql("INSERT INTO r1 VALUES ('a3', 'b1')")
    report = report_of(wh, "v")
    assert report.mode == "full"
    assert report.reasons[0].startswith("TECHNIQUE: deltaic.technique is 'reduce'")
    both = "deltaic.counts = 'false', deltaic.technique = 'counting'"
    with pytest.raises(ConfigurationError, match="stores counts"):
        wh.sql(f"CREATE MATERIALIZED VIEW w TBLPROPERTIES ({both}) AS {query}")
    with pytest.raises(ConfigurationError, match="neither true nor false"):
        wh.sql(f"CREATE MATERIALIZED VIEW w TBLPROPERTIES (deltaic.counts = 'some') AS {query}")


HOP = "SELECT DISTINCT x.s, y.d FROM link x JOIN link y ON x.d = y.s"
TRI_HOP = f"SELECT DISTINCT h.s, l.d FROM ({HOP}) h JOIN link l ON h.d = l.s"
ONLY_TRI_HOP = f"SELECT * FROM ({TRI_HOP}) t WHERE NOT EXISTS (SELECT 1 FROM ({HOP}) h WHERE h.s = t.s AND h.d = t.d)"


def links(text: str) -> str:
    return ", ".join(f"('{pair[0]}', '{pair[1]}')" for pair in text.split())


@pytest.mark.long
def test_hop_and_tri_hop(wh: Warehouse) -> None:
    """Examples 4.2 and 5.1 of Gupta, Mumick and Subrahmanian."""
    wh.script(f"CREATE TABLE link (s STRING, d STRING); INSERT INTO link VALUES {links('ab ad dc bc ch fg')}")
    hop = Kept(wh, "hop", HOP, pinned("counting"))
    tri_hop = Kept(wh, "tri_hop", TRI_HOP, pinned("counting"))
    wh.script(f"DELETE FROM link WHERE s = 'a' AND d = 'b'; INSERT INTO link VALUES {links('df af')}")
    hop.refresh_only()
    assert sizes(tri_hop.refresh_only()) == [(3, 0, 0)]  # af, ag, dg; ac is still derived once
    check_all([hop, tri_hop])
    assert {tuple(row) for row in wh.table("tri_hop").collect()} == {("a", "h"), ("a", "g")}
    wh.script(f"INSERT INTO link VALUES {links('ab ab')}; DELETE FROM link WHERE d = 'h'")
    for view in (hop, tri_hop):
        view.refresh_only()
    check_all([hop, tri_hop])


@pytest.mark.long
def test_only_tri_hop_and_min_cost_hop(wh: Warehouse) -> None:
    """Examples 6.1 and 6.2."""
    wh.sql("CREATE TABLE link (s STRING, d STRING, c INT)")
    wh.sql(f"INSERT INTO link SELECT *, ascii(col2) % 7 FROM VALUES {links('ab ae af ag bc cd ck ed fd gh hk')}")
    costs = "SELECT x.s, y.d, x.c + y.c AS c FROM link x JOIN link y ON x.d = y.s"
    views = [
        Kept(wh, "only_tri_hop", ONLY_TRI_HOP, pinned("counting")),
        Kept(wh, "min_cost_hop", f"SELECT s, d, min(c) AS m FROM ({costs}) GROUP BY s, d", pinned("counting")),
    ]
    assert [tuple(row) for row in wh.table("only_tri_hop").collect()] == [("a", "k")]
    for change in (
        "DELETE FROM link WHERE s = 'a' AND d IN ('e', 'f')",  # hop(a, d) is gone: (a, d) is only three away
        "INSERT INTO link VALUES ('a', 'c', 1), ('a', 'c', 1)",  # and two away again
        "UPDATE link SET c = c + 10 WHERE s = 'a'",
    ):
        wh.sql(change)
        for view in views:
            view.refresh_only()
        check_all(views)


@pytest.mark.long
def test_a_set_that_stays_the_same_stops_at_its_distinct(wh: Warehouse) -> None:
    wh.script(f"CREATE TABLE link (s STRING, d STRING); INSERT INTO link VALUES {links('ab ad dc bc ch')}")
    wh.script("CREATE TABLE node (id STRING, name STRING); INSERT INTO node VALUES ('c', 'C'), ('h', 'H')")
    query = f"SELECT h.s, n.name FROM ({HOP}) h JOIN node n ON n.id = h.d"
    view = Kept(wh, "v", query, pinned("counting"))
    wh.sql("DELETE FROM link WHERE s = 'a' AND d = 'b'")
    report = view.refresh_only()
    assert sizes(report) == [(0, 0, 0)]
    assert read_of(report, "node") == 0
    wh.sql("DELETE FROM link WHERE s = 'a' AND d = 'd'")
    report = view.refresh_only()
    assert sizes(report) == [(0, 1, 0)]
    assert read_of(report, "node") > 0
    view.check()


@pytest.mark.long
def test_not_in_by_counting(wh: Warehouse) -> None:
    wh.script("CREATE TABLE a (x INT); CREATE TABLE b (y INT); INSERT INTO a VALUES (1), (1), (2), (NULL)")
    views = [
        Kept(wh, "v0", "SELECT x FROM a WHERE x NOT IN (SELECT y FROM b)", pinned("counting")),
        Kept(wh, "v1", "SELECT x FROM a EXCEPT SELECT y FROM b", pinned("counting")),
        Kept(wh, "v2", "SELECT x FROM a INTERSECT SELECT y FROM b", "TBLPROPERTIES (deltaic.counts = false)"),
    ]
    for change in (
        "INSERT INTO b VALUES (1), (NULL)",  # nothing is left
        "INSERT INTO b VALUES (NULL), (7)",
        "DELETE FROM b WHERE y IS NULL",
        "DELETE FROM b",  # not even NULL is refused by an empty set
    ):
        wh.sql(change)
        for view in views:
            view.refresh_only(None)
        check_all(views)


INNER = {
    "by_in": "SELECT x, y FROM a WHERE x IN (SELECT w FROM b WHERE z > 0)",
    "by_not_exists": "SELECT x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.w = a.x AND b.z = a.y)",
    "by_except": "SELECT a.y, count(*) AS n FROM a JOIN (SELECT w FROM b EXCEPT SELECT y FROM a) d ON a.x = d.w"
    " GROUP BY a.y",
    "by_intersect": "SELECT a.x, a.y FROM a JOIN (SELECT w, z FROM b INTERSECT SELECT y, x FROM a) d ON a.x = d.w",
    "by_distinct": "SELECT DISTINCT a.y FROM a JOIN (SELECT DISTINCT z FROM b) d ON a.x = d.z",
}


@pytest.mark.parametrize(
    ("use_rs", "names"),
    [pytest.param(use_rs, tuple(INNER), marks=pytest.mark.long) for use_rs in (True, False)],
)
def test_sets_inside_views_through_a_history(wh: Warehouse, use_rs: bool, names: tuple[str, ...]) -> None:
    """Stored with their counts, in views small and large; a large one is read near what was derived."""
    wh.engine.use_rs = use_rs
    wh.script("CREATE TABLE a (x INT, y INT); CREATE TABLE b (w INT, z INT)")
    wh.sql("INSERT INTO a SELECT id % 50, id % 7 FROM range(200)")
    wh.sql("INSERT INTO b SELECT id, id % 9 FROM range(25000)")
    views = [Kept(wh, name, INNER[name], "TBLPROPERTIES (deltaic.strata = 'true')") for name in names]
    assert all("stratum 1" in wh.explain(view.name) for view in views)
    for change in (
        "INSERT INTO b VALUES (3, 1), (3, 1), (NULL, 2), (40, 0)",
        "DELETE FROM b WHERE w < 20; INSERT INTO a VALUES (NULL, 3), (3, NULL), (60, 2)",
        "UPDATE a SET x = x + 1 WHERE y = 2; UPDATE b SET z = 5 WHERE w = 40",
        "DELETE FROM a; DELETE FROM b WHERE w > 100",
        "INSERT INTO a VALUES (30, 3), (30, 3)",
    ):
        wh.script(change)
        for view in views:
            view.refresh_only()
        check_all(views)


@pytest.mark.long
def test_what_is_stored_of_sets_is_decided_when_a_view_is_made(wh: Warehouse) -> None:
    wh.script("CREATE TABLE a (x INT, y INT); CREATE TABLE b (w INT, z INT)")
    wh.sql("INSERT INTO a SELECT id, id % 100 FROM range(60000)")
    wh.sql("INSERT INTO b SELECT id % 1000, id FROM range(60000)")
    query = "SELECT a.y, sum(a.x) AS t FROM a JOIN (SELECT DISTINCT w FROM b) d ON a.x = d.w GROUP BY a.y"
    told = "\n".join(row[0] for row in wh.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}").collect())
    assert "with counts, without the sets inside it:" in told
    assert "with counts, with the sets inside it:" in told
    assert told.count(", as it is") == 1
    view = Kept(wh, "v", query)
    form = wh.definition("v").form
    wh.sql("DELETE FROM b WHERE w < 900")  # what would be chosen now does not matter
    view.refresh_only(None)
    view.check()
    assert wh.definition("v").form == form
    with pytest.raises(ConfigurationError, match="neither true nor false"):
        wh.sql(f"CREATE MATERIALIZED VIEW w TBLPROPERTIES (deltaic.strata = 'maybe') AS {query}")
    both = "TBLPROPERTIES (deltaic.strata = 'false', deltaic.technique = 'counting')"
    with pytest.raises(ConfigurationError, match="stores the sets inside a view"):
        wh.sql(f"CREATE MATERIALIZED VIEW w {both} AS {query}")
