"""The types of Datalog declarations: Soufflé's, Spark's, and those that `.type` names after them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from deltaic.errors import DatalogError, NameProblem, Position

_BASE = {"number": "bigint", "unsigned": "bigint", "symbol": "string", "float": "double"}
_OTHER_WORDS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
}
_PLAIN = {
    *("boolean", "tinyint", "smallint", "int", "bigint", "double"),
    *("string", "binary", "variant"),
    *("date", "time", "timestamp", "timestamp_ltz", "timestamp_ntz"),
}
_MEASURED = {"decimal": 2, "char": 1, "varchar": 1, "time": 1}
"""How many numbers may stand behind it."""
_DEEPEST = 100


@dataclass(frozen=True)
class Kind:
    """A type as it is written."""

    text: str
    at: Position


@dataclass(frozen=True)
class NamedType:
    """What `.type` says: the name is another one for the types that stand behind it."""

    name: str
    members: tuple[Kind, ...]
    at: Position


class Types:
    def __init__(self, named: Iterable[NamedType]) -> None:
        self.named: dict[str, NamedType] = {}
        self.known: dict[str, str] = {}
        for one in named:
            if _of_spark(one.name) is not None:
                raise NameProblem(f"{one.name} is a type already", at=one.at)
            first = self.named.setdefault(one.name, one)
            if first is not one:
                raise NameProblem(f"{one.name} is declared twice, first at {first.at}", at=one.at)
        for one in self.named.values():
            self.spark_type(Kind(one.name, one.at))

    def spark_type(self, kind: Kind, inside: tuple[str, ...] = ()) -> str:
        """What a type is in Spark."""
        named = self.named.get(kind.text)
        if named is None:
            found = _of_spark(kind.text)
            if found is None:
                hint = "Known are number, unsigned, symbol, float, Spark's types of one value, and what .type declares."
                raise NameProblem(f"there is no type {kind.text}", at=kind.at, hint=hint)
            return found
        if kind.text in inside:
            raise DatalogError(f"{kind.text} is declared by itself: {' → '.join((*inside, kind.text))}", at=kind.at)
        if len(inside) == _DEEPEST:
            raise DatalogError(f"{inside[0]} is declared through more than {_DEEPEST} other types", at=kind.at)
        if kind.text not in self.known:
            self.known[kind.text] = self.common(named, (*inside, kind.text))
        return self.known[kind.text]

    def common(self, named: NamedType, inside: tuple[str, ...]) -> str:
        """What all members of a union are in Spark."""
        first, *others = ((member, self.spark_type(member, inside)) for member in named.members)
        for member, found in others:
            if found != first[1]:
                what = f"{member.text} is {found}, and {first[0].text} is {first[1]}: a column has one type"
                raise DatalogError(what, at=member.at)
        return first[1]


def _of_spark(text: str) -> str | None:
    found = re.fullmatch(r"(\w+)(?:\((\d+(?:,\d+)*)\))?", text.lower())
    if found is None:
        return None
    name, numbers = found[1], found[2].split(",") if found[2] else []
    if not numbers and name in _BASE:
        return _BASE[name]
    name = _OTHER_WORDS.get(name, name)
    if not numbers:
        return {"decimal": "decimal(10,0)", "float": "float"}.get(name, name if name in _PLAIN else None)
    if len(numbers) > _MEASURED.get(name, 0):
        return None
    if name == "decimal" and len(numbers) == 1:
        numbers.append("0")
    return f"{name}({','.join(numbers)})"
