"""A driver of a cluster, in a process of its own, since a process has one JVM:

    python -m tests.cluster.driver <the cluster's folder> <a folder for tables> <parts to run>...

It ends with status 0 if all was right, and tells how many views were compared with their queries, how many processes
were killed, and how often a refresh was begun anew.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import deltaic
from deltaic import Report, Warehouse
from deltaic.app.refresh.run import Run
from deltaic.app.rounds import fixpoint
from deltaic.app.rounds.fixpoint import SparkRunner
from deltaic.spark import lost
from tests.cluster.standalone import EXECUTOR_MEMORY, LOOPBACK, Cluster
from tests.cluster.views import CHANGES, VIEWS, Views
from tests.together.cases import FIXED
from tests.together.scene import made, scene

SETTINGS = {
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

SHORT = ("joined", "paired", "without", "ranked", "lonely")


class Scenario:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.checks = self.kills = self.restarts = 0
        logging.getLogger(lost.__name__).addFilter(self.note)

    def note(self, _: logging.LogRecord) -> bool:
        self.restarts += 1
        return True

    # the warehouses

    @contextmanager
    def own_session(self) -> Iterator[SparkSession]:
        """As a user would build one."""
        builder = deltaic.configure(SparkSession.builder.master(self.cluster.url))
        for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(self.folder / "session")}.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()

    @contextmanager
    def counted(self, wh: Warehouse, names: Sequence[str] = tuple(VIEWS)) -> Iterator[Views]:
        views = Views(wh, tuple(names))
        views.make()
        yield views
        self.checks += views.checks

    # the parts

    def kinds(self) -> None:
        """Kinds of views in a session's catalog, and what they lose."""
        with self.own_session() as session, self.counted(deltaic.open(spark=session), SHORT) as views:
            self.refreshed(views, CHANGES[0])
            self.lost_in_a_round(views)
            self.lost_worker(views)
            self.rolled(views)

    def short(self) -> None:
        """A group and a recursion, whose executors are lost in the middle of a refresh."""
        with (
            self.own_session() as session,
            self.counted(deltaic.open(spark=session), ["grouped"]) as views,
            self.before(Run, "take", 1, self.lose_executors),
        ):
            self.refreshed(views, CHANGES[0])

    def by_spark(self) -> None:
        """The same without delta-rs: Spark reads and writes everything."""
        with self.own_session() as session, self.counted(deltaic.open(spark=session, use_rs=False)) as views:
            for change in CHANGES:
                self.refreshed(views, change)
            self.rolled(views)
            self.lost_in_a_round(views)
            self.lost_worker(views)

    def refreshed(self, views: Views, change: str) -> None:
        views.wh.script(change)
        reports = views.wh.refresh()
        assert isinstance(reports, list)
        assert {report.mode for report in reports} == {"incremental"}, reports
        views.check()

    def rolled(self, views: Views) -> None:
        """Propagated, and applied to two times."""
        wh, name = views.wh, "joined"
        wh.script(CHANGES[1])
        wh.sql("SET spark.deltaic.propagateRows = 1")
        marks = [report.time for report in wh.propagate(name, steps=2)]
        assert len(marks) == 2, marks
        wh.sql("RESET spark.deltaic.propagateRows")
        assert wh.apply(name, to=marks[0]).time == marks[0]
        wh.propagate(name)
        wh.apply(name)
        views.check(name)

    @contextmanager
    def on_folders(self) -> Iterator[Warehouse]:
        """A local warehouse whose Spark is the cluster; small things are done in the driver."""
        os.environ["DELTAIC_MASTER"] = self.cluster.url
        with deltaic.open(self.folder / "wh") as wh:
            assert wh.spark.sparkContext.master == self.cluster.url
            wh.sql("SET spark.sql.shuffle.partitions = 2")
            yield wh
        SparkSession.active().stop()

    def local(self) -> None:
        with self.on_folders() as wh, self.counted(wh, ["grouped"]) as views:
            self.refreshed(views, CHANGES[0])

    def together(self) -> None:
        """Those who work on one view at once, in sessions of one cluster."""
        with self.own_session() as session:
            for name in ("two refreshers by Spark", "altered while it is refreshed", "made by two"):
                case = FIXED[name]
                template = self.folder / case.query
                if not template.exists():
                    with deltaic.open(template) as wh:
                        made(wh, case.query)
                root = self.folder / f"played-{self.checks}"
                with scene(session, template, root, "session", case.query, use_rs=case.use_rs) as played:
                    played.play(case.actors, case.schedule)
                self.checks += 1

    def begin(self) -> None:
        """A warehouse for the two parts below, in processes of their own."""
        with self.on_folders() as wh:
            Views(wh).make()
            wh.script(CHANGES[0])

    def die(self) -> None:
        """The driver ends in the middle of a job of the executors."""
        tracker: Any = None

        def end() -> None:
            while not tracker.getActiveStageIds():
                time.sleep(0.002)
            os._exit(9)

        with self.on_folders() as wh:
            tracker = wh.spark.sparkContext.statusTracker()
            with self.before(Run, "take", 2, lambda: threading.Thread(target=end).start()):
                wh.refresh()

    def go_on(self) -> None:
        with self.on_folders() as wh:
            for number in range(2):
                wh.refresh()
                views = Views(wh)
                views.check()
                self.checks += views.checks
                wh.script(CHANGES[1 - number])

    def lost_in_a_round(self, views: Views) -> None:
        """All executors end between two rounds; what the rounds found so far was on them, and nowhere else."""
        views.wh.sql("SET spark.deltaic.roundsHere = 0")
        views.wh.sql("DELETE FROM edge WHERE s = 2")
        before = self.restarts
        with all_by_spark(), self.before(SparkRunner, "keep", 2, self.lose_executors):
            report = views.wh.refresh("path")
        assert isinstance(report, Report)
        assert report.mode == "incremental", report
        assert self.restarts == before + 1, "nothing was lost"
        views.check("path")

    def lost_worker(self, views: Views) -> None:
        """A worker ends while a job of a refresh runs."""
        views.wh.sql("UPDATE s SET v = v + 1 WHERE k < 10")
        with self.before(Run, "take", 1, self.lose_worker_in_a_job):
            views.wh.refresh("paired")
        views.check("paired")
        self.cluster.add_worker()

    def every_step(self) -> None:
        """An executor is lost before each step of each kind of view, and a worker in a job of each."""
        with (
            self.own_session() as session,
            all_by_spark(),
            self.counted(deltaic.open(spark=session, use_rs=False)) as views,
        ):
            for name in [*VIEWS, "path"]:
                for number in range(self.steps(views.wh, name)):
                    views.wh.script(CHANGES[number % 2])
                    with self.before(Run, "take", number, self.lose_executors, always=False):
                        views.wh.refresh(name)  # some changes take fewer steps than others
                    views.check(name)
                views.wh.script(CHANGES[0])
                with self.before(Run, "take", 0, self.lose_worker_in_a_job):
                    views.wh.refresh(name)
                views.check(name)
                self.cluster.add_worker()
                views.wh.script(CHANGES[1])
                views.wh.refresh(name)
                print(f"{name}: {self.kills} kills so far", file=sys.stderr, flush=True)

    def steps(self, wh: Warehouse, name: str) -> int:
        wh.script(CHANGES[0])
        return len(wh.explain(name).split("\nStep ")) - 1

    # the faults

    @contextmanager
    def before(
        self, owner: type, method: str, number: int, happens: Callable[[], None], *, always: bool = True
    ) -> Iterator[None]:
        """Something happens once, before a call of a method."""
        real: Any = getattr(owner, method)
        calls = 0

        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number + 1:
                happens()
            return real(*arguments, **named)

        setattr(owner, method, called)
        try:
            yield
        finally:
            setattr(owner, method, real)
        assert not always or calls > number, f"{method} was called {calls} times only"

    def lose_executors(self) -> None:
        """All of them: whatever only they had is gone."""
        for pid in self.cluster.executors:
            self.cluster.kill(pid)
            self.kills += 1

    def lose_worker_in_a_job(self) -> None:
        tracker = SparkSession.active().sparkContext.statusTracker()

        def lose() -> None:
            while not tracker.getActiveStageIds():
                time.sleep(0.002)
            self.cluster.kill(self.cluster.workers[0])
            self.kills += 1

        threading.Thread(target=lose).start()


@contextmanager
def all_by_spark() -> Iterator[None]:
    """What rounds find is kept by executors, however little it is."""
    few, fixpoint.FEW = fixpoint.FEW, 0
    try:
        yield
    finally:
        fixpoint.FEW = few


def main(cluster: str, folder: str, *parts: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    scenario = Scenario(Cluster(Path(cluster)), Path(folder))
    for part in parts:
        getattr(scenario, part)()
    print(json.dumps({"checks": scenario.checks, "kills": scenario.kills, "restarts": scenario.restarts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
