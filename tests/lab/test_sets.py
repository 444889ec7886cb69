"""The reducing algorithms on random sets, each against recompute, with every technique pinned."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from deltaic.algebra.keys import Declared, Reference
from deltaic.algebra.nodes import Field
from deltaic.algebra.reasons import NotLowered, Reason
from deltaic.delta.sets import ALGORITHMS
from deltaic.errors import DeltaicError
from deltaic.plan.maintain import Form, Known, Maintenance, Way
from deltaic.plan.program import program_for
from tests.lab.case import Case, Column, Statement, Table, Type, View
from tests.lab.duck import Duck, DuckFailed
from tests.lab.keeper import DuckCatalog, KeptView, tables_of
from tests.lab.keyed import KEYS, keyed_case
from tests.lab.oracle import difference
from tests.lab.set_views import set_view_of, strata_of
from tests.lab.shrink import shrink

SHARE = 5
TECHNIQUES = ("auto", *ALGORITHMS)
REFERENCES = (Reference("o", ("c",), "c", ("id",)),)


Keeping = Callable[[Duck, Case], list[KeptView]]


def by_all(duck: Duck, case: Case) -> list[KeptView]:
    catalog = DuckCatalog(duck, tables_of(case))
    return [KeptView(duck, case.views[0], catalog, technique) for technique in TECHNIQUES]


def by_counting(duck: Duck, case: Case) -> list[KeptView]:
    catalog = DuckCatalog(duck, tables_of(case))
    pinned = [KeptView(duck, case.views[0], catalog, technique) for technique in ("auto", "counting")]
    return [*pinned, KeptView(duck, case.views[0], catalog, form=Form(strata=True))]


def by_keys(duck: Duck, case: Case) -> list[KeptView]:
    """Relying on the keys, and on the references too."""
    catalog = DuckCatalog(duck, tables_of(case))
    return [KeptView(duck, case.views[0], catalog, "reducing", KEYS, references) for references in ((), REFERENCES)]


def problem(duck: Duck, case: Case, keeping: Keeping, ways: Counter[str] | None = None) -> str | None:
    duck.reset(case)
    kept = keeping(duck, case)
    for number, view in enumerate(kept):
        view.table = f"kept_{number}"
        view.create()
        if ways is not None:
            ways[_way(view)] += 1
    for number, batch in enumerate(case.history):
        duck.snapshot()
        duck.apply(batch)
        changed = frozenset(t.name for t in case.tables if duck.rows(f"SELECT 1 FROM {duck.change(t.name)} LIMIT 1"))
        wanted = duck.rows(case.views[0].sql)
        for view in kept:
            view.refresh(changed)
            found = difference(wanted, duck.rows(view.visible()))
            if found is not None:
                return f"after batch {number} by {view.technique}:\n{found}"
    return None


def _way(view: KeptView) -> str:
    if isinstance(view.way, Reason):
        return view.way.code.name
    return "strata" if view.way.strata else view.way.way.value


def checked(duck: Duck, case: Case, keeping: Keeping, ways: Counter[str]) -> None:
    found = problem(duck, case, keeping, ways)
    if found is not None:
        small = shrink(case, lambda smaller: fails(duck, smaller, keeping))
        pytest.fail(f"seed {case.seed}: {problem(duck, small, keeping)}\n{small.script()}")


def fails(duck: Duck, case: Case, keeping: Keeping) -> bool:
    try:
        return problem(duck, case, keeping) is not None
    except (DuckFailed, NotLowered, DeltaicError):
        return False


def test_every_algorithm_gives_the_set(first_seed: int, duck: Duck) -> None:
    ways: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + SHARE):
        checked(duck, set_view_of(seed), by_all, ways)
    assert ways[Way.SETS.value] >= len(ALGORITHMS) * SHARE // 2, ways


def test_sets_inside_sets_are_counted(first_seed: int, duck: Duck) -> None:
    ways: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + SHARE):
        checked(duck, strata_of(seed), by_counting, ways)
    assert ways["strata"] > 0, ways


def test_keys_and_references_may_be_relied_on(first_seed: int, duck: Duck) -> None:
    ways: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + 2 * SHARE):
        checked(duck, keyed_case(seed), by_keys, ways)
    assert ways[Way.SETS.value] == 4 * SHARE, ways


R1, R2 = (("a", "int"), ("b", "int")), (("b", "int"), ("c", "int"))


def steps(duck: Duck, sql: str, changed: str, declared: Declared, references: tuple[Reference, ...] = ()) -> list[str]:
    """What a refresh computes, if one table changed."""
    catalog = DuckCatalog(duck, {"r1": tuple(Field(*f) for f in R1), "r2": tuple(Field(*f) for f in R2)})
    way = KeptView(duck, View("v", sql, ()), catalog, "reducing", declared, references).way
    assert isinstance(way, Maintenance)
    program = program_for(way, Known(frozenset({changed}), rows={"r1": 100, "r2": 100}))
    assert program is not None
    return [b.stage.what if b.stage else b.name for b in program.bindings]


def test_what_a_theorem_saves_and_where_its_condition_fails(duck: Duck) -> None:
    key = {"r2": (frozenset({"b"}),)}
    refers = (Reference("r1", ("b",), "r2", ("b",)),)
    told = "the view tells what goes"
    theorem_4 = "SELECT DISTINCT r1.a FROM r1 JOIN r2 ON r1.b = r2.b"
    # a row of r1 that stays may be left dangling, unless it refers to one of r2
    assert not any(told in step for step in steps(duck, theorem_4, "r1", {}))
    assert any(told in step for step in steps(duck, theorem_4, "r1", {}, refers))
    assert not any(told in step for step in steps(duck, f"{theorem_4} WHERE r2.c > 1", "r1", {}, refers))
    # what it is joined by is shown: whatever is left dangling, so is what goes
    both = "SELECT DISTINCT r1.b, r2.c FROM r1 JOIN r2 ON r1.b = r2.b"
    assert any(told in step for step in steps(duck, both, "r1", {}))
    # what only a row of the whole join tells is no help
    circular = "SELECT DISTINCT r1.a, r2.c FROM r1 JOIN r2 ON r1.a = r2.b AND r1.b = r2.c"
    assert not any(told in step for step in steps(duck, circular, "r1", key))


CASES = {
    "a key that only the whole join tells": (
        "SELECT DISTINCT r.a, s.c FROM r JOIN s ON r.a = s.b AND r.b = s.d",
        {"r": ((1, 5), (1, 6)), "s": ((1, 7, 5),)},
        "DELETE FROM r WHERE b = 5",
        {"s": (frozenset({"b"}),)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_wrong_once(name: str, duck: Duck) -> None:
    sql, rows, change, declared = CASES[name]
    tables = tuple(replace(table, rows=rows.get(table.name, ())) for table in set_view_of(0).tables)
    case = Case(tables, (View("v0", sql, ()),), ((Statement(change.split()[2], "delete", change),),))

    def keeping(duck: Duck, case: Case) -> list[KeptView]:
        catalog = DuckCatalog(duck, tables_of(case))
        return [KeptView(duck, case.views[0], catalog, "reducing", declared)]

    assert problem(duck, case, keeping) is None


def test_a_distinct_aggregate_over_strata(duck: Duck) -> None:
    """Multiplicities and strata were once both stored, and each took the other's rows for its own."""
    tables = set_view_of(0).tables
    rows = {"r": ((0, 0), (1, 1), (2, 2), (0, 3)), "t": ((0, None), (1, None))}
    sql = "SELECT a, count(DISTINCT b) AS n, count(DISTINCT a + b) AS m FROM r WHERE a IN (SELECT d FROM t) GROUP BY a"
    texts = (
        ("INSERT INTO r VALUES (0, 9)",),
        ("DELETE FROM r WHERE b = 9",),
        ("DELETE FROM t WHERE d = 1", "INSERT INTO r VALUES (0, 3)"),
    )
    history = tuple(tuple(Statement(text.split()[2], "change", text) for text in batch) for batch in texts)
    case = Case(tuple(replace(t, rows=rows.get(t.name, ())) for t in tables), (View("v0", sql, ()),), history)
    ways: Counter[str] = Counter()
    assert problem(duck, case, by_counting, ways) is None
    assert ways["strata"] == 2, ways


def test_more_derivations_taken_away_than_there_are(duck: Duck) -> None:
    """Lemma 4.1: only a change that is not the one of these rows can do that."""
    columns = (Column("a", Type.INT), Column("b", Type.INT))
    table = Table("r", columns, ((1, 1), (1, 2), (2, 2)))
    inner = View("v", "SELECT x.a FROM (SELECT DISTINCT a FROM r) AS x JOIN r AS y ON x.a < y.a", columns[:1])
    outer = View("v", "SELECT DISTINCT a FROM r", columns[:1])
    for view, column in ((inner, "__deltaic_derivations"), (outer, "__deltaic_s0")):
        case = Case((table,), (view,), ())
        duck.reset(case)
        kept = KeptView(duck, view, DuckCatalog(duck, tables_of(case)), "counting")
        kept.create()
        duck.execute(f"UPDATE `{kept.table}` SET `{column}` = 1 WHERE `{column}` = 2")
        duck.snapshot()
        duck.execute("DELETE FROM r WHERE a = 1")
        duck.change("r")
        with pytest.raises(DuckFailed, match="DELTAIC_VIEW_MISMATCH"):
            kept.refresh(frozenset({"r"}))


def test_groups_that_look_like_a_set_operation(duck: Duck) -> None:
    """Counts of either side are a user's to show, too."""
    a, d = Column("a", Type.INT), Column("d", Type.INT)
    tables = (Table("r", (a,), ((1,), (1,), (2,))), Table("t", (d,), ((1,), (5,))))
    union = "(SELECT a AS x, 1 AS m, 0 AS n FROM r UNION ALL SELECT d, 0, 1 FROM t) AS u"
    for calls in (("sum(m)", "sum(n)"), ("count(m)", "count(n)"), ("sum(m) FILTER (WHERE x > 1)", "sum(n)")):
        for test in ("> 0", "= 0"):
            having = f"HAVING {calls[0]} > 0 AND {calls[1]} {test}"
            inner = f"SELECT x, {calls[0]} AS h, {calls[1]} AS k FROM {union} GROUP BY x {having}"
            view = View("v", f"SELECT w.x, w.h FROM ({inner}) AS w JOIN t ON t.d >= w.x", (a, d))
            case = Case(tables, (view,), ((Statement("t", "insert", "INSERT INTO t VALUES (2)", ((2,),)),),))
            assert problem(duck, case, by_counting) is None


def test_a_row_that_equals_several_of_another_type(duck: Duck) -> None:
    """One of them goes, and it still meets another."""
    tables = (
        Table("a", (Column("x", Type.INT),), ((1,), (2,))),
        Table("u", (Column("s", Type.STRING),), (("1",), ("01",), ("2",))),
    )
    gone = ((Statement("u", "delete", "DELETE FROM u WHERE s = '01'"),),)
    for where in ("EXISTS", "NOT EXISTS"):
        view = View("v", f"SELECT x FROM a WHERE {where} (SELECT 1 FROM u WHERE u.s = a.x)", ())
        assert problem(duck, Case(tables, (view,), gone), by_counting) is None
