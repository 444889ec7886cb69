"""One of several processes that work on one local warehouse at once:

    python -m tests.together.process <the warehouse> <what it does> <a file for what it saw> <seconds>

It ends with status 0 if nothing was wrong, and writes down what it read of the view, and how often it lost.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

import deltaic
from deltaic import Warehouse
from tests.together.scene import POLICY, QUERIES, YIELDED

SPARE = "CREATE MATERIALIZED VIEW spare AS SELECT k FROM r WHERE v > 10"


class Worker:
    def __init__(self, wh: Warehouse, seed: int) -> None:
        self.wh, self.random = wh, random.Random(seed)
        self.done, self.lost, self.number = 0, 0, 0
        self.seen: list[tuple[tuple[str, ...], list[tuple[tuple[object, ...], int]]]] = []

    def refresh(self) -> None:
        name = self.random.choice(["v", "v", None])
        self.wh.refresh(name, full=self.random.random() < 0.3)

    def write(self) -> None:
        self.number += 1
        table, k = self.random.choice("sr"), self.random.randrange(4)
        statements = (
            f"INSERT INTO {table} VALUES ({k}, {self.number})",
            f"DELETE FROM {table} WHERE k = {k} AND v < {self.number}",
            f"UPDATE {table} SET v = v + 1 WHERE k = {k}",
            f"MERGE INTO {table} USING (SELECT {k} AS k) x ON {table}.k = x.k AND {table}.v > 3"
            f" WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (x.k, 5)",
        )
        self.wh.sql(self.random.choice(statements))

    def change(self) -> None:
        query = QUERIES[self.random.choice(list(QUERIES))]
        statements = (
            f"ALTER MATERIALIZED VIEW v AS {query}",
            f"CREATE OR REPLACE MATERIALIZED VIEW v {POLICY} AS {query}",
            f"CREATE MATERIALIZED VIEW IF NOT EXISTS v AS {query}",
            SPARE,
            "DROP MATERIALIZED VIEW spare",
        )
        self.wh.sql(self.random.choice(statements))

    def read(self) -> None:
        self.note(self.wh.table("v"))

    def read_by_name(self) -> None:
        self.note(self.wh.sql("SELECT * FROM v"))

    def note(self, frame: DataFrame) -> None:
        rows = Counter(map(tuple, frame.collect()))
        self.seen.append((tuple(frame.columns), list(rows.items())))

    def both(self) -> None:
        self.random.choice([self.refresh, self.write, self.read])()

    def all(self) -> None:
        """Where nobody gives the view other columns, its name is as good as the view."""
        self.random.choice([self.refresh, self.write, self.read, self.read_by_name])()

    def run(self, work: Callable[[], None], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.attempt(work)

    def attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
            self.done += 1
        except YIELDED:
            self.lost += 1


def main(root: str, work: str, told: str, seconds: str) -> None:
    with deltaic.open(root) as wh:
        worker = Worker(wh, os.getpid())
        worker.run(getattr(worker, work), float(seconds))
    Path(told).write_text(json.dumps({"done": worker.done, "lost": worker.lost, "seen": worker.seen}))


if __name__ == "__main__":
    main(*sys.argv[1:])
