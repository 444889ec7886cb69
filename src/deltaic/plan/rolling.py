"""Rolling propagation (Salem, Beyer, Lindsay, Cochrane, *How To Roll a Join*): which queries make a timed view delta.

The sources are relations R1 ... Rn, whose states and changes have times: the sequence numbers of commits. A *term* is a
signed product of changes and states. A row of it has the least of the times of its changes; that is right since a term
never sees a state before the end of its spans, and what is counted twice is subtracted:

    one at max(c)  =  sum over sets S of sources of (-1)^(|S|+1) at min(c over S)

A state may be seen later than it is wanted, where a source can only be read as it is now; compensation takes back what
that brought. What is still to be done is a list of values, so a process may stop after any term and another go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

FOREVER = 2**62
"""The end of what a query that is still to come will see."""

Times = tuple[int, ...]


@dataclass(frozen=True, order=True)
class Span:
    """The times after `after`, up to and with `upto`."""

    after: int
    upto: int

    def upto_at_most(self, time: int) -> Span:
        return Span(self.after, min(self.upto, time))

    @property
    def is_empty(self) -> bool:
        return self.upto <= self.after


Part = Span | None
"""Of a source: its change in a span, or its state."""


@dataclass(frozen=True)
class Term:
    """`wanted` is the time at which each state ought to be seen, `at_least` the time before which it must not be."""

    sign: int
    parts: tuple[Part, ...]
    wanted: Times
    at_least: Times

    @property
    def spans(self) -> dict[int, Span]:
        return {place: part for place, part in enumerate(self.parts) if part is not None}

    @property
    def states(self) -> list[int]:
        return [place for place, part in enumerate(self.parts) if part is None]


def compute_delta(sign: int, parts: tuple[Part, ...], old: Times, new: Times) -> list[Term]:
    """Figure 4: the terms of a query's delta from one time to another, by the method of its equation 2: states left of
    the change are wanted as they were, those right of it as they are. Each term may want compensation."""
    found = []
    for place, part in enumerate(parts):
        if part is None and old[place] < new[place]:
            span = Span(old[place], new[place])
            wanted = (*old[:place], new[place], *new[place + 1 :])
            found.append(Term(sign, (*parts[:place], span, *parts[place + 1 :]), wanted, new))
    return found


def compensation(term: Term, seen: Times) -> list[Term]:
    """What a term brought by seeing states later than wanted is taken back."""
    return compute_delta(-term.sign, term.parts, term.wanted, seen)


@dataclass(frozen=True)
class Listed:
    """A forward query that a later one of a higher-numbered source may overlap; when it saw the others."""

    span: Span
    seen: Times


@dataclass(frozen=True)
class Rolling:
    """How far a propagation has come. `forward` marks, `lists` of forward queries that are not compensated for wholly,
    `pending` terms, and `mark`, the high-water mark: up to it the kept delta is complete."""

    forward: Times
    mark: int
    lists: tuple[tuple[Listed, ...], ...]
    pending: tuple[Term, ...] = ()
    clock: int = 0
    """No state was seen later: what comes sees no state before that."""

    @staticmethod
    def start(sources: int, at: int) -> Rolling:
        return Rolling((at,) * sources, at, ((),) * sources, clock=at)

    @property
    def next_source(self) -> int:
        """The one that is furthest behind."""
        return self.forward.index(min(self.forward))

    def forward_term(self, source: int, upto: int, at_least: int = 0) -> Term:
        """The query for a source's change after its mark; the others are seen when it is run, and no earlier than any
        state was seen before: so every later query sees what this one did."""
        parts: list[Part] = [None] * len(self.forward)
        parts[source] = Span(self.forward[source], upto)
        wanted = (max(self.clock, upto, at_least),) * len(parts)
        return Term(1, tuple(parts), wanted, wanted)

    def propagated(self, upto: int) -> Rolling:
        """Figure 5: all sources by one interval. Only for a state with nothing listed or pending."""
        assert not self.pending
        assert not any(self.lists)
        sources = len(self.forward)
        terms = compute_delta(1, (None,) * sources, self.forward, (upto,) * sources)
        return replace(self, forward=(upto,) * sources, pending=tuple(terms), clock=max(self.clock, upto))._marked()

    def at_once(self, upto: int) -> Rolling:
        """All sources by one interval, in one query that sees each of them as it is wanted: what `propagated` comes to
        when its 2^n - 1 terms are run. Only for a state with nothing listed or pending."""
        assert not self.pending
        assert not any(self.lists)
        return replace(self, forward=(upto,) * len(self.forward), clock=max(self.clock, upto))._marked()

    def rolled(self, term: Term, seen: Times) -> Rolling:
        """After a forward query was run, which overlaps those of lower-numbered sources, past and future ones."""
        ((source, span),) = term.spans.items()
        listed = Listed(span, seen)
        terms = list(self._overlaps(source, listed))
        lists = list(self.lists)
        if source < len(lists) - 1:
            lists[source] = (*lists[source], listed)
        forward = (*self.forward[:source], span.upto, *self.forward[source + 1 :])
        clock = max(self.clock, span.upto, *seen)
        return replace(self, forward=forward, lists=tuple(lists), pending=tuple(terms), clock=clock)._pruned()

    def passed(self, source: int, upto: int) -> Rolling:
        """Past a span in which a source did not change."""
        forward = (*self.forward[:source], upto, *self.forward[source + 1 :])
        return replace(self, forward=forward, clock=max(self.clock, upto))._pruned()

    def compensated(self, seen: Times) -> Rolling:
        """After the first pending term was run."""
        term, *others = self.pending
        return replace(self, pending=(*compensation(term, seen), *others))._pruned()

    def skipped(self) -> Rolling:
        """Without the first pending term, one of whose changes is empty: so is what would compensate for it."""
        return replace(self, pending=self.pending[1:])._pruned()

    def _overlaps(self, source: int, query: Listed) -> Iterator[Term]:
        """Where a forward query and some of lower-numbered sources all count: by inclusion and exclusion, what each set
        of them has in common, at the least of its times, with the other sources as all of them saw them."""
        lower = range(source)
        for chosen in chain.from_iterable(combinations(lower, size) for size in range(1, source + 1)):
            for queries in product(*(self._segments(place) for place in chosen)):
                members = {**dict(zip(chosen, queries, strict=True)), source: query}
                term = _common(members, len(self.forward))
                if term is not None:
                    yield term

    def _segments(self, source: int) -> list[Listed]:
        """The queries of a source that are listed, and that which is to come: it will see everything."""
        to_come = Listed(Span(self.forward[source], FOREVER), (FOREVER,) * len(self.forward))
        return [*self.lists[source], to_come]

    def _pruned(self) -> Rolling:
        """Without queries that no later one of a higher-numbered source can overlap."""
        lists = tuple(
            tuple(
                q
                for q in queries
                if any(q.seen[other] > self.forward[other] for other in range(source + 1, len(self.forward)))
            )
            for source, queries in enumerate(self.lists)
        )
        return replace(self, lists=lists)._marked()

    def _marked(self) -> Rolling:
        if self.pending:
            return self
        starts = [
            queries[0].span.after if queries else mark for queries, mark in zip(self.lists, self.forward, strict=True)
        ]
        return replace(self, mark=max(self.mark, min(starts)))

    def to_json(self) -> dict[str, Any]:
        return {
            "forward": list(self.forward),
            "mark": self.mark,
            "lists": [[[q.span.after, q.span.upto, list(q.seen)] for q in queries] for queries in self.lists],
            "pending": [
                [t.sign, [p and [p.after, p.upto] for p in t.parts], list(t.wanted), list(t.at_least)]
                for t in self.pending
            ],
            "clock": self.clock,
        }

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Rolling:
        return Rolling(
            tuple(raw["forward"]),
            raw["mark"],
            tuple(tuple(Listed(Span(a, b), tuple(seen)) for a, b, seen in queries) for queries in raw["lists"]),
            tuple(
                Term(sign, tuple(Span(*p) if p else None for p in parts), tuple(wanted), tuple(at_least))
                for sign, parts, wanted, at_least in raw["pending"]
            ),
            raw["clock"],
        )


def _common(members: dict[int, Listed], sources: int) -> Term | None:
    """What forward queries, one of each source, have in common; None if that is nothing."""
    parts: list[Part] = []
    wanted: list[int] = []
    for place in range(sources):
        seen = min(query.seen[place] for other, query in members.items() if other != place)
        own = members.get(place)
        span = own.span.upto_at_most(seen) if own else None
        if span and span.is_empty:
            return None
        parts.append(span)
        wanted.append(span.upto if span else seen)
    return Term(-1 if len(members) % 2 == 0 else 1, tuple(parts), tuple(wanted), tuple(wanted))
