"""Whatever a killed process leaves in a warehouse: nothing of it is wrong, and the next process takes it away."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaic
from deltaic import Warehouse
from deltaic.app.catalogs.session import SessionCatalog
from deltaic.app.values.definition import PROPERTY
from deltaic.errors import ExistsError
from tests.e2e.camera import Camera
from tests.e2e.conftest import check_queries, killed_in, rows
from tests.e2e.test_recursion import CLOSURE
from tests.lab.oracle import difference

QUERIES = {
    "g": "SELECT k, sum(v) AS t, min(v) AS low FROM s GROUP BY k",
    "j": "SELECT s.v, u.w FROM s LEFT JOIN u ON s.k = u.k",
    "r": "SELECT s.v, u.w FROM s JOIN u ON s.k = u.k",
    "i": "SELECT s.v FROM s JOIN (SELECT k FROM u EXCEPT SELECT v FROM s) x ON s.k = x.k",
    "d": "SELECT DISTINCT s.v, u.w FROM s JOIN u ON s.k = u.k",
}
PROPERTIES = {"d": "TBLPROPERTIES (deltaic.counts = false)", "i": "TBLPROPERTIES (deltaic.strata = true)"}
PATH = f"{CLOSURE} SELECT x, y FROM path"
MORE_RULES = PATH.replace("SELECT s, d FROM edge UNION", "SELECT s, d FROM edge UNION SELECT d, s FROM edge UNION")
TABLES = """
CREATE TABLE s (k INT, v INT); CREATE TABLE u (k INT, w INT); CREATE TABLE edge (s INT, d INT);
INSERT INTO s VALUES (1, 1), (1, 1), (2, 2), (NULL, 3); INSERT INTO u VALUES (1, 10), (2, 20), (5, 1);
INSERT INTO edge VALUES (1, 2), (2, 3), (3, 4)
"""
CHANGE = """
DELETE FROM u WHERE k = 1; UPDATE s SET v = 9 WHERE k = 2; INSERT INTO s VALUES (3, 3);
DELETE FROM edge WHERE s = 2; INSERT INTO edge VALUES (2, 4), (4, 5)
"""


@dataclass
class Deed:
    """Something that is killed: what it is, and what somebody does who finds it undone."""

    do: Callable[[Warehouse], object]
    again: Callable[[Warehouse], object] = lambda _: None
    views: tuple[str, ...] = ()
    before: Callable[[Warehouse], object] = lambda wh: wh.script(CHANGE)
    use_rs: bool = True
    in_two: bool = False
    """Whether it refreshes the view first, in a commit of its own."""


def _by(writer: str) -> Callable[[Warehouse], object]:
    def refresh(wh: Warehouse) -> None:
        wh.sql(f"SET spark.deltaic.writer = {writer}")
        try:
            wh.refresh()
        finally:
            wh.sql("RESET spark.deltaic.writer")

    return refresh


def _rolled(wh: Warehouse) -> None:
    wh.propagate("r")
    wh.apply("r")


def _made(wh: Warehouse) -> None:
    wh.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS d AS {QUERIES['d']}")
    wh.sql("CREATE TABLE IF NOT EXISTS copied AS SELECT * FROM s")
    assert wh.sql("SELECT * FROM copied").count() == wh.sql("SELECT * FROM s").count()


def _propagated(wh: Warehouse) -> None:
    wh.script(CHANGE)
    wh.propagate("r")


EVERYTHING = ("g", "j", "r", "i", "d", "path")
DEEDS = {
    "written by marks": Deed(_by("marks"), views=("j",)),
    "made": Deed(_made, _made, views=("g",)),
    "dropped": Deed(
        lambda wh: wh.sql("DROP MATERIALIZED VIEW r"),
        lambda wh: wh.sql("DROP MATERIALIZED VIEW IF EXISTS r"),
        views=("r",),
        before=_propagated,
    ),
    "all written by Spark": Deed(_by("spark"), views=EVERYTHING, use_rs=False),
    "all written by marks": Deed(_by("marks"), views=EVERYTHING),
    "all written by delta-rs": Deed(_by("delta-rs"), views=EVERYTHING),
    "all computed anew": Deed(lambda wh: wh.refresh_all(full=True), views=EVERYTHING),
    "rolled": Deed(_rolled, _rolled, views=("r",)),
    "rules added": Deed(
        lambda wh: wh.sql(f"ALTER MATERIALIZED VIEW path AS {MORE_RULES}"),
        lambda wh: wh.sql(f"ALTER MATERIALIZED VIEW path AS {MORE_RULES}"),
        views=("path",),
        in_two=True,
    ),
    "altered": Deed(
        lambda wh: wh.sql(f"ALTER MATERIALIZED VIEW g AS {QUERIES['j']}"),
        lambda wh: wh.sql(f"ALTER MATERIALIZED VIEW g AS {QUERIES['j']}"),
        views=("g",),
    ),
    "a recursion made": Deed(
        lambda wh: wh.sql(f"CREATE MATERIALIZED VIEW path AS {PATH}"),
        lambda wh: wh.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS path AS {PATH}"),
        views=("g",),
    ),
}
FEW, MANY = 4, 30
"""Pictures that are looked at, where time is short and where it is not."""
SHORT = ("written by marks",)


def query_of(wh: Warehouse, view: str) -> str:
    return wh.definition(view).query


def right(wh: Warehouse) -> None:
    """All views that are there are their queries."""
    queries = {told["view"]: query_of(wh, told["view"]) for told in wh.views()}
    rules = queries.pop("default.path", None)
    if queries:
        check_queries(wh, queries)
    if rules is not None:
        edges = {(row[0], row[1]) for row in wh.sql("SELECT s, d FROM edge").collect()}
        assert difference(list(paths(edges, "SELECT d, s" in rules)), rows(wh, "SELECT * FROM path")) is None


def paths(edges: set[tuple[int, int]], backwards: bool) -> set[tuple[int, int]]:
    """Along edges and then along one more, which may be one backwards."""
    found = edges | {(d, s) for s, d in edges} if backwards else set(edges)
    while more := {(s, y) for s, d in edges for x, y in found if d == x} - found:
        found |= more
    return found


def is_of_a_users_table(log: Path) -> bool:
    """Whether a folder is the log of a table that is no view: it may have other writers, whose drafts stay."""
    if log.name != "_delta_log" or ".deltaic" in log.parts:
        return False
    return not any(PROPERTY in commit.read_text() for commit in log.glob("*.json"))


def litter(root: Path) -> list[str]:
    """What is neither a table, nor named by one."""
    found = []
    for folder, folders, files in os.walk(root):
        place = Path(folder)
        if not is_of_a_users_table(place):
            found += [str(place / name) for name in files if name.endswith(".tmp")]
        found += [str(place / name) for name in folders if name.startswith("deltaic-")]
        if place.name in ("begun", "trash"):
            found += [str(place / name) for name in [*folders, *files]]
    tables = [*root.glob("default/*"), *root.glob(".deltaic/kept/*/*"), *root.glob(".deltaic/times")]
    found += [str(t) for t in tables if t.is_dir() and not list((t / "_delta_log").glob("*.json"))]
    kept = [t for t in root.glob(".deltaic/kept/*/*") if not (root / t.parent.name / t.name).exists()]
    return found + list(map(str, kept))


def answers(wh: Warehouse) -> dict[str, list[tuple[object, ...]]]:
    return {told["view"]: rows(wh, f"SELECT * FROM {told['view']}") for told in wh.views()}


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(n, marks=pytest.mark.long) for n in DEEDS if n not in SHORT)])
def test_killed_at_any_write(name: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    deed, root = DEEDS[name], tmp_path / "wh"
    long = bool(request.config.getoption("--fuzz"))
    with deltaic.open(root, use_rs=deed.use_rs) as wh:
        wh.script(TABLES)
        for view in deed.views:
            query = PATH if view == "path" else QUERIES[view]
            wh.sql(f"CREATE MATERIALIZED VIEW {view} {PROPERTIES.get(view, '')} AS {query}")
        deed.before(wh)
        old = answers(wh)
        camera = Camera(root, tmp_path / "album")
        with camera.filming(inside_of_statements=long):
            deed.do(wh)
        new = answers(wh)
        wh.refresh()
        right(wh)
    taken = camera.taken
    assert len(taken) >= 2
    print(f"{name}: {len(taken)} pictures")
    for picture in taken[:: max(1, len(taken) // (MANY if long else FEW))]:
        with deltaic.open(picture, use_rs=deed.use_rs) as wh:
            assert litter(picture) == [], picture
            for view, found in answers(wh).items():
                known = [answer[view] for answer in (old, new) if view in answer]
                if all(difference(answer, found) is not None for answer in known):
                    assert deed.in_two, f"{picture}: {view} is neither what it was nor what it becomes"
                    right(wh)
            wh.refresh()
            deed.again(wh)
            right(wh)
            assert litter(picture) == [], picture


def test_the_catalog_of_a_session_is_put_right(remote: Warehouse) -> None:
    """A view is a table and a name there, which no commit has at once: whoever opens next makes the name anew."""
    remote.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    with killed_in((SessionCatalog, "register")):
        remote.sql("CREATE MATERIALIZED VIEW m AS SELECT k FROM s")
    wh = deltaic.open(spark=remote.spark)
    assert rows(wh, "SELECT count(*) FROM m") == [(2,)]
    with killed_in((SessionCatalog, "remove")):
        wh.sql("DROP MATERIALIZED VIEW m")
    wh = deltaic.open(spark=remote.spark)
    assert rows(wh, "SELECT count(*) FROM m") == [(2,)]
    wh.sql("DROP MATERIALIZED VIEW m")
    assert wh.views() == []


def test_a_name_that_was_held_by_who_was_killed(remote: Warehouse) -> None:
    """It shows the view as it was when it was altered: whoever opens, or refreshes it, next names it anew."""
    remote.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    remote.sql("CREATE MATERIALIZED VIEW m AS SELECT k FROM s")
    with killed_in((SessionCatalog, "register")):
        remote.sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT v FROM s")
    assert remote.sql("SELECT * FROM m").columns == ["k"]
    wh = deltaic.open(spark=remote.spark)
    assert wh.sql("SELECT * FROM m").columns == ["v"]
    with killed_in((SessionCatalog, "register")):
        wh.sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, v FROM s")
    wh.sql("INSERT INTO s VALUES (3, 3)")
    wh.refresh("m")
    assert sorted(rows(wh, "SELECT * FROM m")) == [(1, 1), (2, 2), (3, 3)]


def test_a_folder_that_no_catalog_knows(remote: Warehouse, tmp_path: Path) -> None:
    """A CREATE that was killed before its commit leaves files in the place where the view's table goes."""
    remote.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    left = tmp_path / "schema" / "__deltaic_mv_m" / "part-0.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of a file")
    with pytest.raises(ExistsError, match="__deltaic_mv_m"):
        remote.sql("CREATE MATERIALIZED VIEW m AS SELECT k FROM s")
    for file in (left, left.parent):
        os.utime(file, (0, 0))
    remote.sql("CREATE MATERIALIZED VIEW m AS SELECT k FROM s")
    assert rows(remote, "SELECT count(*) FROM m") == [(2,)]
    assert not left.exists()
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        remote.sql("CREATE MATERIALIZED VIEW n AS SELECT 1 / (k - 1) AS x FROM s")
    remote.sql("CREATE MATERIALIZED VIEW n AS SELECT 1 / k AS x FROM s")


@pytest.mark.local
def test_a_folder_of_the_users_own_stays(wh: Warehouse, tmp_path: Path) -> None:
    own = tmp_path / "wh" / "default" / "m" / "notes.txt"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(ExistsError, match="is there and is no table"):
        wh.sql("CREATE MATERIALIZED VIEW m AS SELECT 1 AS one")
    with deltaic.open(tmp_path / "wh"):
        assert own.read_text() == "mine"


def test_what_a_killed_client_left_on_its_server(remote: Warehouse) -> None:
    """Only what is old: other clients of the server may be at work."""
    old, new = "deltaic_together_1000000000_a", f"deltaic_together_{int(time.time())}_b"
    for name in (old, new):
        remote.spark.range(1).createGlobalTempView(name)
    remote.refresh()
    there = {row["viewName"] for row in remote.sql("SHOW VIEWS IN global_temp").collect()}
    remote.spark.catalog.dropGlobalTempView(new)
    assert new in there
    assert old not in there
