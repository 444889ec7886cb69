"""Datalog texts to programs: declarations, and clauses of atoms, comparisons and aggregates, each with its place.

The spelling is Soufflé's, and for aggregates the GROUPBY of Gupta, Mumick and Subrahmanian beside it. What an
aggregate is over stands before its body and may begin with a parenthesis, as the arguments of a function do: so
`sum (A*B) : {…}` is parsed as a comparison with a call, and read as an aggregate because of the body that follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NoReturn, TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from deltaic.errors import DatalogError, ParseError, Position

_GRAMMAR = r"""
start: (clause | decl | input | output)*

clause: expr [":-" body] "."
decl: ".decl" NAME "(" [column ("," column)*] ")"
column: NAME ":" TYPE
input: ".input" NAME ("," NAME)*
output: ".output" NAME ("," NAME)*

body: literal (("," | "&") literal)*
?literal: expr                                                            -> positive
        | ("!" | "not") expr                                              -> negative
        | expr COMPARE expr                                               -> comparison
        | expr COMPARE expr ":" "{" body "}"                              -> aggregate
        | expr COMPARE NAME bare ":" "{" body "}"                         -> aggregate_of
        | NAME "(" expr "," "[" names "]" "," expr COMPARE expr ")"       -> groupby
names: [NAME ("," NAME)*]

?expr: product | expr (PLUS | MINUS) product                              -> operation
?product: unit | product (STAR | SLASH | PERCENT) unit                    -> operation
?unit: simple | "(" expr ")" | MINUS unit                                 -> negative_of
?bare: bare_product | bare (PLUS | MINUS) product                         -> operation
?bare_product: simple | bare_product (STAR | SLASH | PERCENT) unit        -> operation
?simple: NAME                                                             -> word
       | NUMBER                                                           -> number
       | STRING                                                           -> string
       | NAME "(" [expr ("," expr)*] ")"                                  -> call

NAME: /[^\W\d]\w*(\.[^\W\d]\w*)*/
NUMBER: /\d+(\.\d+)?([eE][+-]?\d+)?/
STRING: /"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'/
TYPE: /[^\W\d]\w*(\s*\(\s*\d+(\s*,\s*\d+)*\s*\))?/
COMPARE: /<=|>=|!=|<>|=|<|>/
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"

BLANK: /[ \t\f\r]+|\n/
COMMENT.2: /\/\/[^\n]*|#[^\n]*|\/\*(.|\n)*?\*\//
LINE_COMMENT.2: /(?<![^\n.])[ \t]*%[^\n]*/
%ignore BLANK
%ignore COMMENT
%ignore LINE_COMMENT
"""

AGGREGATES = {"min": "min", "max": "max", "sum": "sum", "count": "count", "mean": "avg", "avg": "avg"}
"""What may stand before a body in braces, and Spark's name of it."""
_TYPES = {"number": "bigint", "unsigned": "bigint", "symbol": "string", "float": "double"}
_CONSTANTS = {"true": "TRUE", "false": "FALSE", "nil": "NULL", "null": "NULL"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class Variable:
    name: str
    at: Position


@dataclass(frozen=True)
class Anonymous:
    """`_`: some value."""

    at: Position


@dataclass(frozen=True)
class Constant:
    """`sql` is how Spark writes it."""

    sql: str
    at: Position

    @property
    def is_null(self) -> bool:
        return self.sql == "NULL"


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Expr, ...]
    at: Position


@dataclass(frozen=True)
class Operation:
    """Arithmetic; a sign has no left side."""

    operator: str
    left: Expr | None
    right: Expr
    at: Position


Expr: TypeAlias = Variable | Anonymous | Constant | Call | Operation


@dataclass(frozen=True)
class Atom:
    name: str
    arguments: tuple[Expr, ...]
    at: Position

    @property
    def key(self) -> str:
        """Names of tables ignore case in Spark, and so do predicates."""
        return self.name.lower()


@dataclass(frozen=True)
class Not:
    atom: Atom
    at: Position


@dataclass(frozen=True)
class Comparison:
    operator: str
    left: Expr
    right: Expr
    at: Position


@dataclass(frozen=True)
class Aggregate:
    """`result` = `function` of `value` over what `body` finds, for each value of `groups`; None: those variables of the
    body that also occur outside of it."""

    result: Expr
    function: str
    value: Expr | None
    body: tuple[Literal, ...]
    groups: tuple[Variable, ...] | None
    at: Position


Literal: TypeAlias = Atom | Not | Comparison | Aggregate


@dataclass(frozen=True)
class Clause:
    """A fact, if it has no body."""

    head: Atom
    body: tuple[Literal, ...]
    text: str

    @property
    def at(self) -> Position:
        return self.head.at


@dataclass(frozen=True)
class Declaration:
    """Columns with their types, as Spark names them."""

    name: str
    columns: tuple[tuple[str, str], ...]
    at: Position


@dataclass(frozen=True)
class Named:
    """What a directive names."""

    name: str
    at: Position


@dataclass(frozen=True)
class Program:
    clauses: tuple[Clause, ...]
    declarations: tuple[Declaration, ...]
    inputs: tuple[Named, ...]
    outputs: tuple[Named, ...]


def variables(*expressions: Expr | None) -> Iterator[Variable]:
    for expression in expressions:
        match expression:
            case Variable():
                yield expression
            case Call():
                yield from variables(*expression.arguments)
            case Operation():
                yield from variables(expression.left, expression.right)


def parse_program(text: str) -> Program:
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as problem:
        raise _syntax_error(problem, text) from None
    return _Reader(text).program(tree)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


_SAID = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "TYPE": "a type",
    "COMPARE": "a comparison",
    "$END": "the end",
}


def _syntax_error(problem: UnexpectedInput, text: str) -> ParseError:
    found = str(problem.token) if isinstance(problem, UnexpectedToken) else text[problem.pos_in_stream or 0]
    what = f"{found!r} cannot stand here" if found else "the program ends too early"
    # what may follow; the parser's own list is of more, since its states are merged
    words = sorted(map(_said, problem.interactive_parser.accepts()))  # type: ignore[no-untyped-call]
    return ParseError(what, at=Position(problem.line, problem.column), hint=f"Expected here: {'  '.join(words)}")


def _said(terminal: str) -> str:
    if terminal in _SAID:
        return _SAID[terminal]
    pattern = next(t.pattern.value for t in _parser().terminals if t.name == terminal)
    return str(pattern)


Node: TypeAlias = "Tree[Token] | Token"


def _at(node: Node) -> Position:
    if isinstance(node, Token):
        return Position(node.line or 1, node.column or 1)
    return Position(node.meta.line, node.meta.column)


def _trees(nodes: Iterable[Node | None]) -> Iterator[Tree[Token]]:
    return (node for node in nodes if isinstance(node, Tree))


def _tokens(nodes: Iterable[Node | None]) -> Iterator[Token]:
    return (node for node in nodes if isinstance(node, Token))


class _Reader:
    """Trees of the grammar to values; what the grammar lets through and means nothing is refused here."""

    def __init__(self, text: str) -> None:
        self.text = text

    def program(self, tree: Tree[Token]) -> Program:
        found: dict[str, list[Tree[Token]]] = {"clause": [], "decl": [], "input": [], "output": []}
        for part in _trees(tree.children):
            found[part.data].append(part)
        return Program(
            tuple(self.clause(part) for part in found["clause"]),
            tuple(self.declaration(part) for part in found["decl"]),
            tuple(self.named(found["input"])),
            tuple(self.named(found["output"])),
        )

    def named(self, directives: Iterable[Tree[Token]]) -> Iterator[Named]:
        for directive in directives:
            for name in _tokens(directive.children):
                yield Named(str(name), _at(name))

    def declaration(self, tree: Tree[Token]) -> Declaration:
        name = next(_tokens(tree.children))
        columns = []
        for column in _trees(tree.children):
            own, kind = map(str, _tokens(column.children))
            columns.append((own, _TYPES.get(kind.lower(), re.sub(r"\s+", "", kind.lower()))))
        return Declaration(str(name), tuple(columns), _at(name))

    def clause(self, tree: Tree[Token]) -> Clause:
        head, *rest = _trees(tree.children)
        text = " ".join(self.text[tree.meta.start_pos : tree.meta.end_pos].split())
        return Clause(self.atom(head), self.body(rest[0]) if rest else (), text)

    def body(self, tree: Tree[Token]) -> tuple[Literal, ...]:
        return tuple(self.literal(part) for part in _trees(tree.children))

    def literal(self, tree: Tree[Token]) -> Literal:
        parts, at = list(_trees(tree.children)), _at(tree)
        match tree.data:
            case "positive":
                return self.atom(parts[0])
            case "negative":
                return Not(self.atom(parts[0]), at)
            case "comparison":
                left, right = map(self.expr, parts)
                return Comparison(self.operator(tree), left, right, at)
            case "aggregate":
                function, value = self.aggregated(self.expr(parts[1]))
                return self.aggregate(tree, parts[0], function, value, self.body(parts[2]), None)
            case "aggregate_of":
                name = list(_tokens(tree.children))[1]
                function = self.function(str(name), _at(name))
                return self.aggregate(tree, parts[0], function, self.expr(parts[1]), self.body(parts[2]), None)
        return self.groupby(tree, parts)

    def groupby(self, tree: Tree[Token], parts: list[Tree[Token]]) -> Aggregate:
        word = next(_tokens(tree.children))
        if word.upper() != "GROUPBY":
            raise ParseError(f"{str(word)!r} cannot stand here", at=_at(word), hint="Expected here: GROUPBY")
        names = tuple(self.variable(name) for name in _tokens(parts[1].children))
        function, value = self.aggregated(self.expr(parts[3]))
        return self.aggregate(tree, parts[2], function, value, (self.atom(parts[0]),), names)

    def aggregate(
        self,
        tree: Tree[Token],
        result: Tree[Token],
        function: str,
        value: Expr | None,
        body: tuple[Literal, ...],
        groups: tuple[Variable, ...] | None,
    ) -> Aggregate:
        if self.operator(tree) != "=":
            raise ParseError(
                "an aggregate is given to a variable by =", at=_at(tree), hint="Compare the variable then."
            )
        if value is None and function != "count":
            raise ParseError(f"{function} needs something to be computed of", at=_at(tree))
        return Aggregate(self.expr(result), function, value, body, groups, _at(tree))

    def aggregated(self, call: Expr) -> tuple[str, Expr | None]:
        """Function and argument of what was parsed as a name or a call."""
        match call:
            case Variable():
                return self.function(call.name, call.at), None
            case Call() if len(call.arguments) <= 1:
                return self.function(call.name, call.at), next(iter(call.arguments), None)
        raise ParseError(
            "an aggregate is expected here",
            at=call.at,
            hint="As in: min C, count, or sum (A * B) with all of what is summed in the parentheses.",
        )

    def function(self, name: str, at: Position) -> str:
        if name.lower() not in AGGREGATES:
            raise ParseError(f"{name} is not an aggregate", at=at, hint=f"Known: {', '.join(AGGREGATES)}.")
        return AGGREGATES[name.lower()]

    def operator(self, tree: Tree[Token]) -> str:
        return next(str(token) for token in _tokens(tree.children) if token.type == "COMPARE")

    def atom(self, tree: Tree[Token]) -> Atom:
        if tree.data != "call":
            raise ParseError("a predicate is expected here, as in p(X, Y)", at=_at(tree))
        call = self.expr(tree)
        assert isinstance(call, Call)
        if not call.arguments:
            raise DatalogError(f"{call.name} has no arguments, and a table has columns", at=call.at)
        return Atom(call.name, call.arguments, call.at)

    def expr(self, tree: Tree[Token]) -> Expr:
        at, first = _at(tree), tree.children[0]
        match tree.data:
            case "word":
                assert isinstance(first, Token)
                return self.word(first)
            case "number":
                return Constant(str(first), at)
            case "string":
                return Constant(text_literal(_unescaped(str(first)[1:-1])), at)
            case "call":
                return Call(str(first), tuple(self.expr(part) for part in _trees(tree.children)), at)
        operands = [self.expr(part) for part in _trees(tree.children)]
        left = operands[0] if len(operands) == 2 else None
        return Operation(next(map(str, _tokens(tree.children))), left, operands[-1], at)

    def word(self, token: Token) -> Expr:
        if token == "_":
            return Anonymous(_at(token))
        if token.lower() in _CONSTANTS:
            return Constant(_CONSTANTS[token.lower()], _at(token))
        return self.variable(token)

    def variable(self, token: Token) -> Variable:
        if "." in token:
            _refuse_dotted(token)
        return Variable(str(token), _at(token))


def _refuse_dotted(token: Token) -> NoReturn:
    raise ParseError(f"{token} cannot be a variable: it has a dot", at=_at(token))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)


def text_literal(text: str) -> str:
    """A text as Spark SQL writes it, in one line."""
    for char, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(char, escaped)
    return f"'{text}'"
