"""The reducing algorithms on random sets, each against recompute, with every technique pinned."""

from collections import Counter
from collections.abc import Iterator

import pytest

from deltaic.algebra.reasons import NotLowered, Reason
from deltaic.delta.reduce import ALGORITHMS
from deltaic.errors import DeltaicError
from deltaic.plan.maintain import Way
from tests.lab.case import Case
from tests.lab.duck import Duck, DuckFailed
from tests.lab.keeper import DuckCatalog, KeptView, tables_of
from tests.lab.oracle import difference
from tests.lab.set_views import set_view_of
from tests.lab.shrink import shrink
from tests.lab.test_views import first_seeds

SHARE = 5
TECHNIQUES = ("auto", "base", *ALGORITHMS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        seeds = first_seeds(metafunc.config)
        metafunc.parametrize("first_seed", range(seeds.start, seeds.start + max((len(seeds)) // 4, 6) * SHARE, SHARE))


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    database = Duck()
    yield database
    database.close()


def problem(duck: Duck, case: Case, ways: Counter[str] | None = None) -> str | None:
    duck.reset(case)
    catalog = DuckCatalog(duck, tables_of(case))
    kept = [KeptView(duck, case.views[0], catalog, technique) for technique in TECHNIQUES]
    for view in kept:
        view.create()
        if ways is not None:
            ways[view.way.code.name if isinstance(view.way, Reason) else view.way.way.value] += 1
    for number, batch in enumerate(case.history):
        duck.snapshot()
        duck.apply(batch)
        changed = frozenset(t.name for t in case.tables if duck.rows(f"SELECT 1 FROM {duck.change(t.name)} LIMIT 1"))
        wanted = duck.rows(case.views[0].sql)
        for view in kept:
            view.refresh(changed)
            found = difference(wanted, duck.rows(view.visible()))
            if found is not None:
                return f"after batch {number} by {view.technique}:\n{found}"
    return None


def fails(duck: Duck, case: Case) -> bool:
    try:
        return problem(duck, case) is not None
    except (DuckFailed, NotLowered, DeltaicError):
        return False


def test_every_algorithm_gives_the_set(first_seed: int, duck: Duck) -> None:
    ways: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + SHARE):
        case = set_view_of(seed)
        found = problem(duck, case, ways)
        if found is not None:
            small = shrink(case, lambda smaller: fails(duck, smaller))
            pytest.fail(f"seed {seed}: {problem(duck, small)}\n{small.script()}")
    assert ways[Way.SETS.value] >= len(ALGORITHMS) * SHARE // 2, ways
