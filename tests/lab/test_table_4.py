"""The rows of table 4: what is carried reads no old state of its aggregate's source, and every row is exact."""

import pytest

from deltaic.algebra.nodes import Aggregate, Scan, State
from deltaic.algebra.trees import sources, walk
from deltaic.plan.change import change_table
from deltaic.plan.maintain import Known, Maintenance, Way
from deltaic.plan.program import program_for
from tests.lab.case import Case, View
from tests.lab.duck import Duck
from tests.lab.keeper import keep_case
from tests.lab.table_4 import CARRIED, SINGULAR
from tests.lab.test_views import problem
from tests.lab.towers import tables_and_history

ALL = {**CARRIED, **{name: query for name, (query, _) in SINGULAR.items()}}


def case_for(query: str, seed: int) -> Case:
    tables, history = tables_and_history(seed)
    return Case(tables, (View("v0", query, ()),), history, seed)


def way_of(duck: Duck, query: str) -> Maintenance:
    case = case_for(query, 1)
    duck.reset(case)
    way = keep_case(duck, case)[0][-1].way
    assert isinstance(way, Maintenance)
    return way


@pytest.mark.parametrize("name", CARRIED)
def test_carried(name: str, duck: Duck) -> None:
    way = way_of(duck, CARRIED[name])
    assert way.way is Way.CHANGES
    tables = change_table(way, way.derivation(Known(frozenset({"facts"})))).how
    assert tables.singular == []
    assert way.kept is not None
    assert len(tables.carried) == sum(isinstance(n, Aggregate) for n in walk(way.kept.top.input))
    program = program_for(way, Known(frozenset({"facts"})))
    assert program is not None
    read = {n.state for b in program.bindings for n in walk(b.node) if isinstance(n, Scan) and n.source == "facts"}
    assert read == {State.CHANGE}, "refreshing for changed facts reads no fact that did not change"


@pytest.mark.parametrize("name", SINGULAR)
def test_singular(name: str, duck: Duck) -> None:
    query, why = SINGULAR[name]
    way = way_of(duck, query)
    assert way.way is Way.CHANGES
    tables = change_table(way, way.derivation(Known(frozenset(sources(way.root))))).how
    assert [s.why for s in tables.singular] == [why]


@pytest.mark.parametrize("name", ALL)
def test_executed(name: str, duck: Duck, pytestconfig: pytest.Config) -> None:
    for seed in range(20 if pytestconfig.getoption("--fuzz") else 2):
        assert problem(duck, case_for(ALL[name], seed)) is None
