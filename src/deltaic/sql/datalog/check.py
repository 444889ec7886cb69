"""What a Datalog program must be to mean something: known predicates of one arity, variables that something binds, and
no predicate that needs its own negation or its own aggregate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from deltaic.algebra.recursion import components
from deltaic.errors import DatalogError, NameProblem, Position, SourceError
from deltaic.sql.datalog.program import Aggregate, Atom, Clause, Declaration, Literal, Named, Not, Program, Variable
from deltaic.sql.datalog.safety import Safety, with_groups


@dataclass(frozen=True)
class Table:
    """What a base predicate is: its columns with their types. A materialized view may be one, too."""

    columns: tuple[tuple[str, str], ...]
    is_view: bool = False


Tables = Callable[[str], Table | None]
"""The table or view of a name, if there is one."""


@dataclass(frozen=True)
class Derived:
    """A predicate with clauses, whose aggregates all have their groups; types are known if it was declared."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str | None, ...]
    clauses: tuple[Clause, ...]

    @property
    def at(self) -> Position:
        return self.clauses[0].at


@dataclass(frozen=True)
class Checked:
    """Predicates by key, those that are derived in an order in which each stands after what it reads, if it can."""

    derived: Mapping[str, Derived]
    base: Mapping[str, Table]
    asked: tuple[str, ...]
    """Keys of the derived predicates that are to be views, in that order."""

    def reads(self, key: str) -> list[str]:
        """The derived predicates that one reads."""
        atoms = [use.atom for clause in self.derived[key].clauses for use in uses(clause.body)]
        return list(dict.fromkeys(atom.key for atom in atoms if atom.key in self.derived))


def checked(program: Program, tables: Tables) -> Checked:
    return _Check(program, tables).checked()


@dataclass(frozen=True)
class Use:
    """An atom in a body, and what stands between it and the rule that could make less of more."""

    atom: Atom
    through: str | None
    at: Position


def uses(body: Iterable[Literal], through: str | None = None) -> Iterator[Use]:
    for literal in body:
        match literal:
            case Atom():
                yield Use(literal, through, literal.at)
            case Not():
                yield Use(literal.atom, "negation", literal.at)
            case Aggregate():
                for inside in literal.bodies:
                    yield from uses(inside, "an aggregate")


class _Check:
    def __init__(self, program: Program, tables: Tables) -> None:
        self.program = program
        self.tables = {key: _looked_up(tables, key, at) for key, at in _places(program).items()}
        self.clauses: dict[str, list[Clause]] = {}
        for clause in program.clauses:
            self.clauses.setdefault(clause.head.key, []).append(with_groups(clause))
        self.declared = _by_name(program.declarations)

    def checked(self) -> Checked:
        self.names()
        self.arities()
        for clause in (clause for clauses in self.clauses.values() for clause in clauses):
            Safety(clause).check()
        order = self.stratified()
        derived = {key: self.derived(key) for key in order}
        base = {key: table for key, table in self.tables.items() if table is not None and key not in derived}
        wanted = {named.name.lower() for named in self.program.outputs} or set(order)
        return Checked(derived, base, tuple(key for key in order if key in wanted))

    def derived(self, key: str) -> Derived:
        clauses = self.clauses[key]
        name, width = clauses[0].head.name, len(clauses[0].head.arguments)
        declaration = self.declared.get(key)
        if declaration is not None:
            names, types = zip(*declaration.columns, strict=True)
            return Derived(name, names, types, tuple(clauses))
        return Derived(name, _column_names(clauses), (None,) * width, tuple(clauses))

    # names and arities

    def names(self) -> None:
        for key, clauses in self.clauses.items():
            self.check_head(key, clauses[0].head)
        for named in self.program.inputs:
            self.check_input(named)
        for named in self.program.outputs:
            if named.name.lower() not in self.clauses:
                self.refuse_underived(named)
        for use in (use for clause in self.program.clauses for use in uses(clause.body)):
            if use.atom.key not in self.clauses and self.tables[use.atom.key] is None:
                raise NameProblem(
                    f"there is no predicate {use.atom.name}: no rule defines it, and there is no such table",
                    at=use.atom.at,
                )

    def check_head(self, key: str, head: Atom) -> None:
        table = self.tables[key]
        if table is not None and not table.is_view:
            raise NameProblem(f"{head.name} is a table, and cannot have rules or facts too", at=head.at)
        if "." in head.name:
            hint = "Views are made in the current schema: USE changes that."
            raise NameProblem(f"{head.name} is derived, and cannot have a schema", at=head.at, hint=hint)

    def check_input(self, named: Named) -> None:
        if named.name.lower() in self.clauses:
            at = self.clauses[named.name.lower()][0].at
            raise NameProblem(f"{named.name} is an .input, and cannot have rules or facts too", at=at)
        if self.tables[named.name.lower()] is None:
            raise NameProblem(f"there is no table {named.name}", at=named.at)

    def refuse_underived(self, named: Named) -> NoReturn:
        what = "is a table: no rule derives it" if self.tables[named.name.lower()] else "is defined by no rule"
        raise NameProblem(f"{named.name} {what}", at=named.at)

    def arities(self) -> None:
        known: dict[str, tuple[int, str]] = {}
        for key, table in self.tables.items():
            if table is not None and key not in self.clauses:
                known[key] = len(table.columns), "in its table"
        for declaration in self.declared.values():
            width = len(declaration.columns)
            _same_width(known, declaration.name, width, declaration.at, f"where it is declared ({declaration.at})")
            repeated = [name for name, _ in declaration.columns]
            if not _distinct(repeated):
                raise NameProblem(f"a column of {declaration.name} is declared twice", at=declaration.at)
        for clause in self.program.clauses:
            for atom in (clause.head, *(use.atom for use in uses(clause.body))):
                _same_width(known, atom.name, len(atom.arguments), atom.at, f"at {atom.at}")

    # strata

    def stratified(self) -> list[str]:
        """The derived predicates in the order of their components."""
        found = {key: [use for c in clauses for use in uses(c.body)] for key, clauses in self.clauses.items()}
        reads = {
            key: list(dict.fromkeys(use.atom.key for use in of if use.atom.key in self.clauses))
            for key, of in found.items()
        }
        order = components(reads)
        for component in order:
            for key in component:
                for use in found[key]:
                    if use.through and use.atom.key in component:
                        self.refuse_unstratified(key, use, reads, component)
        return [key for component in order for key in component]

    def refuse_unstratified(
        self, key: str, use: Use, reads: Mapping[str, Sequence[str]], component: Sequence[str]
    ) -> NoReturn:
        way = _path(use.atom.key, key, {k: [n for n in reads[k] if n in component] for k in component})
        shown = " → ".join(self.clauses[k][0].head.name for k in (key, *way))
        raise DatalogError(
            f"{self.clauses[key][0].head.name} needs itself through {use.through} of {use.atom.name}: {shown}",
            at=use.at,
            hint="The program is not stratified: what is negated or aggregated must be finished before.",
        )


def _places(program: Program) -> dict[str, Position]:
    """Where each predicate is first named, by its key."""
    named: list[Atom | Named | Declaration] = [*program.declarations, *program.inputs, *program.outputs]
    for clause in program.clauses:
        named.extend((clause.head, *(use.atom for use in uses(clause.body))))
    found: dict[str, Position] = {}
    for one in named:
        found.setdefault(one.name.lower(), one.at)
    return found


def _looked_up(tables: Tables, key: str, at: Position) -> Table | None:
    try:
        return tables(key)
    except (NameProblem, SourceError) as problem:  # a schema that is not there, a table that is not Delta's
        raise type(problem)(problem.what, at=at, hint=problem.hint) from None


def _by_name(declarations: Iterable[Declaration]) -> dict[str, Declaration]:
    found: dict[str, Declaration] = {}
    for declaration in declarations:
        if not declaration.columns:
            raise DatalogError(f"{declaration.name} has no columns", at=declaration.at)
        first = found.setdefault(declaration.name.lower(), declaration)
        if first is not declaration:
            raise NameProblem(f"{declaration.name} is declared twice, first at {first.at}", at=declaration.at)
    return found


def _same_width(known: dict[str, tuple[int, str]], name: str, width: int, at: Position, here: str) -> None:
    """The first to come, of table, declaration and uses, is right."""
    right, where = known.setdefault(name.lower(), (width, here))
    if width != right:
        raise NameProblem(f"{name} has {width} argument{'s' * (width > 1)} here, and {right} {where}", at=at)


def _distinct(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) == len(names)


def _column_names(clauses: Sequence[Clause]) -> tuple[str, ...]:
    """The variables of the first rule's head, if that has nothing else."""
    head = next((clause.head for clause in clauses if clause.body), clauses[0].head)
    names = tuple(argument.name for argument in head.arguments if isinstance(argument, Variable) and argument.is_own)
    if len(names) == len(head.arguments) and _distinct(names):
        return names
    return tuple(f"c{place}" for place in range(len(head.arguments)))


def _path(start: str, end: str, reads: Mapping[str, Iterable[str]]) -> list[str]:
    """A shortest way along what predicates read; there is one, in a component."""
    ways = [[start]]
    seen = {start}
    for way in ways:
        if way[-1] == end:
            return way
        ways.extend([*way, key] for key in reads[way[-1]] if key not in seen)
        seen.update(reads[way[-1]])
    raise AssertionError(f"{start} does not reach {end}")
