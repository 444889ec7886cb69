"""What a view is, as its table's properties say it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from deltaic.app.values.properties import (
    INTERVAL,
    LAG,
    REFERS,
    SCHEDULE,
    TECHNIQUE,
    checked_properties,
)
from deltaic.errors import ConfigurationError, DefinitionDamaged
from deltaic.plan.maintain import Form
from deltaic.sql.statements import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "deltaic.definition"
FORMAT = 4

ESCAPED = "spark.sql.parser.escapedStringLiterals"
"""Views are not made under it: the texts that Deltaic writes into statements would be others."""
RECORDED_IN_FORCE = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")
RECORDED_SETTINGS = (
    *RECORDED_IN_FORCE,
    "spark.sql.timestampType",
    "spark.sql.groupByOrdinal",
    "spark.sql.groupByAliases",
    "spark.sql.mapKeyDedupPolicy",
    ESCAPED,
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)
"""The session settings that decide what a query means; every refresh sets them as they were for the creator. The first
are recorded though nobody set them: the default time zone is the machine's."""
_RECORDED_IF_SET = (
    "spark.sql.ansi.",
    "spark.sql.charAsVarchar",
    "spark.sql.csv.",
    "spark.sql.function.",
    "spark.sql.icu.",
    "spark.sql.json.",
    "spark.sql.jsonGenerator.",
    "spark.sql.lateralColumnAlias.",
    "spark.sql.legacy.",
    "spark.sql.parser.",
    "spark.sql.readSideCharPadding",
    "spark.sql.stableDerivedColumnAlias.",
    "spark.sql.variant.",
)
"""Beginnings of settings that do too, and are recorded where they are set: elsewhere a refresh has their defaults."""


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
    by_text: bool = False
    """Whether it was found, when it was made, that it must be computed by its own text."""
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
        """For the table's properties; sealed, so that a hand in it is noticed."""
        told = {"format": FORMAT, **asdict(self), "policy": self.policy.value}
        return json.dumps({**told, "seal": _seal(told)}, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Definition:
        """ConfigurationError says what is wrong with the text."""
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigurationError("it is not JSON") from None
        made = raw.pop("format", None) if isinstance(raw, dict) else None
        if not isinstance(made, int):
            raise ConfigurationError("it says nothing of its format")
        if made > FORMAT:
            raise ConfigurationError("the view was made by a newer Deltaic", hint="Upgrade Deltaic.")
        seal = raw.pop("seal", None)
        if (made >= 3 or seal is not None) and seal != _seal({"format": made, **raw}):
            raise ConfigurationError("it was edited by something else than Deltaic")
        try:
            return _definition(raw, made)
        except (TypeError, ValueError, KeyError, AttributeError) as problem:
            raise ConfigurationError(f"a part of it is missing or means nothing: {problem}") from None


def _seal(told: Mapping[str, Any]) -> str:
    """No secret: whoever writes a definition on purpose can seal it, too."""
    text = json.dumps(told, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _definition(raw: dict[str, Any], made: int) -> Definition:
    for name in ("columns", "given", "partitioned_by", "clustered_by"):
        raw[name] = tuple(raw[name])
    raw["keys"] = {source: tuple(columns) for source, columns in raw.get("keys", {}).items()}
    raw["form"] = Form(**raw["form"]) if raw.get("form") else Form(raw.get("counts") is not False)
    if made == 1 and raw.get("counts"):  # written whether it was told or not
        raw["counts"] = None
    found = Definition(**{**raw, "policy": Policy(raw["policy"])})
    texts = [found.schema, found.name, found.query, found.technique, found.current_schema]
    for listed in (found.columns, found.given, found.partitioned_by, found.clustered_by, *found.keys.values()):
        texts.extend(listed)
    texts.extend(text for pairs in (found.settings, found.references) for pair in pairs.items() for text in pair)
    texts.extend(text for text in (found.comment, found.lag, found.schedule) if text is not None)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("what should be a text is none")
    switches = (found.counts, found.strata, raw["form"].counts, raw["form"].strata, found.by_text)
    if not all(isinstance(switch, bool | None) for switch in switches):
        raise TypeError("what should be true or false is neither")
    strange = [key for key in found.settings if not is_recorded(key)]
    if strange:
        raise ValueError(f"{strange[0]} is no setting of a view's")
    checked_properties(_properties(found))
    return found


def _properties(definition: Definition) -> dict[str, str]:
    """What is told of a view by properties, as it was told."""
    told = {TECHNIQUE: definition.technique, LAG: definition.lag, SCHEDULE: definition.schedule}
    found = {key: value for key, value in told.items() if value is not None}
    found.update({f"{REFERS}{name}": text for name, text in definition.references.items()})
    found.update({f"{INTERVAL}{name}": str(commits) for name, commits in definition.intervals.items()})
    return found


def is_recorded(setting: str) -> bool:
    """Whether a session's setting decides what a query means, and so is set by every refresh."""
    return setting in RECORDED_SETTINGS or setting.startswith(_RECORDED_IF_SET)


def definition_in(properties: Mapping[str, str], schema: str, name: str) -> Definition:
    """What a table's properties say of the view, which anyone may edit who may write to the table. A damaged one is an
    error that says what to do: whatever stands there, nothing is done by it."""
    try:
        definition = Definition.from_json(properties.get(PROPERTY, ""))
        if (definition.schema.lower(), definition.name.lower()) != (schema.lower(), name.lower()):
            raise ConfigurationError(f"it is that of {definition.full_name}")
    except ConfigurationError as problem:
        raise DefinitionDamaged(
            f"the definition of {schema}.{name}, {PROPERTY} of its table, cannot be used: {problem.what}",
            hint=problem.hint
            or "What the view holds can be read. deltaic repair looks for an older definition in the table's log; "
            "CREATE OR REPLACE MATERIALIZED VIEW makes it anew, DROP MATERIALIZED VIEW takes it away.",
        ) from None
    return definition


def recorded_settings(spark: SparkSession) -> dict[str, str]:
    """The session's settings that belong to a view's meaning."""
    set_too = {key: value for key, value in spark.conf.getAll.items() if is_recorded(key)}
    in_force = {key: spark.conf.get(key) for key in RECORDED_IN_FORCE}
    return {key: value for key, value in in_force.items() if value is not None} | set_too


def has_settings(session: SparkSession, settings: Mapping[str, str]) -> bool:
    """Whether a query means in a session what it meant to a view's creator."""
    same = all(session.conf.get(key) == value for key, value in settings.items())
    return same and not _set_since(session, settings)


def give_settings(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Those of a view's creator, and none that somebody set since."""
    for key in _set_since(session, settings):
        with suppress(PySparkException):  # one that cannot be changed was the same then
            session.conf.unset(key)
    for key, value in settings.items():
        session.conf.set(key, value)


def _set_since(session: SparkSession, settings: Mapping[str, str]) -> list[str]:
    return [key for key in session.conf.getAll if is_recorded(key) and key not in settings]
