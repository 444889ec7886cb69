"""Timed deltas on DuckDB: any interval of one moves a view from one time to the other (definition 4.2)."""

from deltaic.algebra.nodes import Scan, State
from deltaic.algebra.quoting import quote
from deltaic.delta.timed import TIME, Timed, timed, why_not_timed
from deltaic.plan.kept import Body, body_of
from deltaic.plan.maintain import Maintenance
from deltaic.sql.render import render
from tests.lab.case import Case, Column, Table, Type, View
from tests.lab.choice import Choice, SeededChoice
from tests.lab.duck import Duck
from tests.lab.histories import random_history, random_row
from tests.lab.keeper import DuckCatalog, KeptView, tables_of
from tests.lab.oracle import difference

SHARE = 5
COLUMNS = {
    "r": (Column("a", Type.INT), Column("b", Type.INT)),
    "s": (Column("b", Type.INT), Column("c", Type.INT)),
    "t": (Column("c", Type.INT), Column("d", Type.INT)),
}


def linear_query(choice: Choice, depth: int = 2) -> str:
    """Joins and unions of tables, selected from and projected."""
    if depth == 0:
        table, x, y = choice.pick((("r", "a", "b"), ("s", "b", "c"), ("t", "c", "d"), ("r", "b", "a")))
        return f"SELECT {x} AS x, {y} AS y FROM {table}"
    one, two = linear_query(choice, depth - 1), linear_query(choice, choice.integer(0, depth - 1))
    return choice.weighted([
        (5, f"SELECT p.x, q.y FROM ({one}) AS p JOIN ({two}) AS q ON p.y = q.x"),
        (2, f"SELECT p.x, q.y FROM ({one}) AS p JOIN ({two}) AS q ON p.y <=> q.x AND p.x < q.y"),
        (2, f"({one}) UNION ALL ({two})"),
        (1, f"SELECT x + 1 AS x, y FROM ({one}) AS p WHERE y IS NOT NULL"),
    ])  # fmt: skip


def case_of(seed: int) -> Case:
    choice = SeededChoice(seed)
    tables = tuple(
        Table(name, columns, tuple(random_row(choice, columns) for _ in range(choice.integer(0, 6))))
        for name, columns in COLUMNS.items()
    )
    view = View("v", linear_query(choice), (Column("x", Type.INT), Column("y", Type.INT)))
    return Case(tables, (view,), random_history(choice, tables, list(COLUMNS)), seed)


def timed_changes(duck: Duck, case: Case, middle: int) -> dict[int, list[tuple[object, ...]]]:
    """Commits of one table after the other, each at a time of its own, into `<table>__timed`, and what the tables were
    in the middle, into `<table>__middle`; what the view was at each time."""
    view, time = case.views[0].sql, 0
    wanted = {0: duck.rows(view)}
    for table in case.tables:
        names = ", ".join(c.name for c in table.columns)
        empty = f"SELECT {names}, CAST(0 AS BIGINT) AS __deltaic_d, 0 AS t FROM {table.name} WHERE FALSE"
        duck.store(f"{table.name}__timed", empty)
    for batch in case.history:
        for statement in batch:
            duck.snapshot()
            duck.apply((statement,))
            time += 1
            table = next(t for t in case.tables if t.name == statement.table)
            names = ", ".join(c.name for c in table.columns)
            change = f"SELECT {names}, __deltaic_d, CAST({time} AS BIGINT) AS t FROM {duck.change(table.name)}"
            duck.store(f"{table.name}__timed", f"SELECT * FROM {table.name}__timed UNION ALL {change}")
            wanted[time] = duck.rows(view)
            if time == middle:
                duck.snapshot("middle")
    return wanted


def propagated(duck: Duck, body: Body, name: str, span: tuple[int, int], state: str = "") -> str:
    """The query that gives the timed delta of a span, at the end of which the tables are as they are named."""
    derivation = Timed(frozenset(COLUMNS))
    found = derivation.delta(body.node)
    assert found is not None

    def relation(scan: Scan) -> str:
        if scan.state is not State.CHANGE:
            return scan.source + state
        within = f"t > {span[0]} AND t <= {span[1]}"
        return f"(SELECT *, t AS {TIME} FROM {scan.source}__timed WHERE {within})"

    for binding in derivation.bindings:
        duck.store(binding.name, render(binding.node, relation))
    duck.store(name, render(timed(found, body.node.columns), relation))
    return f"SELECT * FROM {name}"


def problem(duck: Duck, case: Case) -> str | None:
    duck.reset(case)
    kept = KeptView(duck, case.views[0], DuckCatalog(duck, tables_of(case)))
    assert isinstance(kept.way, Maintenance)
    body = body_of(kept.way)
    assert isinstance(body, Body), body
    assert why_not_timed(body.node) is None
    commits = sum(len(batch) for batch in case.history)
    middle = SeededChoice(case.seed or 0).integer(0, commits - 1)
    wanted = timed_changes(duck, case, middle)
    # lemma 4.2: the timed delta up to the middle, and that from there on, are one of the whole
    first = propagated(duck, body, "first", (0, middle), "__middle") if middle else ""
    second = propagated(duck, body, "second", (middle, commits))
    duck.store("kept", f"{first} UNION ALL {second}" if first else second)
    shown = ", ".join(map(quote, body.node.columns[:2]))
    last = max(wanted)
    for after in range(last + 1):
        moved = f"SELECT {shown}, CAST(__deltaic_d AS BIGINT) FROM kept WHERE {TIME} > {after}"
        for upto in range(after, last + 1):
            counts: dict[tuple[object, ...], int] = {}
            for row in wanted[after]:
                counts[row] = counts.get(row, 0) + 1
            for x, y, count in duck.rows(f"{moved} AND {TIME} <= {upto}"):
                counts[x, y] = counts.get((x, y), 0) + count
            if any(count < 0 for count in counts.values()):
                return f"from {after} to {upto}: more goes than there is"
            rolled = [row for row, count in counts.items() for _ in range(count)]
            wrong = difference(wanted[upto], rolled)
            if wrong is not None:
                return f"from {after} to {upto}: {wrong}"
    return None


def test_any_interval_moves_a_view(first_seed: int, duck: Duck) -> None:
    for seed in range(first_seed, first_seed + SHARE):
        case = case_of(seed)
        found = problem(duck, case)
        assert found is None, f"seed {seed}: {found}\n{case.script()}"


def test_views_without_a_timed_delta_say_why(duck: Duck) -> None:
    case = case_of(0)
    duck.reset(case)
    catalog = DuckCatalog(duck, tables_of(case))
    for sql, why in (
        ("SELECT r.a, s.c FROM r LEFT JOIN s ON r.b = s.b", "outer joins"),
        ("SELECT a FROM r WHERE b IN (SELECT b FROM s)", "semi join"),
        ("SELECT x.n, t.d FROM (SELECT b, count(*) AS n FROM s GROUP BY b) AS x JOIN t ON x.n = t.c", "aggregate"),
        ("SELECT a, count(*) AS n FROM (SELECT DISTINCT a, b FROM r) AS x GROUP BY a", "aggregate"),
        ("SELECT a, avg(CAST(b AS DOUBLE)) AS m FROM r GROUP BY a", None),
        (
            "SELECT x.m, t.d FROM (SELECT a, sum(CAST(b AS DOUBLE)) AS m FROM r GROUP BY a) AS x JOIN t ON x.a = t.c",
            "keys",
        ),
    ):
        kept = KeptView(duck, View("v", sql, ()), catalog)
        assert isinstance(kept.way, Maintenance), sql
        found = body_of(kept.way)
        assert isinstance(found, Body) if why is None else isinstance(found, str) and why in found, (sql, found)
