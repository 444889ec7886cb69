"""Datalog texts: what is read of them, and what is refused, at which place."""

import pytest

from deltaic.errors import DatalogError, DeltaicError, NameProblem, ParseError, Position, UnsupportedError
from deltaic.sql.datalog.parse import parse_program
from deltaic.sql.datalog.program import Aggregate, Atom, Comparison, Constant, Not, Program


def test_a_program_is_read_with_places() -> None:
    found = parse_program(".decl p(x: number, y: decimal(10, 2))\n.output p, q\np(X, 1.5) :- q(X), !r(X, _), X > -3.\n")
    assert found.declarations[0].columns == (("x", "bigint"), ("y", "decimal(10,2)"))
    assert [(named.name, str(named.at)) for named in found.outputs] == [
        ("p", "line 2, column 9"),
        ("q", "line 2, column 12"),
    ]
    clause = found.clauses[0]
    assert clause.text == "p(X, 1.5) :- q(X), !r(X, _), X > -3."
    assert [type(literal) for literal in clause.body] == [Atom, Not, Comparison]
    assert [str(literal.at) for literal in clause.body] == [f"line 3, column {n}" for n in (14, 20, 30)]


def test_comments_of_every_kind() -> None:
    text = """% at the beginning
p(1). % after a clause
  % indented
p(X) :- /* inside
 of it */ q(X), // to the end
    X % 2 = 1. # so
q(3)."""
    assert [clause.text.split(":-")[0].strip() for clause in parse_program(text).clauses] == ["p(1).", "p(X)", "q(3)."]


def test_a_program_may_have_nothing_in_it() -> None:
    assert parse_program("") == parse_program("% nothing\n/* at */ // all\n#") == Program((), (), (), ())


def test_both_spellings_of_negation_and_conjunction() -> None:
    one, other = (parse_program(text).clauses[0] for text in ("p(X) :- q(X), !r(X).", "p(X) :- q(X) & not r(X)."))
    assert [type(literal) for literal in one.body] == [type(literal) for literal in other.body] == [Atom, Not]


@pytest.mark.parametrize(
    ("aggregate", "function", "has_value"),
    [
        ("M = min C : { hop(S, D, C) }", "min", True),
        ("M = sum (C * 2) : { hop(S, D, C) }", "sum", True),
        ("M = sum C * 2 + 1 : { hop(S, D, C), C > 1 }", "sum", True),
        ("M = mean C : { hop(S, D, C) }", "avg", True),
        ("M = count : { hop(S, D, C) }", "count", False),
        ("GROUPBY(hop(S, D, C), [S, D], M = MAX(C))", "max", True),
        ("groupby(hop(S, D, C), [], M = COUNT())", "count", False),
    ],
)
def test_aggregates(aggregate: str, function: str, has_value: bool) -> None:
    literal = parse_program(f"p(M) :- {aggregate}.").clauses[0].body[0]
    assert isinstance(literal, Aggregate)
    assert (literal.function, literal.value is not None) == (function, has_value)


def test_texts_are_written_so_that_nothing_ends_them() -> None:
    head = parse_program(r"""p("it's", 'a "b"', "\\ \"", "a\nb").""").clauses[0].head
    found = [argument.sql for argument in head.arguments if isinstance(argument, Constant)]
    assert found == [r"'it\'s'", "'a \"b\"'", "'\\\\ \"'", r"'a\nb'"]


@pytest.mark.parametrize(
    ("text", "what", "line", "column"),
    [
        ("p(X) :- q(X)", "ends too early", 1, 12),
        ("p(X) :- q(X),\n  .", "'.' cannot stand here", 2, 3),
        ("p(X) :- q(X) r(X).", "'r' cannot stand here", 1, 14),
        ("p(1).\n.comp c", "'.' cannot stand here", 2, 1),
        ("p(1).\n.type t", "ends too early", 2, 7),
        ('p("abc).', "cannot stand here", 1, 3),
        ("p(@1).", "'@' cannot stand here", 1, 3),
        ("p.", "'.' cannot stand here", 1, 2),
        ("p(X) :- X = min : { q(X) }.", "needs something", 1, 13),
        ("p(X) :- X = 1 + min : { q(X) }.", "needs something", 1, 17),
        ("p(X) :- X = median C : { q(C) }.", "median is not an aggregate", 1, 13),
        ("p(X) :- X = 1 + median(C) : { q(C) }.", "median is not an aggregate", 1, 17),
        ("p(X) :- X = 1 : { q(C) }.", "':' cannot stand here", 1, 15),
        ("p(X) :- GROUP(q(X), [X], M = MIN(X)).", "'GROUP' cannot stand here", 1, 9),
        ("p(X) :- GROUPBY(q(X), [X], M = MIN(X) + 1).", "an aggregate is expected", 1, 32),
        ("p(a.b).", "has a dot", 1, 3),
        ("p(X) :- q(X) ;\n .", "'.' cannot stand here", 2, 2),
        ("p(X) :- (q(X) ; r(X).", "'.' cannot stand here", 1, 21),
        ("p(X) :- q(X), (r(X) ; 3).", "a predicate is expected", 1, 23),
        ("p(X) :- q((r(X) ; s(X))).", "a value is expected", 1, 11),
        ("p(X) :- q(X), X = (1 < 2).", "a value is expected", 1, 19),
        ("p(1);q(2).", "';' cannot stand here", 1, 5),
        (f"p({'(' * 40}1{')' * 40}).", "nested more than 39 deep", 1, 41),
    ],
)
def test_syntax_errors(text: str, what: str, line: int, column: int) -> None:
    with pytest.raises(ParseError, match=what) as raised:
        parse_program(text)
    assert raised.value.at == Position(line, column)


def test_several_heads_and_alternatives_are_clauses_of_their_own() -> None:
    found = parse_program("p(X), q(X, 1) :- a(X) ; b(X), (c(X) ; !d(X)).").clauses
    assert [clause.head.name for clause in found] == ["p"] * 3 + ["q"] * 3
    assert [[type(literal).__name__ for literal in clause.body] for clause in found[:3]] == [
        ["Atom"],
        ["Atom", "Atom"],
        ["Atom", "Not"],
    ]
    assert [str(clause.at) for clause in found[::3]] == ["line 1, column 1", "line 1, column 7"]
    assert found[1].told == "alternative 2 of the rule p(X), q(X, 1) :- a(X) ; b(X), (c(X) ; !d(X))."


def test_a_negation_of_several_is_of_each() -> None:
    either = parse_program("p(X) :- a(X), !(b(X) ; X < 3).").clauses
    both = parse_program("p(X) :- a(X), not (b(X), !c(X), X = 3).").clauses
    assert [[type(literal).__name__ for literal in clause.body[1:]] for clause in (*either, *both)] == [
        ["Not", "Comparison"],
        ["Not"],
        ["Atom"],
        ["Comparison"],
    ]
    compared = [clause.body[-1] for clause in (either[0], both[2])]
    assert [literal.operator for literal in compared if isinstance(literal, Comparison)] == [">=", "!="]


def test_words_are_names_where_they_are_not_meant() -> None:
    found = parse_program("not(sum) :- min(sum, not), count(_, type), sum != 3, not min(sum, _), !(sum(not)).").clauses
    assert [type(literal).__name__ for literal in found[0].body] == ["Atom", "Atom", "Comparison", "Not", "Not"]
    assert [clause.head.name for clause in parse_program("p(1).decl(2).input(3).").clauses] == ["p", "decl", "input"]


def test_types_that_are_named() -> None:
    text = """.type Name <: symbol
.type Part = Id | Other   // a union of one base
.decl p(a: Name, b: Part, c: Price, d: Integer, e: /* of Spark */ timestamp)
.type Id <: number
.type Other = unsigned
.type Price = decimal(10 /* and */, 2)"""
    types = [kind for _, kind in parse_program(text).declarations[0].columns]
    assert types == ["string", "bigint", "decimal(10,2)", "int", "timestamp"]


@pytest.mark.parametrize(
    ("text", "kind", "what", "line", "column"),
    [
        (".type a = b\n.type b = a", DatalogError, "a is declared by itself: a → b → a", 2, 11),
        (".type a = number | symbol", DatalogError, "symbol is string, and number is bigint", 1, 20),
        (".type r = [x: number]", UnsupportedError, "r is a record", 1, 7),
        (".type l = Nil {} | Cons {head: number, tail: l}", UnsupportedError, "l is a choice of branches", 1, 7),
        (".type Number <: symbol", NameProblem, "Number is a type already", 1, 7),
        (".type a <: number\n.type a <: symbol", NameProblem, "a is declared twice, first at line 1, column 7", 2, 7),
        (".type a <: nope", NameProblem, "there is no type nope", 1, 12),
        (".decl p(x: nope)", NameProblem, "there is no type nope", 1, 12),
        (".decl p(x: decimal(1, 2, 3))", NameProblem, r"there is no type decimal(1,2,3)", 1, 12),
        (".decl p(x: decimal.x)", NameProblem, "there is no type decimal.x", 1, 12),
        ("\n".join(f".type t{n} = t{n + 1}" for n in range(2000)), DatalogError, "more than 100 other", 100, 13),
    ],
)
def test_types_that_mean_nothing(text: str, kind: type[DeltaicError], what: str, line: int, column: int) -> None:
    with pytest.raises(kind) as raised:
        parse_program(text)
    assert what in raised.value.what
    assert raised.value.at == Position(line, column)
