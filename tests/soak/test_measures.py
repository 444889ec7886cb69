"""What a soak measures, without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.measures import Sizes, Tally, drift, growth


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
