"""Rolling propagation on the grid of times, and the paper's own examples."""

from dataclasses import replace

import pytest

from deltaic.plan.rolling import Listed, Rolling, Span, Term, compensation, compute_delta
from tests.lab.choice import SeededChoice
from tests.lab.grid import Grid, random_grid, roll

SHARE = 40


@pytest.mark.parametrize("one_interval", [True, False])
@pytest.mark.parametrize("sources", [2, 3, 4])
def test_every_cell_is_counted_once_at_the_latest_of_its_times(
    first_seed: int, sources: int, one_interval: bool
) -> None:
    for seed in range(first_seed, first_seed + SHARE):
        choice = SeededChoice(seed)
        grid = random_grid(choice, sources)

        def right(state: Rolling, grid: Grid = grid, seed: int = seed) -> None:
            found = grid.problem(state.mark)
            assert found is None, f"seed {seed}: {found} up to {state.mark} of {grid.commits}"

        roll(grid, choice, right, one_interval=one_interval)


def test_equation_3() -> None:
    """V = R1 R2 from a = 0 to b = 10: one forward query seen at c, one at d, and what each saw too much of."""
    forward_1, forward_2 = compute_delta(1, (None, None), (0, 0), (10, 10))
    assert forward_1.parts == (Span(0, 10), None)
    assert forward_2.parts == (None, Span(0, 10))
    (taken_back,) = compensation(forward_1, (10, 13))
    assert (taken_back.sign, taken_back.parts) == (-1, (Span(0, 10), Span(10, 13)))
    (taken_back,) = compensation(forward_2, (17, 10))
    assert (taken_back.sign, taken_back.parts) == (-1, (Span(0, 17), Span(0, 10)))
    assert compensation(taken_back, (17, 10)) == []


@pytest.mark.parametrize("live", [frozenset[int](), frozenset({0, 1})])
def test_the_times_of_two_rows_that_meet(live: frozenset[int]) -> None:
    """Both go, at 1 and 2: the joined row goes at 1. Both come: it comes at 2. (Section 3.3.)"""
    grid = Grid([[1], [2]], live, now=5)
    state = Rolling.start(2, 0).propagated(3)
    while state.pending:
        state = state.compensated(grid.execute(state.pending[0]))
    assert state.mark == 3
    # in the model a cell is a pair of changes; one of rows that were there counts -1 for each that goes
    came = {key: count for key, count in grid.counted.items() if count and all(key[0])}
    assert came == {((1, 2), 2): 1}
    gone: dict[tuple[int, ...], int] = {(1, 0): -1, (0, 2): -1, (1, 2): 1}
    at = dict.fromkeys((1, 2), 0)
    for (cell, time), count in grid.counted.items():
        at[time] += gone[cell] * count
    assert at == {1: -1, 2: 0}


@pytest.mark.parametrize("sources", [1, 2, 3, 4, 5])
def test_all_terms_at_once(sources: int) -> None:
    """A query that sees every source as it is wanted has nothing to take back, and ends where the terms end."""
    for state in (
        Rolling.start(sources, 3),
        Rolling.start(sources, 3).at_once(5),
        replace(Rolling.start(sources, 3), clock=11),
    ):
        for upto in (7, 12):
            by_terms = state.propagated(upto)
            terms = 0
            while by_terms.pending:
                by_terms, terms = by_terms.compensated(by_terms.pending[0].at_least), terms + 1
            assert (state.at_once(upto), terms) == (by_terms, 2**sources - 1)
            assert by_terms.mark == upto


def test_figure_9() -> None:
    a, b, c, d, e = 0, 10, 20, 30, 40
    state = Rolling.start(2, a)
    grid = Grid([[5, 15, 25, 35], [8, 18, 28, 38]], frozenset({0, 1}))
    for source, upto, executed in ((0, b, 12), (1, c, 25), (0, c, 28), (0, d, 42), (1, e, 45), (0, e, 47)):
        assert state.next_source == source
        grid.now = executed
        term = state.forward_term(source, upto)
        state = state.rolled(term, grid.execute(term))
        while state.pending:
            state = state.compensated(grid.execute(state.pending[0]))
        assert grid.problem(state.mark) is None
    assert state.forward == (e, e)
    assert state.lists == ((Listed(Span(c, d), (42, 42)), Listed(Span(d, e), (47, 47))), ())
    assert state.mark == c


@pytest.mark.parametrize("live", [frozenset[int](), frozenset({0, 1, 2})])
def test_rolling_needs_fewer_terms_than_propagate_on_a_star(live: frozenset[int]) -> None:
    """A fact table that changes at every time, by short intervals, and two dimensions that rarely do, by long ones."""
    lengths = (4, 40, 40)

    def run(one_interval: bool) -> int:
        grid = Grid([[t for t in range(1, 41) if t % 20], [20], [40]], live, now=60)
        state = Rolling.start(3, 0)
        while state.mark < 40:
            if state.pending:
                state = state.compensated(grid.execute(state.pending[0]))
            elif one_interval:
                state = state.propagated(min(state.mark + lengths[0], 60))
            else:
                source = state.next_source
                term = state.forward_term(source, min(state.forward[source] + lengths[source], 60))
                state = state.rolled(term, grid.execute(term))
        assert grid.problem(state.mark) is None
        return len(grid.terms)

    assert run(one_interval=False) < run(one_interval=True)


def test_a_source_that_did_not_change_is_passed() -> None:
    state = Rolling.start(2, 0).passed(0, 5)
    assert (state.forward, state.mark, state.lists) == ((5, 0), 0, ((), ()))
    assert state.passed(1, 5).mark == 5
    assert Term(1, (Span(0, 5), None), (5, 5), (5, 5)).states == [1]
