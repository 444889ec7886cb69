"""The rows of table 5, and theorems 2, 3 and 4: what is read of the changed side, and that every row is exact."""

import pytest

from deltaic.algebra.nodes import Scan, State
from deltaic.algebra.trees import walk
from deltaic.plan.maintain import Known, Maintenance
from deltaic.plan.program import program_for
from tests.lab.case import Case, View
from tests.lab.duck import Duck
from tests.lab.keeper import keep_case
from tests.lab.outer_trees import outer_tables
from tests.lab.table_5 import COUNTED, ONLY_INSERTIONS, PASSED_OVER, TOLD
from tests.lab.test_views import problem

ALL = {**TOLD, **ONLY_INSERTIONS, **PASSED_OVER, **COUNTED}


def states_read(duck: Duck, query: str, *, appended: bool) -> set[State]:
    """Of `r`, when only `r` has changed."""
    tables, history = outer_tables(1)
    case = Case(tables, (View("v0", query, ()),), history, 1)
    duck.reset(case)
    way = keep_case(duck, case)[0][-1].way
    assert isinstance(way, Maintenance)
    changed = frozenset({"r"})
    program = program_for(way, Known(changed, changed if appended else frozenset()))
    assert program is not None
    return {n.state for b in program.bindings for n in walk(b.node) if isinstance(n, Scan) and n.source == "r"}


@pytest.mark.parametrize("name", TOLD)
def test_the_view_tells(name: str, duck: Duck) -> None:
    assert states_read(duck, TOLD[name], appended=True) == {State.CHANGE}
    assert states_read(duck, TOLD[name], appended=False) == {State.CHANGE}


@pytest.mark.parametrize("name", ONLY_INSERTIONS)
def test_the_view_tells_insertions_only(name: str, duck: Duck) -> None:
    assert states_read(duck, ONLY_INSERTIONS[name], appended=True) == {State.CHANGE}
    assert states_read(duck, ONLY_INSERTIONS[name], appended=False) == {State.CHANGE, State.NEW}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_padded_rows_are_passed_over(name: str, duck: Duck) -> None:
    assert states_read(duck, PASSED_OVER[name], appended=False) == {State.CHANGE}


@pytest.mark.parametrize("name", COUNTED)
def test_matches_are_counted(name: str, duck: Duck) -> None:
    assert states_read(duck, COUNTED[name], appended=False) == {State.CHANGE, State.NEW}


@pytest.mark.parametrize("name", ALL)
def test_executed(name: str, duck: Duck, pytestconfig: pytest.Config) -> None:
    for seed in range(20 if pytestconfig.getoption("--fuzz") else 1):
        for inserts_only in (True, False):
            tables, history = outer_tables(seed, inserts_only)
            assert problem(duck, Case(tables, (View("v0", ALL[name], ()),), history, seed)) is None


def test_a_branch_keeps_the_type_of_its_union(duck: Duck) -> None:
    """Found by the lab: where only one branch changed, its rows were hashed as INT and looked for as BIGINT."""
    query = "SELECT c FROM z UNION ALL SELECT v FROM r"
    for seed in range(3):
        tables, history = outer_tables(seed)
        only_z = tuple(tuple(s for s in batch if s.table == "z") for batch in history)
        assert problem(duck, Case(tables, (View("v0", query, ()),), only_z, seed)) is None
