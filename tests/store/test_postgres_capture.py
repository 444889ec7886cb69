"""Changes of PostgreSQL tables come into their Delta logs: all of them, once, whole, in the order of the commits."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from psycopg.errors import DeadlockDetected

from deltaic.algebra.nodes import WEIGHT
from deltaic.errors import CaptureLost, ConcurrentRefresh, ConfigurationError, ExistsError, SourceAway, SourceError
from deltaic.store import rs_write
from deltaic.store.postgres.capture import Capture, drop_capture, open_capture, start_capture
from deltaic.store.postgres.captured_log import COMMITTED, ORDER, XID, PendingRows
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.slot import SlotWay
from deltaic.store.postgres.snapshot import Visibility
from deltaic.store.postgres.start import WayName
from deltaic.store.postgres.table import Retry, connect
from tests.store.postgres_server import Database, PostgresProcess, postgres
from tests.store.test_postgres import every_type, expected_rows

OWN = (WEIGHT, ORDER, XID, COMMITTED)
Row = tuple[Any, ...]

both_ways = pytest.mark.parametrize("way", ["slot", "triggers"])


def logged(path: Path) -> pa.Table:
    return deltalake.DeltaTable(str(path)).to_pyarrow_table().sort_by([(ORDER, "ascending")])


def replayed(state: Counter[Row], changes: pa.Table) -> Counter[Row]:
    """The state after the changes; transaction by transaction no row may count less than nothing."""
    state = Counter(state)
    columns = [name for name in changes.column_names if name not in OWN]
    order = None
    for row in changes.to_pylist():
        if order is not None and row[ORDER] != order:
            assert min(state.values(), default=0) >= 0
        order = row[ORDER]
        state[tuple(row[name] for name in columns)] += row[WEIGHT]
    assert min(state.values(), default=0) >= 0
    return +state


def counted(rows: pa.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def begin(database: Database, path: Path, way: WayName, table: str = "t") -> tuple[Capture, Counter[Row]]:
    """Start, and read the state that the log starts from."""
    found = database.table(table)
    with start_capture([(found, path)], database.name, way, set_identity=True) as started:
        state = counted(started.read.arrow(found))
    return open_capture([(found, path)], Retry(3, 0.01)), state


def short(database: Database, path: Path, way: WayName) -> Capture:
    """A capture of an empty table t (a int, b text)."""
    database.run("CREATE TABLE t (a int, b text)")
    return begin(database, path, way)[0]


# --- what is captured -----------------------------------------------------------------------------------


@both_ways
def test_changes_one_by_one(database: Database, tmp_path: Path, way: WayName) -> None:
    with short(database, tmp_path / "log", way) as capture:
        database.run("INSERT INTO t VALUES (1, 'x'), (2, NULL)", "UPDATE t SET b = 'y' WHERE a = 1")
        database.run("BEGIN; INSERT INTO t VALUES (3, 'gone'); ROLLBACK", "DELETE FROM t WHERE a = 2")
        database.run("BEGIN; INSERT INTO t VALUES (4); SAVEPOINT s; INSERT INTO t VALUES (5); ROLLBACK TO s; COMMIT")
        marks = capture.step()
        rows = logged(tmp_path / "log")
        assert capture.marks() == marks
        assert capture.step()[0].order == marks[0].order
    found = list(zip(*(rows[name].to_pylist() for name in ("a", "b", WEIGHT)), strict=True))
    assert sorted(found[:2]) == [(1, "x", 1), (2, None, 1)]
    assert found[2:] == [(1, "x", -1), (1, "y", 1), (2, None, -1), (4, None, 1)]
    assert len(set(rows[ORDER].to_pylist())) == len(set(rows[XID].to_pylist())) == 4
    assert rows[COMMITTED].to_pylist() == sorted(rows[COMMITTED].to_pylist())
    assert logged(tmp_path / "log").num_rows == rows.num_rows


@both_ways
def test_types_round_trip(database: Database, tmp_path: Path, way: WayName) -> None:
    table = every_type(database)
    with start_capture([(table, tmp_path / "log")], database.name, way, set_identity=True) as started:
        database.run("SET extra_float_digits = -5; SET datestyle = 'German'; SET timezone = 'Asia/Kolkata'")
        database.run("SET bytea_output = 'escape'", "UPDATE t SET id = id + 10", "UPDATE t SET id = id - 10")
        started.capture.step()
    rows = logged(tmp_path / "log")
    last = rows.filter(pa.compute.and_(pa.compute.equal(rows[WEIGHT], 1), pa.compute.less(rows["id"], 10)))
    assert last.drop_columns(list(OWN)).sort_by("id").to_pylist() == expected_rows()
    assert replayed(Counter(), rows.filter(pa.compute.greater(rows["id"], 10))) == Counter()


def test_large_values_that_an_update_leaves_alone(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (a int, b text)", "ALTER TABLE t ALTER b SET STORAGE EXTERNAL")
    database.run("INSERT INTO t VALUES (1, repeat('long', 20000))")
    capture, state = begin(database, tmp_path / "log", "slot")
    with capture:
        database.run("UPDATE t SET a = 2")
        capture.step()
    assert replayed(state, logged(tmp_path / "log")) == {(2, "long" * 20000): 1}


@both_ways
def test_transactions_that_overlap_come_in_the_order_of_their_ends(
    database: Database, tmp_path: Path, way: WayName
) -> None:
    first, second = database.connection(), database.connection()
    with short(database, tmp_path / "log", way) as capture:
        first.execute("BEGIN; INSERT INTO t VALUES (1)")
        second.execute("BEGIN; INSERT INTO t VALUES (2)")
        second.execute("COMMIT")
        with LiveRead(database.server, [database.table()]) as read:
            capture.catch_up(read)
            early = logged(tmp_path / "log")
            assert early["a"].to_pylist() == [2]
            first.execute("COMMIT")
            capture.step()
            rows = logged(tmp_path / "log")
            assert rows["a"].to_pylist() == [2, 1]
            assert read.visibility.mask(rows[XID]).to_pylist() == [True, False]
            assert counted(read.arrow(database.table())) == {(2, None): 1}


@both_ways
def test_a_batch_is_bounded_and_has_whole_transactions(database: Database, tmp_path: Path, way: WayName) -> None:
    with short(database, tmp_path / "log", way) as capture:
        for number in range(6):
            database.run(f"INSERT INTO t SELECT {number}, i FROM generate_series(1, 50) i")
        sizes, complete = [], []
        for _ in range(10):
            complete.append(all(mark.complete for mark in capture.step(limit=80)))
            sizes.append(logged(tmp_path / "log").num_rows)
        assert sizes == [100, 200, 300, 300, 300, 300, 300, 300, 300, 300]
        assert complete[:2] == [False, False]
        assert complete[3:] == [True] * 7


@both_ways
def test_a_large_transaction_goes_through_a_file(
    database: Database, tmp_path: Path, way: WayName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltaic.store.postgres.captured_log._ROWS", 100)
    monkeypatch.setattr("deltaic.store.postgres.captured_log._IN_MEMORY", 1000)
    with short(database, tmp_path / "log", way) as capture:
        database.run("INSERT INTO t SELECT i, i FROM generate_series(1, 3050) i")
        capture.step()
    assert sorted(logged(tmp_path / "log")["a"].to_pylist()) == list(range(1, 3051))


def test_several_tables_share_one_order(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (a int)", "CREATE TABLE u (a int)", "CREATE TABLE other (a int)")
    pairs = [(database.table("t"), tmp_path / "t"), (database.table("u"), tmp_path / "u")]
    with start_capture(pairs, database.name, "slot", set_identity=True) as started:
        database.run("INSERT INTO u VALUES (1)", "BEGIN; INSERT INTO t VALUES (2); INSERT INTO u VALUES (2); COMMIT")
        database.run("INSERT INTO other VALUES (1)", "INSERT INTO t VALUES (3)")
        started.capture.step()
    t, u = logged(tmp_path / "t"), logged(tmp_path / "u")
    assert (t["a"].to_pylist(), u["a"].to_pylist()) == ([2, 3], [1, 2])
    assert t[ORDER][0] == u[ORDER][1]
    assert u[ORDER][0].as_py() < t[ORDER][0].as_py() < t[ORDER][1].as_py()
    with (
        pytest.raises(ConfigurationError, match="common order"),
        start_capture([(table, f"{path}2") for table, path in pairs], "x", "triggers"),
    ):
        pass


@both_ways
def test_added_columns_do_no_harm_and_changed_ones_are_noticed(
    database: Database, tmp_path: Path, way: WayName
) -> None:
    with short(database, tmp_path / "log", way) as capture:
        database.run("INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t ADD COLUMN c int", "UPDATE t SET c = 5")
        database.run("INSERT INTO t VALUES (2, 'y', 6)")
        capture.step()
        assert replayed(Counter(), logged(tmp_path / "log")) == {(1, "x"): 1, (2, "y"): 1}
        if way == "triggers":  # PostgreSQL itself says that the column is needed
            with pytest.raises(Exception, match="trigger"):
                database.run("ALTER TABLE t DROP COLUMN b")
            return
        database.run("ALTER TABLE t DROP COLUMN b")
        with pytest.raises(CaptureLost, match="other columns") as lost:
            capture.step()
        assert lost.value.reason == "SOURCE_SCHEMA"


# --- killed -------------------------------------------------------------------------------------------


@both_ways
def test_killed_between_commit_and_confirmation(
    database: Database, tmp_path: Path, way: WayName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server still has what the log has: nothing comes twice, also where a batch was a part of what waited."""
    with short(database, tmp_path / "log", way) as capture:
        for number in range(8):
            database.run(f"INSERT INTO t VALUES ({number}), ({number})", f"DELETE FROM t WHERE a = {number - 1}")
            with monkeypatch.context() as killed:
                killed.setattr(type(capture.way), "confirm", _die)
                with pytest.raises(KeyboardInterrupt):
                    capture.step(limit=3)
        while logged(tmp_path / "log").num_rows < 30:
            capture.step(limit=3)
        capture.step()
    assert replayed(Counter(), logged(tmp_path / "log")) == {(7, None): 2}
    assert logged(tmp_path / "log").num_rows == 30


def _die(*_: object) -> None:
    raise KeyboardInterrupt


@both_ways
def test_killed_before_the_commit(
    database: Database, tmp_path: Path, way: WayName, monkeypatch: pytest.MonkeyPatch
) -> None:
    with short(database, tmp_path / "log", way) as capture:
        database.run("INSERT INTO t VALUES (1)")
        with monkeypatch.context() as killed:
            killed.setattr(rs_write, "append", _die)
            with pytest.raises(KeyboardInterrupt):
                capture.step()
        capture.step()
        capture.step()
    assert logged(tmp_path / "log")["a"].to_pylist() == [1]


def test_killed_between_the_commits_of_two_logs(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (a int)", "CREATE TABLE u (a int)")
    pairs = [(database.table("t"), tmp_path / "t"), (database.table("u"), tmp_path / "u")]
    with start_capture(pairs, database.name, "slot", set_identity=True) as started:
        database.run("BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT")
        with monkeypatch.context() as killed:
            reader = PendingRows.reader
            killed.setattr(PendingRows, "reader", lambda self: _die() if self.log.path[-1] == "u" else reader(self))
            with pytest.raises(KeyboardInterrupt):
                started.capture.step()
        started.capture.step()
    assert logged(tmp_path / "t")["a"].to_pylist() == logged(tmp_path / "u")["a"].to_pylist() == [1]


@both_ways
def test_two_captures_of_one_log(database: Database, tmp_path: Path, way: WayName) -> None:
    """They take turns, or one of two that meet fails; either way each change is there once."""
    with short(database, tmp_path / "log", way) as one, open_capture([(database.table(), tmp_path / "log")]) as two:
        stopped: list[BaseException] = []

        def work(capture: Capture) -> None:
            for _ in range(15):
                attempt(capture)

        def attempt(capture: Capture) -> None:
            try:
                capture.step(limit=5)
            except Exception as error:
                stopped.append(error)

        threads = [threading.Thread(target=work, args=(capture,)) for capture in (one, two)]
        for thread in threads:
            thread.start()
        for number in range(40):
            database.run(f"INSERT INTO t VALUES ({number})")
        for thread in threads:
            thread.join()
        one.step()
    assert sorted(logged(tmp_path / "log")["a"].to_pylist()) == list(range(40))
    assert not [error for error in stopped if not isinstance(error, ConcurrentRefresh)]


# --- reads and captured changes agree -----------------------------------------------------------------


class Writers:
    """Threads that write at random, with commits that overlap and some that never happen."""

    def __init__(self, database: Database, seed: int, count: int = 3) -> None:
        self._stop, self.problems, self.commits = threading.Event(), list[BaseException](), 0
        self._threads = [
            threading.Thread(target=self._write, args=(database.connection(), random.Random(seed * 10 + index)))
            for index in range(count)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.problems, self.problems

    def _write(self, connection: Any, chance: random.Random) -> None:
        try:
            while not self._stop.is_set():
                self._tried(connection, chance)
        except BaseException as error:
            self.problems.append(error)

    def _tried(self, connection: Any, chance: random.Random) -> None:
        try:
            self._transaction(connection, chance)
        except DeadlockDetected:  # two of them changed several equal rows, each in an order of its own
            connection.execute("ROLLBACK")

    def _transaction(self, connection: Any, chance: random.Random) -> None:
        connection.execute("BEGIN")
        key = chance.randrange(20)  # rows are taken in ascending order, so that nobody waits in a circle
        for _ in range(chance.randrange(1, 5)):
            key += chance.randrange(4)
            statement = chance.choice(
                [
                    f"INSERT INTO t VALUES ({key}, 'i{chance.randrange(3)}')",
                    f"SAVEPOINT s; INSERT INTO t VALUES ({key}, 'never'); ROLLBACK TO s",
                    f"SAVEPOINT s; INSERT INTO t VALUES ({key}, 'sub'); RELEASE s",
                    f"UPDATE t SET b = 'u{chance.randrange(5)}' WHERE a = {key}",
                    f"DELETE FROM t WHERE a = {key}",
                ]
            )
            connection.execute(statement.encode())
        if chance.random() < 0.2:
            time.sleep(0.02)
        connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")
        self.commits += 1


@both_ways
@pytest.mark.parametrize("seed", [1, 2])
def test_a_read_is_the_start_and_the_changes_it_saw(
    database: Database, tmp_path: Path, way: WayName, seed: int
) -> None:
    """Started, read and captured while others write: state at the snapshot = replay of the transactions it saw."""
    chance = random.Random(seed)
    database.run("CREATE TABLE t (a int, b text)", "INSERT INTO t SELECT i, 'start' FROM generate_series(1, 20) i")
    reads: list[tuple[Visibility, Counter[Row], int]] = []
    with Writers(database, seed) as writers:
        time.sleep(0.1)
        capture, start = begin(database, tmp_path / "log", way)
        with capture:
            for _ in range(12):
                with LiveRead(database.server, [database.table()]) as read:
                    if chance.random() < 0.5:
                        time.sleep(0.03)
                    state = counted(read.arrow(database.table()))
                    capture.catch_up(read)
                    reads.append((read.visibility, state, logged(tmp_path / "log").num_rows))
                capture.step(limit=chance.choice([5, 50, 1000]))
    with open_capture([(database.table(), tmp_path / "log")]) as capture:
        capture.step()
    changes = logged(tmp_path / "log")
    for visibility, state, there in reads:
        seen = changes.filter(visibility.mask(changes[XID]))
        assert replayed(start, seen) == state
        assert there >= seen.num_rows  # catching up was enough
    with LiveRead(database.server, [database.table()]) as read:
        assert replayed(start, changes) == counted(read.arrow(database.table()))
    assert writers.commits > 50


def test_a_slot_starts_exactly_from_its_snapshot(database: Database, tmp_path: Path) -> None:
    """No transaction is both in the state at the start and in the log, though nothing is filtered."""
    database.run("CREATE TABLE t (a int, b text)")
    with Writers(database, 7):
        time.sleep(0.1)
        capture, _ = begin(database, tmp_path / "log", "slot")
        with capture:
            time.sleep(0.2)
            mark = capture.step()[0]
        row = database.rows(
            f"SELECT restart_lsn <= confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{database.name}'"
        )
    xids = logged(tmp_path / "log")[XID]
    assert row == [(True,)]
    assert len(xids)
    assert not any(mark.start.saw(xid) for xid in xids.to_pylist())


@both_ways
def test_a_quiet_server_is_passed(database: Database, tmp_path: Path, way: WayName) -> None:
    """Also where the write-ahead log ends at the end of a page, and where commits are not waited for."""
    with short(database, tmp_path / "log", way) as capture:
        database.run("SET synchronous_commit = off")
        for _ in range(5):
            database.run("INSERT INTO t SELECT 1, repeat('x', (random() * 3000)::int)")
            with LiveRead(database.server, [database.table()]) as read:
                capture.catch_up(read)
                assert read.passed_by(capture.marks()[0])


# --- lost ---------------------------------------------------------------------------------------------


@both_ways
def test_truncate_is_noticed_and_the_capture_can_start_anew(database: Database, tmp_path: Path, way: WayName) -> None:
    with short(database, tmp_path / "log", way) as capture:
        database.run("INSERT INTO t VALUES (1)", "TRUNCATE t", "INSERT INTO t VALUES (2)")
        for _ in range(2):
            with pytest.raises(CaptureLost, match="truncated") as lost:
                capture.step()
            assert lost.value.reason == "SOURCE_TRUNCATED"
        assert logged(tmp_path / "log")["a"].to_pylist() == [1]
        with capture.restarted(set_identity=True) as read:
            database.run("INSERT INTO t VALUES (3)")
            state = counted(read.arrow(database.table()))
        capture.step()
        since = capture.marks()[0].since
    rows = logged(tmp_path / "log")
    assert state == {(2, None): 1}
    assert rows.filter(pa.compute.greater(rows[ORDER], since))["a"].to_pylist() == [3]


def _drop_slot(database: Database) -> None:
    database.run(f"SELECT pg_drop_replication_slot('{database.name}')")


def _slot_anew(database: Database) -> None:
    _drop_slot(database)
    database.run(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")


def _slot_moved(database: Database) -> None:
    database.run("INSERT INTO t VALUES (2)")
    database.run(f"SELECT pg_replication_slot_advance('{database.name}', pg_current_wal_lsn())")


def _publication_dropped(database: Database) -> None:
    database.run(f"DROP PUBLICATION {database.name}")


def _left_and_came_back(database: Database) -> None:
    database.run(f"ALTER PUBLICATION {database.name} DROP TABLE t", "INSERT INTO t VALUES (2)")
    database.run(f"ALTER PUBLICATION {database.name} ADD TABLE t")


def _not_all_published(database: Database) -> None:
    database.run(f"ALTER PUBLICATION {database.name} SET (publish = 'insert')")


def _without_identity(database: Database) -> None:
    database.run("ALTER TABLE t ADD PRIMARY KEY (a)")
    database.run("ALTER TABLE t REPLICA IDENTITY DEFAULT", "DELETE FROM t", "ALTER TABLE t REPLICA IDENTITY FULL")


def _another_table(database: Database) -> None:
    database.run("DROP TABLE t CASCADE", "CREATE TABLE t (a int, b text)")


def _no_table(database: Database) -> None:
    database.run("DROP TABLE t CASCADE")


def _trigger_dropped(database: Database) -> None:
    database.run(f"DROP TRIGGER {database.name} ON t")


def _trigger_disabled(database: Database) -> None:
    database.run(f"ALTER TABLE t DISABLE TRIGGER {database.name}")


def _changes_dropped(database: Database) -> None:
    ((oid,),) = database.rows("SELECT 't'::regclass::oid::int8")
    database.run(f"DROP TABLE {database.name}_{oid}")


@pytest.mark.parametrize(("way", "harm"), [
    ("slot", _drop_slot), ("slot", _slot_anew), ("slot", _slot_moved), ("slot", _publication_dropped),
    ("slot", _left_and_came_back), ("slot", _not_all_published), ("slot", _without_identity),
    ("slot", _another_table), ("slot", _no_table),
    ("triggers", _trigger_dropped), ("triggers", _trigger_disabled), ("triggers", _changes_dropped),
    ("triggers", _another_table),
])  # fmt: skip
def test_what_is_lost_is_noticed(
    database: Database, tmp_path: Path, way: WayName, harm: Callable[[Database], None]
) -> None:
    with short(database, tmp_path / "log", way) as capture:
        database.run("INSERT INTO t VALUES (1)")
        capture.step()
        harm(database)
        for _ in range(2):
            with pytest.raises(CaptureLost) as lost:
                capture.step()
            assert lost.value.reason in ("CAPTURE_LOST", "SOURCE_REPLACED")
    assert logged(tmp_path / "log")["a"].to_pylist() == [1]


def test_a_dropped_slot_is_made_again(database: Database, tmp_path: Path) -> None:
    with short(database, tmp_path / "log", "slot") as capture:
        _drop_slot(database)
        database.run("INSERT INTO t VALUES (1)")
        with capture.restarted() as read:
            assert counted(read.arrow(database.table())) == {(1, None): 1}
        database.run("INSERT INTO t VALUES (2)")
        capture.step()
    assert logged(tmp_path / "log")["a"].to_pylist() == [2]


def test_a_capture_that_cannot_go_on_leaves_nothing_behind(database: Database, tmp_path: Path) -> None:
    with short(database, tmp_path / "log", "slot") as capture:
        database.run("TRUNCATE t", "ALTER TABLE t DROP COLUMN b")
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="cannot be gone on with"), capture.restarted():
                pass
            slots = f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{database.name}%'"
            assert database.rows(f"{slots} UNION ALL SELECT pubname FROM pg_publication") == []


def test_a_slot_that_was_invalidated(tmp_path: Path) -> None:
    with postgres(
        wal_level="logical", max_slot_wal_keep_size="1MB", max_wal_size="32MB", min_wal_size="32MB"
    ) as process:
        database = Database(process.server)
        with short(database, tmp_path / "log", "slot") as capture:
            for _ in range(4):
                database.run("INSERT INTO t VALUES (1)", "SELECT pg_switch_wal()", "CHECKPOINT")
            with pytest.raises(CaptureLost, match="invalidated"):
                capture.step()
        database.close()


def test_a_log_that_something_else_wrote(database: Database, tmp_path: Path) -> None:
    with short(database, tmp_path / "log", "slot") as capture:
        table = deltalake.DeltaTable(str(tmp_path / "log"))
        deltalake.write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="overwrite")
        database.run("INSERT INTO t VALUES (1)")
        capture.step()  # nothing of it changed
        table = deltalake.DeltaTable(str(tmp_path / "log"))
        deltalake.write_deltalake(table, table.to_pyarrow_table(), mode="append")
        with pytest.raises(CaptureLost, match="something else"):
            capture.step()


# --- the server ---------------------------------------------------------------------------------------


@both_ways
def test_a_server_that_goes_away_and_comes_back(tmp_path: Path, way: WayName) -> None:
    with postgres(wal_level="logical") as process:
        database = Database(process.server)
        with short(database, tmp_path / "log", way) as capture:
            database.run("INSERT INTO t VALUES (1)")
            capture.step()
            database.run("INSERT INTO t VALUES (2)")
            process.stop()
            with pytest.raises(SourceAway, match=f"127.0.0.1:{process.port}"):
                capture.step()
            process.start()
            capture.step()
            assert sorted(logged(tmp_path / "log")["a"].to_pylist()) == [1, 2]
        for connection in database._open:
            connection.close()


def test_a_session_that_is_ended_is_made_again(database: Database, tmp_path: Path) -> None:
    with short(database, tmp_path / "log", "slot") as capture:
        capture.step()
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'deltaic' AND pid <> pg_backend_pid()"
        )
        database.run("INSERT INTO t VALUES (1)")
        capture.step()
    assert logged(tmp_path / "log")["a"].to_pylist() == [1]


def test_starting(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (a int)", "CREATE UNLOGGED TABLE fast (a int)")
    database.run("CREATE TABLE made (a int, b int GENERATED ALWAYS AS (a + 1) STORED)")

    def start(table: str, **options: Any) -> None:
        with start_capture([(database.table(table), tmp_path / table)], database.name, "slot", **options):
            pass

    with pytest.raises(SourceError, match=r"ALTER TABLE ONLY .*\.\"t\" REPLICA IDENTITY FULL"):
        start("t")
    with pytest.raises(SourceError, match="not in the write-ahead log"):
        start("fast", set_identity=True)
    with pytest.raises(SourceError, match="generated columns"):
        start("made", set_identity=True)
    start("t", set_identity=True)
    with pytest.raises(ExistsError, match="Delta table already"):
        start("t", set_identity=True)
    database.run("CREATE TABLE u (a int)")
    with pytest.raises((ExistsError, CaptureLost)):
        start("u", set_identity=True)
    drop_capture([database.table()], database.name, "slot")
    start("u", set_identity=True)
    assert isinstance(open_capture([(database.table(), tmp_path / "t")]).way, SlotWay)


def test_without_rights_to_decode_it_is_by_triggers(database: Database, tmp_path: Path) -> None:
    """A user that only owns the table; what it reads and writes needs no more."""
    user = f"u_{database.schema}"
    database.run(f"CREATE ROLE {user} LOGIN PASSWORD 's3cr3t-Pa55'", f"GRANT ALL ON SCHEMA {database.schema} TO {user}")
    database.run("CREATE TABLE t (a int)", f"ALTER TABLE t OWNER TO {user}")
    server = type(database.server)(**{**database.server.__dict__, "user": user})
    table = type(database.table())(server, database.schema, "t")
    try:
        with start_capture([(table, tmp_path / "log")], database.name) as started:
            database.run("INSERT INTO t VALUES (1)")
            started.capture.step()
            assert started.capture.marks()[0].identity["way"] == "triggers"
        started.capture.drop()
        with (
            pytest.raises(SourceError, match=r"slot|publication"),
            start_capture([(table, tmp_path / "other")], f"{database.name}_x", "slot", set_identity=True),
        ):
            pass
        assert logged(tmp_path / "log")["a"].to_pylist() == [1]
        assert database.rows("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") == [(0,)]
    finally:
        database.run(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


@both_ways
def test_a_start_that_fails_leaves_nothing(
    database: Database, tmp_path: Path, way: WayName, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (a int)")
    pair = [(database.table(), tmp_path / "log")]
    for broken in ("deltaic.store.postgres.start._first", "deltaic.store.postgres.captured_log.CapturedLog.create"):
        with monkeypatch.context() as failing:
            failing.setattr(broken, _die)
            with pytest.raises(KeyboardInterrupt), start_capture(pair, database.name, way, set_identity=True):
                pass
        left = database.rows(
            f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}' UNION ALL "
            f"SELECT 1 FROM pg_publication WHERE pubname = '{database.name}' UNION ALL "
            "SELECT 1 FROM pg_trigger WHERE tgrelid = 't'::regclass"
        )
        assert not left
        assert not (tmp_path / "log").exists()
    with start_capture(pair, database.name, way, set_identity=True):
        pass


def test_dropping_does_not_wait_for_ever(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaic.store.postgres.start._LOCK_SECONDS", 1)
    capture = short(database, tmp_path / "log", "triggers")
    with LiveRead(database.server, [database.table()]), pytest.raises(SourceError, match="in use"):
        capture.drop()
    capture.drop()


def test_captured_rows_leave_the_trigger_log(database: Database, tmp_path: Path) -> None:
    with short(database, tmp_path / "log", "triggers") as capture:
        database.run("INSERT INTO t SELECT 1 FROM generate_series(1, 10)")
        capture.step()
        ((oid,),) = database.rows("SELECT 't'::regclass::oid::int8")
        assert database.rows(f"SELECT count(*) FROM {database.name}_{oid}") == [(0,)]


def test_commit_times_give_the_order_of_triggers(tmp_path: Path) -> None:
    """The one that wrote last ended first."""
    with postgres(wal_level="minimal", max_wal_senders="0", track_commit_timestamp="on") as process:
        database = Database(process.server)
        first, second = database.connection(), database.connection()
        database.run("CREATE TABLE t (a int)")
        with start_capture([(database.table(), tmp_path / "log")], database.name) as started:
            first.execute("BEGIN; INSERT INTO t VALUES (1)")
            second.execute("BEGIN; INSERT INTO t VALUES (2)")
            first.execute("INSERT INTO t VALUES (1)")
            second.execute("INSERT INTO t VALUES (2)")
            second.execute("COMMIT")
            first.execute("COMMIT")
            started.capture.step()
            rows = logged(tmp_path / "log")
            assert rows["a"].to_pylist() == [2, 2, 1, 1]
            committed = database.rows(f"SELECT pg_xact_commit_timestamp('{rows[XID][0]}'::xid)")[0][0]
            assert rows[COMMITTED][0].as_py() == committed
        database.close()


def test_ids_after_an_epoch(tmp_path: Path, postgres_process: PostgresProcess) -> None:
    """A server whose transactions are counted beyond 32 bits: captured and read ids still agree."""
    with postgres(reset_xid=True, wal_level="logical") as process:
        database = Database(process.server)
        database.run("CREATE TABLE t (a int, b text)")
        capture, start = begin(database, tmp_path / "log", "slot")
        with capture:
            database.run("INSERT INTO t VALUES (1)")
            with LiveRead(database.server, [database.table()]) as read:
                database.run("INSERT INTO t VALUES (2)")
                capture.catch_up(read)
                capture.step()
                rows = logged(tmp_path / "log")
                assert rows[XID][0].as_py() > 2**32
                assert replayed(start, rows.filter(read.visibility.mask(rows[XID]))) == {(1, None): 1}
        database.close()


def test_the_server_may_forget_what_is_not_ours(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long time without changes of the table still moves the slot, by commits of no rows."""
    monkeypatch.setattr("deltaic.store.postgres.slot.QUIET", 1 << 16)
    query = f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    with short(database, tmp_path / "log", "slot") as capture:
        before = database.rows(query)
        database.run("CREATE TABLE other AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        capture.step()
        assert database.rows(query)[0][0] - before[0][0] > 1 << 16
        assert len(deltalake.DeltaTable(str(tmp_path / "log")).history()) == 2
        capture.step()
        assert len(deltalake.DeltaTable(str(tmp_path / "log")).history()) == 2
    with connect(database.server) as connection:
        assert connection.execute("SELECT 1").fetchone()


_FOREVER = """
import sys
from deltaic.store.postgres.table import PostgresTable, Server
from deltaic.store.postgres.capture import open_capture
host, port, variable, schema, path = sys.argv[1:]
table = PostgresTable(Server(host, "postgres", "deltaic", int(port), password_env=variable), schema, "t")
capture = open_capture([(table, path)])
print("ready", flush=True)
while True:
    capture.step(limit=7)
"""


@both_ways
@pytest.mark.long
def test_random_kills(database: Database, tmp_path: Path, way: WayName) -> None:
    """A process that captures is killed at random, again and again, while others write."""
    chance = random.Random(4)
    database.run("CREATE TABLE t (a int, b text)")
    capture, start = begin(database, tmp_path / "log", way)
    server = database.server
    where = [server.host, str(server.port), str(server.password_env), database.schema, str(tmp_path / "log")]
    with Writers(database, 11, 2):
        for _ in range(12):
            with subprocess.Popen([sys.executable, "-c", _FOREVER, *where], stdout=subprocess.PIPE) as process:
                assert process.stdout
                assert process.stdout.readline() == b"ready\n"
                time.sleep(chance.random() * 0.3)
                process.kill()
    with capture, LiveRead(server, [database.table()]) as read:
        for _ in range(100):  # what the killed one was doing in the server may not have ended yet
            with contextlib.suppress(ConcurrentRefresh):
                capture.catch_up(read)
                break
            time.sleep(0.05)
        changes = logged(tmp_path / "log")
        assert changes.num_rows > 100
        assert replayed(start, changes) == counted(read.arrow(database.table()))
