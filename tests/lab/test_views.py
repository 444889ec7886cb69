"""The property lab: random views over random tables, kept through random histories, against recompute.

`make test` runs a few hundred cases; `make fuzz` runs FUZZ_CASES of them: half are views, half towers and outer joins.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from deltaic.algebra.reasons import NotLowered, Reason
from deltaic.errors import DeltaicError
from tests.lab.case import Case, Column, Statement, Table, Type, View
from tests.lab.duck import Duck, DuckFailed
from tests.lab.generate import case_of
from tests.lab.keeper import KeptView, keep_case
from tests.lab.oracle import difference
from tests.lab.outer_trees import outer_tree_of
from tests.lab.shrink import shrink
from tests.lab.towers import tower_of

SHARE, TESTS = 25, 4
"""Cases per test, so that a failure is found without all of them being lost."""


def problem(duck: Duck, case: Case) -> str | None:
    """What is wrong with how the engine keeps the case's views; None if nothing is."""
    duck.reset(case)
    kept, _ = keep_case(duck, case)
    for number, batch in enumerate(case.history):
        names = [table.name for table in case.tables] + [view.name for view in case.views]
        duck.snapshot(names=names)
        duck.apply(batch)
        changed = {table.name for table in case.tables if moved(duck, table.name)}
        for view in kept:
            view.refresh(frozenset(changed))
            found = difference(duck.rows(view.view.sql), duck.rows(view.visible()))
            if found is not None:
                return f"after batch {number}, {view.view.name} ({view.technique}) is not its query:\n{found}"
            if moved(duck, view.view.name):
                changed.add(view.view.name)
    return None


def moved(duck: Duck, name: str) -> bool:
    return bool(duck.rows(f"SELECT 1 FROM {duck.change(name)} LIMIT 1"))


def fails(duck: Duck, case: Case) -> bool:
    try:
        return problem(duck, case) is not None
    except (DuckFailed, NotLowered, DeltaicError):
        return False


def run(seed: int, duck: Duck, generator: Callable[[int], Case] = case_of) -> None:
    case = generator(seed)
    try:
        found = problem(duck, case)
    except DuckFailed as failure:
        if "INTERNAL Error" not in str(failure):  # a bug of DuckDB's own planner, not of the text
            raise
        return
    if found is not None:
        small = shrink(case, lambda smaller: fails(duck, smaller))
        pytest.fail(f"seed {seed}: {problem(duck, small)}\n{small.script()}")


def test_every_view_equals_its_query(first_seed: int, duck: Duck) -> None:
    for seed in range(first_seed, first_seed + SHARE):
        run(seed, duck)


def test_every_tower_equals_its_query(first_seed: int, duck: Duck) -> None:
    for seed in range(first_seed, first_seed + SHARE // 2):
        run(seed, duck, tower_of)


def test_every_outer_join_equals_its_query(first_seed: int, duck: Duck) -> None:
    for seed in range(first_seed, first_seed + SHARE // 2):
        run(seed, duck, outer_tree_of)


def test_a_group_that_a_filter_hides_has_no_count_to_check(duck: Duck) -> None:
    """The view has no row of it, so all that is known is what went."""
    table = Table("r", (Column("a", Type.INT),), ((0,), (0,), (2,)))
    view = View("v", "SELECT x.a FROM (SELECT DISTINCT a FROM r) AS x WHERE abs(x.a) > 1", table.columns)
    history = tuple((Statement("r", "delete", f"DELETE FROM r WHERE a = {a}"),) for a in (0, 2))
    assert problem(duck, Case((table,), (view,), history)) is None


def test_most_views_are_incremental(duck: Duck) -> None:
    """The lab is worth nothing if the engine takes the easy way out."""
    ways: Counter[str] = Counter()
    for seed in range(60):
        case = case_of(seed)
        duck.reset(case)
        kept, _ = keep_case(duck, case)
        ways.update(_way(view) for view in kept)
    assert ways["keys"] > 20, ways
    assert ways["rows"] > 20, ways
    assert ways["change tables"] > 10, ways
    kept_up = ways["keys"] + ways["rows"] + ways["change tables"]
    assert sum(ways.values()) - kept_up < 0.2 * sum(ways.values()), ways


def _way(view: KeptView) -> str:
    return view.way.code.name if isinstance(view.way, Reason) else view.way.way.value
