"""What a Datalog program means: an evaluator in plain Python that knows nothing of the parser or of SQL.

It looks at one choice of a rule's alternatives after the other, joins what that finds, and runs the rules of a stratum
until there is nothing new. Conditions are true, false or, about NULL, neither.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import fmod
from operator import eq, ge, gt, le, lt, ne
from typing import TypeAlias

from tests.lab.datalog_programs import Aggregate, Atom, Compared, Either, Expr, Literal, Not, Program, Sum

Value: TypeAlias = int | None
Row: TypeAlias = tuple[Value, ...]
Relations: TypeAlias = dict[str, set[Row]]


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
