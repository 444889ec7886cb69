"""Random Datalog programs, and what they mean: an evaluator in plain Python that knows nothing of the parser or of SQL.

It looks at one choice of a rule's alternatives after the other, joins what that finds, and runs the rules of a stratum
until there is nothing new. Conditions are true, false or, about NULL, neither.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import fmod
from operator import eq, ge, gt, le, lt, ne
from typing import TypeAlias

from tests.lab.choice import Choice

Value: TypeAlias = int | None
Row: TypeAlias = tuple[Value, ...]
Relations: TypeAlias = dict[str, set[Row]]
TABLES = ("e", "f", "n")
"""Of two columns."""

# programs


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


# their meaning


def meaning(program: Program, tables: Relations) -> Relations:
    found = dict(tables)
    for names in program.strata:
        found.update({name: set() for name in names})
        rules = [(head, rule.body) for rule in program.rules for head in rule.heads if head.name in names]
        before = -1
        while before != (before := sum(len(found[name]) for name in names)):
            for head, body in rules:
                found[head.name] |= set(_derived(head, body, found))
    return {name: found[name] for name in program.predicates}


def _derived(head: Atom, body: Sequence[Literal], relations: Relations) -> Iterator[Row]:
    for chosen in _choices(body):
        for known in _Solver(relations, chosen, head.arguments, frozenset()).solutions():
            yield tuple(_value(argument, known) for argument in head.arguments)


def _choices(body: Sequence[Literal]) -> Iterator[tuple[Literal, ...]]:
    """The body without its alternatives, once for each way to choose among them."""
    options = [
        [literal for alternative in part.alternatives for literal in _choices(alternative)]
        if isinstance(part, Either)
        else [(part,)]
        for part in body
    ]
    for chosen in product(*options):
        yield tuple(literal for part in chosen for literal in part)


def _exprs(literal: Literal) -> Iterator[Expr]:
    match literal:
        case Atom():
            yield from literal.arguments
        case Compared():
            yield from (literal.left, literal.right)
        case Not(Atom() as atom):
            yield from atom.arguments
        case Not(Either() as either):
            yield from (expr for body in either.alternatives for part in body for expr in _exprs(part))


def _variables(exprs: Iterable[Expr | None]) -> set[str]:
    found: set[str] = set()
    for expr in exprs:
        match expr:
            case Sum():
                found |= _variables((expr.left, expr.right))
            case str() if expr != "_":
                found.add(expr)
    return found


def _aggregates(exprs: Iterable[Expr | None]) -> Iterator[Aggregate]:
    for expr in exprs:
        match expr:
            case Sum():
                yield from _aggregates((expr.left, expr.right))
            case Aggregate():
                yield expr


Key: TypeAlias = str | Aggregate | tuple[Atom, int]
"""What has a value: a variable, an aggregate, or the `_` in a place of an atom."""
Known: TypeAlias = dict[Key, Value]


def _value(expr: Expr, known: Known) -> Value:
    match expr:
        case int():
            return expr
        case Sum():
            left, right = _value(expr.left, known), _value(expr.right, known)
            if left is None or right is None:
                return None
            return left + right if expr.sign == "+" else int(fmod(left, right))
    return known[expr]


class _Solver:
    """Of literals among which there are no alternatives. `shown` is what else is computed of what they find, `around`
    the variables that the rule has beyond."""

    def __init__(
        self, relations: Relations, body: Sequence[Literal], shown: Sequence[Expr | None], around: frozenset[str]
    ) -> None:
        self.relations, self.body = relations, body
        exprs = [*shown, *(expr for literal in body for expr in _exprs(literal))]
        own = _variables(exprs)
        self.aggregates = {a: _Grouped(relations, a, around | own) for a in _aggregates(exprs)}
        self.named: set[Key] = {*own, *(g for grouped in self.aggregates.values() for g in grouped.groups)}
        atoms = [literal for literal in body if isinstance(literal, Atom)]
        self.named |= {(a, place) for a in atoms for place, argument in enumerate(a.arguments) if argument == "_"}

    def solutions(self) -> Iterator[Known]:
        for known in self.joined():
            giving = self.give(known)
            if all(self.holds(literal, known) for literal in self.body if literal not in giving):
                yield known

    def joined(self) -> list[Known]:
        relations: list[tuple[tuple[Key, ...], Iterable[Row]]] = [
            (tuple(_key(atom, place) for place in range(len(atom.arguments))), self.relations[atom.name])
            for atom in self.body
            if isinstance(atom, Atom)
        ]
        relations += [((*of.groups, aggregate), of.rows()) for aggregate, of in self.aggregates.items()]
        found: list[Known] = [{}]
        for keys, rows in relations:
            tried = [_met(known, keys, row) for known in found for row in rows]
            found = [known for known in tried if known is not None]
        return found

    def give(self, known: Known) -> list[Literal]:
        """Values by equalities, in whatever order they come; those that gave one."""
        giving: list[Literal] = []
        equalities = [c for c in self.body if isinstance(c, Compared) and c.sign == "="]
        for one in equalities * len(equalities):
            for name, expr in ((one.left, one.right), (one.right, one.left)):
                needed = {*_variables([expr]), *_aggregates([expr])}
                if isinstance(name, str) and name not in known and needed <= known.keys():
                    known[name] = _value(expr, known)
                    giving.append(one)
        return giving

    def holds(self, literal: Literal, known: Known) -> bool | None:
        match literal:
            case Atom():
                return self.exists(literal, known)
            case Compared(left, sign, right):
                one, other = _value(left, known), _value(right, known)
                return None if one is None or other is None else _SIGNS[sign](one, other)
            case Not(Atom() as atom):
                return not self.exists(atom, known)
            case Not(Either() as either):
                found = _any(_all(self.holds(p, known) for p in body) for body in either.alternatives)
                return None if found is None else not found
        raise AssertionError(literal)

    def exists(self, atom: Atom, known: Known) -> bool:
        """Whether there is such a row; of what the atom itself found it is one, but for NULLs and expressions."""
        wanted = [(place, _value(a, known)) for place, a in enumerate(atom.arguments) if a != "_"]
        if atom in self.body:
            wanted = [(place, value) for place, value in wanted if not isinstance(atom.arguments[place], str)]
            return all(value is not None and known[atom, place] == value for place, value in wanted)
        rows = self.relations[atom.name]
        return any(all(value is not None and row[place] == value for place, value in wanted) for row in rows)


_SIGNS: dict[str, Callable[[int, int], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "!=": ne, "=": eq}


def _all(parts: Iterable[bool | None]) -> bool | None:
    found = list(parts)
    return False if False in found else None if None in found else True


def _any(parts: Iterable[bool | None]) -> bool | None:
    found = list(parts)
    return True if True in found else None if None in found else False


def _key(atom: Atom, place: int) -> Key:
    argument = atom.arguments[place]
    return argument if isinstance(argument, str) and argument != "_" else (atom, place)


def _met(known: Known, keys: Sequence[Key], row: Row) -> Known | None:
    """Equal variables have equal values, and NULL is equal to nothing."""
    found = dict(known)
    for key, value in zip(keys, row, strict=True):
        if key in found and (value is None or found[key] != value):
            return None
        found[key] = value
    return found


class _Grouped:
    """An aggregate as a relation: its groups, and what it is for each of them."""

    def __init__(self, relations: Relations, aggregate: Aggregate, outside: frozenset[str] | set[str]) -> None:
        self.aggregate = aggregate
        around = frozenset(outside | _variables([aggregate.value]))
        chosen = _choices(aggregate.body)
        self.solvers = [_Solver(relations, body, (aggregate.value,), around) for body in chosen]
        inside = {name for solver in self.solvers for name in solver.named}
        self.groups = tuple(name for name in sorted(outside) if name in inside)

    def rows(self) -> list[Row]:
        """Of equal solutions one counts; where there are alternatives, equal in what all of them have."""
        common = set.intersection(*(solver.named for solver in self.solvers))
        found: dict[Row, dict[frozenset[tuple[Key, Value]], Value]] = {} if self.groups else {(): {}}
        for known in (known for solver in self.solvers for known in solver.solutions()):
            group = tuple(known[name] for name in self.groups)
            value = 1 if self.aggregate.value is None else _value(self.aggregate.value, known)
            found.setdefault(group, {})[frozenset((key, known[key]) for key in common)] = value
        return [(*group, _aggregated(self.aggregate.function, list(of.values()))) for group, of in found.items()]


def _aggregated(function: str, values: list[Value]) -> Value:
    if function == "count":
        return len(values)
    some = [value for value in values if value is not None]
    if not some:
        return None
    return sum(some) if function == "sum" else min(some) if function == "min" else max(some)


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
