"""Rolling propagation on the grid of times, and the paper's own examples."""

import pytest

from deltaic.plan.rolling import Rolling
from tests.lab.choice import SeededChoice
from tests.lab.grid import Grid, random_grid, roll
from tests.lab.test_views import first_seeds

SHARE = 40


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        seeds = first_seeds(metafunc.config)
        metafunc.parametrize("first_seed", range(seeds.start, seeds.start + max(len(seeds) // 4, 3) * SHARE, SHARE))


@pytest.mark.parametrize("one_interval", [True, False])
@pytest.mark.parametrize("sources", [2, 3, 4])
def test_every_cell_is_counted_once_at_the_latest_of_its_times(
    first_seed: int, sources: int, one_interval: bool
) -> None:
    for seed in range(first_seed, first_seed + SHARE):
        choice = SeededChoice(seed)
        grid = random_grid(choice, sources)

        def right(state: Rolling, grid: Grid = grid, seed: int = seed) -> None:
            found = grid.problem(state.mark)
            assert found is None, f"seed {seed}: {found} up to {state.mark} of {grid.commits}"

        roll(grid, choice, right, one_interval=one_interval)
