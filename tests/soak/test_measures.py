"""What a soak measures, without one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.processes import busy_seconds, seconds_of_session

from tests.soak.measures import Sizes, Tally, drift, growth, is_disturbed


def test_growth_is_that_of_the_second_half() -> None:
    warming = [(float(n), 100.0 + 50 * min(n, 10)) for n in range(20)]
    assert growth(warming) == 0
    leaking = [(float(n), 100.0 + 3 * n) for n in range(20)]
    assert growth(leaking) == pytest.approx(27)
    assert growth(leaking[:8]) == 0  # too few to tell


def test_drift_leaves_upkeep_out() -> None:
    def refreshed(seconds: float, upkeep: float = 0.0) -> dict[str, object]:
        return {"kind": "refresh", "mode": "incremental", "view": "v", "seconds": seconds, "upkeep": upkeep}

    steady = [refreshed(0.4)] * 20
    assert not drift([*steady, *[refreshed(3.4, 3.0)] * 10])
    assert drift([*steady, *[refreshed(2.0)] * 10]) == ["refreshes of v went from 0.40 s to 2.00 s"]


def test_times_are_judged_only_on_a_machine_that_stays_as_it_is() -> None:
    assert not is_disturbed([])
    assert not is_disturbed([0.8] * 30)  # others were there all along
    assert not is_disturbed([0.1] * 20 + [0.3] * 10)
    assert is_disturbed([0.1] * 20 + [0.9] * 10)


def test_processors_are_told_apart() -> None:
    """A child that works, in a session of its own, and this process, which does not."""
    works = [sys.executable, "-c", "import time; until = time.time() + 1.5\nwhile time.time() < until: pass"]
    all_before = busy_seconds()
    with subprocess.Popen(works, start_new_session=True) as child:
        time.sleep(1.0)
        own, everybody = seconds_of_session(child.pid), busy_seconds() - all_before
    assert 0 < own <= everybody + 0.1
    assert seconds_of_session(child.pid) == 0


def test_lines_of_those_who_were_killed(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "events.jsonl")
    tally.read()
    whole = json.dumps({"kind": "check", "verdict": "equal"}) + "\n"
    found = json.dumps({"kind": "finding", "what": "left behind"}) + "\n"
    tally.file.write_text(whole + '{"kind": "wri')
    tally.read()
    assert tally.counts == {"check": 1, "checks equal": 1}
    with tally.file.open("a") as file:
        file.write(whole + found)
    tally.read()
    assert tally.counts["lines lost"] == 1
    assert len(tally.findings) == 1


def test_sizes_are_those_of_the_largest(tmp_path: Path) -> None:
    for table, files in (("a", 3), ("b", 130)):
        (tmp_path / table / "_delta_log").mkdir(parents=True)
        (tmp_path / table / "_delta_log" / "0.json").touch()
        for number in range(files):
            (tmp_path / table / f"{number}.parquet").touch()
    sizes = Sizes.of([tmp_path / "a", tmp_path / "b"])
    assert (sizes.files, sizes.log) == (130, 1)
    assert sizes.problems() == ["a table has 130 data files, more than 120"]
    assert not Sizes.of([tmp_path / "a"]).problems()
