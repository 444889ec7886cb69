"""What a view's commit says about itself: which source versions it brought the view to, and how."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any

from deltaic.store.commit import MARKER, Commit
from deltaic.store.log import Log


@dataclass(frozen=True)
class SourceState:
    """A source as a refresh saw it. `table_id` tells a table from another one made under the same name.

    `schema` is whatever text the planner wants to compare later: the used columns, say. `fingerprint` is the commit's,
    if it was there: a table that was put back from a copy has the same id, and may have other commits since.
    """

    version: int
    table_id: str
    schema: str | None = None
    fingerprint: str | None = None

    def is_of(self, log: Log) -> bool:
        """Whether the table at hand once was at this very commit, as far as its log can tell."""
        return self.fingerprint is None or log.fingerprint(self.version) in (None, self.fingerprint)


_FIGURES: Mapping[str, type | UnionType] = {
    "at": int | None,
    "definition": str,
    "depth": int | float,
    "mode": str,
    "predicted": dict,
    "prices": dict,
    "reasons": list,
    "stages": list,
    "started": int,
    "table": str,
    "time_dependent": bool,
    "vacuumed": int,
}
"""What those who read a commit rely on."""


@dataclass(frozen=True)
class Progress:
    """One refresh, as its commit records it.

    `refresh` counts a table's refreshes and is its Delta transaction number: of two refreshes with one number
    only one can be committed. `id` tells which of the two it was.
    """

    refresh: int
    sources: Mapping[str, SourceState]
    technique: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def to_json(self) -> str:
        """The text of the commit's userMetadata."""
        return json.dumps({MARKER: asdict(self)}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def of(cls, commit: Commit) -> Progress | None:
        """What a commit recorded; None if it is not one of Deltaic's, or what it says cannot be."""
        try:
            recorded = dict(commit.marker or {})
            sources = {str(name): _state(state) for name, state in recorded.pop("sources").items()}
            found = cls(sources=sources, **recorded)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return found if found._could_be_of(commit.version) else None

    def _could_be_of(self, version: int) -> bool:
        """A refresh is a commit, so there are no more of them than versions."""
        known = all(
            _is_number(state.version) and isinstance(state.table_id, str) and isinstance(state.schema, str | None)
            for state in self.sources.values()
        )
        texts = isinstance(self.technique, str) and isinstance(self.id, str) and isinstance(self.figures, dict)
        told = texts and all(isinstance(value, _FIGURES.get(name, object)) for name, value in self.figures.items())
        return known and told and _is_number(self.refresh) and 1 <= self.refresh <= version + 1


def _state(recorded: Mapping[str, Any]) -> SourceState:
    """Earlier commits call the fingerprint a mark."""
    return SourceState(**{"fingerprint" if key == "mark" else key: value for key, value in recorded.items()})


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
