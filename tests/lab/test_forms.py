"""What a view stores of its sets: by the sizes of its sources, and by what it is told."""

from collections.abc import Callable

from deltaic.algebra.nodes import Field
from deltaic.algebra.reasons import Reason
from deltaic.plan.choose import choose
from deltaic.plan.forms import decide, price_of_form
from deltaic.plan.maintain import Form, Maintenance
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from tests.lab.duck import Duck
from tests.lab.keeper import DuckCatalog

SOURCES = {
    "fact": (Field("k", "int"), Field("d", "int"), Field("v", "int")),
    "line": (Field("k", "int"), Field("s", "int")),
    "dim": (Field("d", "int"), Field("name", "string")),
}
INNER = (
    "SELECT name, count(*) AS n FROM dim JOIN (SELECT DISTINCT d, s FROM fact JOIN line ON fact.k = line.k) AS x"
    " ON dim.d = x.d GROUP BY name"
)
DISTINCT = "SELECT DISTINCT name, v FROM dim JOIN fact ON dim.d = fact.d"
PLAIN = "SELECT name, v FROM dim JOIN fact ON dim.d = fact.d"
SIZES = {"fact": 15_000_000, "line": 60_000_000, "dim": 1_500_000}


def choosing(query: str) -> Callable[[Form], Maintenance | Reason]:
    duck = Duck()
    tree, text = parse_query(query)
    node = lower(tree, text, DuckCatalog(duck, SOURCES)).node
    duck.close()
    return lambda form: choose(node, form=form)


def test_a_set_through_a_large_join_is_stored() -> None:
    decided = decide(choosing(INNER), None, None, SIZES, here=True)
    assert decided.form == Form(counts=True, strata=True)
    assert decided.prices[Form(strata=True)] < decided.prices[Form()]
    assert isinstance(decided.way, Maintenance)
    assert decided.way.strata
    small = {name: rows // 10_000 for name, rows in SIZES.items()}
    assert decide(choosing(INNER), None, None, small, here=True).form == Form()


def test_what_is_told_is_done() -> None:
    for counts in (True, False):
        for strata in (True, False):
            form = decide(choosing(INNER), counts, strata, SIZES, here=True).form
            assert form == Form(counts, strata)
    of_sets = "SELECT DISTINCT v FROM fact JOIN (SELECT DISTINCT k FROM line) AS x ON fact.k = x.k"
    for query in (DISTINCT, of_sets):
        assert decide(choosing(query), False, None, SIZES, here=True).form == Form(counts=False)


def test_nothing_is_priced_where_nothing_is_to_be_chosen() -> None:
    assert not decide(choosing(PLAIN), None, None, SIZES, here=True).prices
    assert set(decide(choosing(DISTINCT), None, None, SIZES, here=True).prices) == {Form(), Form(counts=False)}


def test_an_empty_source_changes_nothing() -> None:
    way = choosing(DISTINCT)(Form())
    assert isinstance(way, Maintenance)
    assert price_of_form(way, {"fact": 0, "dim": 1000}, here=False) > 0
