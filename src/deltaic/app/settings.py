"""Deltaic's own settings: Spark settings under `spark.deltaic.`, so that `SET` and a cluster's defaults reach them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from deltaic.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.deltaic."


@dataclass(frozen=True)
class Settings:
    """Each field is a setting: `marked_bytes` is `spark.deltaic.markedBytes`."""

    marked_bytes: int = 8_000_000
    """In a view of more bytes, rows that go are marked by deletion vectors; a smaller one's files are written anew."""

    @staticmethod
    def of(spark: SparkSession) -> Settings:
        found: dict[str, Any] = {}
        for setting in fields(Settings):
            key = PREFIX + _camel(setting.name)
            value = spark.conf.get(key, None)
            if value is not None:
                found[setting.name] = _number(key, value, type(setting.default))
        return Settings(**found)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _number(key: str, value: str, kind: type) -> int | float:
    try:
        number: int | float = kind(value)
    except ValueError:
        number = -1
    if not number >= 0:
        raise ConfigurationError(f"{key} = {value!r} is not a number, 0 or more")
    return number
