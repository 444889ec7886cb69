"""Everything on a Spark standalone cluster: two workers on this machine, and a driver in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.standalone import Cluster
from tests.e2e.test_left_behind import litter


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path / "cluster")
    try:
        started.start()
        yield started
    finally:
        started.stop()


def run(cluster: Cluster, tables: Path, *parts: str, ends: int = 0) -> dict[str, int]:
    """What the driver tells, unless it is to be killed. How far it is, it says on stderr, which pytest shows."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.driver", str(cluster.folder), str(tables), *parts]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=root, check=False)
    assert done.returncode == ends
    return json.loads(done.stdout.splitlines()[-1]) if ends == 0 else {}


def test_executors_are_lost_in_a_refresh(cluster: Cluster, tmp_path: Path) -> None:
    told = run(cluster, tmp_path / "tables", "short")
    assert told["kills"] >= 1
    assert told["checks"] == 2


@pytest.mark.long
def test_views_of_all_kinds_and_lost_executors(cluster: Cluster, tmp_path: Path) -> None:
    told = run(cluster, tmp_path / "tables", "kinds", "local")
    assert told["kills"] >= 3
    assert told["checks"] >= 11


@pytest.mark.long
def test_all_of_it_by_spark(cluster: Cluster, tmp_path: Path) -> None:
    told = run(cluster, tmp_path / "tables", "by_spark")
    assert told["kills"] >= 3
    assert told["checks"] >= 20


@pytest.mark.long
def test_executors_are_lost_before_every_step_of_every_kind(cluster: Cluster, tmp_path: Path) -> None:
    assert run(cluster, tmp_path / "tables", "every_step")["kills"] >= 60


@pytest.mark.long
def test_a_driver_is_killed_while_its_executors_work(cluster: Cluster, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    run(cluster, tables, "begin")
    run(cluster, tables, "die", ends=9)
    assert run(cluster, tables, "go_on")["checks"] >= 20
    assert litter(tables / "wh") == []


@pytest.mark.long
def test_several_sessions_work_on_one_view(cluster: Cluster, tmp_path: Path) -> None:
    assert run(cluster, tmp_path / "tables", "together")["checks"] == 3
