"""Datalog texts to programs. What is short for something else is written out: several heads are as many clauses, and so
are alternatives; an aggregate inside of an expression is given to a variable, which stands there for it.

The spelling is Soufflé's, and for aggregates the GROUPBY of Gupta, Mumick and Subrahmanian beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import NoReturn

from lark import Token, Tree

from deltaic.algebra.quoting import text_literal
from deltaic.errors import DatalogError, ParseError, Position, UnsupportedError
from deltaic.sql.datalog.grammar import AGGREGATES, parse_tree, place_of
from deltaic.sql.datalog.program import (
    Aggregate,
    Anonymous,
    Atom,
    Body,
    Call,
    Clause,
    Comparison,
    Constant,
    Declaration,
    Expr,
    Literal,
    Named,
    Not,
    Operation,
    Program,
    Variable,
)
from deltaic.sql.datalog.types import Kind, NamedType, Types

_CONSTANTS = {"true": "TRUE", "false": "FALSE", "nil": "NULL", "null": "NULL"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NEGATED = {"=": "!=", "!=": "=", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""Also where a side is NULL: then neither holds, as NOT of it does not."""
_MOST_ALTERNATIVES = 200
_VALUES = ("word", "number", "string", "call", "operation", "aggregate")
"""Trees that may be a value."""


def parse_program(text: str) -> Program:
    return _Reader(text).program(parse_tree(text))


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [node for node in tree.children if isinstance(node, Tree)]


def _tokens(tree: Tree[Token], *types: str) -> list[Token]:
    return [node for node in tree.children if isinstance(node, Token) and (not types or node.type in types)]


class _Reader:
    """Trees of the grammar to values; what the grammar lets through and means nothing is refused here."""

    def __init__(self, text: str) -> None:
        self.text, self.made = text, 0

    def program(self, tree: Tree[Token]) -> Program:
        parts = _trees(tree)
        types = Types([self.named_type(part) for part in parts if part.data in ("type", "record", "choice")])
        return Program(
            tuple(clause for part in parts if part.data == "clause" for clause in self.clauses(part)),
            tuple(self.declaration(part, types) for part in parts if part.data == "decl"),
            tuple(named for part in parts if part.data == "input" for named in self.named(part)),
            tuple(named for part in parts if part.data == "output" for named in self.named(part)),
        )

    # directives

    def named(self, directive: Tree[Token]) -> Iterator[Named]:
        for name in _tokens(directive, "NAME"):
            yield Named(str(name), place_of(name))

    def declaration(self, tree: Tree[Token], types: Types) -> Declaration:
        [name] = _tokens(tree, "NAME")
        columns = []
        for column in _trees(tree):
            [own], [kind] = _tokens(column), _trees(column)
            columns.append((str(own), types.spark_type(self.kind(kind))))
        return Declaration(str(name), tuple(columns), place_of(name))

    def kind(self, tree: Tree[Token]) -> Kind:
        name, *numbers = map(str, _tokens(tree))
        return Kind(f"{name}({','.join(numbers)})" if numbers else name, place_of(tree))

    def named_type(self, tree: Tree[Token]) -> NamedType:
        [name], members = _tokens(tree, "NAME"), _trees(tree)
        if tree.data != "type":
            what = "a record" if tree.data == "record" else "a choice of branches"
            hint = "Give the predicate a column for each of its parts."
            raise UnsupportedError(f"{name} is {what}, and a column has one plain value", at=place_of(name), hint=hint)
        return NamedType(str(name), tuple(self.kind(member) for member in members), place_of(name))

    # clauses

    def clauses(self, tree: Tree[Token]) -> Iterator[Clause]:
        heads, *body = _trees(tree)
        text = " ".join(self.text[tree.meta.start_pos : tree.meta.end_pos].split())
        bodies = self.disjunction(body[0]) if body else [()]
        for head in _trees(heads):
            beside: list[Literal] = []
            atom = self.atom(head, beside)
            for number, found in enumerate(bodies, 1):
                yield Clause(atom, (*found, *beside), text, number if len(bodies) > 1 else None)

    def disjunction(self, tree: Tree[Token], negated: bool = False) -> list[Body]:
        """Its alternatives. Laws: of a negated one each is negated; of a negated conjunction any."""
        parts = [self.conjunction(part, negated) for part in _trees(tree)]
        return self.both(parts, tree) if negated else self.either(parts, tree)

    def conjunction(self, tree: Tree[Token], negated: bool) -> list[Body]:
        parts = [self.literal(part, negated) for part in _trees(tree)]
        return self.either(parts, tree) if negated else self.both(parts, tree)

    def either(self, parts: Sequence[list[Body]], tree: Tree[Token]) -> list[Body]:
        self.check_alternatives(sum(map(len, parts)), tree)
        return [body for part in parts for body in part]

    def both(self, parts: Sequence[list[Body]], tree: Tree[Token]) -> list[Body]:
        self.check_alternatives(prod(map(len, parts)), tree)
        return [tuple(literal for body in bodies for literal in body) for bodies in product(*parts)]

    def check_alternatives(self, number: int, tree: Tree[Token]) -> None:
        if number > _MOST_ALTERNATIVES:
            raise DatalogError(
                f"this has {number} alternatives, and may have {_MOST_ALTERNATIVES}",
                at=place_of(tree),
                hint="Give some of them a predicate of their own.",
            )

    def literal(self, tree: Tree[Token], negated: bool) -> list[Body]:
        at, beside = place_of(tree), list[Literal]()
        if tree.data == "negation":
            negated ^= len(_tokens(tree)) % 2 == 1
            [tree] = _trees(tree)
        match tree.data:
            case "group":
                [inside] = _trees(tree)
                return self.disjunction(inside, negated)
            case "call":
                atom = self.atom(tree, beside)
                beside.append(Not(atom, at) if negated else atom)
            case "comparison":
                self.comparison(tree, negated, beside)
            case "groupby" if not negated:
                self.groupby(tree, beside)
            case _:
                raise ParseError("a predicate is expected here, as in p(X, Y)", at=place_of(tree))
        return [tuple(beside)]

    def comparison(self, tree: Tree[Token], negated: bool, beside: list[Literal]) -> None:
        """With an aggregate on one side of =, that is given to what stands on the other."""
        [operator], sides = _tokens(tree), [self.without_brackets(side) for side in _trees(tree)]
        if operator == "=" and not negated:
            for result, aggregate in (sides, sides[::-1]):
                if aggregate.data == "aggregate":
                    beside.append(self.aggregate(aggregate, self.expr(result, beside)))
                    return
        left, right = (self.expr(side, beside) for side in sides)
        found = _NEGATED[operator] if negated else str(operator)
        beside.append(Comparison(found, left, right, place_of(tree)))

    # aggregates

    def aggregate(self, tree: Tree[Token], result: Expr) -> Aggregate:
        [word], [*value, body] = _tokens(tree), _trees(tree)
        function, beside = self.function(str(word), place_of(word)), list[Literal]()
        of = self.expr(value[0], beside) if value else None
        bodies = [(*found, *beside) for found in self.disjunction(body)]
        return self.checked(Aggregate(result, function, of, self.comparable(bodies), None, place_of(tree)))

    def groupby(self, tree: Tree[Token], beside: list[Literal]) -> None:
        word, *_ = _tokens(tree)
        if word.upper() != "GROUPBY":
            raise ParseError(f"{str(word)!r} cannot stand here", at=place_of(word), hint="Expected here: GROUPBY")
        over, names, result, call = _trees(tree)
        groups = tuple(self.variable(name) for name in _tokens(names))
        inside: list[Literal] = []
        function, value = self.aggregated(self.expr(call, inside))
        inside.append(self.atom(self.without_brackets(over), inside))
        found = Aggregate(self.expr(result, beside), function, value, (tuple(inside),), groups, place_of(tree))
        beside.append(self.checked(found))

    def aggregated(self, call: Expr) -> tuple[str, Expr | None]:
        """Function and argument of what is written as a call."""
        match call:
            case Call() if len(call.arguments) <= 1:
                return self.function(call.name, call.at), next(iter(call.arguments), None)
        raise ParseError("an aggregate is expected here, as MIN(C) is one", at=call.at)

    def function(self, name: str, at: Position) -> str:
        if name.lower() not in AGGREGATES:
            raise ParseError(f"{name} is not an aggregate", at=at, hint=f"Known: {', '.join(AGGREGATES)}.")
        return AGGREGATES[name.lower()]

    def checked(self, found: Aggregate) -> Aggregate:
        if found.value is None and found.function != "count":
            raise ParseError(f"{found.function} needs something to be computed of", at=found.at)
        return found

    def comparable(self, bodies: Sequence[Body]) -> tuple[Body, ...]:
        """With a name for each `_` that stands in all of them, so that what it is there is looked at."""
        if len(bodies) == 1:
            return tuple(bodies)
        common = set.intersection(*({id(literal) for literal in body} for body in bodies))
        named = {id(a): self.named_atom(a) for a in bodies[0] if isinstance(a, Atom) and id(a) in common}
        return tuple(tuple(named.get(id(literal), literal) for literal in body) for body in bodies)

    def named_atom(self, atom: Atom) -> Atom:
        found = (self.new_variable(a.at) if isinstance(a, Anonymous) else a for a in atom.arguments)
        return replace(atom, arguments=tuple(found))

    def new_variable(self, at: Position) -> Variable:
        self.made += 1
        return Variable(f"@{self.made}", at)

    # expressions: what has to stand beside the literal that an expression is part of is put there

    def atom(self, tree: Tree[Token], beside: list[Literal]) -> Atom:
        if tree.data != "call":
            raise ParseError("a predicate is expected here, as in p(X, Y)", at=place_of(tree))
        call = self.call(tree, beside)
        if not call.arguments:
            raise DatalogError(f"{call.name} has no arguments, and a table has columns", at=call.at)
        return Atom(call.name, call.arguments, call.at)

    def call(self, tree: Tree[Token], beside: list[Literal]) -> Call:
        [name] = _tokens(tree)
        return Call(str(name), tuple(self.expr(part, beside) for part in _trees(tree)), place_of(tree))

    def expr(self, tree: Tree[Token], beside: list[Literal]) -> Expr:
        tree = self.without_brackets(tree)
        at = place_of(tree)
        match tree.data:
            case "word":
                return self.word(*_tokens(tree))
            case "number":
                return Constant(str(tree.children[0]), at)
            case "string":
                return Constant(text_literal(_unescaped(str(tree.children[0])[1:-1])), at)
            case "call":
                return self.call(tree, beside)
            case "operation":
                operands = tuple(self.expr(part, beside) for part in _trees(tree))
                return Operation(tuple(map(str, _tokens(tree))), operands, at)
            case "aggregate":
                found = self.new_variable(at)
                beside.append(self.aggregate(tree, found))
                return found
        raise ParseError("a value is expected here", at=at)

    def without_brackets(self, tree: Tree[Token]) -> Tree[Token]:
        """What stands in brackets by itself, if it may be a value."""
        found = tree
        while found.data == "group":
            [inside] = _trees(found)
            parts = [literal for conjunction in _trees(inside) for literal in _trees(conjunction)]
            if len(parts) > 1:
                return tree
            [found] = parts
        return found if found.data in _VALUES else tree

    def word(self, token: Token) -> Expr:
        if token == "_":
            return Anonymous(place_of(token))
        if token.lower() in _CONSTANTS:
            return Constant(_CONSTANTS[token.lower()], place_of(token))
        return self.variable(token)

    def variable(self, token: Token) -> Variable:
        if "." in token:
            _refuse_dotted(token)
        return Variable(str(token), place_of(token))


def _refuse_dotted(token: Token) -> NoReturn:
    raise ParseError(f"{token} cannot be a variable: it has a dot", at=place_of(token))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)
