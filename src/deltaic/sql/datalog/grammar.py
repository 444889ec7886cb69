"""The grammar of Datalog: texts to trees, and what stands where something else was expected.

Two words are told apart from names by what stands around them, before the text is parsed: an aggregate is a name that
`:` and a body in braces follow, with what is aggregated in between (`sum (A) * B : {…}`); `not` is a negation where a
literal begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken

from deltaic.errors import ParseError, Position

_GRAMMAR = r"""
start: (clause | decl | type | input | output)*

clause: heads [":-" disjunction] "."
heads: call ("," call)*
input: INPUT NAME ("," NAME)*
output: OUTPUT NAME ("," NAME)*
decl: DECL NAME "(" [column ("," column)*] ")"
column: NAME ":" kind
kind: NAME ["(" NUMBER ("," NUMBER)* ")"]
type: TYPE NAME (SUBTYPE kind | EQUAL kind ("|" kind)*)
    | TYPE NAME EQUAL "[" [column ("," column)*] "]"                      -> record
    | TYPE NAME EQUAL branch ("|" branch)*                                -> choice
branch: NAME "{" [column ("," column)*] "}"

disjunction: conjunction (";" conjunction)*
conjunction: literal (("," | "&") literal)*
?literal: comparison | (NO | NOT)+ comparison                             -> negation
?comparison: expr
           | expr (EQUAL | COMPARE) expr                                  -> comparison
           | NAME "(" expr "," "[" names "]" "," expr EQUAL expr ")"      -> groupby
names: [NAME ("," NAME)*]

?expr: product | product ((PLUS | MINUS) product)+                        -> operation
?product: unit | unit ((STAR | SLASH | PERCENT) unit)+                    -> operation
?unit: simple | MINUS+ simple                                             -> operation
?simple: NAME                                                             -> word
       | NUMBER                                                           -> number
       | STRING                                                           -> string
       | call
       | "(" disjunction ")"                                              -> group
       | AGGREGATE [expr] ":" "{" disjunction "}"                         -> aggregate

call: NAME "(" [expr ("," expr)*] ")"

%declare AGGREGATE NOT
INPUT: /(?<![\w)}"'])\.input\b/
OUTPUT: /(?<![\w)}"'])\.output\b/
DECL: /(?<![\w)}"'])\.decl\b/
TYPE: /(?<![\w)}"'])\.type\b/
NAME: /[^\W\d]\w*(\.[^\W\d]\w*)*/
NUMBER: /\d+(\.\d+)?([eE][+-]?\d+)?/
STRING: /"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'/
EQUAL: "="
SUBTYPE.1: "<:"
COMPARE: /<=|>=|!=|<>|<|>/
NO: "!"
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"
ODD.-1: /./

BLANK: /[ \t\f\r]+|\n/
COMMENT.2: /\/\/[^\n]*|#[^\n]*|\/\*(.|\n)*?\*\//
LINE_COMMENT.2: /(?<![^\n.])[ \t]*%[^\n]*/
%ignore BLANK
%ignore COMMENT
%ignore LINE_COMMENT
"""

AGGREGATES = {"min": "min", "max": "max", "sum": "sum", "count": "count", "mean": "avg", "avg": "avg"}
"""What may stand before a body in braces, and Spark's name of it."""
_DEEPEST = 40
"""What a text nests is nested in the SQL that is made of it, and in the calls that read that."""


def parse_tree(text: str) -> Tree[Token]:
    try:
        return _parser().parse(text)
    except UnexpectedToken as problem:
        raise _syntax_error(problem) from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", postlex=_Marks(), propagate_positions=True)


def place_of(node: Tree[Token] | Token) -> Position:
    found = node if isinstance(node, Token) else node.meta
    return Position(found.line or 1, found.column or 1)


# words that are names elsewhere

_OPERANDS = ("NAME", "NUMBER", "STRING")
_ENDS = (",", ";", "&", ".", ":-", "!", "=", "<", "<=", ">", ">=", "!=", "<>")
"""After these another operand or literal begins."""


@dataclass
class _Bracket:
    """What stands in it so far; in that of a call there are no literals."""

    of_call: bool = False
    aggregates: list[Token] = field(default_factory=list)
    """Names of aggregates since the last end, whose bodies are still to come."""
    names: list[Token] = field(default_factory=list)
    """Other names since then, that what an aggregate is of could follow."""


class _Marks:
    """What the parser reads: the lexer's tokens, of which some names are made aggregates or negations."""

    always_accept = ("ODD",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        tokens = list(stream)
        brackets = [_Bracket()]
        before = "."
        for place, token in enumerate(tokens):
            here, after = brackets[-1], next(iter(tokens[place + 1 : place + 2]), None)
            if token.type == "NAME" and token == "not" and _begins(before, here) and _may_be_negated(after):
                token.type = "NOT"
            if token.type == "NAME":
                _note_name(token, after, here)
            elif token == ":" and after == "{":
                _mark_aggregate(here)
            elif token in _ENDS:
                here.aggregates.clear()
                here.names.clear()
            elif token in ("(", "{"):
                brackets.append(_Bracket(of_call=token == "(" and before == "NAME"))
                _check_depth(token, brackets)
            elif token in (")", "}") and len(brackets) > 1:
                brackets.pop()
            before = token.type if token.type in ("NAME", "NOT") else str(token)
        return iter(tokens)


def _begins(before: str, bracket: _Bracket) -> bool:
    return before in ("{", ":-", ";", "!", "NOT") or (before in (",", "&", "(") and not bracket.of_call)


def _may_be_negated(after: Token | None) -> bool:
    return after is not None and (after.type in _OPERANDS or after in ("(", "!"))


def _note_name(name: Token, after: Token | None, bracket: _Bracket) -> None:
    if name.lower() in AGGREGATES:
        bracket.aggregates.append(name)
    elif after is not None and (after.type in _OPERANDS or after in ("(", ":")):
        bracket.names.append(name)


def _mark_aggregate(bracket: _Bracket) -> None:
    """The nearest one that is known; or what stands where one should, which will be refused by its name."""
    if bracket.aggregates:
        bracket.aggregates.pop().type = "AGGREGATE"
    elif bracket.names:
        bracket.names.pop(0).type = "AGGREGATE"


def _check_depth(token: Token, brackets: list[_Bracket]) -> None:
    if len(brackets) > _DEEPEST:
        raise ParseError(f"brackets are nested more than {_DEEPEST - 1} deep", at=place_of(token))


# errors

_SAID = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "COMPARE": "a comparison",
    "AGGREGATE": "an aggregate",
    "NOT": "not",
    "INPUT": ".input",
    "OUTPUT": ".output",
    "DECL": ".decl",
    "TYPE": ".type",
    "$END": "the end",
}


def _syntax_error(problem: UnexpectedToken) -> ParseError:
    token = problem.token
    what = f"{str(token)!r} cannot stand here" if token else "the program ends too early"
    # what may follow; the parser's own list is of more, since its states are merged
    words = sorted(map(_said, problem.interactive_parser.accepts()))  # type: ignore[no-untyped-call]
    return ParseError(what, at=place_of(token), hint=f"Expected here: {'  '.join(words)}")


def _said(terminal: str) -> str:
    if terminal in _SAID:
        return _SAID[terminal]
    pattern = next(t.pattern.value for t in _parser().terminals if t.name == terminal)
    return str(pattern)
