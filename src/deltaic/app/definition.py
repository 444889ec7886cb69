"""What a view is, as its table's properties say it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from deltaic.delta.sets import ALGORITHMS
from deltaic.errors import ConfigurationError, DefinitionDamaged
from deltaic.plan.maintain import Form
from deltaic.sql.statements import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "deltaic.definition"
FORMAT = 2

RECORDED_SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.timestampType",
    "spark.sql.groupByOrdinal",
    "spark.sql.groupByAliases",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)
"""The session settings that decide what a query means; every refresh sets them as the creator had them."""

TECHNIQUE, COUNTS, STRATA = "deltaic.technique", "deltaic.counts", "deltaic.strata"
KEY, REFERS, INTERVAL = "deltaic.key.", "deltaic.references.", "deltaic.interval."
"""Properties of views: what it is kept by; whether counts of derivations are stored, and the sets inside it; a key of a
source; what it refers to; how many of its commits a step of propagation takes."""
_REFERENCE = re.compile(r"\s*([^()]+?)\s+REFERENCES\s+(\S+?)\s*\(([^()]+)\)\s*", re.IGNORECASE)
LAG, SCHEDULE, DOWNSTREAM = "deltaic.lag", "deltaic.schedule", "downstream"
"""How far behind a view may be, or when it is to move, for the service; `downstream`: as far as those that read it."""
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_DURATION = re.compile(rf"(?:every\s+)?(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})s?", re.IGNORECASE)
TECHNIQUES = ("auto", "base", "counting", "quass", "blakeley", *ALGORITHMS, "dred", "recompute")


@dataclass(frozen=True)
class Definition:
    schema: str
    name: str
    query: str
    columns: tuple[str, ...] = ()
    """The names of its columns, as they are stored."""
    given: tuple[str, ...] = ()
    """The names that its creator gave them; without any they are the query's own."""
    policy: Policy = Policy.AUTO
    settings: Mapping[str, str] = field(default_factory=dict)
    technique: str = "auto"
    counts: bool | None = None
    """Whether a view that is a set is to store how often each of its rows is derived, if that was told."""
    strata: bool | None = None
    """Whether it is to store the sets inside it."""
    form: Form | None = None
    """What was decided of the two when it was made."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of a source, columns that are a key of it: relied on, not checked."""
    lag: str | None = None
    """How far behind it may be, for the service."""
    schedule: str | None = None
    """How often it is to move, for the service."""
    intervals: Mapping[str, int] = field(default_factory=dict)
    """By the name of a source, how many of its commits a step of propagation takes."""
    references: Mapping[str, str] = field(default_factory=dict)
    """By the name of a source, `columns REFERENCES other (columns)`: relied on, too."""
    comment: str | None = None
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    current_schema: str = "default"

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def usual_form(self) -> Form:
        """What is stored of its sets, if nothing but what was told decides."""
        return Form(self.counts is not False, bool(self.strata) or self.technique == "counting")

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self), "policy": self.policy.value}, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Definition:
        raw = json.loads(text)
        made = raw.pop("format")
        if made > FORMAT:
            raise ConfigurationError("the view was made by a newer Deltaic", hint="Upgrade Deltaic.")
        for name in ("columns", "given", "partitioned_by", "clustered_by"):
            raw[name] = tuple(raw[name])
        keys = {source: tuple(columns) for source, columns in raw.pop("keys", {}).items()}
        form = Form(**raw.pop("form")) if raw.get("form") else Form(raw.get("counts") is not False)
        if made == 1 and raw.get("counts"):  # written whether it was told or not
            raw["counts"] = None
        return Definition(**{**raw, "policy": Policy(raw["policy"]), "keys": keys, "form": form})


def definition_in(properties: Mapping[str, str], name: str) -> Definition:
    """What a table's properties say of the view; they can be edited by anyone who may write to the table."""
    try:
        return Definition.from_json(properties[PROPERTY])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        what = f"{name}: the property {PROPERTY}, which holds its query, is damaged ({type(problem).__name__})"
        raise DefinitionDamaged(what, hint="deltaic repair looks for an older one in the table's log.") from problem


def recorded_settings(spark: SparkSession) -> dict[str, str]:
    """The session's settings that belong to a view's meaning; legacy switches only where they are set."""
    found = {key: spark.conf.get(key, None) for key in RECORDED_SETTINGS}
    legacy = {k: v for k, v in spark.conf.getAll.items() if k.startswith("spark.sql.legacy.")}
    return {key: value for key, value in {**found, **legacy}.items() if value is not None}


@dataclass(frozen=True)
class Told:
    """What the properties of a view say."""

    technique: str
    counts: bool | None
    strata: bool | None
    keys: Mapping[str, tuple[str, ...]]
    references: Mapping[str, str]
    intervals: Mapping[str, int]
    lag: str | None
    schedule: str | None


def seconds_in(text: str) -> float:
    """A duration: `30 seconds`, `every 5 minutes`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
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


def checked_properties(properties: Mapping[str, str]) -> Told:
    """A `deltaic.` property that means nothing is refused."""
    for key, value in properties.items():
        named = any(key.startswith(prefix) and len(key) > len(prefix) for prefix in (KEY, REFERS, INTERVAL))
        known = named or key in (TECHNIQUE, COUNTS, STRATA, LAG, SCHEDULE)
        if key == PROPERTY or (key.startswith("deltaic.") and not known):
            plain, of_sources = (TECHNIQUE, COUNTS, STRATA, LAG, SCHEDULE), (KEY, REFERS, INTERVAL)
            known_ones = ", ".join((*plain, *(f"{prefix}<source>" for prefix in of_sources)))
            raise ConfigurationError(f"{key} is not a property of views", hint=f"Known: {known_ones}.")
        feed = key == "delta.enableChangeDataFeed" and value.lower() == "true"
        if feed and properties.get("delta.columnMapping.mode", "name").lower() != "none":
            raise ConfigurationError(
                "a view's table has no change feed: Delta does not give one to tables with column mapping",
                hint="Leave delta.enableChangeDataFeed out; views over views need none.",
            )
        if key == TECHNIQUE and value not in TECHNIQUES:
            raise ConfigurationError(
                f"{TECHNIQUE} = {value!r} is not a technique", hint=f"Known: {', '.join(TECHNIQUES)}."
            )
        if key in (COUNTS, STRATA) and value.lower() not in ("true", "false"):
            raise ConfigurationError(f"{key} = {value!r} is neither true nor false")
        if key in (LAG, SCHEDULE) and not (key == LAG and value.lower() == DOWNSTREAM):
            seconds_in(value)
        if key.startswith(INTERVAL) and not (value.isdecimal() and int(value) > 0):
            raise ConfigurationError(f"{key} = {value!r} is not a number of commits, 1 or more")
        if key.startswith(REFERS) and not all(map(_REFERENCE.fullmatch, value.split(";"))):
            raise ConfigurationError(
                f"{key} = {value!r} is not a reference", hint="As in: customer_id REFERENCES customers (id)."
            )
    told = {key: properties[key].lower() == "true" for key in (COUNTS, STRATA) if key in properties}
    for key in told if properties.get(TECHNIQUE) == "counting" else ():
        if not told[key]:
            what = "counts" if key == COUNTS else "the sets inside a view"
            raise ConfigurationError(
                f"{TECHNIQUE} = 'counting' stores {what}, and {key} is false", hint="Leave one of them out."
            )
    keys = {key[len(KEY) :]: named_columns(value) for key, value in properties.items() if key.startswith(KEY)}
    references = {key[len(REFERS) :]: value for key, value in properties.items() if key.startswith(REFERS)}
    intervals = {key[len(INTERVAL) :]: int(value) for key, value in properties.items() if key.startswith(INTERVAL)}
    return Told(
        properties.get(TECHNIQUE, "auto"),
        told.get(COUNTS),
        told.get(STRATA),
        keys,
        references,
        intervals,
        properties[LAG].lower() if LAG in properties else None,
        properties.get(SCHEDULE),
    )
