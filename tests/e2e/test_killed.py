"""A refresh that is killed at its steps: the next one is right."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaic
from tests.e2e.conftest import Killed, report_of, rows
from tests.lab.oracle import difference

KILLED_REFRESH = """
import os, sys
import deltaic
from deltaic.app.refresh.run import Run
from deltaic.store.own_table import OwnTable

place, when = sys.argv[2], int(sys.argv[3])
use_rs = sys.argv[4] == "rs"
taken = 0

def dies(self, step, small, take=Run.take):
    global taken
    if taken == when:
        os._exit(9)
    taken += 1
    take(self, step, small)

Run.take = dies
with deltaic.open(sys.argv[1], use_rs=use_rs) as wh:
    wh.refresh(place)
os._exit(0)
"""

VIEWS = {
    "g": "SELECT k, sum(v) AS t FROM s GROUP BY k",
    "j": "SELECT s.v, u.w FROM s LEFT JOIN u ON s.k = u.k",
    "d": "SELECT DISTINCT s.v, u.w FROM s JOIN u ON s.k = u.k",
    "i": "SELECT s.v FROM s JOIN (SELECT k FROM u EXCEPT SELECT v FROM s) x ON s.k = x.k",
}
PROPERTIES = {"d": "TBLPROPERTIES (deltaic.counts = false)", "i": "TBLPROPERTIES (deltaic.strata = true)"}


@pytest.fixture
def prepared(spark: SparkSession, tmp_path: Path) -> Path:
    with deltaic.open(tmp_path / "wh") as wh:
        wh.script("CREATE TABLE s (k INT, v INT); CREATE TABLE u (k INT, w INT)")
        wh.script("INSERT INTO s VALUES (1, 1), (1, 1), (2, 2), (NULL, 3); INSERT INTO u VALUES (1, 10), (2, 20)")
        for name, query in VIEWS.items():
            wh.sql(f"CREATE MATERIALIZED VIEW {name} {PROPERTIES.get(name, '')} AS {query}")
        wh.script("DELETE FROM u WHERE k = 1; UPDATE s SET v = 9 WHERE k = 2; INSERT INTO s VALUES (3, 3)")
    return tmp_path / "wh"


@pytest.mark.parametrize(
    ("view", "by", "step"),
    [("j", "rs", 5), *(pytest.param("g", "spark", step, marks=pytest.mark.long) for step in (1, 3))],
)
def test_killed_at_a_step(prepared: Path, view: str, by: str, step: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLED_REFRESH, str(prepared), view, str(step), by]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 9, done.stderr
    with deltaic.open(prepared) as wh:
        assert report_of(wh, view).mode == "incremental"
        assert difference(rows(wh, VIEWS[view]), rows(wh, f"SELECT * FROM {view}")) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("view", "use_rs"),
    [(view, use_rs) for view in ("g", "i", "j", "d") for use_rs in (True, False)],
)
def test_stopped_before_each_step_and_after_the_commit(
    prepared: Path, view: str, use_rs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every point between two steps, in one process: nothing but the commit may leave a trace."""
    from deltaic.app.refresh.run import Run

    with deltaic.open(prepared, use_rs=use_rs) as wh:
        steps = len(wh.explain(view).split("\nStep ")) - 1
        assert steps >= 3
        real = Run.take
        for stop_at in range(steps + 1):
            taken = 0

            def dying(self: Run, step: object, small: bool) -> None:
                nonlocal taken
                if taken == stop_at:  # noqa: B023
                    raise Killed
                taken += 1
                real(self, step, small)  # type: ignore[arg-type]
                if taken == stop_at == steps:  # noqa: B023
                    raise Killed

            before = rows(wh, f"SELECT * FROM {view}")
            monkeypatch.setattr(Run, "take", dying)
            with pytest.raises(Killed):
                wh.refresh(view)
            monkeypatch.setattr(Run, "take", real)
            after = rows(wh, VIEWS[view]) if stop_at == steps else before
            assert difference(after, rows(wh, f"SELECT * FROM {view}")) is None
        assert report_of(wh, view).mode == "noop"
