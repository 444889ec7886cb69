"""Deltaic's own settings: Spark settings under `spark.deltaic.`, so that `SET` and a cluster's defaults reach them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from deltaic.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.deltaic."
_FRACTIONS = ("full_advantage", "over_deleted", "retain_hours", "vacuum_hours")
WRITERS = ("auto", "marks", "delta-rs", "spark")


@dataclass(frozen=True)
class Settings:
    """Each field is a setting: `full_rows` is `spark.deltaic.fullRows`."""

    full_rows: int = 100_000
    """A view whose sources have fewer rows together is not recomputed for what it costs to keep, if that is seconds."""
    full_advantage: float = 1.2
    """A view is recomputed if that is predicted to be more than this many times faster; a large number forbids it."""
    compact_files: int = 50
    """A view in more small files than this is compacted into fewer, after a refresh; 0 for never."""
    checkpoint_commits: int = 20
    """Commits of a table of Deltaic's own after which it gets a checkpoint; 0 leaves that to Spark and delta-rs."""
    retain_hours: float = 168
    """How long a table that is made from now on keeps its past: files, log, and times for `as_of`."""
    vacuum_hours: float = 24
    """Hours between two vacuums of a view, which take away what is older than `retain_hours`; 0 for never."""
    common_rows: int = 100_000
    """The delta of a join that views refreshed together share is computed once if its tables have so many rows."""
    kept_files: int = 50
    """A kept delta in more files than this loses what its view is past."""
    captured_files: int = 50
    """A captured log in more files than this loses what every view that reads it is past."""
    propagate_rows: int = 100_000
    """A step of propagation takes commits until they have so many rows; at least one."""
    rounds: int = 1_000
    """A recursion that still finds new rows after so many rounds is stopped."""
    rounds_here: int = 5_000_000
    """Rows of a relation up to which the rounds of a recursion run in this process, if they can, and not on Spark."""
    over_deleted: float = 0.5
    """A recursive view is recomputed if more than this share of its rows would have to be derived again."""
    writer: str = "auto"
    """How deltas are written: `spark`, `delta-rs` or `marks` (deletion vectors) is taken wherever it is possible."""

    @staticmethod
    def of(spark: SparkSession) -> Settings:
        found: dict[str, Any] = {}
        for setting in fields(Settings):
            key = PREFIX + _camel(setting.name)
            value = spark.conf.get(key, None)
            if value is not None:
                found[setting.name] = (
                    _writer(key, value)
                    if setting.name == "writer"
                    else _number(key, value, float if setting.name in _FRACTIONS else int)
                )
        return Settings(**found)

    def __post_init__(self) -> None:
        if self.retain_hours * 3600 < 1:
            raise ConfigurationError(
                f"{PREFIX}retainHours = {self.retain_hours:g} would take files from those who read them",
                hint="It is more than 0. vacuumHours = 0 keeps all files.",
            )

    @property
    def retention(self) -> dict[str, str]:
        """The properties of a table that keeps its past for so long."""
        told = f"interval {int(self.retain_hours * 3600)} seconds"
        return {"delta.logRetentionDuration": told, "delta.deletedFileRetentionDuration": told}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _writer(key: str, value: str) -> str:
    if value not in WRITERS:
        raise ConfigurationError(f"{key} = {value!r} is not a writer", hint=f"Known: {', '.join(WRITERS)}.")
    return value


def _number(key: str, value: str, kind: type[int] | type[float]) -> int | float:
    try:
        number: int | float = kind(value)
    except ValueError:
        number = -1
    if not 0 <= number < math.inf:
        raise ConfigurationError(f"{key} = {value!r} is not a {'whole ' if kind is int else ''}number, 0 or more")
    return number
