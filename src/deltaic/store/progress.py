"""What a view's commit says about itself: which source versions it brought the view to, and how."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from deltaic.store.log import MARKER, Commit


@dataclass(frozen=True)
class SourceState:
    """A source as a refresh saw it. `table_id` tells a table from another one made under the same name.

    `schema` is whatever text the planner wants to compare later: the used columns, say.
    """

    version: int
    table_id: str
    schema: str | None = None


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
        """What a commit recorded; None if it is not one of Deltaic's."""
        if commit.marker is None:
            return None
        recorded = dict(commit.marker)
        sources = {name: SourceState(**state) for name, state in recorded.pop("sources").items()}
        return cls(sources=sources, **recorded)
