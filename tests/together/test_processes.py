"""Processes, each with a Spark of its own, that work on one local warehouse at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaic
from tests.e2e.conftest import report_of, rows
from tests.e2e.test_left_behind import litter
from tests.lab.oracle import difference
from tests.together.scene import QUERIES, made
from tests.together.witness import State, Witness


@pytest.mark.long
@pytest.mark.parametrize("works", [("both", "change"), ("refresh", "all")])
def test_processes_on_one_warehouse(spark: SparkSession, tmp_path: Path, works: tuple[str, str]) -> None:
    root = tmp_path / "wh"
    with deltaic.open(root) as wh:
        made(wh, "sums")
        wh.sql("ALTER TABLE s SET TBLPROPERTIES (delta.checkpointInterval = 1000)")
    environment = {**os.environ, "DELTAIC_DRIVER_MEMORY": "1g", "DELTAIC_MASTER": "local[1]"}
    told = [tmp_path / f"{number}.json" for number, _ in enumerate(works)]
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.together.process", str(root), work, str(file), "60"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for work, file in zip(works, told, strict=True)
    ]
    try:
        for process in running:
            output, _ = process.communicate(timeout=400)
            assert process.returncode == 0, output[-4000:]
    finally:
        for process in running:
            process.kill()
    found = [json.loads(file.read_text()) for file in told]
    assert all(each["done"] > 2 for each in found), found
    witness = Witness("v", root / "default" / "v", root / "default")
    witness.look()
    for each in found:
        for columns, seen in each["seen"]:
            state = State(tuple(columns), tuple(sorted(((tuple(row), count) for row, count in seen), key=repr)))
            assert state in witness.states, state
    print(works, [(each["done"], each["lost"], len(each["seen"])) for each in found], witness.commits)
    with deltaic.open(root) as wh:
        assert litter(root) == []
        wh.sql("INSERT INTO s VALUES (1, 77)")
        report_of(wh, "v")
        query = wh.definition("v").query
        assert query in QUERIES.values()
        assert difference(rows(wh, query), rows(wh, "SELECT * FROM v")) is None
