"""The rounds of a fixpoint, over whatever runs the queries: Spark in a refresh, DuckDB in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deltaic.algebra.recursion import Predicate
from deltaic.delta.dred import Of, relation_of
from deltaic.errors import RecursionTooDeep
from deltaic.plan.recursion import Part, Phase, Query, follows, lost, named, same_as, won


class OverDeleted(Exception):
    """So much would have to be derived again that computing everything is less."""


class Runner(Protocol):
    def keep(self, relation: str, query: Query) -> int:
        """Computes a query now, and gives its rows a name, instead of others that had it; how many there are."""

    def add(self, relation: str, other: str) -> None:
        """The rows of both under the name of the first."""

    def empty(self, relation: str, p: Predicate) -> None:
        """No rows under a name."""

    def define(self, relation: str, query: Query) -> None:
        """A query under a name; it may be run where it is read."""

    def change(self, p: Predicate, lost: Query, won: Query) -> None:
        """What these find, signed, as the predicate's change."""


@dataclass
class RoundsFound:
    """What the rounds of one phase found, for each predicate: how many rows, round by round."""

    phase: Phase
    rows: Mapping[str, list[int]]

    @property
    def rounds(self) -> int:
        return max((len(found) for found in self.rows.values()), default=0)

    @property
    def total(self) -> int:
        return sum(map(sum, self.rows.values()))

    def __str__(self) -> str:
        told = ", ".join(f"{sum(found):,} of {name}" for name, found in self.rows.items())
        return f"{self.phase.value}: {told} in {self.rounds} round{'' if self.rounds == 1 else 's'}"


@dataclass
class Rounds:
    """At most so many rounds of a phase; and over-deleted rows, if there is a limit to them."""

    runner: Runner
    most: int
    over_deleted: float | None = None
    told: list[RoundsFound] = field(default_factory=list)

    def evaluate(self, parts: Sequence[Part]) -> None:
        """All rows of the predicates."""
        self.run(Phase.EVALUATE, parts)
        for part in parts:
            p = part.predicate
            self.runner.define(relation_of(p.source, Of.NEW), same_as(p, Of.COME))

    def maintain(self, phases: Mapping[Phase, Sequence[Part]]) -> None:
        """What the predicates are now, and their changes, from what they were."""
        parts = phases[Phase.OVER_DELETE]
        if self.run(Phase.OVER_DELETE, parts):
            self.define(parts, Of.LEFT)
            self.run(Phase.REDERIVE, phases[Phase.REDERIVE])
            self.define(parts, Of.NOW)
        else:
            for part in parts:
                p = part.predicate
                self.runner.empty(relation_of(p.source, Of.BACK), p)
                self.runner.define(relation_of(p.source, Of.NOW), same_as(p, Of.OLD))
        self.run(Phase.INSERT, phases[Phase.INSERT])
        self.define(parts, Of.NEW)
        for part in parts:
            self.runner.change(part.predicate, lost(part.predicate), won(part.predicate))

    def run(self, phase: Phase, parts: Sequence[Part]) -> int:
        """All rounds of a phase, until one finds nothing; how many rows they found."""
        found: dict[str, list[int]] = {part.predicate.name: [] for part in parts}
        for part in parts:
            self.runner.empty(relation_of(part.predicate.source, phase.fills), part.predicate)
        rows, total = self.round(phase, parts, [part.first for part in parts], found), 0
        while rows:
            total += rows
            if phase is Phase.OVER_DELETE and self.over_deleted is not None and total > self.over_deleted:
                raise OverDeleted(f"{total:,} rows of {', '.join(found)}")
            if max(map(len, found.values())) > self.most:
                raise RecursionTooDeep(
                    f"{', '.join(found)}: after {self.most} rounds there are still new rows",
                    hint="Bound the recursion in the query (a depth, a cost),"
                    " or allow more rounds by spark.deltaic.rounds.",
                )
            rows = self.round(phase, parts, [part.again for part in parts], found)
        self.told.append(RoundsFound(phase, found))
        return total

    def round(
        self, phase: Phase, parts: Sequence[Part], queries: Sequence[Query | None], found: dict[str, list[int]]
    ) -> int:
        """One round of every predicate: each reads what the others found in the one before."""
        counts = []
        for part, query in zip(parts, queries, strict=True):
            name = _next(part)
            if query is None:
                self.runner.empty(name, part.predicate)
            counts.append(self.runner.keep(name, query) if query is not None else 0)
        if not any(counts):
            return 0
        for part, count in zip(parts, counts, strict=True):
            p = part.predicate
            found[p.name].append(count)
            self.runner.define(relation_of(p.source, Of.FRONT), named(_next(part), p))
            if count:
                self.runner.add(relation_of(p.source, phase.fills), _next(part))
        following = {Phase.REDERIVE: Of.NOW, Phase.INSERT: Of.NEW}.get(phase)
        if following is not None:
            self.define(parts, following)
        return sum(counts)

    def define(self, parts: Sequence[Part], of: Of) -> None:
        for part in parts:
            self.runner.define(relation_of(part.predicate.source, of), follows(part.predicate, of))


def _next(part: Part) -> str:
    return f"{relation_of(part.predicate.source, Of.FRONT)}_next"
