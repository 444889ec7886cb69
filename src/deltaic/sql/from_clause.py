"""FROM: tables, derived tables, joins with USING and NATURAL, LATERAL VIEW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deltaic.algebra.expr import Expr, col, join_parts
from deltaic.algebra.nodes import Field, Generate, Item, Join, JoinKind, Node, Project, Scan, ScanColumn, Values
from deltaic.algebra.reasons import Code
from deltaic.algebra.recursion import Predicate
from deltaic.algebra.trees import keep
from deltaic.errors import NameProblem
from deltaic.sql import functions
from deltaic.sql.block import Block, Context
from deltaic.sql.parse import SPAN, Span, span_of
from deltaic.sql.render import stub
from deltaic.sql.scope import Ctes, Derived, Entry, Scope, same
from deltaic.sql.subquery import lower_subquery
from deltaic.sql.surface import is_subquery, surface

if TYPE_CHECKING:
    from deltaic.sql.lower import Lowering


@dataclass(frozen=True)
class Relation:
    """A lowered query: its node, and the visible names of its columns in order."""

    node: Node
    names: tuple[str, ...]


ONE_ROW = Values(((),), ())


def lower_from(
    lowering: Lowering,
    first: exp.Expr | None,
    joins: list[exp.Join],
    ctes: Ctes,
    outer: Scope | None,
) -> Block:
    return _From(lowering, ctes, outer).block(first, joins)


def lateral_view(lowering: Lowering, block: Block, tree: exp.Lateral) -> Block:
    return _From(lowering, block.ctes, block.scope.parent).lateral_view(block, tree)


class _From:
    def __init__(self, lowering: Lowering, ctes: Ctes, outer: Scope | None) -> None:
        self.lowering, self.ctes, self.outer = lowering, ctes, outer
        self.context: Context = lowering.context

    def block(self, first: exp.Expr | None, joins: list[exp.Join]) -> Block:
        if first is None:
            return self.over(ONE_ROW, ())
        block = self.relation(first)
        for join in [*(first.args.get("joins") or ()), *joins]:
            block = self.join(block, join)
        for lateral in first.args.get("laterals") or ():
            block = self.lateral_view(block, lateral)
        return block

    def over(self, node: Node, entries: tuple[Entry, ...]) -> Block:
        def apply(block: Block, tree: exp.Expr, span: Span) -> Expr:
            return lower_subquery(self.lowering, block, tree, span)

        return Block(self.context, node, Scope(entries, self.outer), self.ctes, apply)

    def relation(self, tree: exp.Expr) -> Block:
        self.context.one_more_relation()
        match tree:
            case exp.Table():
                return self.table(tree)
            case exp.Subquery() if isinstance(tree.this, exp.Table):
                inner = self.block(tree.this, [])
                if not tree.alias:
                    return inner
                names = tuple(e.name for e in inner.scope.star(()))
                return self.named(Relation(inner.node, names), tree, [e.column for e in inner.scope.star(())])
            case exp.Subquery():
                self.lowering.check_modifiers(tree)
                return self.named(self.lowering.query(tree.this, self.lowering.with_ctes(tree, self.ctes), None), tree)
            case exp.Values():
                return self.named(self.lowering.values(tree), tree)
            case exp.Lateral():
                return self.lateral(self.over(ONE_ROW, ()), tree)
            case exp.Select() | exp.SetOperation():
                return self.named(self.lowering.query(tree, self.ctes, None), tree)
        self.context.refuse(Code.UNSUPPORTED_SYNTAX, f"{type(tree).__name__.upper()} in FROM")

    def named(self, relation: Relation, tree: exp.Expr, columns: list[str] | None = None) -> Block:
        alias = tree.args.get("alias")
        qualifier = (alias.name,) if alias is not None and alias.name else ()
        given = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        names = given or relation.names
        columns = columns or list(relation.node.columns)
        entries = tuple(Entry(name, qualifier, c) for name, c in zip(names, columns, strict=True))
        return self.over(relation.node, entries)

    def table(self, tree: exp.Table) -> Block:
        self.check_table(tree)
        if not isinstance(tree.this, exp.Identifier):
            return self.table_function(tree)
        parts = tuple(part.name for part in tree.parts)
        cte = self.ctes.get(parts[0]) if len(parts) == 1 else None
        if cte is not None:
            relation = self.derived(cte.derived) if cte.derived else self.lowering.query(cte.tree, cte.ctes, None)
            if cte.columns:
                relation = Relation(relation.node, cte.columns)
            return self.named(relation, tree) if tree.alias else self.qualified(relation, parts)
        info = self.context.catalog.table(parts)
        at = self.context.text.position(tree.this.meta.get("start", 0))
        if info is None:
            raise NameProblem(f"there is no table {'.'.join(parts)}", at=at)
        self.context.types.update(f.type for f in info.columns)
        scanned = tuple(
            ScanColumn(Field(self.context.names.fresh(f.name), f.type, f.nullable), f.name) for f in info.columns
        )
        relation = Relation(Scan(info.key, scanned), tuple(f.name for f in info.columns))
        return self.named(relation, tree) if tree.alias else self.qualified(relation, info.qualifier)

    def derived(self, derived: Derived) -> Relation:
        predicate = Predicate(derived.number, derived.name, derived.types)
        return Relation(predicate.scan([self.context.names.fresh(name) for name in derived.names]), derived.names)

    def qualified(self, relation: Relation, qualifier: tuple[str, ...]) -> Block:
        pairs = zip(relation.names, relation.node.columns, strict=True)
        return self.over(relation.node, tuple(Entry(name, qualifier, c) for name, c in pairs))

    def check_table(self, tree: exp.Table) -> None:
        self.lowering.check_modifiers(tree)
        for clause in ("when", "version", "changes"):
            if tree.args.get(clause) is not None:
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "time travel inside a view's query")

    def table_function(self, tree: exp.Table) -> Block:
        """A generator over constants; other table functions are not followed."""
        return self.generated(self.over(ONE_ROW, ()), tree.this, tree.args.get("alias"), False)

    def lateral_view(self, block: Block, tree: exp.Lateral) -> Block:
        return self.generated(block, tree.this, tree.args.get("alias"), bool(tree.args.get("outer")))

    def lateral(self, block: Block, tree: exp.Lateral) -> Block:
        if is_subquery(tree.this):
            self.context.refuse(Code.LATERAL_JOIN, "LATERAL (SELECT ...)")
        return self.generated(block, tree.this, tree.args.get("alias"), False)

    def generated(self, block: Block, call: exp.Expr, alias: exp.TableAlias | None, outer: bool) -> Block:
        start = call.meta.get("start")
        if start is None:
            self.context.refuse(Code.TABLE_FUNCTION, f"{call.sql(dialect='spark')} in FROM")
        written = next(iter(self.context.text.calls((start, len(self.context.text.sql)))))
        if written.name not in functions.GENERATORS:
            self.context.refuse(Code.TABLE_FUNCTION, f"{written.name}() in FROM", start)
        generator = block.lower(call, written.span)
        given = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        name = alias.name if alias is not None else ""
        return self.with_generated(block, generator, given, name, outer)

    def with_generated(self, block: Block, generator: Expr, given: list[str], name: str, outer: bool) -> Block:
        fields, names = generated_fields(self.context, block.node, generator, given)
        node = Generate(block.node, generator, outer, fields)
        entries = tuple(Entry(n, (name,) if name else (), f.name) for n, f in zip(names, fields, strict=True))
        return self.over(node, block.scope.entries + entries)

    def join(self, left: Block, tree: exp.Join) -> Block:
        if isinstance(tree.this, exp.Lateral):
            return self._lateral_join(left, tree)
        right = self.relation(tree.this)
        for nested in tree.this.args.get("joins") or ():
            right = self.join(right, nested)
        entries = left.scope.entries + right.scope.entries
        using = [identifier.name for identifier in tree.args.get("using") or ()]
        if (tree.method or "").upper() == "NATURAL":
            using = _common(left.scope, right.scope)
        if using:
            return self.using(left, right, using, _kind(tree))
        on = self._condition(left, right, tree, entries)
        kind, flipped = _kind(tree)
        node = Join(right.node, left.node, kind, on) if flipped else Join(left.node, right.node, kind, on)
        kept = left.scope.entries if kind in (JoinKind.SEMI, JoinKind.ANTI) else entries
        return self.over(node, kept)

    def _lateral_join(self, left: Block, tree: exp.Join) -> Block:
        if _told_condition(tree) is not None or (tree.side or "").upper() not in ("", "LEFT"):
            self.context.refuse(Code.LATERAL_JOIN, "a lateral join with a condition")
        if (tree.side or "").upper() == "LEFT":
            self.context.refuse(Code.LATERAL_JOIN, "LEFT JOIN LATERAL")
        return self.lateral(left, tree.this)

    def _condition(self, left: Block, right: Block, tree: exp.Join, entries: tuple[Entry, ...]) -> Expr | None:
        on = _told_condition(tree)
        if on is None:
            return None
        for node in surface(on):
            if is_subquery(node):
                self.context.refuse(Code.CORRELATED_SUBQUERY, "a subquery in a join condition", span_of(on)[0])
        joined = self.over(Join(left.node, right.node, JoinKind.INNER, None), entries)
        condition = joined.lower(on)
        if joined.outer_columns:
            self.context.refuse(Code.CORRELATED_SUBQUERY, "an outer column in a join condition", span_of(on)[0])
        return condition

    def using(self, left: Block, right: Block, names: list[str], kind: tuple[JoinKind, bool]) -> Block:
        """USING: the named columns once, from the preserved side, then the rest of both sides."""
        pairs = [(_entry(left.scope, name), _entry(right.scope, name)) for name in names]
        terms = [join_parts(col(a.column), " = ", col(b.column)) for a, b in pairs]
        on = join_parts(*(piece for n, t in enumerate(terms) for piece in ((" AND ", t) if n else (t,))))
        join, flipped = kind
        node: Node
        node = Join(right.node, left.node, join, on) if flipped else Join(left.node, right.node, join, on)
        merged: list[Entry] = []
        if join is JoinKind.FULL:
            node, merged = self._coalesced(node, pairs)
        else:
            merged = [Entry(a.name, (), (b if flipped else a).column) for a, b in pairs]
        semi = join in (JoinKind.SEMI, JoinKind.ANTI)
        hidden = {entry.column for pair in pairs for entry in pair}
        rest = left.scope.entries if semi else left.scope.entries + right.scope.entries
        others = [Entry(e.name, e.qualifier, e.column, e.bare and e.column not in hidden) for e in rest]
        return self.over(node, (*merged, *others))

    def _coalesced(self, node: Node, pairs: list[tuple[Entry, Entry]]) -> tuple[Node, list[Entry]]:
        extra, merged = [], []
        for a, b in pairs:
            name = self.context.names.fresh(a.name)
            extra.append((name, join_parts("coalesce(", col(a.column), ", ", col(b.column), ")")))
            merged.append(Entry(a.name, (), name))
        typed: tuple[Item, ...] = self.context.typed(node, extra)
        return Project(node, keep(node) + typed), merged


def generated_fields(
    context: Context, node: Node, generator: Expr, given: list[str]
) -> tuple[tuple[Field, ...], list[str]]:
    """The columns a generator makes, with the names given to them or Spark's own."""
    asked = stub(f for f in node.schema if f.name in generator.columns)
    query = f"SELECT g.* FROM {asked} LATERAL VIEW {generator.sql} g"
    typed = context.catalog.types(query)
    names = given or [f.name for f in typed]
    if len(names) != len(typed):
        context.refuse(Code.UNSUPPORTED_SYNTAX, "a generator with another number of names than columns")
    return tuple(Field(context.names.fresh(n), f.type) for n, f in zip(names, typed, strict=True)), names


def _common(left: Scope, right: Scope) -> list[str]:
    return [e.name for e in left.star(()) if any(same(e.name, other.name) for other in right.star(()))]


def _told_condition(tree: exp.Join) -> exp.Expr | None:
    """What a join is told to be on; where that is nothing, sqlglot puts TRUE."""
    on: exp.Expr | None = tree.args.get("on")
    return None if isinstance(on, exp.Boolean) and SPAN not in on.meta else on


def _entry(scope: Scope, name: str) -> Entry:
    return next(entry for entry in scope.star(()) if same(entry.name, name))


def _kind(tree: exp.Join) -> tuple[JoinKind, bool]:
    """The kind of join, and whether the sides change places (RIGHT)."""
    side, kind = (tree.side or "").upper(), (tree.kind or "").upper()
    if kind == "SEMI":
        return JoinKind.SEMI, False
    if kind == "ANTI":
        return JoinKind.ANTI, False
    if side == "FULL":
        return JoinKind.FULL, False
    if side in ("LEFT", "RIGHT"):
        return JoinKind.LEFT, side == "RIGHT"
    return JoinKind.INNER, False
