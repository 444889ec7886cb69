"""Keys: sets of columns in which no two rows of a node agree, as far as the algebra and what was declared tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from deltaic.algebra.nodes import Aggregate, Apply, Filter, Join, JoinKind, Node, Project, Scan, State, Window

Keys = frozenset[frozenset[str]]
Declared = Mapping[str, tuple[frozenset[str], ...]]
"""Keys of sources, as sets of their columns."""
_NONE: Keys = frozenset()
_MOST = 16


@dataclass(frozen=True)
class Reference:
    """Every row of `source` has a row of `other` whose columns `there` are equal to its own `here`, none NULL."""

    source: str
    here: tuple[str, ...]
    other: str
    there: tuple[str, ...]


def determined(columns: Iterable[str], known: Iterable[tuple[frozenset[str], frozenset[str]]]) -> frozenset[str]:
    """All columns that some determine, if of each pair the first ones determine the others."""
    found, pairs, before = frozenset(columns), list(known), frozenset[str]()
    while found != before:
        before = found
        found = found.union(*(others for own, others in pairs if own <= found))
    return found


def keys(node: Node, declared: Declared) -> Keys:
    """The keys of a node. One with more columns than it needs is one, too."""
    match node:
        case Scan(state=State.NEW | State.OLD):
            names = {column.origin.lower(): column.field.name for column in node.scanned}
            known = ({column.lower() for column in key} for key in declared.get(node.source, ()))
            return frozenset(frozenset(names[c] for c in key) for key in known if key <= names.keys())
        case Filter() | Window():
            return keys(node.input, declared)
        case Apply():
            return keys(node.input, declared)
        case Project():
            shown: dict[str, str] = {}
            for item in node.items:
                if item.expr.column:
                    shown.setdefault(item.expr.column, item.name)
            below = keys(node.input, declared)
            return frozenset(frozenset(shown[c] for c in key) for key in below if key <= shown.keys())
        case Aggregate():
            return frozenset({frozenset(item.name for item in node.groups)})
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return keys(node.left, declared)
        case Join(kind=JoinKind.INNER | JoinKind.LEFT):
            both = product(keys(node.left, declared), keys(node.right, declared))
            return _smallest(left | right for left, right in both)
    return _NONE


def _smallest(found: Iterable[frozenset[str]]) -> Keys:
    """Some of many: a join has as many as one side has times as many as the other has."""
    every = frozenset(found)
    return every if len(every) <= _MOST else frozenset(sorted(every, key=lambda key: (len(key), sorted(key)))[:_MOST])
