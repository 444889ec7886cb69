"""Settings under `spark.deltaic.`, as somebody types them."""

from types import SimpleNamespace
from typing import Any

import pytest

from deltaic.app.values.settings import PREFIX, Settings
from deltaic.errors import ConfigurationError


def told(**values: str) -> Settings:
    spark: Any = SimpleNamespace(conf={PREFIX + name: value for name, value in values.items()})
    return Settings.of(spark)


def test_numbers() -> None:
    assert told(fullRows="7", retainHours="0.5") == Settings(full_rows=7, retain_hours=0.5)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("fullRows", "1e6", "is not a whole number, 0 or more"),
        ("compactFiles", "-1", "is not a whole number, 0 or more"),
        ("retainHours", "inf", "is not a number, 0 or more"),
        ("vacuumHours", "nan", "is not a number, 0 or more"),
        ("retainHours", "0", "would take files"),
        ("writer", "me", "is not a writer"),
    ],
)
def test_what_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{PREFIX}{name} .*{why}"):
        told(**{name: value})
