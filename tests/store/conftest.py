"""The store's tests on real tables are many: the end-to-end tests cast the same net, so these wait for `make fuzz`."""

from collections.abc import Iterator

import pytest

from tests.store.postgres_server import Database, PostgresProcess, postgres

ALWAYS = ("test_commits_that_change_no_rows", "test_two_", "test_create", "test_random", "test_live_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        on_spark = "spark" in getattr(item, "fixturenames", ())
        if "tests/store/" in item.nodeid and on_spark and not item.name.startswith(ALWAYS):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[PostgresProcess]:
    """One PostgreSQL for all tests, with logical decoding."""
    with postgres(wal_level="logical") as process:
        yield process


@pytest.fixture
def database(postgres_process: PostgresProcess) -> Iterator[Database]:
    """A schema of the test's own, and slots and publications that go with it."""
    found = Database(postgres_process.server)
    try:
        yield found
    finally:
        found.close()
