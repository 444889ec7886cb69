"""The variables of Datalog clauses: by which of them an aggregate groups, and that all of them have values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from deltaic.errors import DatalogError, DeltaicError, Position
from deltaic.sql.datalog.program import (
    Aggregate,
    Anonymous,
    Atom,
    Body,
    Call,
    Clause,
    Comparison,
    Expr,
    Literal,
    Not,
    Operation,
    Variable,
    variables,
)
from deltaic.sql.functions import AGGREGATES, GENERATORS, WINDOW_ONLY

_NOT_FUNCTIONS = AGGREGATES | WINDOW_ONLY | GENERATORS | {"all", "distinct"}
"""The last two would be read as words of the SELECT."""


def exposed(literal: Literal) -> Iterator[Variable]:
    """The variables of a literal that are those of the rule around it."""
    match literal:
        case Atom():
            yield from variables(*literal.arguments)
        case Not():
            yield from variables(*literal.atom.arguments)
        case Comparison():
            yield from variables(literal.left, literal.right)
        case Aggregate():
            yield from variables(literal.result)
            yield from literal.groups or ()


def with_groups(clause: Clause) -> Clause:
    return replace(clause, body=_with_groups(clause.body, {v.name for v in variables(*clause.head.arguments)}))


def _with_groups(body: Body, around: set[str]) -> Body:
    """The body with the groups of its aggregates: what they share with the rest of it, or with what is around it."""
    found: list[Literal] = []
    for literal in body:
        if isinstance(literal, Aggregate):
            outside = around | {v.name for other in body if other is not literal for v in exposed(other)}
            known = outside | {v.name for v in variables(literal.value)}
            bodies = tuple(_with_groups(inside, known) for inside in literal.bodies)
            shared: dict[str, Variable] = {}
            for variable in _inside(bodies):
                if variable.name in outside:
                    shared.setdefault(variable.name, variable)
            given = literal.groups if literal.groups is not None else tuple(shared.values())
            found.append(replace(literal, bodies=bodies, groups=given))
        else:
            found.append(literal)
    return tuple(found)


def _inside(bodies: Iterable[Body]) -> Iterator[Variable]:
    return (variable for body in bodies for literal in body for variable in exposed(literal))


@dataclass(frozen=True)
class Safety:
    """That every variable of a clause has values, and that every expression may stand where it stands."""

    clause: Clause

    def check(self) -> None:
        bound = self.body(self.clause.body)
        self.expressions(self.clause.head.arguments)
        self.need(variables(*self.clause.head.arguments), bound, "the head needs its value")

    def body(self, body: Body) -> set[str]:
        for literal in body:
            if isinstance(literal, Aggregate):
                self.aggregate(literal)
                self.given(literal, [other for other in body if other is not literal])
        bound = _bound(body)
        for literal in body:
            match literal:
                case Atom():
                    self.arguments(literal, bound, "an expression needs its value")
                case Not():
                    self.arguments(literal.atom, bound, "a negation binds nothing", "Where any value will do, write _.")
                case Comparison():
                    self.expressions((literal.left, literal.right))
                    self.need(exposed(literal), bound, "a comparison needs its value")
                case Aggregate():
                    self.expressions((literal.result,))
                    self.need(variables(literal.result), bound, "an expression needs its value")
        return bound

    def arguments(self, atom: Atom, bound: set[str], why: str, hint: str | None = None) -> None:
        self.expressions(argument for argument in atom.arguments if not isinstance(argument, Anonymous))
        self.need(variables(*atom.arguments), bound, why, hint)

    def aggregate(self, literal: Aggregate) -> None:
        if literal.value is not None:
            self.expressions((literal.value,))
        found = [self.body(body) for body in literal.bodies]
        for number, bound in enumerate(found, 1):
            where = f" in its alternative {number}" if len(found) > 1 else ""
            why = f"nothing inside of the aggregate gives it a value{where}"
            self.need((*variables(literal.value), *(literal.groups or ())), bound, why)
        if not set.intersection(*found) and len(found) > 1:
            what = f"the alternatives of {literal.function} have no variable in common"
            raise self.problem(what, literal.at, "Name what is looked at, by the same variable in each of them.")

    def given(self, literal: Aggregate, others: Sequence[Literal]) -> None:
        """To a variable that may stand inside too if something else gives it its values: then it is a group."""
        inside, bound = {variable.name for variable in _inside(literal.bodies)}, _bound(others)
        for variable in variables(literal.result):
            if variable.name in inside and variable.name not in bound:
                raise self.problem(
                    f"{variable.name} is what the aggregate is given to, and stands inside of it too",
                    variable.at,
                    "Give the two names of their own.",
                )

    def need(self, wanted: Iterable[Variable], bound: set[str], why: str, hint: str | None = None) -> None:
        for variable in wanted:
            if variable.name not in bound:
                usual = "A positive atom binds a variable, and so does = with what is bound."
                raise self.problem(f"{variable.name} is unsafe: {why}", variable.at, hint or usual)

    def expressions(self, found: Iterable[Expr]) -> None:
        for expression in found:
            match expression:
                case Anonymous():
                    raise self.problem("_ stands for a value that is not looked at", expression.at, "Name it.")
                case Operation():
                    self.expressions(expression.operands)
                case Call():
                    self.function(expression)
                    self.expressions(expression.arguments)

    def function(self, call: Call) -> None:
        if call.name.lower() in _NOT_FUNCTIONS:
            hint = "Aggregates are written so: M = min C : { hop(S, D, C) }. Of two values: least, greatest."
            raise self.problem(f"{call.name} is not a function of one row's values", call.at, hint)

    def problem(self, what: str, at: Position, hint: str) -> DeltaicError:
        return DatalogError(f"{what}, in {self.clause.told}", at=at, hint=hint)


def _bound(body: Sequence[Literal]) -> set[str]:
    """The variables that have values: of positive atoms, of aggregates, and those that are equal to such."""
    bound: set[str] = set()
    for literal in body:
        match literal:
            case Atom():
                bound |= {argument.name for argument in literal.arguments if isinstance(argument, Variable)}
            case Aggregate():
                bound |= {v.name for v in (literal.result, *(literal.groups or ())) if isinstance(v, Variable)}
    equal = [literal for literal in body if isinstance(literal, Comparison) and literal.operator == "="]
    while new := {name for equality in equal for name in newly_bound(equality, bound)}:
        bound |= new
    return bound


def newly_bound(equality: Comparison, bound: Iterable[str]) -> dict[str, Expr]:
    """The variable that an equality gives a value to, and the expression of that."""
    known = set(bound)
    for variable, value in ((equality.left, equality.right), (equality.right, equality.left)):
        if not isinstance(variable, Variable) or variable.name in known:
            continue
        if {v.name for v in variables(value)} <= known:
            return {variable.name: value}
    return {}
