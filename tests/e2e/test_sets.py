"""Sets of rows kept without counts: the worked cases of Furukawa and Elmagarmid, on Spark and Delta."""

from deltaic import Warehouse
from deltaic.delta.reduce import ALGORITHMS
from tests.e2e.conftest import Kept, check_all

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


def test_figures_1_to_9(wh: Warehouse) -> None:
    wh.script(FIGURE_1)
    views = {name: Kept(wh, f"v_{n}", ACE, pinned(name)) for n, name in enumerate(ALGORITHMS)}
    free = Kept(wh, "free", ACE, "TBLPROPERTIES (deltaic.counts = false)")
    wh.sql("DELETE FROM r1 WHERE a = 'a2' AND b = 'b2'")
    for name, view in views.items():
        report = view.refresh_only()
        assert report.technique == name
        assert report.rows_changed == 1  # (a2, c2, e1)
        assert all(stage.comes == 0 for stage in report.stages)
        if name in FIGURES:
            assert [(stage.goes, stage.stays) for stage in report.stages] == FIGURES[name], name
    assert free.refresh_only().technique == "reducing"
    check_all([*views.values(), free])
    assert "__deltaic" not in str(
        wh.spark.read.format("delta").load(str(wh.view_table(wh.definition("free")).ref.path)).columns
    )
