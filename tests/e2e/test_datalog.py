"""Datalog programs as views on Spark: what the literature computes, kept as facts come and go, against plain Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deltaic import DeltaicError, Warehouse
from deltaic.app.terminal.cli import app
from deltaic.errors import DatalogError, ExistsError, MissingError, NameProblem, RecursionTooDeep, UnsupportedError
from tests.e2e.conftest import rows

Links = set[tuple[str, str, int]]

HOPS = """
.output hop, tri_hop, only_tri_hop, min_cost_hop
hop(S, D, C) :- link(S, I, A) & link(I, D, B) & C = A + B.
tri_hop(S, D) :- hop(S, I, _) & link(I, D, _).
only_tri_hop(S, D) :- tri_hop(S, D) & !hop(S, D, _).
min_cost_hop(S, D, M) :- GROUPBY(hop(S, D, C), [S, D], M = MIN(C)).
"""
REACH = """
.decl tc(x: symbol, y: symbol)   // without passing a blocked node
.output tc, apart
tc(X, Y) :- link(X, Y, _).
tc(X, Y) :- tc(X, Z), link(Z, Y, _), !blocked(Z).
apart(X, Y) :- link(X, _, _), link(_, Y, _), !tc(X, Y).
"""


def fill(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE link (s STRING, d STRING, c INT)")
    wh.sql("INSERT INTO link VALUES ('a', 'b', 1), ('b', 'c', 2), ('c', 'd', 5), ('a', 'c', 9), ('b', 'e', 1)")
    wh.sql("CREATE TABLE blocked (n STRING)")
    wh.sql("INSERT INTO blocked VALUES ('c')")


def links(wh: Warehouse) -> Links:
    return {(s, d, c) for s, d, c in wh.table("link").collect()}


def hops(link: Links) -> dict[str, set[tuple[object, ...]]]:
    hop = {(s, d, a + b) for s, i, a in link for j, d, b in link if i == j}
    tri = {(s, d) for s, i, _ in hop for j, d, _ in link if i == j}
    cheapest = {(s, d, min(c for x, y, c in hop if (x, y) == (s, d))) for s, d, _ in hop}
    only = tri - {(s, d) for s, d, _ in hop}
    return {"hop": {*hop}, "tri_hop": {*tri}, "only_tri_hop": {*only}, "min_cost_hop": {*cheapest}}


def reach(link: Links, blocked: set[str]) -> dict[str, set[tuple[object, ...]]]:
    found = {(s, d) for s, d, _ in link}
    while new := {(x, d) for x, z in found for s, d, _ in link if z == s and z not in blocked} - found:
        found |= new
    apart = {(s, d) for s, _, _ in link for _, d, _ in link} - found
    return {"tc": {*found}, "apart": {*apart}}


def check(wh: Warehouse, expected: dict[str, set[tuple[object, ...]]]) -> None:
    for name, wanted in expected.items():
        found = rows(wh, f"SELECT * FROM {name}")
        assert sorted(found, key=str) == sorted(wanted, key=str), name


@pytest.mark.long
def test_the_examples_of_the_literature(wh: Warehouse) -> None:
    fill(wh)
    assert wh.datalog(HOPS) == ["hop", "tri_hop", "only_tri_hop", "min_cost_hop"]
    check(wh, hops(links(wh)))
    wh.sql("INSERT INTO link VALUES ('d', 'a', 1), ('e', 'd', 1), ('a', 'b', 3)")
    wh.sql("DELETE FROM link WHERE s = 'a' AND c = 1")
    reports = wh.refresh_all()
    assert {report.mode for report in reports} == {"incremental"}
    check(wh, hops(links(wh)))


def test_recursion_is_kept_and_programs_may_change(wh: Warehouse) -> None:
    fill(wh)
    assert wh.datalog(REACH) == ["tc", "apart"]
    check(wh, reach(links(wh), {"c"}))
    wh.sql("INSERT INTO link VALUES ('d', 'a', 1), ('e', 'a', 1)")
    wh.sql("DELETE FROM link WHERE c = 9")
    wh.sql("UPDATE blocked SET n = 'e'")
    techniques = {report.view: report.technique for report in wh.refresh_all()}
    assert techniques["default.tc"] == "dred"
    check(wh, reach(links(wh), {"e"}))
    before = [wh.history(name)[0] for name in ("tc", "apart")]
    wh.datalog(REACH)
    assert [wh.history(name)[0] for name in ("tc", "apart")] == before, "the same program changes nothing"
    wh.datalog(REACH.replace("!blocked(Z)", "Z != nil"))
    assert wh.history("apart")[0] == before[1], "its own rules are the same"
    by_program = [commit for commit in wh.history("tc") if commit["version"] > before[0]["version"]]
    assert len(by_program) == 1, "rows, query and program are one commit"
    assert "Z != nil" in wh.engine.view_table(wh.definition("tc")).log.snapshot().properties["deltaic.datalog"]
    wh.refresh_all()
    check(wh, reach(links(wh), set()))


@pytest.mark.long
def test_what_is_refused_leaves_nothing_behind(wh: Warehouse) -> None:
    fill(wh)
    wh.sql("CREATE MATERIALIZED VIEW taken AS SELECT s FROM link")
    good = "good(X) :- link(X, _, _).\n"
    refused: list[tuple[str, type[DeltaicError], str, tuple[int, int]]] = [
        ("bad(X) :- good(Y).", DatalogError, "X is unsafe", (2, 5)),
        ("bad(X) :- nope(X).", NameProblem, "no predicate nope", (2, 11)),
        ("bad(X) :- other.nope(X).", NameProblem, "other", (2, 11)),
        ("taken(X) :- good(X).", ExistsError, "no Datalog program made", (2, 1)),
        ("bad(X) :- good(X).\nbad(nosuch(X)) :- good(X).", NameProblem, "in the rule bad(nosuch(X))", (3, 1)),
        ("bad(X, 1) :- good(X).\nbad(X, C * 1.5) :- bad(X, C).", UnsupportedError, "in the rule bad(X, C", (3, 1)),
        ("bad(X) :- link(X, _, C), 1 / (C - 5) > 0.", DatalogError, "bad: [DIVIDE_BY_ZERO]", (2, 1)),
    ]
    for text, kind, what, place in refused:
        with pytest.raises(kind) as raised:
            wh.datalog(good + text)
        at = raised.value.at
        assert what in raised.value.what
        assert at is not None
        assert (at.line, at.column) == place, raised.value
        assert [view["view"] for view in wh.views()] == ["default.taken"]
    assert wh.datalog(good) == ["good"]
    with pytest.raises(DatalogError, match="DIVIDE"):
        wh.datalog("good(X) :- link(_, X, _).\nbad(X) :- good(X), 1 / (length(X) - 1) > 0.")
    check(wh, {"good": {("a",), ("b",), ("c",)}})


@pytest.mark.long
def test_recursion_that_computes(wh: Warehouse) -> None:
    """A column that is a constant in one rule, and computed in another."""
    fill(wh)
    program = "far(X, 0) :- link(X, _, _), X = 'a'.\nfar(Y, N + 1) :- far(X, N), link(X, Y, _), N < 3.\n"
    assert wh.datalog(f"{program}num(0).\nnum(N + 1) :- num(N), N < 4.\n.output far, num\n") == ["far", "num"]
    far: set[tuple[object, ...]] = {("a", 0), ("b", 1), ("c", 1), ("c", 2), ("d", 2), ("d", 3), ("e", 2)}
    check(wh, {"far": far, "num": {(n,) for n in range(5)}})
    wh.sql("DELETE FROM link WHERE c = 9")
    assert {report.technique for report in wh.refresh_all() if report.mode != "noop"} == {"dred"}
    check(wh, {"far": far - {("c", 1), ("d", 2)}})
    wh.spark.conf.set("spark.deltaic.rounds", 5)
    with pytest.raises(RecursionTooDeep):
        wh.datalog("endless(0).\nendless(N + 1) :- endless(N).\n")


def test_a_file_makes_a_view(wh: Warehouse, tmp_path: Path) -> None:
    fill(wh)
    file = tmp_path / "reach.dl"
    file.write_text(REACH)
    wh.sql(f"CREATE MATERIALIZED VIEW apart (a, b) COMMENT 'from a file' FROM '{file}'")
    assert wh.table("apart").columns == ["a", "b"]
    check(wh, {"apart": reach(links(wh), {"c"})["apart"]})
    assert "Scan @predicate1" in wh.explain(f"CREATE MATERIALIZED VIEW tc FROM '{file}'")
    with pytest.raises(NameProblem, match="no rule for nothing"):
        wh.sql(f"CREATE MATERIALIZED VIEW nothing FROM '{file}'")
    (tmp_path / "bad.dl").write_text("p(X) :- nope(X).")
    with pytest.raises(NameProblem, match=r"bad\.dl: there is no predicate nope.*line 1, column 9"):
        wh.sql(f"CREATE MATERIALIZED VIEW p FROM '{tmp_path / 'bad.dl'}'")
    with pytest.raises(MissingError, match=r"none\.dl"):
        wh.datalog(str(tmp_path / "none.dl"))
    wh.sql("DROP MATERIALIZED VIEW apart")
    assert wh.datalog(file) == wh.datalog(str(file)) == ["tc", "apart"]


@pytest.mark.long
def test_a_file_alters_a_view(wh: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(wh)
    monkeypatch.chdir(tmp_path)
    rules = "tc(X, Y) :- link(X, Y, _) ; tc(X, Z), (link(Z, Y, _), !blocked(Z){}).\n"
    Path("tc.dl").write_text(rules.format(""))
    wh.sql("CREATE MATERIALIZED VIEW tc FROM 'tc.dl'")
    check(wh, {"tc": reach(links(wh), {"c"})["tc"]})
    Path("tc.dl").write_text(rules.format(" ; link(Z, Y, _), Z = 'c'") + "tc(X, X) :- blocked(X).")
    alter = "ALTER MATERIALIZED VIEW tc FROM 'tc.dl'"
    assert "by dred (0 rules removed, 2 added)" in wh.explain(alter)
    assert "by dred (0 rules removed, 2 added)" in str(rows(wh, f"EXPLAIN {alter}"))
    wh.sql(alter)
    assert wh.history("tc")[0]["technique"] == "dred (0 rules removed, 2 added)"
    check(wh, {"tc": reach(links(wh), set())["tc"] | {("c", "c")}})
    Path("tc.dl").write_text(rules.format(""))
    wh.sql(alter)
    assert wh.history("tc")[0]["technique"] == "dred (2 rules removed, 0 added)"
    wh.sql("DELETE FROM blocked")
    assert [report.technique for report in wh.refresh_all()] == ["dred"]
    check(wh, {"tc": reach(links(wh), set())["tc"]})
    Path("tc.dl").write_text("tc(X, Y) :- link(X, Y, Z) ;\n  node(X, Y).")
    with pytest.raises(NameProblem, match=r"tc\.dl: there is no predicate node.*line 2, column 3"):
        wh.sql(alter)
    with pytest.raises(MissingError, match="none"):
        wh.sql("ALTER MATERIALIZED VIEW none FROM 'tc.dl'")
    Path("tc.dl").write_text("p(1).")
    with pytest.raises(NameProblem, match="no rule for tc"):
        wh.sql(alter)


TEXTS = [
    "it's",
    'a "b"',
    "\\",
    "\\' OR 1 = 1 --",
    "a\nb\r\tc",
    "${spark.sql.ansi.enabled}",
    "`x`; /* y */",
    "%_{} :p ?",
]


def test_texts_and_names_are_what_they_are(wh: Warehouse) -> None:
    """Whatever they would mean in SQL."""
    wh.sql("CREATE TABLE `order` (`select` STRING)")
    wh.sql("INSERT INTO `order` VALUES ('it\\'s'), ('no')")
    facts = "".join(f"Table({json.dumps(text)}). " for text in TEXTS)
    program = f".decl Table(from: symbol) {facts} group(where) :- order(where), TABLE(where). .output Table, group"
    assert wh.datalog(program) == ["Table", "group"]
    assert wh.table("`table`").columns == ["from"]
    check(wh, {"`table`": {(text,) for text in TEXTS}, "`group`": {("it's",)}})
    wh.sql("DELETE FROM `order` WHERE `select` <> 'no'")
    wh.refresh_all()
    check(wh, {"`table`": {(text,) for text in TEXTS}, "`group`": set()})


@pytest.mark.local
@pytest.mark.long
def test_the_command(wh: Warehouse, tmp_path: Path) -> None:
    fill(wh)
    place = str(tmp_path / "wh")
    file = tmp_path / "p.dl"
    file.write_text("p(X) :- link(X, _, C), C > 1.\nq(X) :- p(X), !blocked(X).\n")
    told = CliRunner().invoke(app, ["datalog", str(file), "-w", place, "--json"])
    assert json.loads(told.stdout) == {"views": ["p", "q"]}
    told = CliRunner().invoke(app, ["datalog", "-", "-w", place], input="r(1).\n")
    assert told.stdout.splitlines() == ["r"], told.stderr
    file.write_text("p(X) :- link(X, _, C),\n  !p(X).\n")
    told = CliRunner().invoke(app, ["datalog", str(file), "-w", place, "--json"])
    failure = json.loads(told.stderr)
    assert (told.exit_code, failure["error"], failure["line"], failure["column"]) == (1, "DATALOG", 2, 3)
