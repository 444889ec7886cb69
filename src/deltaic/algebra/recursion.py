"""Relations that are defined by themselves: predicates, their rules, and the components that they form.

A *predicate* is a set of rows, the least one that its rules derive. A rule is a query that scans predicates under their
`source`, as if they were tables. Predicates that need one another are a *component*; a rule may read components below
its own in any way, but its own only where more of it never means less of the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from deltaic.algebra.nodes import (
    Aggregate,
    Field,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    ScanColumn,
    UnionAll,
)
from deltaic.algebra.set_operations import SetOperation
from deltaic.algebra.trees import keep, pass_through, sources

PREFIX = "@predicate"


def column(place: int) -> str:
    """What a column of a predicate's relation is called."""
    return f"c{place}"


@dataclass(frozen=True)
class Predicate:
    """`name` is the user's word for it; `types` are those of its columns, which may all be NULL."""

    number: int
    name: str
    types: tuple[str, ...]
    rules: tuple[Node, ...] = ()

    @property
    def source(self) -> str:
        return f"{PREFIX}{self.number}"

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(column(place), kind) for place, kind in enumerate(self.types))

    def scan(self, names: Sequence[str]) -> Scan:
        pairs = zip(names, self.fields, strict=True)
        return Scan(self.source, tuple(ScanColumn(replace(f, name=name), f.name) for name, f in pairs))


@dataclass(frozen=True)
class Component:
    """`apart`: what its rules join is looked at by itself, also in a rule that is not recursive."""

    predicates: tuple[Predicate, ...]
    apart: bool = False

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(predicate.source for predicate in self.predicates)

    @property
    def reads(self) -> frozenset[str]:
        """What it reads beside itself."""
        found = {source for p in self.predicates for rule in p.rules for source in sources(rule)}
        return frozenset(found) - self.sources


def as_predicate(query: Node) -> tuple[Node, Component] | None:
    """A query that is a set of unions of joins, as a scan of a predicate that is not recursive; None for others."""
    above: list[Project | Filter] = []
    top = query
    while isinstance(top, Project | Filter):
        above.append(top)
        top = top.input
    if not isinstance(top, Aggregate) or top.aggregates or not sources(top):
        return None
    try:
        rules = plain_rules(Project(top.input, top.groups), frozenset(sources(top)))
    except Unstratified:
        return None
    predicate = Predicate(1, "the view", tuple(item.type for item in top.groups), tuple(rules))
    found: Node = predicate.scan([item.name for item in top.groups])
    for node in reversed(above):
        found = replace(node, input=found)
    return found, Component((predicate,), apart=True)


class Unstratified(Exception):
    """A rule for which more rows of its own component may mean fewer derived ones."""


def plain_rules(rule: Node, own: frozenset[str]) -> list[Node]:
    """The rule as several, in each of which what scans the component stands below nothing but projections, filters,
    generators, inner joins, and the left sides of semi- and anti-joins.

    Laws, for rules whose answer is a set: a DISTINCT may be left out; a union may be taken apart; a semi-join is a join
    that is projected on its left side."""
    if not own & set(sources(rule)):
        return [rule]
    operation = SetOperation.of(rule)
    if operation is not None:
        return plain_rules(operation.joined(*operation.sides()), own)
    match rule:
        case Scan():
            return [rule]
        case Project() | Filter() | Generate():
            return [replace(rule, input=below) for below in plain_rules(rule.input, own)]
        case Aggregate() if not rule.aggregates:
            return [Project(below, rule.groups) for below in plain_rules(rule.input, own)]
        case UnionAll():
            return [_renamed(part, rule) for branch in rule.branches for part in plain_rules(branch, own)]
        case Join(kind=JoinKind.SEMI) if own & set(sources(rule.right)):
            joined = replace(rule, kind=JoinKind.INNER)
            return plain_rules(Project(joined, keep(rule.left)), own)
        case Join(kind=JoinKind.INNER):
            pairs = [(a, b) for a in plain_rules(rule.left, own) for b in plain_rules(rule.right, own)]
            return [replace(rule, left=a, right=b) for a, b in pairs]
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI) if not own & set(sources(rule.right)):
            return [replace(rule, left=left) for left in plain_rules(rule.left, own)]
    raise Unstratified(_what(rule))


def _renamed(branch: Node, union: UnionAll) -> Project:
    pairs = zip(branch.columns, union.schema, strict=True)
    return Project(branch, tuple(replace(pass_through(branch.fields[name]), name=f.name) for name, f in pairs))


def _what(node: Node) -> str:
    match node:
        case Join(kind=JoinKind.ANTI):
            return "NOT EXISTS, NOT IN or EXCEPT"
        case Join():
            return f"a {node.kind.value.lower()} join"
        case Aggregate():
            return "an aggregate"
    return f"a {type(node).__name__.lower()}"


Name = TypeVar("Name", bound=str)


def components(reads: Mapping[Name, Iterable[Name]]) -> list[tuple[Name, ...]]:
    """The strongly connected components of a graph (Tarjan), each after those that it reads; names in their order."""
    order = {name: place for place, name in enumerate(reads)}
    index: dict[Name, int] = {}
    low: dict[Name, int] = {}
    stack: list[Name] = []
    found: list[tuple[Name, ...]] = []

    def begin(name: Name) -> tuple[Name, Iterator[Name]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        return name, iter(reads[name])

    # a stack of its own, since a chain of predicates may be longer than calls can be nested
    for root in reads:
        open_ones = [] if root in index else [begin(root)]
        while open_ones:
            name, others = open_ones[-1]
            other = next(others, None)
            if other is not None and other not in index:
                open_ones.append(begin(other))
            elif other is not None:
                if other in stack:
                    low[name] = min(low[name], index[other])
            else:
                open_ones.pop()
                if open_ones:
                    above = open_ones[-1][0]
                    low[above] = min(low[above], low[name])
                if low[name] == index[name]:
                    place = stack.index(name)
                    found.append(tuple(sorted(stack[place:], key=order.__getitem__)))
                    del stack[place:]
    return found


def is_recursive(component: Sequence[Name], reads: Mapping[Name, Iterable[Name]]) -> bool:
    return len(component) > 1 or component[0] in reads[component[0]]
