"""When a view is looked after."""

from __future__ import annotations

import pytest

from deltaic.app.refresh.upkeep import Upkeep, is_vacuumed_by, tried, with_last_vacuum, with_vacuum
from deltaic.app.values.settings import Settings
from deltaic.errors import ConcurrentRefresh
from deltaic.store.progress import Progress

HOUR = 3_600_000


def commit(number: int, hours: float) -> Progress:
    return Progress(refresh=number, sources={}, technique="base", figures={"started": int(hours * HOUR)})


def test_a_vacuum_is_due_a_day_after_the_last_whatever_is_between() -> None:
    made = commit(1, 0)
    early = with_vacuum(commit(2, 23), made, 24)
    altered = with_last_vacuum(commit(3, 23.5), early)
    due = with_vacuum(commit(4, 24), altered, 24)
    after = with_vacuum(commit(5, 25), due, 24)
    assert [is_vacuumed_by(one) for one in (made, early, altered, due, after)] == [False, False, False, True, False]
    assert with_vacuum(commit(6, 100), after, 0).figures == commit(6, 100).figures


def test_a_view_is_folded_now_and_then_or_never() -> None:
    def times(files: int) -> list[int]:
        return [number for number in range(1, 101) if Upkeep(Settings(compact_files=files)).is_time_to_compact(number)]

    assert times(50) == [25, 50, 75, 100]
    assert times(1) == list(range(1, 101))
    assert times(0) == []


def test_what_fails_is_told_and_fails_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def fails(problem: Exception) -> bool:
        raise problem

    assert tried("v", "its log", lambda: True)
    assert not tried("v", "its log", lambda: fails(OSError("the disk is full")))
    assert not tried("v", "its log", lambda: fails(ConcurrentRefresh("somebody else is at it")))
    assert [record.getMessage() for record in caplog.records] == [
        "v: its log could not be looked after: the disk is full"
    ]
