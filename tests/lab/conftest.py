"""What the tests of the lab share: a DuckDB, and the random cases of a run."""

import os
from collections.abc import Iterator

import pytest

from tests.lab.duck import Duck


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    database = Duck()
    yield database
    database.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of random cases gets the `first_seed` of SHARE of them; by --fuzz views of all kinds have FUZZ_CASES."""
    if "first_seed" not in metafunc.fixturenames:
        return
    share, tests, first = metafunc.module.SHARE, getattr(metafunc.module, "TESTS", 3), 0
    if metafunc.config.getoption("--fuzz"):
        first = int(os.environ.get("FUZZ_START", "100000"))
        tests *= max(int(os.environ.get("FUZZ_CASES", "10000")) // _CASES_A_TEST, 1)
    metafunc.parametrize("first_seed", range(first, first + tests * share, share))


_CASES_A_TEST = 200
"""By --fuzz a test is multiplied by how often these go into the cases that are wanted."""
