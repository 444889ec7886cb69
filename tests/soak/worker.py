"""The process that a soak kills: writers, refreshers and a checker, as threads on one warehouse.

    python -m tests.soak.worker <folder> <seed> <kind of run>

What it does is told in lines of JSON, in a file, so that nothing is lost when it is killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltaic
from deltaic import Check, Report, Warehouse
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.unfinished import litter_of
from deltaic.errors import ConcurrentRefresh, HistoryGone, MissingError, NotIncremental, TimeError
from tests.soak.views import ALTERED, DATALOG, GROUPED, TABLES, VIEWS, change, created

SETTINGS = {
    "retainHours": 3 / 60,
    "vacuumHours": 4 / 60,
    "compactFiles": 10,
    "keptFiles": 10,
    "checkpointCommits": 10,
}
"""A week in three minutes: what upkeep does in days it does here while one looks on."""
WRITERS = ("auto", "auto", "marks", "delta-rs", "spark")
_CONFLICT = ("DELTA_CONCURRENT_", "Concurrent", "DELTA_METADATA_CHANGED", "ProtocolChanged")


class Worker:
    def __init__(self, wh: Warehouse, folder: Path, seed: int) -> None:
        self.wh, self.folder, self.seed = wh, folder, seed
        self.log = (folder / "events.jsonl").open("a", buffering=1)
        self.stop = threading.Event()
        self.mutex = threading.Lock()

    def tell(self, kind: str, **more: Any) -> None:
        with self.mutex:
            self.log.write(json.dumps({"t": round(time.time(), 2), "kind": kind, **more}, default=str) + "\n")

    # the beginning

    def prepare(self) -> None:
        for name, value in SETTINGS.items():
            self.wh.spark.conf.set(f"spark.deltaic.{name}", str(value))
        self.wh.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        there = {name for _, name in self.wh.engine.catalog.view_names()}
        if not (self.folder / "made").exists():
            for statement in TABLES.split(";"):
                text = statement.strip().replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
                self.wh.sql(text)
            for name in VIEWS:
                if name not in there:
                    self.wh.sql(created(name))
            if "reach" not in there:
                self.wh.datalog(DATALOG)
            (self.folder / "made").touch()
        elif "fleeting" not in there:
            self.wh.sql(created("fleeting"))

    def check_left_behind(self) -> None:
        """Opening a warehouse takes away what a killed process left."""
        catalog = self.wh.engine.catalog
        assert isinstance(catalog, LocalCatalog)
        own = catalog.root / ".deltaic"
        tables = [folder for schema in catalog.schemas() for _, folder in catalog.tables(schema)]
        left = [path for folder in [*tables, *catalog.hidden_folders()] for path in litter_of(folder)]
        left += [*own.glob("begun/*"), *own.glob("trash/*")]
        left += [folder for folder in catalog.hidden_folders() if catalog.is_abandoned(folder)]
        if left:
            self.tell("finding", what="left behind", paths=[str(path) for path in left])

    # the threads

    def run(self, minutes: float) -> None:
        deeds: list[tuple[Callable[[random.Random], None], float]] = [
            (self.write, 0.4), (self.write, 0.6), (self.refresh, 0.1), (self.refresh, 0.5), (self.check, 3.0),
            (self.tend, 15.0),
        ]  # fmt: skip
        threads = [
            threading.Thread(target=self.repeat, args=(deed, pause, random.Random(self.seed * 100 + number)))
            for number, (deed, pause) in enumerate(deeds)
        ]
        for thread in threads:
            thread.start()
        self.stop.wait(minutes * 60)
        self.stop.set()
        for thread in threads:
            thread.join()

    def repeat(self, deed: Callable[[random.Random], None], pause: float, choice: random.Random) -> None:
        while not self.stop.wait(pause * 2 * choice.random()):
            self.done(deed, choice)

    def done(self, deed: Callable[[random.Random], None], choice: random.Random) -> None:
        try:
            deed(choice)
        except Exception:  # all that is not foreseen is a finding
            self.tell("finding", what="error", deed=deed.__name__, error=traceback.format_exc(limit=-12))

    def write(self, choice: random.Random) -> None:
        statement = change(choice)
        try:
            self.wh.sql(statement)
        except Exception as problem:
            if not any(word in f"{type(problem).__name__} {problem}" for word in _CONFLICT):
                raise
            self.tell("conflict")
        else:
            self.tell("write")

    def refresh(self, choice: random.Random) -> None:
        what = choice.random()
        with contextlib.suppress(ConcurrentRefresh):
            if what < 0.15:
                self.refresh_all()
            elif what < 0.35:
                self.roll(choice)
            elif what < 0.4:
                self.look_back(choice)
            else:
                name = choice.choice([*VIEWS, "reach"])
                with foreseen(name):
                    self.told(self.wh.refresh(name, full=choice.random() < 0.03))

    def refresh_all(self) -> None:
        with foreseen("fleeting"):
            reports = self.wh.refresh()
            assert isinstance(reports, list)
            for report in reports:
                self.told(report)

    def roll(self, choice: random.Random) -> None:
        """A past that is gone, or a source that became another table, begins a kept delta anew."""
        try:
            for report in self.wh.propagate("rolled", steps=choice.randrange(1, 4)):
                self.told(report)
            if choice.random() < 0.6:
                self.told(self.wh.apply("rolled"))
        except (HistoryGone, NotIncremental, TimeError) as problem:
            self.tell("begun anew", why=str(problem)[:200])
            self.told(self.wh.refresh("rolled"))

    def look_back(self, choice: random.Random) -> None:
        """A time between the view's and now, or of its past, if that is still there."""
        with contextlib.suppress(TimeError, HistoryGone, NotIncremental):
            newest = self.wh.propagate("rolled", steps=1)
            at = (newest[0].time or 1) - choice.randrange(3) if newest else 1
            self.wh.table("rolled", as_of=at).count()
            self.tell("looked back", at=at)

    def told(self, report: Report | list[Report]) -> None:
        assert isinstance(report, Report)
        spent = report.timings.get("upkeep", 0.0)
        self.tell(
            "refresh", view=report.view, mode=report.mode, seconds=round(report.seconds, 3), upkeep=round(spent, 3),
            by=report.written_by, reasons=[reason[:120] for reason in report.reasons],
        )  # fmt: skip

    def check(self, choice: random.Random) -> None:
        self.check_one(choice.choice([*VIEWS, "reach"]))

    def check_one(self, name: str) -> None:
        with foreseen(name), self.wh.engine.lock():
            found = self.wh.check(name)
            assert isinstance(found, Check)
            self.tell("check", view=name, verdict=found.verdict, rows=found.compared, notes=found.notes)
            if found.wrong:
                self.tell("finding", what="a view differs", view=name, found=found.as_dict())

    def tend(self, choice: random.Random) -> None:
        """What the owners of tables and views do now and then."""
        what = choice.random()
        if what < 0.25:
            self.by_owner(f"OPTIMIZE {choice.choice(('s', 'u', 'edge'))}")
        elif what < 0.4:
            self.by_owner("VACUUM u")
        elif what < 0.6:
            query = ALTERED if choice.random() < 0.5 else GROUPED
            # `over` reads columns that both have
            self.wh.sql(f"ALTER MATERIALIZED VIEW grouped AS {query}")
            self.tell("alter")
        elif what < 0.8:
            self.wh.sql("DROP MATERIALIZED VIEW IF EXISTS fleeting")
            self.wh.sql(created("fleeting"))
            self.tell("drop")
        else:
            writer = choice.choice(WRITERS)
            self.wh.spark.conf.set("spark.deltaic.writer", writer)
            self.tell("writer", writer=writer)

    def by_owner(self, statement: str) -> None:
        try:
            self.wh.sql(statement)
            self.tell("tended", statement=statement)
        except Exception as problem:
            if not any(word in f"{type(problem).__name__} {problem}" for word in _CONFLICT):
                raise

    # the end

    def settle(self) -> None:
        """All views are refreshed twice (the second time upkeep is due again) and compared."""
        for _ in range(2):
            self.wh.sql("INSERT INTO s VALUES (1, 1, 1.0)")
            self.wh.sql("INSERT INTO u VALUES (1, 1)")
            self.wh.sql("INSERT INTO edge VALUES (1, 2)")
            self.refresh_all()
            self.roll(random.Random(0))
        for name in [*VIEWS, "reach"]:
            self.check_one(name)


@contextlib.contextmanager
def foreseen(name: str) -> Any:
    """One view comes and goes."""
    try:
        yield
    except MissingError as problem:
        if "fleeting" not in f"{name} {problem}":
            raise


def main(folder: str, seed: str, kind: str, minutes: str) -> None:
    logging.basicConfig(filename=Path(folder) / "worker.log", level=logging.WARNING)
    with deltaic.open(Path(folder) / "wh") as wh:
        worker = Worker(wh, Path(folder), int(seed))
        worker.check_left_behind()
        worker.prepare()
        worker.tell("begun", run=kind, seed=int(seed))
        if kind == "settle":
            worker.settle()
        else:
            worker.run(float(minutes))
        worker.tell("ended", run=kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
