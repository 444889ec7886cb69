"""Schedules that failed once, or would fail without what was built against them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.together.scheduler import Turn


@dataclass(frozen=True)
class Case:
    """A schedule, and where it is played. A turn is who goes on, up to which kind of point, and how often."""

    kinds: str
    query: str
    actors: tuple[str, ...]
    turns: tuple[tuple[int, str | None, int], ...]
    use_rs: bool = True

    @property
    def schedule(self) -> list[Turn]:
        return [Turn(str(who), upto, times) for who, upto, times in self.turns]


FIXED = {
    "two refreshers, both planned": Case(
        "session", "sums", ("write", "refresh", "refresh"), ((0, None, 1), (1, "commit", 1), (2, None, 1))
    ),
    "dropped between opening and commit": Case(
        "session", "sums", ("write", "refresh", "drop"), ((0, None, 1), (1, "opened", 1), (2, None, 1))
    ),
    "dropped and made anew while it is refreshed": Case(
        "session", "sums", ("write", "refresh", "drop", "create sums"),
        ((0, None, 1), (1, "commit", 1), (2, None, 1), (0, None, 1), (3, None, 1)),
    ),
    "altered while it is refreshed": Case(
        "session folder", "one", ("write", "refresh", "alter both"), ((0, None, 1), (1, "commit", 1), (2, None, 1))
    ),
    "refreshed while it is altered": Case(
        "session folder", "one", ("alter both", "write", "refresh"), ((0, "write", 1), (1, None, 1), (2, None, 1))
    ),
    "altered by two": Case(
        "session", "one", ("alter both", "write", "alter sums"), ((1, None, 1), (0, "write", 2), (2, None, 1))
    ),
    "its query is changed between two looks": Case(
        "session", "one", ("write", "refresh", "alter both"), ((0, None, 1), (1, "look", 4), (2, None, 1))
    ),
    "rows that are not to be shown come": Case(
        "session shared", "sums", ("alter different", "name 3", "read 3"),
        ((1, "own", 1), (2, "own", 2), (0, "wrote", 1), (1, "own", 1), (2, "own", 3), (0, "name", 1)),
    ),
    "other columns come": Case(
        "session folder", "sums", ("replace counted", "name 2", "read 2"),
        ((2, "own", 2), (0, "wrote", 1), (1, "own", 1), (2, None, 1)),
    ),
    "made by two": Case(
        "session folder", "sums", ("drop", "create sums", "ensure one"),
        ((0, None, 1), (1, "write", 1), (2, "write", 1), (1, None, 1)),
    ),
    "made by two, one of whom fails": Case(
        "session", "sums", ("drop", "create sums", "create one"), ((0, None, 1), (1, "commit", 1), (2, None, 1))
    ),
    "checked while it is refreshed": Case(
        "session folder", "sums", ("write", "check", "refresh"), ((0, None, 1), (1, "look", 12), (2, None, 1))
    ),
    "dropped while it is propagated": Case(
        "session", "one", ("write", "roll", "drop"), ((0, None, 1), (1, "write", 2), (2, None, 1))
    ),
    "applied and refreshed": Case(
        "session", "one", ("write", "roll", "refresh"), ((0, None, 1), (1, "commit", 3), (2, None, 1))
    ),
    "commits numbered by two": Case(
        "session", "one", ("write", "past", "roll"), ((0, None, 1), (1, "commit", 2), (2, None, 1))
    ),
    "refreshed while it is replaced": Case(
        "session", "sums", ("write 3", "replace counted", "refresh"), ((1, "commit", 1), (0, None, 1), (2, None, 1))
    ),
    "dropped while all are refreshed": Case(
        "session folder", "sums", ("write", "all", "drop"), ((0, None, 1), (1, "look", 9), (2, None, 1))
    ),
    "its files are put together while it is refreshed": Case(
        "session", "sums", ("write", "refresh", "write", "refresh", "optimize"),
        ((0, None, 1), (1, None, 1), (2, None, 1), (3, "commit", 1), (4, None, 1)),
    ),
    "two refreshers by Spark": Case(
        "session", "sums", ("write", "refresh", "refresh"), ((0, None, 1), (1, "write", 1), (2, None, 1)), use_rs=False
    ),
    "dropped while Spark is to write": Case(
        "session", "sums", ("write", "refresh", "drop"), ((0, None, 1), (1, "write", 1), (2, None, 1)), use_rs=False
    ),
    "altered while Spark is to write": Case(
        "session", "one", ("write", "refresh", "alter both"), ((0, None, 1), (1, "write", 1), (2, None, 1)),
        use_rs=False,
    ),
}  # fmt: skip
