"""Datalog without Spark: what is parsed, what is refused and where, the SQL that comes of it, and what DuckDB makes of
that."""

from collections.abc import Iterator

import pytest

from deltaic.errors import DatalogError, DeltaicError, NameProblem, Position
from deltaic.sql.datalog.check import Checked, Table, checked
from deltaic.sql.datalog.parse import parse_program
from deltaic.sql.datalog.to_sql import view_queries, view_query
from tests.lab import case
from tests.lab.case import Column, Type
from tests.lab.duck import Duck
from tests.lab.test_recursion import COLUMNS, Kept

LINKS = (("a", "b", 1), ("b", "c", 2), ("c", "d", 5), ("a", "c", 9), ("b", "e", 1), ("e", "d", 1), ("a", "b", 1))
TABLES = {
    "link": Table((("s", "string"), ("d", "string"), ("c", "int"))),
    "node": Table((("n", "string"),)),
    "blocked": Table((("n", "string"),)),
    "made": Table((("x", "int"),), is_view=True),
}
HOP = "hop(S, D, C) :- link(S, I, A), link(I, D, B), C = A + B.\n"
TC = "tc(X, Y) :- link(X, Y, _).\ntc(X, Y) :- tc(X, Z), link(Z, Y, _).\n"


def program(text: str) -> Checked:
    return checked(parse_program(text), TABLES.get)


def queries(text: str) -> dict[str, str]:
    return {query.name: query.sql for query in view_queries(program(text))}


def whole(text: str, name: str) -> str:
    """The query of one predicate, with all that it needs inside."""
    return view_query(program(text), name).sql


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    database = Duck()
    link = tuple(Column(name, kind) for name, kind in (("s", Type.STRING), ("d", Type.STRING), ("c", Type.INT)))
    database.create(case.Table("link", link, LINKS))
    names = (Column("n", Type.STRING),)
    database.create(case.Table("node", names, tuple((name,) for name in "abcde")))
    database.create(case.Table("blocked", names, (("e",),)))
    yield database
    database.close()


# checks


@pytest.mark.parametrize(
    ("text", "kind", "what", "line", "column"),
    [
        ("p(X, Y) :- node(X).", DatalogError, "Y is unsafe: the head", 1, 6),
        ("p(X) :- node(X),\n !link(X, Y, _).", DatalogError, "Y is unsafe: a negation", 2, 11),
        ("p(X) :- node(X), Y < 3.", DatalogError, "Y is unsafe: a comparison", 1, 18),
        ("p(X) :- X = Y, Y = X.", DatalogError, "X is unsafe", 1, 9),
        ("p(X) :- node(X), link(X, _, Y + 1).", DatalogError, "Y is unsafe: an expression", 1, 29),
        ("p(N) :- node(Y), N = count : { link(X, _, _), X < Y }.", DatalogError, "Y is unsafe", 1, 51),
        ("p(M) :- M = min C : { node(X) }.", DatalogError, "C is unsafe: nothing inside", 1, 17),
        ("p(M) :- GROUPBY(node(X), [Y], M = MIN(X)).", DatalogError, "Y is unsafe: nothing inside", 1, 27),
        ("p(X) :- X = min X : { node(X) }.", DatalogError, "stands inside of it too", 1, 9),
        (
            "p(X) :- node(X) ; node(Y).",
            DatalogError,
            "X is unsafe: the head needs its value, in alternative 2 of",
            1,
            3,
        ),
        ("p(X) :- node(X), (X < 'b' ; X < Y).", DatalogError, "Y is unsafe: a comparison", 1, 33),
        ("p(X) :- node(X), !(node(X) ; link(X, Y, _)).", DatalogError, "Y is unsafe: a negation", 1, 38),
        ("p(X), q(Y) :- node(X).", DatalogError, "Y is unsafe: the head", 1, 9),
        ("p(S, N) :- N = count : { node(S) ; node(T) }.", DatalogError, "a value in its alternative 2", 1, 31),
        ("p(N) :- N = sum C : { link(_, _, C) ;\n node(_) }.", DatalogError, "C is unsafe: nothing inside", 1, 17),
        ("p(N) :- N = count : { node(_) ; node(_) }.", DatalogError, "have no variable in common", 1, 13),
        ("p(X) :- X > 1 + count : { node(_) }.", DatalogError, "X is unsafe: a comparison", 1, 9),
        ("p(1 + count : { link(X, _, Y + 1) }).", DatalogError, "Y is unsafe: an expression", 1, 28),
        ("p(1 + count : { p(_) }).", DatalogError, "through an aggregate of p", 1, 17),
        ("p(X) :- node(X), (X = 'a' ; !p(X)).", DatalogError, "through negation of p", 1, 29),
        ("p(distinct(X), 1) :- node(X).", DatalogError, "distinct is not a function", 1, 3),
        (
            f"p(1) :- {', '.join(['(node(_) ; node(_))'] * 8)}.",
            DatalogError,
            "this has 256 alternatives, and may have 200",
            1,
            9,
        ),
        (
            f"p(V40) :- link(_, _, V0), {', '.join(f'V{n + 1} = V{n} + V{n}' for n in range(40))}.",
            DatalogError,
            "the value of V14 is too long",
            1,
            219,
        ),
        ("p(_) :- node(X).", DatalogError, "_ stands for a value", 1, 3),
        ("p(max(X)) :- node(X).", DatalogError, "max is not a function", 1, 3),
        ("p() :- node(X).", DatalogError, "no arguments", 1, 1),
        ("p(X) :- node(X), !p(X).", DatalogError, "through negation of p: p → p", 1, 18),
        (
            "p(X) :- node(X), !q(X).\nq(X) :- r(X).\nr(X) :- p(X).",
            DatalogError,
            "p needs itself through negation of q: p → q → r → p",
            1,
            18,
        ),
        ("p(N) :- N = count : { p(X) }.", DatalogError, "through an aggregate of p", 1, 23),
        ("p(X) :- nope(X).", NameProblem, "no predicate nope", 1, 9),
        ("p(X) :- node(X, X).", NameProblem, "2 arguments here, and 1 in its table", 1, 9),
        ("p(X) :- q(X, X).\nq(X) :- node(X).", NameProblem, "1 argument here, and 2 at line 1, column 9", 2, 1),
        (".decl p(x: int)\np(1, 2).", NameProblem, "where it is declared", 2, 1),
        (".decl node(x: int, y: int)\np(1).", NameProblem, "1 in its table", 1, 7),
        (".decl p(x: int)\n.decl P(x: int)\np(1).", NameProblem, "declared twice, first at line 1", 2, 7),
        (".decl p(x: int, X: int)\np(1, 2).", NameProblem, "a column of p is declared twice", 1, 7),
        ("node(1).", NameProblem, "node is a table", 1, 1),
        (".input p\np(1).", NameProblem, "p is an .input", 2, 1),
        (".input nope\np(1).", NameProblem, "no table nope", 1, 8),
        (".output node\np(1).", NameProblem, "node is a table", 1, 9),
        (".output nope\np(1).", NameProblem, "nope is defined by no rule", 1, 9),
        ("s.p(1).", NameProblem, "cannot have a schema", 1, 1),
    ],
)
def test_programs_that_mean_nothing(text: str, kind: type[DeltaicError], what: str, line: int, column: int) -> None:
    with pytest.raises(kind) as raised:
        queries(text)
    assert what in raised.value.what
    assert raised.value.at == Position(line, column)


def test_what_is_asked_for() -> None:
    assert program(HOP + TC).asked == ("hop", "tc")
    assert program(f".output TC\n{HOP}{TC}").asked == ("tc",)
    assert program("r(X) :- q(X). q(X) :- node(X).").asked == ("q", "r")


def test_a_view_of_the_same_name_is_no_clash() -> None:
    assert program("made(1).").asked == ("made",)


# translation


def test_transitive_closure() -> None:
    assert queries(TC) == {
        "tc": """WITH RECURSIVE `tc` (`X`, `Y`) AS (
SELECT t0.`s` AS `X`, t0.`d` AS `Y` FROM `link` AS t0
UNION
SELECT t0.`X` AS `X`, t1.`d` AS `Y` FROM `tc` AS t0 JOIN `link` AS t1 ON t0.`Y` = t1.`s`
)
SELECT * FROM `tc`"""
    }


def test_same_generation_is_joined_along_its_variables() -> None:
    sql = whole("sg(X, X) :- node(X). sg(X, Y) :- link(X, A, _), link(Y, B, _), sg(A, B).", "sg")
    assert "FROM `link` AS t0 JOIN `sg` AS t2 ON t0.`d` = t2.`c0` JOIN `link` AS t1 ON t2.`c1` = t1.`d`" in sql


def test_a_predicate_that_is_asked_for_is_read_as_a_view() -> None:
    found = queries(f".output tc, apart\n{TC}apart(X, Y) :- node(X), node(Y), !tc(X, Y).")
    assert list(found) == ["tc", "apart"]
    assert found["apart"] == (
        "WITH `apart` (`X`, `Y`) AS (\n"
        "SELECT DISTINCT t0.`n` AS `X`, t1.`n` AS `Y` FROM `node` AS t0 CROSS JOIN `node` AS t1"
        " WHERE NOT EXISTS (SELECT 1 FROM `tc` AS n2 WHERE n2.`X` = t0.`n` AND n2.`Y` = t1.`n`)\n"
        ")\nSELECT * FROM `apart`"
    )


def test_of_predicates_that_need_one_another_the_first_has_all_inside() -> None:
    text = "even(X) :- node(X). odd(Y) :- even(X), link(X, Y, _). even(Y) :- odd(X), link(X, Y, _)."
    found = queries(text)
    assert found["even"].count(" AS (") == 2
    assert found["odd"].startswith("WITH `odd`")


def test_both_spellings_of_an_aggregate_are_one_query() -> None:
    one = whole(f"{HOP}m(S, D, M) :- M = min C : {{ hop(S, D, C) }}.", "m")
    assert one == whole(f"{HOP}m(S, D, M) :- GROUPBY(hop(S, D, C), [S, D], M = MIN(C)).", "m")
    assert "SELECT a0.g0 AS `S`" in one, "what shows all its groups needs no DISTINCT"


def test_declared_types_are_cast_to_where_they_differ() -> None:
    sql = whole(".decl p(x: symbol, y: number, z: float)\np(X, C, 1) :- link(X, _, C). p(X, C, D) :- p(X, C, D).", "p")
    assert "SELECT t0.`s` AS `x`, CAST(t0.`c` AS bigint) AS `y`, CAST(1 AS double) AS `z` FROM `link`" in sql
    assert "SELECT t0.`x` AS `x`, t0.`y` AS `y`, t0.`z` AS `z` FROM `p`" in sql


def test_lines_know_their_clauses() -> None:
    query = view_query(program(TC), "tc")
    assert [clause and clause.at.line for clause in query.lines] == [1, 1, None, 2, None, None]
    assert query.clause_at(4) is query.lines[3]
    assert query.clause_at(9) is None


# answers


def same_generation() -> set[tuple[str, str]]:
    found = {(n, n) for n in "abcde"}
    while new := {(x, y) for a, x, _ in LINKS for b, y, _ in LINKS if (a, b) in found} - found:
        found |= new
    return found


ANSWERS = [
    (f"{HOP}p(S, D) :- hop(S, D, _).", {("a", "c"), ("a", "d"), ("a", "e"), ("b", "d")}),
    ('p(X, "it\'s") :- link("a", X, C), C < 5.', {("b", "it's")}),
    ("p(X, C * 2 + 1) :- link(X, _, C), C % 2 = 1, C != 1.", {("c", 11), ("a", 19)}),
    ("p(X) :- link(X, Y, _), link(Y, Z, _), link(X, Z, C), C = 9.", {("a",)}),
    ("p(X, Y) :- link(X, Y, _), X = Y.", set()),
    ("p(X, D) :- link(X, _, C), D = E + 1, E = C, D > 5.", {("c", 6), ("a", 10)}),
    ("p(X, C) :- link(X, _, C), link(_, X, C - 1).", {("b", 2)}),
    ("p(X) :- node(X), !link(X, _, _).", {("d",)}),
    ("p(X) :- node(X), !blocked(_).", set()),
    ("p(X) :- node(X), !link(X, _, 1), !blocked(X).", {("c",), ("d",)}),
    ("p(1). p(2). p(1).", {(1,), (2,)}),
    ("p(1) :- 1 = 2. p(2) :- 1 < 2.", {(2,)}),
    ("p(X, nil) :- node(X), X = upper(X). p(X, 1) :- node(X), X != nil, X < lower('B').", {("a", 1)}),
    ("p(S, N) :- N = count : { link(S, _, _) }.", {("a", 2), ("b", 2), ("c", 1), ("e", 1)}),
    ("p(S, N) :- node(S), N = count : { link(_, S, _) }, N > 1.", {("c", 2), ("d", 2)}),
    ("p(N) :- N = sum C : { link(_, _, C) }.", {(19,)}),
    (
        ".decl p(n: number, m: number)\np(N, M) :- M = min D : { hop(_, _, C), D = C / 100, N = C / 20 }.\n" + HOP,
        {(0, 0), (1, 0)},
    ),
    ("p(N) :- N = count : { blocked(X), node(X), X = 'z' }.", {(0,)}),
    ("p(N) :- N = sum (C * D) : { link(_, X, C), link(X, _, D) }.", {(2 + 1 + 10 + 45 + 1,)}),
    ("p(A, B) :- A = min C : { link(_, _, C) }, B = max C : { link(_, _, C) }.", {(1, 9)}),
    ("p(X, M) :- M = max N : { N = count : { link(X, _, _) }, link(X, _, _) }, M > 1.", {("a", 2), ("b", 2)}),
    (f"{HOP}p(S, M) :- GROUPBY(hop(S, D, C), [S], M = MIN(C)).", {("a", 2), ("b", 2)}),
    (f"{TC}p(X) :- tc('b', X).", {("c",), ("d",), ("e",)}),
    (
        "p(X, Y) :- link(X, Y, _), !blocked(Y). p(X, Y) :- p(X, Z), link(Z, Y, _), !blocked(Y), X != 'a'.",
        {(s, d) for s, d, _ in LINKS if d != "e"} | {("b", "d")},
    ),
    ("p(X, X) :- node(X). p(X, Y) :- link(A, X, _), p(A, B), link(B, Y, _).", same_generation()),
    ("p(X) :- blocked(X) ; link(X, _, C), (C > 8 ; C = 5 ; link(_, X, 2)).", {("e",), ("a",), ("c",)}),
    ("p(X) :- node(X), !(link(X, _, 1) ; blocked(X), X != nil ; X = 'd').", {("c",)}),
    ("p(X) :- node(X), !(X > 'a', X < 'e').", {("a",), ("e",)}),
    ("p(X), q(X), p(upper(X)) :- blocked(X). q('z').", {("e",), ("E",)}),
    ("q(X), p(X) :- node(X), X < 'c'. p(Y) :- q(X), link(X, Y, _).", {("a",), ("b",), ("c",), ("e",)}),
    ("p(S, N) :- N = count : { link(S, X, _) ; link(X, S, _) }.", {("a", 2), ("b", 3), ("c", 3), ("d", 2), ("e", 2)}),
    ("p(N) :- N = count : { node(X) ; link(X, _, _) ; X = 'z' }.", {(6,)}),
    ("p(N) :- N = sum C : { link(_, X, C), (blocked(X) ; X = 'e' ; X = 'd') }.", {(1 + 5 + 1,)}),
    ("p(N) :- N = count : { link(_, _, C), (C = 1 ; C = 5) }.", {(4,)}),
    ("p(N) :- N = count : { link(X, _, _) ; node(X) }.", {(5,)}),
    ("p(N, M) :- N = max 7 : { blocked(X) ; node(X) }, M = sum 7 : { blocked(X) ; node(X) }.", {(7, 35)}),
    ("p(M) :- M = max C : { link(_, 'd', C) ; link('b', _, C) }.", {(5,)}),
    ("p(N) :- N = count : { (node(X) ; node(X)), (blocked(Y) ; Y = 'e') }.", {(5,)}),
    ("p(X) :- X = 1 + count : { node(_) } * 2.", {(11,)}),
    ("p(X) :- X = -sum (C) * 2 : { link(_, _, C) } + 1.", {(-37,)}),
    ("p(X) :- node(X), 1 < count : { link(X, _, _) }.", {("a",), ("b",)}),
    ("p(X) :- node(X), count : { link(X, _, _) } = count : { link(_, X, _) }.", {("e",)}),
    ("p(X) :- link(X, _, C), C > mean (D) : { link(_, _, D) }.", {("a",), ("c",)}),
    ("p(count : { node(_) }, (max C : { link(_, _, C) }) - 1).", {(5, 8)}),
    ("p(S, count : { link(S, _, _) }) :- node(S), !blocked(S).", {("a", 2), ("b", 2), ("c", 1)}),
    ("p(X) :- link(X, _, count : { link(X, _, _) }).", {("b",), ("e",)}),
    ("p(X) :- node(X), !link(X, _, count : { blocked(_) }).", {("c",), ("d",)}),
    ("p(N) :- N = sum (C + count : { link(_, X, _) }) : { link(X, _, C) }.", {(14,)}),
    (
        "p(S, M) :- GROUPBY(link(S, D, C), [S], M = MAX(C + count : { link(_, D, _) })).",
        {("a", 11), ("b", 4), ("c", 7), ("e", 3)},
    ),
    ("p(C) :- link(_, _, C), C = min D : { link(_, X, C), link(X, _, D) }.", {(1,)}),
]


@pytest.mark.parametrize(("text", "expected"), ANSWERS)
def test_answers(duck: Duck, text: str, expected: set[tuple[object, ...]]) -> None:
    found = duck.rows(whole(text, "p"))
    assert len(found) == len(set(found)), "a predicate is a set"
    assert set(found) == expected


def test_many_facts_are_one_branch(duck: Duck) -> None:
    facts = "".join(f"p({n % 500}, 'x'). " for n in range(1000))
    for rule, more in (("", 0), ("p(1, D) :- link('a', D, _).", 2)):
        sql = whole(facts + rule, "p")
        assert sql.count("UNION") == bool(more)
        found = duck.rows(sql)
        assert len(found) == len(set(found)) == 500 + more


def test_programs_may_be_long() -> None:
    chain = "".join(f"p{n}(X) :- p{n - 1}(X). " for n in range(2000, 0, -1)) + "p0(X) :- node(X)."
    assert program(chain).asked[:2] == ("p0", "p1")
    assert whole(f"p({' + '.join(['1'] * 3000)}).", "p").count("(") == 3
    assert whole(f"p({'-' * 3000}1) :- {'!' * 3001}node(_).", "p").count("NOT EXISTS") == 1


def test_mutual_recursion_and_strata(duck: Duck) -> None:
    """Evaluated as Deltaic does, in rounds."""
    text = """
even(X) :- n(X, _).
odd(Y) :- even(X), e(X, Y).
even(Y) :- odd(X), e(X, Y), !f(Y, _).
"""
    other = Duck()
    edges = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6))
    for name, rows in (("e", edges), ("f", ((4, 4),)), ("n", ((0, 0),))):
        other.create(case.Table(name, COLUMNS, rows))
    table = Table((("a", "int"), ("b", "int")))
    known = checked(parse_program(text), lambda name: table if name in ("e", "f", "n") else None)
    kept = Kept(other, view_query(known, "odd").sql)
    assert {p.name: set(kept.rows(p)) for p in kept.predicates} == {"even": {(0,), (2,)}, "odd": {(1,), (3,)}}
    other.close()
