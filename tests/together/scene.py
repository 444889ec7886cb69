"""A warehouse with two tables and two views, and those who work on it at once."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltaic
from deltaic import Report, Warehouse
from deltaic.algebra.quoting import quote
from deltaic.app.catalogs import session as session_catalog
from deltaic.app.catalogs.folders import is_table
from deltaic.errors import ConcurrentRefresh, ExistsError, MissingError, SourceError, TimeError
from deltaic.store.log import Log
from deltaic.store.state import read_state_rs
from deltaic.store.table import TableRef, table_at
from tests.conftest import new_client
from tests.e2e.test_left_behind import litter
from tests.together.points import points
from tests.together.scheduler import Mutex, Scheduler, Turn
from tests.together.witness import State, Witness

QUERIES = {
    "sums": "SELECT k, sum(v) AS t FROM s GROUP BY k",
    "different": "SELECT k, count(DISTINCT v) AS t FROM s GROUP BY k",
    "one": "SELECT k, v AS t FROM s WHERE v > 0",
    "both": "SELECT k, v AS t FROM s WHERE v > 0 UNION ALL SELECT k, v FROM r",
    "counted": "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k",
    "joined": "SELECT s.k, r.v AS t FROM s JOIN r ON s.k = r.k",
}
TABLES = """
CREATE TABLE s (k INT, v INT); CREATE TABLE r (k INT, v INT);
INSERT INTO s VALUES (1, 1), (1, 2), (2, 2), (3, -1); INSERT INTO r VALUES (1, 10), (4, 40)
"""
OTHER = "SELECT k, max(v) AS m FROM r GROUP BY k"
YIELDED = (ConcurrentRefresh, ExistsError, MissingError)
"""What a loser may be told."""
SESSIONS = ("session", "connect")
POLICY = "REFRESH POLICY INCREMENTAL"
"""Where costs decide, the smallest views are computed anew."""


def made(wh: Warehouse, query: str) -> None:
    wh.script(TABLES)
    wh.sql(f"CREATE MATERIALIZED VIEW v {POLICY} AS {QUERIES[query]}")
    wh.sql(f"CREATE MATERIALIZED VIEW o {POLICY} AS {OTHER}")


class Scene:
    """`kind`: `folder`, a local warehouse that is open twice; `shared`, open once, and all use that; `session`, the
    catalog of sessions, where there is no lock; `connect`, the same with clients of a Spark Connect server."""

    def __init__(self, spark: SparkSession, root: Path, kind: str, *, use_rs: bool = True) -> None:
        self.spark, self.root, self.kind, self.use_rs = spark, root, kind, use_rs
        self.undo = ExitStack()
        place = root / "default" / ("__deltaic_mv_v" if kind in SESSIONS else "v")
        self.witness = Witness("v", place, root / "default")
        self.scheduler = Scheduler(self.witness.look)
        self.opened: list[Warehouse] = []
        self.seen: list[State] = []
        self.losses: list[BaseException] = []
        self.writes = 0

    def warehouse(self) -> Warehouse:
        """Of an actor's own in a session; one of two that have the same folder open; or the one that all share."""
        if self.kind in SESSIONS:
            return deltaic.open(spark=self.session(), use_rs=self.use_rs)
        if len(self.opened) < (1 if self.kind == "shared" else 2):
            found = self.undo.enter_context(deltaic.open(self.root, use_rs=self.use_rs))
            mutex: Any = Mutex(self.scheduler)
            found.engine._mutex = mutex
            self.opened.append(found)
        else:
            self.opened.append(self.opened.pop(0))
        return self.opened[-1]

    def session(self) -> SparkSession:
        """A new one, which shares its catalog with the others."""
        if self.kind == "session":
            return self.spark.newSession()
        client = new_client(self.spark)
        self.undo.callback(client.stop)
        return client

    def table_named(self, _: SparkSession, parts: Sequence[str]) -> TableRef:
        """What DESCRIBE DETAIL tells, in no time: schedules ask for it a hundred times."""
        folder = self.root / "default" / {"__deltaic_mv_o": "o"}.get(parts[-1], parts[-1])
        if not is_table(folder):
            raise SourceError(f"{parts[-1]} cannot be read as a table")
        return TableRef(".".join(parts), ".".join(map(quote, parts)), str(folder))

    # those who work

    def actor(self, what: str) -> Callable[[], object]:
        """By name: `refresh`, or with what it is about: `alter both`, `write 3`, `read 2`."""
        word, _, about = what.partition(" ")
        method: Callable[..., object] = getattr(self, word)
        wh = self.warehouse()
        return lambda: method(wh, about) if about else method(wh)

    def pause(self) -> None:
        self.scheduler.point("own")

    def write(self, wh: Warehouse, times: str = "2") -> None:
        """Commits of all kinds, by others than Deltaic."""
        for _ in range(int(times)):
            self.pause()
            self.writes += 1
            number, table = self.writes, str(self.root / "default" / "rs"[self.writes % 2])
            rows = pa.table({"k": pa.array([number % 4], pa.int32()), "v": pa.array([number], pa.int32())})
            if number % 3 == 0:
                DeltaTable(table).delete(f"k = {number % 2 + 1}")
            else:
                write_deltalake(table, rows, mode="append")

    def merge(self, wh: Warehouse, number: str = "5") -> None:
        wh.sql(
            f"MERGE INTO s USING (SELECT {number} AS k UNION ALL SELECT 1) x ON s.k = x.k"
            f" WHEN MATCHED THEN UPDATE SET v = v + {number} WHEN NOT MATCHED THEN INSERT (k, v) VALUES (x.k, 7)"
        )

    def refresh(self, wh: Warehouse, times: str = "1") -> None:
        for _ in range(int(times)):
            self.pause()
            report = wh.refresh("v")
            assert isinstance(report, Report)

    def full(self, wh: Warehouse) -> None:
        wh.refresh("v", full=True)

    def all(self, wh: Warehouse) -> None:
        wh.refresh()

    def roll(self, wh: Warehouse) -> None:
        wh.propagate("v")
        self.pause()
        wh.apply("v")

    def alter(self, wh: Warehouse, query: str) -> None:
        wh.sql(f"ALTER MATERIALIZED VIEW v AS {QUERIES[query]}")

    def replace(self, wh: Warehouse, query: str) -> None:
        wh.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v {POLICY} AS {QUERIES[query]}")

    def create(self, wh: Warehouse, query: str) -> None:
        wh.sql(f"CREATE MATERIALIZED VIEW v {POLICY} AS {QUERIES[query]}")

    def ensure(self, wh: Warehouse, query: str) -> None:
        wh.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS v {POLICY} AS {QUERIES[query]}")

    def drop(self, wh: Warehouse) -> None:
        wh.sql("DROP MATERIALIZED VIEW v")

    def check(self, wh: Warehouse) -> None:
        found = wh.check("v")
        assert not isinstance(found, list)
        assert not found.wrong, found

    def repair(self, wh: Warehouse) -> None:
        wh.repair("v")

    def optimize(self, wh: Warehouse) -> None:
        wh.spark.sql(f"OPTIMIZE delta.`{self.witness.folder}`")

    def open(self, _: Warehouse) -> None:
        """Somebody else comes, and sweeps up."""
        if self.kind in SESSIONS:
            deltaic.open(spark=self.session())
        else:
            deltaic.open(self.root).close()

    def show(self, wh: Warehouse) -> None:
        wh.views()

    def read(self, wh: Warehouse, times: str = "2") -> None:
        for _ in range(int(times)):
            self.pause()
            frame = wh.table("v")
            self.pause()
            self.note(frame)

    def name(self, wh: Warehouse, times: str = "2") -> None:
        """A reader by name."""
        for _ in range(int(times)):
            self.pause()
            self.note(wh.sql("SELECT * FROM v"))

    def past(self, wh: Warehouse) -> None:
        """A reader of a time."""
        self.note(wh.table("v", as_of=1))

    def note(self, frame: Any) -> None:
        from collections import Counter

        self.seen.append(State.of(tuple(frame.columns), Counter(map(tuple, frame.collect()))))

    # a schedule

    def play(self, actors: Sequence[str], turns: Sequence[Turn]) -> None:
        self.witness.look()
        self.times_are_right()
        names = [f"{number} {what}" for number, what in enumerate(actors)]
        for name, what in zip(names, actors, strict=True):
            self.scheduler.add(name, self.actor(what))
        try:
            with points(self.scheduler):
                self.scheduler.run([Turn(names[int(turn.actor)], turn.upto, turn.times) for turn in turns])
            self.judge()
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{list(actors)}: {list(turns)}\n{self.scheduler.told()}") from None

    def judge(self) -> None:
        for actor in self.scheduler.actors.values():
            asked_for_a_time = isinstance(actor.error, TimeError) and actor.name.endswith(("past", "roll"))
            if actor.error is not None and (isinstance(actor.error, YIELDED) or asked_for_a_time):
                self.losses.append(actor.error)
                text = str(actor.error)
                assert len(text) < 600, text
                assert "Exception" not in text, text
            elif actor.error is not None and not is_no_view(actor.error):
                told = "".join(traceback.format_exception(actor.error))
                raise AssertionError(f"{actor.name} failed: {actor.error!r:.300}\n{told[-2500:]}")
        for state in self.seen:
            assert state in self.witness.states, f"somebody read what the view never was: {state}"
        self.afterwards()

    def afterwards(self) -> None:
        """The next one who comes finds all of the view, or nothing of it."""
        wh = deltaic.open(spark=self.session()) if self.kind in SESSIONS else self.warehouse()
        self.witness.look()
        names = [told["view"] for told in wh.views()]
        assert "default.o" in names, names
        if "default.v" not in names:
            self.nothing_is_left(wh)
            return
        self.write(wh, "3")
        report = wh.refresh("v")
        assert isinstance(report, Report)
        assert report.mode == "incremental", report
        self.witness.look()
        self.is_right(wh)

    def times_are_right(self) -> None:
        """Every commit that was numbered has one time, and every time is that of one commit."""
        folder = self.root / ("default/__deltaic_times" if self.kind in SESSIONS else ".deltaic/times")
        if is_table(folder):
            ref = table_at(folder)
            units = read_state_rs(ref, Log(ref).version(), {n: n for n in ("time", "source", "version")}).to_pylist()
            assert len({unit["time"] for unit in units}) == len(units), units
            assert len({(unit["source"], unit["version"]) for unit in units}) == len(units), units

    def is_right(self, wh: Warehouse) -> None:
        now = self.witness.states[-1]
        self.seen.clear()
        self.note(wh.sql("SELECT * FROM v"))
        self.note(wh.table("v"))
        assert self.seen == [now, now], f"the view is {now}, and people see {self.seen}"

    def nothing_is_left(self, wh: Warehouse) -> None:
        assert not self.witness.folder.exists(), sorted(map(str, self.witness.folder.rglob("*")))[:9]
        left = [name for name in names_in(wh.spark) if name.endswith(("v", "_v"))]
        assert left == [], left
        if self.kind not in SESSIONS:
            deltaic.open(self.root).close()  # who comes next sweeps up
            assert litter(self.root) == [], litter(self.root)


def is_no_view(error: BaseException) -> bool:
    """What Spark says of a name that is nobody's."""
    return isinstance(error, PySparkException) and "[TABLE_OR_VIEW_NOT_FOUND]" in str(error)


@contextmanager
def scene(
    spark: SparkSession, template: Path, root: Path, kind: str, query: str, *, use_rs: bool = True
) -> Iterator[Scene]:
    """A copy of a warehouse that was made before; a session's catalog is told of its tables."""
    shutil.copytree(template, root)
    found = Scene(spark, root, kind, use_rs=use_rs)
    own = spark.newSession()
    try:
        if kind in SESSIONS:
            empty(own)
            adopt(own, root, query)
        with found.undo, pytest.MonkeyPatch.context() as patch:
            if kind in SESSIONS:
                patch.setattr(session_catalog, "table_named", found.table_named)
            yield found
    finally:
        if kind in SESSIONS:
            empty(own)


def adopt(session: SparkSession, root: Path, query: str) -> None:
    """The view itself is made there: only then its table is the catalog's, and goes when it is dropped."""
    session.sql(f"ALTER DATABASE default SET LOCATION '{root / 'default'}'")
    shutil.rmtree(root / "default" / "v")
    for name, folder in (("s", "s"), ("r", "r"), ("__deltaic_mv_o", "o")):
        session.sql(f"CREATE TABLE default.{name} USING delta LOCATION '{root / 'default' / folder}'")
    wh = deltaic.open(spark=session)
    wh.sql(f"CREATE MATERIALIZED VIEW v {POLICY} AS {QUERIES[query]}")


def names_in(session: SparkSession) -> list[str]:
    return [str(row["tableName"]) for row in session.sql("SHOW TABLES IN default").collect()]


def empty(session: SparkSession) -> None:
    views = {str(row["viewName"]) for row in session.sql("SHOW VIEWS IN default").collect()}
    for name in names_in(session):
        session.sql(f"DROP {'VIEW' if name in views else 'TABLE'} IF EXISTS default.`{name}`")
