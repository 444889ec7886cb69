"""Data goes one way: a room imports only from the rooms to its left, and so do the rooms inside of `app`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "deltaic"
LEFT_OF = {
    "algebra": set[str](),
    "sql": {"algebra"},
    "delta": {"algebra"},
    "plan": {"algebra", "sql", "delta"},
    "store": {"algebra", "sql", "delta", "plan"},
    "spark": {"algebra", "sql", "delta", "plan"},
    "app": {"algebra", "sql", "delta", "plan", "store", "spark"},
}
PURE = ("algebra", "sql", "delta", "plan")
IN_APP = (
    "values", "catalogs", "rounds", "refresh", "rolling", "pipeline", "statements", "care", "warehouse", "doctor",
    "terminal",
)  # fmt: skip
"""From left to right."""


def imported(tree: ast.AST) -> Iterator[list[str]]:
    """The modules that a module imports, at any depth of it, those too that only type checkers see."""
    if isinstance(tree, ast.Import):
        yield from (alias.name.split(".") for alias in tree.names)
    if isinstance(tree, ast.ImportFrom) and tree.module:
        yield from ([*tree.module.split("."), alias.name] for alias in tree.names)
    for part in ast.iter_child_nodes(tree):
        yield from imported(part)


def parsed(file: Path) -> ast.AST:
    return ast.parse(file.read_text("utf-8"))


@pytest.mark.parametrize("room", LEFT_OF)
def test_a_room_imports_only_from_its_left(room: str) -> None:
    allowed = LEFT_OF[room] | {room}
    for file in (PACKAGE / room).rglob("*.py"):
        found = {p[1] for p in imported(parsed(file)) if p[0] == "deltaic" and len(p) > 1} & set(LEFT_OF)
        assert found <= allowed, f"{file.name} reaches into {found - allowed}"
        if room in PURE:
            assert "pyspark" not in file.read_text("utf-8"), f"{file.name} must work without Spark"


def test_rooms_inside_of_app_import_only_from_their_left() -> None:
    here = PACKAGE / "app"
    assert {path.stem for path in here.iterdir() if path.name[0] != "_"} == set(IN_APP)
    for file in here.rglob("*.py"):
        room = file.relative_to(here).parts[0].removesuffix(".py")
        allowed = set(IN_APP[: IN_APP.index(room) + 1]) if room in IN_APP else set[str]()
        modules = list(imported(parsed(file)))
        assert room == IN_APP[-1] or ["deltaic"] not in modules, f"{file.relative_to(here)} reaches into all of it"
        found = {p[2] for p in modules if p[:2] == ["deltaic", "app"]}
        assert found <= allowed, f"{file.relative_to(here)} reaches into {found - allowed}"
