"""WITH RECURSIVE: common table expressions that read one another, to predicates and their rules.

A recursive one is a UNION of branches; those that do not read its component give its columns their types. UNION ALL
keeps every derivation, which Spark computes itself; what is kept here are sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from deltaic.algebra.expr import col, join_parts
from deltaic.algebra.nodes import Item, Node, Project
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import Code
from deltaic.algebra.recursion import Component, Predicate, Unstratified, components, is_recursive, plain_rules
from deltaic.errors import NameProblem, Position, UnsupportedError
from deltaic.sql.from_clause import Relation
from deltaic.sql.parse import Span, start_of
from deltaic.sql.render import stub
from deltaic.sql.scope import Cte, Ctes, Derived

if TYPE_CHECKING:
    from deltaic.sql.lower import Lowering


def recursive_ctes(lowering: Lowering, clause: exp.With, ctes: Ctes) -> Ctes:
    """All expressions of the clause, those that are recursive as predicates."""
    by_name: dict[str, exp.CTE] = {cte.alias.lower(): cte for cte in clause.expressions}
    reads = _reads(by_name)
    found = components(reads)
    recursive = {name for names in found if is_recursive(names, reads) for name in names}
    # by their order in the text: other rules may put them into other components
    numbers = {name: lowering.context.next_predicate() for name in by_name if name in recursive}
    for names in found:
        if is_recursive(names, reads):
            ctes = _Component(lowering, {name: by_name[name] for name in names}, numbers, ctes).lowered()
        else:
            cte = by_name[names[0]]
            ctes = ctes.having(cte.alias, Cte(cte.this, _given(cte), ctes))
    return ctes


def has_recursion(clause: exp.With) -> bool:
    """Whether an expression of the clause reads itself, or one that reads it."""
    if not clause.args.get("recursive"):
        return False
    reads = _reads({cte.alias.lower(): cte for cte in clause.expressions})
    return any(is_recursive(found, reads) for found in components(reads))


def _reads(ctes: Mapping[str, exp.CTE]) -> dict[str, list[str]]:
    return {name: [other for other in ctes if other in read_names(cte.this)] for name, cte in ctes.items()}


def read_names(tree: exp.Expr) -> set[str]:
    """The names in a query that may be those of common table expressions around it."""
    found = set()
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and len(table.parts) == 1:
            found.add(table.name.lower())
    return found


def is_set_recursion(cte: exp.CTE) -> bool:
    return all(union.args.get("distinct") for union in _unions(cte.this))


def _given(cte: exp.CTE) -> tuple[str, ...]:
    return tuple(c.name for c in cte.args["alias"].args.get("columns") or ())


def _unions(tree: exp.Expr) -> list[exp.Union]:
    """The UNIONs on top of a query, without what has a meaning of its own."""
    return [part for part in _parts(tree) if isinstance(part, exp.Union)]


def _branches(tree: exp.Expr) -> list[exp.Expr]:
    return [part for part in _parts(tree) if not isinstance(part, exp.Union)]


def _parts(tree: exp.Expr) -> list[exp.Expr]:
    """The UNIONs and their branches, as they are written."""
    found, waiting = list[exp.Expr](), [tree]
    while waiting:
        part = waiting.pop()
        while isinstance(part, exp.Subquery) and not part.alias and not part.args.get("with_"):
            part = part.this
        found.append(part)
        if isinstance(part, exp.Union):
            waiting.extend((part.right, part.left))
    return found


class _Component:
    def __init__(self, lowering: Lowering, ctes: dict[str, exp.CTE], numbers: Mapping[str, int], around: Ctes) -> None:
        self.lowering, self.ctes, self.numbers, self.around = lowering, ctes, numbers, around
        self.context = lowering.context
        self.known: dict[str, Derived] = {}

    def lowered(self) -> Ctes:
        for cte in self.ctes.values():
            self.check(cte)
        branches = {name: _branches(cte.this) for name, cte in self.ctes.items()}
        while len(self.known) < len(self.ctes):
            self.type_more(branches)
        ctes, found = self.reaching(), []
        for name, derived in self.known.items():
            rules = [rule for branch in branches[name] for rule in self.rules(branch, derived, ctes)]
            found.append(Predicate(derived.number, derived.name, derived.types, tuple(map(prune, rules))))
            self.context.defined[self.body(self.ctes[name])] = derived
        self.context.components.append(Component(tuple(found)))
        return ctes

    def check(self, cte: exp.CTE) -> None:
        if not is_set_recursion(cte):
            hint = "UNION, without ALL, keeps each row once, and is incremental."
            at = start_of(cte)
            self.context.refuse(Code.RECURSION, f"{cte.alias} keeps every derivation (UNION ALL)", at, hint)
        for union in _unions(cte.this):
            if union.args.get("by_name"):
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "UNION BY NAME", start_of(cte))
            self.lowering.check_modifiers(union)
            if union.args.get("with_") or union.args.get("with"):
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "WITH inside a recursive WITH", start_of(cte))

    def reaching(self) -> Ctes:
        """What a branch may name, so far."""
        ctes = self.around
        for name, derived in self.known.items():
            cte = self.ctes[name]
            ctes = ctes.having(cte.alias, Cte(cte.this, derived.names, self.around, derived))
        return ctes

    def type_more(self, branches: dict[str, list[exp.Expr]]) -> None:
        """Give types to an expression some of whose branches read nothing that has none."""
        for name, cte in self.ctes.items():
            unknown = self.ctes.keys() - self.known.keys()
            usable = [branch for branch in branches[name] if not read_names(branch) & unknown]
            if name in self.known or not usable:
                continue
            relations = [self.lowering.query(branch, self.reaching(), None) for branch in usable]
            self.same_width(cte, relations)
            schema = relations[0].node.schema
            if len(relations) > 1:
                schema = reduce(self.lowering.union, (relation.node for relation in relations)).schema
            names = _given(cte) or relations[0].names
            if len(names) != len(schema):
                what = f"{cte.alias} has {len(schema)} columns, and names for {len(names)}"
                raise NameProblem(what, at=self.position(cte))
            self.known[name] = Derived(self.numbers[name], cte.alias, names, tuple(f.type for f in schema))
            return
        waiting = ", ".join(self.ctes[name].alias for name in self.ctes if name not in self.known)
        raise UnsupportedError(
            f"{waiting} has no branch to begin with: every one reads what it defines",
            at=self.position(next(iter(self.ctes.values()))),
        )

    def same_width(self, cte: exp.CTE, relations: list[Relation]) -> None:
        widths = {len(relation.names) for relation in relations}
        if len(widths) > 1:
            raise NameProblem(f"the branches of {cte.alias} differ in their columns", at=self.position(cte))

    def position(self, tree: exp.Expr) -> Position | None:
        at = start_of(tree)
        return self.context.text.position(at) if at is not None else None

    def body(self, cte: exp.CTE) -> Span:
        """Where in the text its query is: in the parentheses after the name, its columns and AS."""
        text = self.context.text
        place = text.index_at(cte.args["alias"].this.meta["start"]) + 1
        if _given(cte):
            place = text.closing(place) + 1
        while text.tokens[place].text != "(":
            place += 1
        return text.tokens[place].end + 1, text.tokens[text.closing(place)].start

    def rules(self, branch: exp.Expr, derived: Derived, ctes: Ctes) -> list[Node]:
        relation = self.lowering.query(branch, ctes, None)
        if len(relation.names) != len(derived.types):
            what = f"a branch of {derived.name} has {len(relation.names)} columns instead of {len(derived.types)}"
            raise NameProblem(what, at=self.position(branch))
        own = frozenset(Predicate(d.number, d.name, ()).source for d in self.known.values())
        try:
            return plain_rules(self.typed(relation.node, derived, branch), own)
        except Unstratified as problem:
            names = ", ".join(d.name for d in self.known.values())
            raise UnsupportedError(
                f"{derived.name} reads {names} through {problem}: more of it could mean less",
                at=self.position(branch),
                hint="Finish the recursion first, and do that in the query below it.",
            ) from None

    def typed(self, node: Node, derived: Derived, branch: exp.Expr) -> Node:
        """The branch in the types that those without recursion have."""
        there = Predicate(derived.number, derived.name, derived.types).fields
        both = f"SELECT * FROM {stub(there)} UNION ALL SELECT * FROM {stub(node.schema)}"
        for name, own, wide in zip(derived.names, there, self.context.catalog.types(both), strict=True):
            if own.type != wide.type:
                raise UnsupportedError(
                    f"{derived.name}.{name} is {own.type} where the recursion begins, and {wide.type} further on",
                    at=self.position(branch),
                    hint="CAST it in the first branch, or in this one.",
                )
        if all(f.type == kind for f, kind in zip(node.schema, derived.types, strict=True)):
            return node
        items = tuple(
            Item(self.context.names.fresh(f.name.split("#")[0]), join_parts("CAST(", col(f.name), f" AS {kind})"), kind)
            for f, kind in zip(node.schema, derived.types, strict=True)
        )
        return Project(node, items)
