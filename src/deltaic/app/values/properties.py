"""What the properties of a view mean, and which of them mean nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deltaic.delta.sets import ALGORITHMS
from deltaic.errors import ConfigurationError

TECHNIQUE, COUNTS, STRATA = "deltaic.technique", "deltaic.counts", "deltaic.strata"
"""What a view is kept by; whether counts of derivations are stored, and the sets inside it."""
KEY, REFERS, INTERVAL = "deltaic.key.", "deltaic.references.", "deltaic.interval."
"""Followed by a source: a key of it; what it refers to; how many of its commits a step of propagation takes."""
LAG, SCHEDULE, DOWNSTREAM = "deltaic.lag", "deltaic.schedule", "downstream"
"""How far behind a view may be, or when it is to move, for the service; `downstream`: as far as those that read it."""
TECHNIQUES = ("auto", "base", "counting", "quass", "blakeley", *ALGORITHMS, "dred", "recompute")

_REFERENCE = re.compile(r"\s*([^()]+?)\s+REFERENCES\s+(\S+?)\s*\(([^()]+)\)\s*", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_LONGEST = max(_SECONDS.values())
_DURATION = re.compile(rf"(?:every\s+)?(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})s?", re.IGNORECASE)
_LONG = 2_000
"""Characters of what a property tells; more are no name, key or duration."""


@dataclass(frozen=True)
class ViewProperties:
    """What the properties of a view say."""

    technique: str
    counts: bool | None
    strata: bool | None
    keys: Mapping[str, tuple[str, ...]]
    references: Mapping[str, str]
    intervals: Mapping[str, int]
    lag: str | None
    schedule: str | None


def checked_properties(properties: Mapping[str, str]) -> ViewProperties:
    """A `deltaic.` property that means nothing is refused."""
    for key, value in properties.items():
        if key.startswith("deltaic."):
            _check(key, value)
    _check_change_feed(properties)
    _check_append_only(properties)
    _check_counting(properties)
    return ViewProperties(
        properties.get(TECHNIQUE, "auto"),
        _switch(properties, COUNTS),
        _switch(properties, STRATA),
        {source: named_columns(value) for source, value in _of_sources(properties, KEY)},
        dict(_of_sources(properties, REFERS)),
        {source: int(value) for source, value in _of_sources(properties, INTERVAL)},
        properties[LAG].lower() if LAG in properties else None,
        properties.get(SCHEDULE),
    )


def seconds_in(text: str) -> float:
    """A duration: `30 seconds`, `every 5 minutes`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not math.isfinite(float(found[1]) * _LONGEST):
        raise ConfigurationError(f"{text!r} is not a duration", hint="As in: 30 seconds, 5 minutes, 1 hour, 2 days.")
    return float(found[1]) * _SECONDS[found[2].lower()]


def named_columns(text: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("`") for name in text.split(","))


def references_in(text: str) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Own columns, the other source, and its columns."""
    for part in text.split(";"):
        found = _REFERENCE.fullmatch(part)
        assert found is not None
        yield named_columns(found[1]), found[2], named_columns(found[3])


def _switch(properties: Mapping[str, str], key: str) -> bool | None:
    return properties[key].lower() == "true" if key in properties else None


def _of_sources(properties: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in properties.items():
        if key.startswith(prefix):
            yield key[len(prefix) :], value


# One by itself


def _check(key: str, value: str) -> None:
    prefix = next((prefix for prefix in _OF_SOURCES if key.startswith(prefix) and key != prefix), None)
    check = _OF_SOURCES[prefix] if prefix else _PLAIN.get(key)
    if check is None:
        known = ", ".join((*_PLAIN, *(f"{prefix}<source>" for prefix in _OF_SOURCES)))
        raise ConfigurationError(f"{key} is not a property of views", hint=f"Known: {known}.")
    if len(value) > _LONG:
        raise ConfigurationError(f"{key} has more than {_LONG:,} characters")
    check(key, value)


def _check_technique(key: str, value: str) -> None:
    if value not in TECHNIQUES:
        raise ConfigurationError(f"{key} = {value!r} is not a technique", hint=f"Known: {', '.join(TECHNIQUES)}.")


def _check_switch(key: str, value: str) -> None:
    if value.lower() not in ("true", "false"):
        raise ConfigurationError(f"{key} = {value!r} is neither true nor false")


def _check_lag(_key: str, value: str) -> None:
    if value.lower() != DOWNSTREAM:
        seconds_in(value)


def _check_schedule(_key: str, value: str) -> None:
    seconds_in(value)


def _check_columns(_key: str, _value: str) -> None:
    """Any may be columns: whether a source has them is seen where the view is compiled."""


def _check_references(key: str, value: str) -> None:
    if not all(map(_REFERENCE.fullmatch, value.split(";"))):
        raise ConfigurationError(
            f"{key} = {value!r} is not a reference", hint="As in: customer_id REFERENCES customers (id)."
        )


def _check_interval(key: str, value: str) -> None:
    if not (value.isdecimal() and len(value) < 10 and int(value) > 0):
        raise ConfigurationError(f"{key} = {value!r} is not a number of commits, 1 or more")


_PLAIN: Mapping[str, Callable[[str, str], None]] = {
    TECHNIQUE: _check_technique,
    COUNTS: _check_switch,
    STRATA: _check_switch,
    LAG: _check_lag,
    SCHEDULE: _check_schedule,
}
_OF_SOURCES: Mapping[str, Callable[[str, str], None]] = {
    KEY: _check_columns,
    REFERS: _check_references,
    INTERVAL: _check_interval,
}


# Several together


def _check_change_feed(properties: Mapping[str, str]) -> None:
    wanted = properties.get("delta.enableChangeDataFeed", "").lower() == "true"
    if wanted and properties.get("delta.columnMapping.mode", "name").lower() != "none":
        raise ConfigurationError(
            "a view's table has no change feed: Delta does not give one to tables with column mapping",
            hint="Leave delta.enableChangeDataFeed out; views over views need none.",
        )


def _check_append_only(properties: Mapping[str, str]) -> None:
    if properties.get("delta.appendOnly", "").lower() == "true":
        raise ConfigurationError(
            "a view's table is not append-only: its sources may be changed", hint="Leave delta.appendOnly out."
        )


def _check_counting(properties: Mapping[str, str]) -> None:
    if properties.get(TECHNIQUE) != "counting":
        return
    for key, what in ((COUNTS, "counts"), (STRATA, "the sets inside a view")):
        if _switch(properties, key) is False:
            raise ConfigurationError(
                f"{TECHNIQUE} = 'counting' stores {what}, and {key} is false", hint="Leave one of them out."
            )
