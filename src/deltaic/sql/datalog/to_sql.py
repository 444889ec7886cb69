"""Datalog programs to SQL: a common table expression for each predicate, a SELECT for each clause of it.

Equal variables are compared by =, so that NULL meets nothing, as in SQL; only where a program writes nil is NULL asked
for. Predicates are sets. That base tables are none shows only where something is counted or summed: there they are read
with DISTINCT.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from deltaic.algebra.quoting import quote
from deltaic.algebra.recursion import components, is_recursive
from deltaic.errors import DatalogError, Position
from deltaic.sql.datalog.check import Checked, Derived
from deltaic.sql.datalog.program import (
    Aggregate,
    Anonymous,
    Atom,
    Call,
    Clause,
    Comparison,
    Constant,
    Expr,
    Literal,
    Not,
    Operation,
    Variable,
    variables,
)
from deltaic.sql.datalog.safety import newly_bound

_DUPLICATES_MATTER = ("count", "sum", "avg")
_MANY_FACTS = 100
_LONGEST = 100_000
"""Signs of a value that an equality gives."""
_EQUALITY = {"=": "IS NULL", "!=": "IS NOT NULL", "<>": "IS NOT NULL"}
"""How nil is compared."""


@dataclass(frozen=True)
class ViewQuery:
    """The query of a view; each of its lines that a clause became is known to be of that."""

    key: str
    name: str
    columns: tuple[str, ...]
    sql: str
    lines: tuple[Clause | None, ...]
    at: Position
    """Of the predicate's first clause."""

    def clause_at(self, line: int) -> Clause | None:
        return self.lines[line - 1] if 0 < line <= len(self.lines) else None


def view_queries(program: Checked) -> list[ViewQuery]:
    """The views that are asked for, each after those that it reads. Of predicates that need one another the first to
    come has all of them inside, and the others read it."""
    return [view_query(program, key, program.asked[:place]) for place, key in enumerate(program.asked)]


def view_query(program: Checked, key: str, made: Collection[str] = ()) -> ViewQuery:
    """The view of one predicate, over tables and the views of those that are made."""
    inside: dict[str, list[str]] = {}
    waiting = [key]
    while waiting:
        one = waiting.pop()
        if one not in inside:
            inside[one] = [other for other in program.reads(one) if other not in made]
            waiting.extend(inside[one])
    reads = {one: inside[one] for one in program.derived if one in inside}
    parts = components(reads)
    lines: list[tuple[str, Clause | None]] = []
    for number, one in enumerate(one for part in parts for one in part):
        begin = ("WITH RECURSIVE" if any(is_recursive(p, reads) for p in parts) else "WITH") if number == 0 else "),"
        lines.extend(_expression(program, program.derived[one], begin))
    derived = program.derived[key]
    lines.extend([(")", None), (f"SELECT * FROM {quote(derived.name)}", None)])
    sql, clauses = zip(*lines, strict=True)
    return ViewQuery(key, derived.name, derived.columns, "\n".join(sql), clauses, derived.at)


def _expression(program: Checked, derived: Derived, begin: str) -> Iterator[tuple[str, Clause | None]]:
    """The lines of a predicate's common table expression, without the parenthesis that ends it."""
    names = ", ".join(quote(name) for name in derived.columns)
    yield f"{begin} {quote(derived.name)} ({names}) AS (", derived.clauses[0]
    facts = [clause for clause in derived.clauses if not clause.body]
    many = len(facts) > _MANY_FACTS
    rules = [clause for clause in derived.clauses if clause.body or not many]
    branches = [(_Rule(program).select(rule, derived), rule) for rule in rules]
    for number, (sql, clause) in enumerate([(_listed(facts, derived), facts[0]), *branches] if many else branches):
        if number:
            yield "UNION", None
        yield sql, clause


def _listed(facts: Sequence[Clause], derived: Derived) -> str:
    """Many facts as one branch: as one each they would be nested too deep."""
    nothing = _Body()
    rows = ", ".join(f"({', '.join(map(nothing.value, fact.head.arguments))})" for fact in facts)
    columns = [f"c{place}" for place in range(len(derived.columns))]
    shown = [c if kind is None else f"CAST({c} AS {kind})" for c, kind in zip(columns, derived.types, strict=True)]
    listed = ", ".join(f"{sql} AS {quote(name)}" for sql, name in zip(shown, derived.columns, strict=True))
    distinct = "DISTINCT " if len(derived.clauses) == len(facts) else ""
    return f"SELECT {distinct}{listed} FROM VALUES {rows} AS f({', '.join(columns)})"


def _is_a_set(clause: Clause, shown: set[str]) -> bool:
    """Whether no two rows can be equal: a fact, or an aggregate all of whose groups are shown as they are. Without a
    DISTINCT above it, an aggregate can be kept by change tables."""
    relations = [literal for literal in clause.body if isinstance(literal, Atom | Aggregate)]
    match relations:
        case []:
            return True
        case [Aggregate(groups=groups)]:
            return {v.name for v in groups or ()} <= shown
    return False


@dataclass(frozen=True)
class _Value:
    """SQL of a value, and its type if that is known."""

    sql: str
    type: str | None = None


@dataclass(frozen=True)
class _Relation:
    """What a positive atom or an aggregate is in FROM: its columns, and what each of them is to be."""

    sql: str
    alias: str
    columns: tuple[_Value, ...]
    arguments: tuple[Expr, ...]

    @property
    def names(self) -> set[str]:
        return {argument.name for argument in self.arguments if isinstance(argument, Variable)}


@dataclass
class _Body:
    """The FROM and WHERE of a body, and what its variables are there."""

    tables: str = ""
    conditions: list[str] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    waiting: list[tuple[str, Expr]] = field(default_factory=list)
    """Columns that are to be equal to expressions, whose variables may not have values yet."""

    @property
    def sql(self) -> str:
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return (f" FROM {self.tables}" if self.tables else "") + where

    def value(self, expression: Expr) -> str:
        match expression:
            case Variable():
                return self.values[expression.name].sql
            case Constant():
                return expression.sql
            case Call():
                return f"{expression.name}({', '.join(map(self.value, expression.arguments))})"
            case Operation():
                first, *others = map(self.value, expression.operands)
                if not others:
                    return f"({' '.join(expression.operators)} {first})"
                rest = (f"{sign} {other}" for sign, other in zip(expression.operators, others, strict=True))
                return f"({first} {' '.join(rest)})"
        raise AssertionError("_ has no value")

    def equal(self, column: str, expression: Expr) -> str:
        if isinstance(expression, Constant) and expression.is_null:
            return f"{column} IS NULL"
        return f"{column} = {self.value(expression)}"

    def join(self, relation: _Relation) -> None:
        """Variables that are new have their values in it; those that are known are what it is joined by."""
        before, met = set(self.values), []
        for column, argument in zip(relation.columns, relation.arguments, strict=True):
            match argument:
                case Anonymous():
                    pass
                case Variable() if argument.name not in self.values:
                    self.values[argument.name] = column
                case Variable() if argument.name in before:
                    met.append(f"{self.values[argument.name].sql} = {column.sql}")
                case _:
                    self.waiting.append((column.sql, argument))
        named = f"{relation.sql} AS {relation.alias}"
        if not self.tables:
            self.tables = named
        elif met:
            self.tables += f" JOIN {named} ON {' AND '.join(met)}"
        else:
            self.tables += f" CROSS JOIN {named}"

    def compare(self, comparisons: list[Comparison]) -> None:
        """Equalities that give values first, in whatever order they need one another."""
        left = list(comparisons)
        while giving := next((c for c in left if c.operator == "=" and newly_bound(c, self.values)), None):
            left.remove(giving)
            for name, value in newly_bound(giving, self.values).items():
                known = self.values[value.name].type if isinstance(value, Variable) else None
                self.values[name] = _Value(self.value(value), known)
                if len(self.values[name].sql) > _LONGEST:
                    hint = "Give a part of it a predicate of its own."
                    raise DatalogError(f"the value of {name} is too long when written out", at=giving.at, hint=hint)
        self.conditions.extend(self.equal(column, expression) for column, expression in self.waiting)
        self.conditions.extend(self.compared(comparison) for comparison in left)

    def compared(self, comparison: Comparison) -> str:
        sides = (comparison.left, comparison.right), (comparison.right, comparison.left)
        for one, other in sides if comparison.operator in _EQUALITY else ():
            if isinstance(one, Constant) and one.is_null:
                return f"{self.value(other)} {_EQUALITY[comparison.operator]}"
        return f"{self.value(comparison.left)} {comparison.operator} {self.value(comparison.right)}"


def _in_order(relations: list[_Relation]) -> Iterator[_Relation]:
    """As they are written, but each joined by something, if it can be."""
    left, known = list(relations), set[str]()
    while left:
        relation = next((r for r in left if r.names & known), left[0])
        left.remove(relation)
        known |= relation.names
        yield relation


def _cast(body: _Body, argument: Expr, kind: str | None) -> str:
    """In the type that was declared. A cast that does nothing would still keep rounds of a recursion from being run in
    this process."""
    sql = body.value(argument)
    known = body.values[argument.name].type if isinstance(argument, Variable) else None
    return sql if kind is None or kind == known else f"CAST({sql} AS {kind})"


class _Rule:
    """One clause as a SELECT; its aliases are numbered through."""

    def __init__(self, program: Checked) -> None:
        self.program, self.numbers = program, 0

    def select(self, clause: Clause, derived: Derived) -> str:
        body, head = self.body(clause.body), clause.head.arguments
        values = [_cast(body, argument, kind) for argument, kind in zip(head, derived.types, strict=True)]
        pairs = [(a, sql) for a, sql in zip(head, values, strict=True) if isinstance(a, Variable)]
        as_they_are = {argument.name for argument, sql in pairs if sql == body.values[argument.name].sql}
        distinct = len(derived.clauses) == 1 and not _is_a_set(clause, as_they_are)
        listed = ", ".join(f"{sql} AS {quote(name)}" for sql, name in zip(values, derived.columns, strict=True))
        return f"SELECT {'DISTINCT ' if distinct else ''}{listed}{body.sql}"

    def alias(self, letter: str) -> str:
        self.numbers += 1
        return f"{letter}{self.numbers - 1}"

    def body(self, literals: Sequence[Literal], *, as_sets: bool = False) -> _Body:
        found = _Body()
        relations = [self.relation(part, as_sets) for part in literals if isinstance(part, Atom | Aggregate)]
        for relation in _in_order(relations):
            found.join(relation)
        found.compare([literal for literal in literals if isinstance(literal, Comparison)])
        absent = [self.absent(found, literal.atom) for literal in literals if isinstance(literal, Not)]
        found.conditions.extend(absent)
        return found

    # relations

    def relation(self, literal: Literal, as_sets: bool) -> _Relation:
        if isinstance(literal, Aggregate):
            return self.aggregate(literal)
        assert isinstance(literal, Atom)
        alias = self.alias("t")
        columns = tuple(_Value(f"{alias}.{quote(name)}", kind) for name, kind in self.columns(literal))
        return _Relation(self.table(literal, as_sets), alias, columns, literal.arguments)

    def columns(self, atom: Atom) -> Sequence[tuple[str, str | None]]:
        derived = self.program.derived.get(atom.key)
        if derived is not None:
            return tuple(zip(derived.columns, derived.types, strict=True))
        return self.program.base[atom.key].columns

    def table(self, atom: Atom, as_set: bool) -> str:
        derived = self.program.derived.get(atom.key)
        if derived is not None:
            return quote(derived.name)
        name = ".".join(quote(part) for part in atom.name.split("."))
        if not as_set:
            return name
        return f"(SELECT DISTINCT {', '.join(quote(column) for column, _ in self.columns(atom))} FROM {name})"

    def aggregate(self, literal: Aggregate) -> _Relation:
        """Groups are named inside, where no constant among them could be taken for the number of a column."""
        alias, groups = self.alias("a"), literal.groups or ()
        inner = self.found(literal)
        names = [f"g{place}" for place in range(len(groups))]
        shown = [f"{inner.values[v.name].sql} AS {name}" for v, name in zip(groups, names, strict=True)]
        shown.append(f"{inner.value(literal.value) if literal.value else '1'} AS v")
        call = f"{literal.function}({'v' if literal.value else '*'}) AS r"
        by = f" GROUP BY {', '.join(names)}" if names else ""
        sql = f"(SELECT {', '.join([*names, call])} FROM (SELECT {', '.join(shown)}{inner.sql}) AS b{by})"
        types = (*(inner.values[v.name].type for v in groups), None)
        columns = tuple(_Value(f"{alias}.{name}", kind) for name, kind in zip((*names, "r"), types, strict=True))
        return _Relation(sql, alias, columns, (*groups, literal.result))

    def found(self, literal: Aggregate) -> _Body:
        """What an aggregate is over."""
        matter = literal.function in _DUPLICATES_MATTER
        if len(literal.bodies) == 1:
            return self.body(literal.bodies[0], as_sets=matter)
        bodies = [self.body(body) for body in literal.bodies]
        needed = {v.name for v in (*variables(literal.value), *(literal.groups or ()))}
        if matter or not needed:
            needed = set.intersection(*(set(body.values) for body in bodies))
        names = [name for name in bodies[0].values if name in needed]
        selects = [
            f"SELECT {', '.join(f'{body.values[name].sql} AS x{n}' for n, name in enumerate(names))}{body.sql}"
            for body in bodies
        ]
        alias = self.alias("u")
        found = _Body(f"({(' UNION ' if matter else ' UNION ALL ').join(selects)}) AS {alias}")
        for place, name in enumerate(names):
            types = {body.values[name].type for body in bodies}
            found.values[name] = _Value(f"{alias}.x{place}", types.pop() if len(types) == 1 else None)
        return found

    def absent(self, body: _Body, atom: Atom) -> str:
        alias = self.alias("n")
        pairs = zip(self.columns(atom), atom.arguments, strict=True)
        met = [body.equal(f"{alias}.{quote(name)}", a) for (name, _), a in pairs if not isinstance(a, Anonymous)]
        where = f" WHERE {' AND '.join(met)}" if met else ""
        return f"NOT EXISTS (SELECT 1 FROM {self.table(atom, False)} AS {alias}{where})"
