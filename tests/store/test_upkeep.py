"""Checkpoints, logs that are cleaned up, and the order of commits without its past. No Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, PostCommitHookProperties, write_deltalake

from deltaic.app.refresh.upkeep import is_vacuumed_by, with_vacuum
from deltaic.app.values.settings import Settings
from deltaic.errors import ConfigurationError
from deltaic.store.log import Log
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.state import read_state_rs
from deltaic.store.table import Snapshot, table_at
from deltaic.store.times import Order, Unit
from deltaic.store.upkeep import checkpoint, small_files

PLAIN = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def written(folder: Path, commits: int, **configuration: str | None) -> OwnTable:
    """A table by delta-rs, without what delta-rs does after commits."""
    for number in range(commits):
        rows = pa.table({"a": [number]})
        told = {name.replace("_", "."): value for name, value in configuration.items()}
        write_deltalake(
            folder,
            rows,
            mode="append",
            configuration=None if number else told,
            post_commithook_properties=PLAIN,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    return OwnTable(table_at(folder))


def log_of(table: OwnTable) -> list[str]:
    return sorted(file.name for file in (Path(str(table.ref.path)) / "_delta_log").iterdir())


def values(table: OwnTable) -> list[int]:
    found: list[int] = read_state_rs(table.ref, Log(table.ref).version(), {"a": "a"})["a"].to_pylist()
    return sorted(found)


def test_checkpoints_come_every_so_many_commits(tmp_path: Path) -> None:
    table = written(tmp_path / "t", 19)
    assert not checkpoint(table, 20)
    table = written(tmp_path / "t", 1)
    assert checkpoint(table, 20)
    assert not checkpoint(table, 20)
    assert f"{19:020}.checkpoint.parquet" in log_of(table)
    assert not checkpoint(table, 0)
    assert f"{0:020}.json" in log_of(table)  # within the retention of a log
    assert values(table) == sorted([*range(19), 0])


@pytest.mark.parametrize("cleaned", [True, False])
def test_a_log_loses_what_is_past_its_retention(tmp_path: Path, cleaned: bool) -> None:
    told = {"delta_logRetentionDuration": "interval 0 seconds", "delta_enableExpiredLogCleanup": str(cleaned).lower()}
    table = written(tmp_path / "t", 12, **told)
    for number in (3, 11):  # as Spark and Hadoop leave them
        (tmp_path / "t" / "_delta_log" / f"{number:020}.crc").touch()
        (tmp_path / "t" / "_delta_log" / f".{number:020}.json.crc").touch()
    before = len(log_of(table))
    assert checkpoint(table, 10)
    if cleaned:
        left = [f"{11:020}.{end}" for end in ("checkpoint.parquet", "crc", "json")]
        assert log_of(table) == [f".{11:020}.json.crc", *left, "_last_checkpoint"]
    else:
        assert len(log_of(table)) == before + 2
    assert values(table) == list(range(12))
    assert Log(table.ref).snapshot().rows == 12


def test_small_files_are_those_that_could_be_put_together(tmp_path: Path) -> None:
    assert Log(written(tmp_path / "t", 3).ref).snapshot().small_files == 2
    for part in ("x", "y", "y", None, None):
        rows = pa.table({"p": pa.array([part], pa.string()), "a": [1]})
        write_deltalake(tmp_path / "parted", rows, mode="append", partition_by=["p"])
    assert Log(table_at(tmp_path / "parted")).snapshot().small_files == 2
    elsewhere = Snapshot(0, "", "{}", {}, (), frozenset(), None, 800_000_000, 60)
    assert small_files(elsewhere) == 10


def test_when_a_vacuum_is_due() -> None:
    hour = 3_600_000

    def after(last: Progress | None, started: int, hours: float = 24) -> Progress:
        return with_vacuum(Progress(2, {}, "t", {"started": started}), last, hours)

    made = Progress(1, {}, "t", {"started": 5 * hour})
    early = after(made, 28 * hour)
    assert not is_vacuumed_by(early)
    due = after(early, 29 * hour)  # a day since it was made, whatever came between
    assert is_vacuumed_by(due)
    assert not is_vacuumed_by(after(due, 52 * hour))
    assert is_vacuumed_by(after(due, 53 * hour))
    assert not is_vacuumed_by(after(due, 99 * hour, hours=0))


class Told:
    """A session that has settings, and nothing else."""

    def __init__(self, **told: str) -> None:
        self.told, self.conf = told, self

    def get(self, key: str, _: object) -> str | None:
        return self.told.get(key.removeprefix("spark.deltaic."))


def test_settings() -> None:
    told: object = Told(retainHours="1.5", vacuumHours="0.5", compactFiles="7", checkpointCommits="0")
    found = Settings.of(told)  # type: ignore[arg-type]
    assert (found.retain_hours, found.vacuum_hours, found.compact_files, found.checkpoint_commits) == (1.5, 0.5, 7, 0)
    assert set(found.retention.values()) == {"interval 5400 seconds"}
    assert set(Settings().retention.values()) == {"interval 604800 seconds"}
    for hours in ("0", "-1", "a week"):
        wrong: object = Told(retainHours=hours)
        with pytest.raises(ConfigurationError, match="retainHours"):
            Settings.of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(50))
def test_an_order_without_its_past_tells_the_same_of_what_is_left(seed: int) -> None:
    choice = random.Random(seed)
    newest = dict.fromkeys("abc", 0)
    units = []
    for time in range(1, 40):
        source = choice.choice("abc")
        newest[source] += choice.randint(1, 3)
        units.append(Unit(time, source, newest[source], 1000 * time))
    whole = order = Order(tuple(units))
    for cut in sorted(choice.sample(range(1, 40), 3)):
        order = order.since(cut, frozenset("ab"))
        assert order.begins == cut
        assert order.since(cut - 1, frozenset("ab")) == order
    assert order.newest == whole.newest
    for time in range(1, 45):
        then, told = (one.versions_at(time, "ab") for one in (whole, order))
        if time >= order.begins or told.keys() == {"a", "b"}:  # what Clock.recorded lets through
            assert told == then
        at = whole.time_of(then)
        assert order.time_of(then) in ((at,) if time >= order.begins else (at, None))
    for stamp in range(1000 * order.begins, 42_000, 500):
        assert order.at_stamp(stamp) == whole.at_stamp(stamp)
