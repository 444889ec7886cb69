"""The grid of the sources' times: a model in which every propagation is checked cell by cell.

Each source is a list of commits, whose times are all different. A cell is one commit of each source, or what was there
before all of them. A term counts the cells of a box, each at the least of its spans' times. What a propagation has to
bring about: every cell, but for the one that was there from the start, is counted once, at the latest of its times.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from deltaic.plan.rolling import Rolling, Span, Term, Times
from tests.lab.choice import Choice


@dataclass
class Grid:
    """`commits[i]` are the times of source i; those up to `now` are there. `live` sources are seen now only."""

    commits: list[list[int]]
    live: frozenset[int]
    now: int = 0
    counted: Counter[tuple[tuple[int, ...], int]] = field(default_factory=Counter)
    """By cell and time."""
    terms: list[Term] = field(default_factory=list)

    def execute(self, term: Term) -> Times:
        """Count the cells of a term; where each source was seen."""
        seen = tuple(
            self.now if place in self.live else max(term.at_least[place], 0) for place in range(len(self.commits))
        )
        assert all(term.parts[p] is not None or seen[p] >= term.at_least[p] for p in self.live)
        axes = [
            self.between(place, part) if part is not None else [0, *self.between(place, Span(0, seen[place]))]
            for place, part in enumerate(term.parts)
        ]
        for cell in product(*axes):
            time = min(cell[place] for place in term.spans)
            self.counted[cell, time] += term.sign
        self.terms.append(term)
        return seen

    def between(self, place: int, span: Span) -> list[int]:
        assert span.upto <= self.now, "a change that is not there yet"
        return [time for time in self.commits[place] if span.after < time <= span.upto]

    def is_empty(self, term: Term) -> bool:
        return any(not self.between(place, span) for place, span in term.spans.items())

    def problem(self, mark: int) -> str | None:
        """A cell that is not counted as it should be, at a time up to the mark."""
        found = {key: count for key, count in self.counted.items() if count and key[1] <= mark}
        wanted = {}
        for cell in product(*([0, *(t for t in times if t <= mark)] for times in self.commits)):
            if any(cell):
                wanted[cell, max(cell)] = 1
        wrong = {key: (found.get(key, 0), wanted.get(key, 0)) for key in {*found, *wanted}}
        return next((f"{key}: {a} for {b}" for key, (a, b) in wrong.items() if a != b), None)


def random_grid(choice: Choice, sources: int) -> Grid:
    """Commits in a random order of sources."""
    commits: list[list[int]] = [[] for _ in range(sources)]
    for time in range(1, choice.integer(2, 14 - 2 * sources) + 1):
        commits[choice.integer(0, sources - 1)].append(time)
    live = frozenset(place for place in range(sources) if choice.chance(50))
    return Grid(commits, live)


def roll(grid: Grid, choice: Choice, check: Callable[[Rolling], None], *, one_interval: bool) -> Rolling:
    """Propagate by random steps while commits come in, to the end."""
    state = Rolling.start(len(grid.commits), 0)
    last = max((time for times in grid.commits for time in times), default=0)
    while state.mark < last:
        grid.now = min(last + 5, grid.now + choice.integer(0, 3))
        state = Rolling.from_json(state.to_json())  # another process may go on
        if state.pending:
            term = state.pending[0]
            if any(grid.now < term.at_least[p] for p in term.states if p in grid.live):
                continue
            state = state.skipped() if grid.is_empty(term) else state.compensated(grid.execute(term))
        elif one_interval:
            upto = min(grid.now, state.mark + choice.integer(1, 4))
            if upto > state.mark:
                state = state.propagated(upto)
        else:
            source = state.next_source
            upto = min(grid.now, state.forward[source] + choice.integer(1, 6))
            if upto <= state.forward[source]:
                continue
            term = state.forward_term(source, upto, grid.now if choice.chance(50) or grid.live else 0)
            if any(grid.now < term.at_least[p] for p in grid.live):
                continue
            state = state.rolled(term, grid.execute(term))
        check(state)
    return state
