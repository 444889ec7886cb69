"""What the properties of a view mean, and which of them are refused."""

import pytest

from deltaic.app.values.properties import ViewProperties, checked_properties
from deltaic.errors import ConfigurationError


def test_what_properties_say() -> None:
    assert checked_properties({}) == ViewProperties("auto", None, None, {}, {}, {}, None, None)
    told = {
        "deltaic.technique": "counting", "deltaic.counts": "TRUE", "deltaic.key.t": "a, `b`", "delta.any": "7",
        "deltaic.references.t": "c REFERENCES u (d)", "deltaic.interval.t": "3", "deltaic.lag": "Downstream",
        "deltaic.schedule": "every 2 hours",
    }  # fmt: skip
    assert checked_properties(told) == ViewProperties(
        "counting", True, None, {"t": ("a", "b")}, {"t": "c REFERENCES u (d)"}, {"t": 3}, "downstream", "every 2 hours"
    )


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({"deltaic.nothing": "1"}, "deltaic.nothing is not a property of views"),
        ({"deltaic.key.": "a"}, "deltaic.key. is not a property of views"),
        ({"deltaic.technique": "magic"}, "'magic' is not a technique"),
        ({"deltaic.strata": "maybe"}, "neither true nor false"),
        ({"deltaic.schedule": "downstream"}, "'downstream' is not a duration"),
        ({"deltaic.lag": "soon"}, "'soon' is not a duration"),
        ({"deltaic.key.t": "a" * 2_001}, "more than 2,000 characters"),
        ({"deltaic.references.t": "a REFERENCES u"}, "is not a reference"),
        ({"deltaic.interval.t": "0"}, "is not a number of commits"),
        ({"delta.enableChangeDataFeed": "true"}, "no change feed"),
        ({"deltaic.technique": "counting", "deltaic.counts": "false"}, "'counting' stores counts"),
        ({"deltaic.technique": "counting", "deltaic.strata": "false"}, "stores the sets inside a view"),
    ],
)
def test_properties_that_mean_nothing(properties: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        checked_properties(properties)
    assert what in refused.value.what
