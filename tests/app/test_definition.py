"""A definition that somebody else wrote into a table's properties, and a commit that says what cannot be."""

import json
from typing import Any

import pytest

from deltaic.app.values.definition import PROPERTY, Definition
from deltaic.app.values.names import check_name
from deltaic.app.values.properties import checked_properties
from deltaic.errors import ConfigurationError, NameProblem
from deltaic.store.commit import MARKER, parse_commit
from deltaic.store.progress import Progress, SourceState

GOOD = Definition("default", "v", "SELECT a FROM t", columns=("a",), lag="5 minutes", keys={"t": ("a",)})


def test_a_definition_that_was_not_touched() -> None:
    read = Definition.from_json(GOOD.to_json())
    assert read.query == GOOD.query
    assert read.keys == GOOD.keys


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "[" * 100_000, "{}", '{"format": "3"}'])
def test_what_is_no_definition(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Definition.from_json(text)


def test_a_newer_one_is_told_apart_from_a_damaged_one() -> None:
    with pytest.raises(ConfigurationError, match="newer Deltaic"):
        Definition.from_json('{"format": 99, "whatever": 1}')


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", "DROP TABLE t"),
        ("query", "SELECT a, secret AS b FROM other"),
        ("name", "w"),
        ("settings", {"spark.sql.ansi.enabled": "false"}),
        ("policy", "FULL"),
        ("technique", "base"),
        ("keys", {"t": ["b"]}),
        ("columns", ["b"]),
        ("format", 2),
        ("seal", "0" * 16),
        ("more", 1),
    ],
)
def test_every_edit_is_noticed(field: str, value: object) -> None:
    told = json.loads(GOOD.to_json())
    with pytest.raises(ConfigurationError):
        Definition.from_json(json.dumps({**told, field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("settings", {"spark.sql.extensions": "x"}),
        ("settings", {"spark.hadoop.fs.defaultFS": "s3://x"}),
        ("settings", {"spark.sql.ansi.enabled": 1}),
        ("policy", "NEVER"),
        ("technique", "magic"),
        ("query", None),
        ("columns", [1]),
        ("keys", ["t"]),
        ("references", {"t": "nothing"}),
        ("intervals", {"t": -1}),
        ("lag", "soon"),
        ("lag", "9" * 400 + " days"),
        ("form", {"rows": True}),
        ("counts", "yes"),
        ("more", 1),
    ],
)
def test_of_older_ones_that_have_no_seal_every_part_must_mean_something(field: str, value: object) -> None:
    told: dict[str, Any] = {**json.loads(GOOD.to_json()), "format": 2}
    del told["seal"]
    assert Definition.from_json(json.dumps(told)).query == GOOD.query
    with pytest.raises(ConfigurationError):
        Definition.from_json(json.dumps({**told, field: value}))


RIGHT = Progress(2, {"default.t": SourceState(3, "id")}, "base", {"mode": "full"})


def commit_saying(told: object, version: int = 5) -> str:
    return json.dumps({"commitInfo": {"operation": "WRITE", "userMetadata": json.dumps({MARKER: told})}})


def progress_in(told: object, version: int = 5) -> Progress | None:
    return Progress.of(parse_commit(version, commit_saying(told)))


def test_a_commit_that_was_not_touched() -> None:
    assert progress_in(json.loads(RIGHT.to_json())[MARKER]) == RIGHT


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("refresh", 0),
        ("refresh", "2"),
        ("refresh", True),
        ("refresh", 10**30),
        ("sources", []),
        ("sources", {"default.t": 3}),
        ("sources", {"default.t": {"version": -1, "table_id": "id"}}),
        ("sources", {"default.t": {"version": 3, "table_id": None}}),
        ("sources", {"default.t": {"version": 3, "table_id": "id", "more": 1}}),
        ("figures", "none"),
        ("figures", {"mode": ["full"]}),
        ("figures", {"prices": 3}),
        ("figures", {"started": "today"}),
        ("figures", {"stages": None}),
        ("figures", {"reasons": "COST"}),
        ("technique", 7),
        ("more", 1),
    ],
)
def test_a_commit_that_says_what_cannot_be_says_nothing(field: str, value: object) -> None:
    assert progress_in({**json.loads(RIGHT.to_json())[MARKER], field: value}) is None


@pytest.mark.parametrize("told", [{}, [], 7, "x", None])
def test_a_commit_that_says_nothing(told: object) -> None:
    assert progress_in(told) is None


@pytest.mark.parametrize(
    "name",
    [
        "", "  ", ".", "..", "../x", "a/b", "/etc", "a\\b", "a\0b", "a\nb", "\x1b[31m", ".deltaic", ".x",
        "x.link", "x.LIVE", "x" * 201, "é" * 101, "__deltaic_x", "__DELTAIC_mv_v", "\u202etxt",
    ],
)  # fmt: skip
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(NameProblem):
        check_name(name, "a view")


@pytest.mark.parametrize("name", ["v", "Größe", "a b", "%2e%2e", "a.b", "x" * 200, "it's", "`", "日本", "${env:HOME}"])
def test_names_that_are_taken(name: str) -> None:
    check_name(name, "a view")


def test_the_property_is_not_set_by_hand() -> None:
    with pytest.raises(ConfigurationError):
        checked_properties({PROPERTY: GOOD.to_json()})
    with pytest.raises(ConfigurationError):
        checked_properties({"deltaic.references.t": "a" + " " * 100_000})
    with pytest.raises(ConfigurationError):
        checked_properties({"deltaic.interval.t": "9" * 5_000})
