"""Data goes one way: a room imports only from the rooms to its left."""

import ast
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


def imports(file: Path) -> set[str]:
    """The rooms that a module imports from, at any depth of it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        parts = [name.split(".") for name in names]
        found.update(p[1] for p in parts if p[0] == "deltaic" and len(p) > 1 and p[1] in LEFT_OF)
    return found


@pytest.mark.parametrize("room", LEFT_OF)
def test_a_room_imports_only_from_its_left(room: str) -> None:
    allowed = LEFT_OF[room] | {room}
    for file in (PACKAGE / room).glob("*.py"):
        assert imports(file) <= allowed, f"{file.name} reaches into {imports(file) - allowed}"
        if room in ("algebra", "sql", "delta", "plan"):
            assert "pyspark" not in file.read_text("utf-8"), f"{file.name} must work without Spark"
