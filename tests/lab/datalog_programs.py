"""Random Datalog programs, as values and as texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.lab.choice import Choice

TABLES = ("e", "f", "n")
"""Of two columns."""


@dataclass(frozen=True)
class Sum:
    """`(left sign right)`; the sign is + or %."""

    left: "Expr"
    sign: str
    right: "Expr"


@dataclass(frozen=True, eq=False)
class Aggregate:
    function: str
    value: "Expr | None"
    body: tuple["Literal", ...]


Expr: TypeAlias = str | int | Sum | Aggregate
"""A text is a variable, or `_`."""


@dataclass(frozen=True, eq=False)
class Atom:
    name: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class Compared:
    left: Expr
    sign: str
    right: Expr


@dataclass(frozen=True)
class Either:
    alternatives: tuple[tuple["Literal", ...], ...]


@dataclass(frozen=True)
class Not:
    of: "Atom | Either"


Literal: TypeAlias = Atom | Compared | Either | Not


@dataclass(frozen=True)
class Rule:
    heads: tuple[Atom, ...]
    body: tuple[Literal, ...]


@dataclass(frozen=True)
class Program:
    """Strata of predicates, with two columns each."""

    strata: tuple[tuple[str, ...], ...]
    rules: tuple[Rule, ...]

    @property
    def predicates(self) -> list[str]:
        return [name for names in self.strata for name in names]

    @property
    def text(self) -> str:
        declared = [f".decl {name}(a: T, b: number)" for name in self.predicates]
        return "\n".join([".type T <: number", *declared, *map(_rule_text, self.rules)])


def _rule_text(rule: Rule) -> str:
    return f"{', '.join(map(_text, rule.heads))} :- {_body_text(rule.body)}."


def _body_text(body: Sequence[Literal]) -> str:
    return ", ".join(map(_text, body))


def _text(part: "Expr | Literal") -> str:
    match part:
        case Atom(name, arguments):
            return f"{name}({', '.join(map(_text, arguments))})"
        case Compared(left, sign, right):
            return f"{_text(left)} {sign} {_text(right)}"
        case Either(alternatives):
            return f"({' ; '.join(map(_body_text, alternatives))})"
        case Not(of):
            return f"!{_text(of)}"
        case Sum(left, sign, right):
            return f"({_text(left)} {sign} {_text(right)})"
        case Aggregate(function, value, body):
            return f"{function}{'' if value is None else f' {_text(value)}'} : {{ {_body_text(body)} }}"
    return str(part)


# random ones


def random_program(choice: Choice) -> Program:
    strata = choice.pick(((("p",),), (("p",), ("q",)), (("p", "q"), ("u",)), (("p",), ("q", "u"))))
    rules: list[Rule] = []
    below: tuple[str, ...] = TABLES
    for names in strata:
        for name in names:
            rules.append(_Dice(choice, below, below).rule((name,)))
            rules += [_Dice(choice, below, (*below, *names)).rule((name,)) for _ in range(choice.integer(0, 2))]
        if len(names) > 1:
            rules.append(_Dice(choice, below, (*below, *names)).rule(names))
        below = (*below, *names)
    return Program(strata, tuple(rules))


def altered(choice: Choice, program: Program) -> Program:
    """A rule less, but not that which a predicate begins with; or one more."""
    first = {name: next(r for r in program.rules if r.heads[0].name == name) for name in program.predicates}
    others = [rule for rule in program.rules if rule not in first.values()]
    rules = list(program.rules)
    if others and choice.chance(60):
        rules.remove(choice.pick(others))
    if choice.chance(60):
        last = program.strata[-1]
        below = (*TABLES, *(name for names in program.strata[:-1] for name in names))
        rules.append(_Dice(choice, below, (*below, *last)).rule(choice.pick([(name,) for name in last])))
    return Program(program.strata, tuple(rules))


class _Dice:
    """One rule, all of whose variables have values. It may read some predicates, and only those below it in ways in
    which more could mean less."""

    def __init__(self, choice: Choice, below: Sequence[str], read: Sequence[str]) -> None:
        self.choice, self.below, self.read = choice, below, read
        self.bound: list[str] = []
        self.made = 0

    def rule(self, names: Sequence[str]) -> Rule:
        body = self.body()
        heads = tuple(Atom(name, (self.shown(), self.shown())) for name in names)
        return Rule(heads, tuple(body))

    def new(self) -> str:
        self.made += 1
        return f"V{self.made}"

    def any_bound(self) -> str:
        return self.choice.pick(self.bound)

    def shown(self) -> Expr:
        """Of few values, or a recursion would find ever more."""
        one, other = self.any_bound(), self.any_bound()
        kinds: list[tuple[int, Callable[[], Expr]]] = [
            (6, lambda: one),
            (2, lambda: Sum(Sum(one, "+", other), "%", 4)),
            (2, lambda: Sum(self.aggregate(), "%", 5)),
            (1, lambda: 2),
        ]
        return self.choice.weighted(kinds)()

    def body(self) -> list[Literal]:
        self.bound += [self.new(), self.new()]
        body: list[Literal] = [Atom(self.choice.pick(self.read), tuple(self.bound))]
        body += [self.literal() for _ in range(self.choice.weighted([(1, 0), (3, 1), (1, 2)]))]
        return body if self.choice.chance(50) else body[::-1]

    def literal(self) -> Literal:
        kinds: list[tuple[int, Callable[[], Literal]]] = [
            (4, self.step),
            (4, self.either),
            (2, lambda: Not(self.atom(self.below))),
            (2, self.not_either),
            (3, self.compared),
            (2, self.given),
        ]
        return self.choice.weighted(kinds)()

    def step(self) -> Atom:
        """From what is bound to something else."""
        here, there = self.any_bound(), self.choice.pick(["_", self.any_bound(), self.new()])
        if there not in ("_", *self.bound):
            self.bound.append(there)
        arguments = (here, there) if self.choice.chance(60) else (there, here)
        return Atom(self.choice.pick(self.read), arguments)

    def either(self) -> Either:
        """Alternatives that all bind a new variable, some of them another one."""
        new, found = self.new(), []
        for _ in range(self.choice.weighted([(4, 2), (1, 3)])):
            alternative: list[Literal] = [Atom(self.choice.pick(self.read), (self.any_bound(), new))]
            if self.choice.chance(30):
                alternative.append(Atom(self.choice.pick(self.read), (new, self.choice.pick(["_", self.new()]))))
            if self.choice.chance(30):
                alternative.append(self.compared())
            if self.choice.chance(15):
                others = tuple((self.compared(),) for _ in range(2))
                alternative.append(Either(others))
            found.append(tuple(alternative))
        self.bound.append(new)
        return Either(tuple(found))

    def not_either(self) -> Not:
        """Without aggregates: they would hold only where their groups have rows."""
        compared = Compared(self.any_bound(), self.choice.pick(("<", "=", "!=")), self.any_bound())
        parts: list[tuple[Literal, ...]] = [(self.atom(self.below),), (compared, self.atom(self.below))]
        return Not(Either(tuple(self.choice.sample(parts, 2))))

    def atom(self, names: Sequence[str]) -> Atom:
        others: tuple[Expr, ...] = ("_", "_", self.any_bound(), 1)
        return Atom(self.choice.pick(names), (self.any_bound(), self.choice.pick(others)))

    def compared(self) -> Compared:
        others: tuple[Expr, ...] = (1, 2, self.any_bound())
        right = self.aggregate() if self.choice.chance(25) else self.choice.pick(others)
        return Compared(self.any_bound(), self.choice.pick(("<", "<=", ">", ">=", "!=", "=")), right)

    def given(self) -> Compared:
        """A variable that gets its value by an equality."""
        plain, whole = Sum(Sum(self.any_bound(), "+", 1), "%", 4), self.aggregate()
        values: tuple[Expr, ...] = (plain, whole, Sum(1, "+", whole))
        new = self.new()
        self.bound.append(new)
        return Compared(new, "=", self.choice.pick(values))

    def aggregate(self) -> Aggregate:
        """Over what has a new variable; in groups, or of all."""
        value, around = self.new(), list(self.bound)
        group = self.choice.pick(["_", self.any_bound(), self.any_bound()])
        function = self.choice.pick(("count", "sum", "min", "max"))
        body = [self.inner(group, value) for _ in range(self.choice.integer(1, 2))]
        if self.choice.chance(60):
            body.append(Either(tuple((self.inner(group, value),) for _ in range(2))))
        if self.choice.chance(20):
            body.append(Compared(value, "<", 3))
        self.bound = around
        values: tuple[Expr, ...] = (value, Sum(value, "+", 1))
        return Aggregate(function, None if function == "count" else self.choice.pick(values), tuple(body))

    def inner(self, group: str, value: str) -> Literal:
        arguments = (group, value) if self.choice.chance(60) else (value, group)
        return Atom(self.choice.pick(self.below), arguments)
