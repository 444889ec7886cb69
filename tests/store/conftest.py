"""The store's tests on real tables are many: the end-to-end tests cast the same net, so these wait for `make fuzz`."""

import pytest

ALWAYS = ("test_commits_that_change_no_rows", "test_two_", "test_create", "test_random")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        on_spark = "spark" in getattr(item, "fixturenames", ())
        if "tests/store/" in item.nodeid and on_spark and not item.name.startswith(ALWAYS):
            item.add_marker(pytest.mark.long)
