"""Writers, refreshers, readers and those who alter and drop a view, at once: whatever the order, nothing is wrong.

Schedules are drawn; one that failed becomes a fixed one below.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import deltaic
from tests.together.cases import FIXED
from tests.together.points import KINDS
from tests.together.scene import made, scene
from tests.together.scheduler import Turn

ACTORS = (
    "write", "write 3", "merge", "refresh", "refresh 2", "full", "all", "roll", "alter both", "alter one",
    "alter different", "alter counted", "replace joined", "replace different", "create sums", "ensure one", "drop",
    "check", "repair", "optimize", "open", "show", "read 2", "name 2", "past",
)  # fmt: skip
_numbers = itertools.count()


SHORT = (
    ("dropped between opening and commit", "session"),
    ("rows that are not to be shown come", "shared"),
    ("checked while it is refreshed", "folder"),
)
PLAYED = [(name, kind) for name, case in FIXED.items() for kind in case.kinds.split()]


Templates = Callable[[str], Path]


@pytest.fixture(scope="module")
def templates(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """A warehouse with a view of one of the queries, to be copied."""

    @functools.cache
    def template(query: str) -> Path:
        root = tmp_path_factory.mktemp("template") / query
        with deltaic.open(root) as wh:
            made(wh, query)
        return root

    return template


def play(
    spark: SparkSession,
    templates: Templates,
    kind: str,
    query: str,
    actors: Sequence[str],
    turns: Sequence[Turn],
    *,
    use_rs: bool = True,
) -> None:
    template = templates(query)
    root = template.with_name(f"played-{next(_numbers)}")
    with scene(spark, template, root, kind, query, use_rs=use_rs) as played:
        played.play(actors, turns)


def turns_of(actors: int) -> st.SearchStrategy[list[Turn]]:
    who = st.integers(0, actors - 1).map(str)
    return st.lists(st.builds(Turn, who, st.sampled_from(KINDS), st.integers(1, 8)), max_size=10)


casts = st.lists(st.sampled_from(ACTORS), min_size=2, max_size=4)
schedules = casts.flatmap(lambda actors: st.tuples(st.just(actors), turns_of(len(actors))))


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*p, marks=() if p in SHORT else pytest.mark.long) for p in PLAYED]
)
def test_fixed_schedules(name: str, kind: str, spark: SparkSession, templates: Templates) -> None:
    case = FIXED[name]
    play(spark, templates, kind, case.query, case.actors, case.schedule, use_rs=case.use_rs)


@pytest.mark.long
@pytest.mark.parametrize("name", ["two refreshers, both planned", "altered while it is refreshed", "made by two"])
def test_fixed_schedules_over_connect(name: str, spark: SparkSession, templates: Templates) -> None:
    case = FIXED[name]
    play(spark, templates, "connect", case.query, case.actors, case.schedule)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["session", "folder", "shared"])
def test_drawn_schedules(kind: str, spark: SparkSession, templates: Templates) -> None:
    @settings(max_examples=60, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(["sums", "one"]), st.booleans(), schedules)
    def drawn(query: str, use_rs: bool, schedule: tuple[list[str], list[Turn]]) -> None:
        play(spark, templates, kind, query, *schedule, use_rs=use_rs)

    drawn()
