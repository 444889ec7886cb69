"""A form of trees in which two are the same if they differ in the names of their columns only."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any

from deltaic.algebra.expr import Col
from deltaic.algebra.nodes import Field, Item, Node

_NAMED = (Field, Item, Col)


def canonical(node: Node) -> Hashable:
    """Columns by the order in which they are first met; everything else, the text of expressions too, as it is."""
    numbers: dict[str, int] = {}

    def of(value: Any) -> Hashable:
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if not is_dataclass(value) or isinstance(value, type):
            return value if isinstance(value, Hashable) else repr(value)
        found: list[Hashable] = [type(value).__name__]
        for field in fields(value):
            own = getattr(value, field.name)
            if field.name == "name" and isinstance(value, _NAMED):
                own = numbers.setdefault(own, len(numbers))
            found.append(of(own))
        return tuple(found)

    return of(node)
