"""One SELECT block: FROM, WHERE, GROUP BY, HAVING, windows, QUALIFY, the list, DISTINCT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deltaic.algebra import nodes
from deltaic.algebra.expr import Expr, col, conjunction, text
from deltaic.algebra.nodes import Aggregate, Field, Filter, Generate, Item, Project
from deltaic.algebra.reasons import Code
from deltaic.sql import functions
from deltaic.sql.block import Block, Grouped, distinct
from deltaic.sql.from_clause import Relation, generated_fields, lateral_view, lower_from
from deltaic.sql.grouping import Grouping, read_grouping
from deltaic.sql.parse import OPERAND, SPAN, Call, Span, span_of
from deltaic.sql.render import stub
from deltaic.sql.scope import Ctes, Scope
from deltaic.sql.subquery import semi_join
from deltaic.sql.surface import is_subquery, surface

if TYPE_CHECKING:
    from deltaic.sql.lower import Lowering


def lower_select(lowering: Lowering, tree: exp.Select, ctes: Ctes, outer: Scope | None) -> Relation:
    block, correlated = lower_rows(lowering, tree, ctes, outer)
    if correlated:
        lowering.context.refuse(Code.CORRELATED_SUBQUERY, "an outer column where no rule reaches it")
    return lower_list(lowering, tree, block)


def lower_list(lowering: Lowering, tree: exp.Select, block: Block) -> Relation:
    """What follows FROM and WHERE."""
    return _Select(lowering, tree, block).relation()


def lower_rows(lowering: Lowering, tree: exp.Select, ctes: Ctes, outer: Scope | None) -> tuple[Block, list[Expr]]:
    """FROM and WHERE; the conditions that refer to an outer row are given back, not applied."""
    clause = tree.args.get("from_") or tree.args.get("from")
    block = lower_from(lowering, clause.this if clause else None, tree.args.get("joins") or [], ctes, outer)
    for lateral in tree.args.get("laterals") or ():
        block = lateral_view(lowering, block, lateral)
    if block.outer_columns:
        lowering.context.refuse(Code.CORRELATED_SUBQUERY, "an outer column in FROM")
    where = tree.args.get("where")
    return block, _where(lowering, block, where.this) if where is not None else []


_FILTERS = 50
"""So many conditions of one WHERE stand by themselves, for joins to find theirs among them; any others are one."""


def _where(lowering: Lowering, block: Block, tree: exp.Expr) -> list[Expr]:
    outer: list[Expr] = []
    own: list[Expr] = []
    # what needs no subquery goes first, next to the joins that it is a condition of
    for term, span in sorted(_terms(block, tree), key=lambda found: block.text.has_query(found[1])):
        if _joined(lowering, block, term, span):
            continue
        predicate = block.lower(term, span)
        if not predicate.columns <= block.node.column_set:
            outer.append(predicate)
            continue
        own.append(predicate)
        if len(own) <= _FILTERS:
            block.node = Filter(block.node, predicate)
    others = conjunction(*own[_FILTERS:])
    if others is not None:
        block.node = Filter(block.node, others)
    return outer


def _terms(block: Block, tree: exp.Expr) -> list[tuple[exp.Expr, Span]]:
    """The terms of an AND, each with its part of the tree; with all of it, if the two do not agree."""
    spans = block.text.conjuncts(span_of(tree))
    terms, waiting = list[exp.Expr](), [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, exp.And):
            waiting.extend((found.right, found.left))
        else:
            terms.append(found)
    return list(zip(terms if len(terms) == len(spans) else [tree] * len(spans), spans, strict=True))


def _joined(lowering: Lowering, block: Block, tree: exp.Expr, span: Span) -> bool:
    """Whether the conjunct is nothing but [NOT] EXISTS or [NOT] IN, and became a join."""
    tokens = block.text.within(span)
    whole = (tokens[0].start, tokens[-1].end + 1)
    negated = tokens[0].text.upper() == "NOT" and len(tokens) > 1
    inner = (tokens[1].start, whole[1]) if negated else whole
    for node in surface(tree):
        if is_subquery(node) and not isinstance(node, exp.Query | exp.Subquery):
            place = block.subquery_span(node)
            if place == whole:
                return semi_join(lowering, block, node, place, negated=False)
            if place == inner and negated and isinstance(node, exp.Exists):
                return semi_join(lowering, block, node, place, negated=True)
    return False


class _Select:
    def __init__(self, lowering: Lowering, tree: exp.Select, block: Block) -> None:
        self.lowering, self.tree, self.block = lowering, tree, block
        self.context = lowering.context
        for window in tree.args.get("windows") or ():
            self.named_window(window)

    def named_window(self, window: exp.Window) -> None:
        text = self.context.text
        index = text.index_at(window.this.meta["start"])
        opening = index + 2
        span = (text.tokens[opening].start, text.tokens[text.closing(opening)].end + 1)
        self.block.windows[window.this.name.lower()] = (span, window)

    def relation(self) -> Relation:
        self.generators()
        trees = self.item_trees()
        if self.is_aggregated(trees):
            self.aggregate(trees)
        items, names = self.items(trees)
        self.filter("having")
        self.check_qualify()
        qualify = self.condition("qualify")
        self.block.close_windows()
        if qualify is not None:
            self.block.node = Filter(self.block.node, qualify)
        fresh = [(self.context.names.fresh(n), e) for n, e in zip(names, items, strict=True)]
        node = Project(self.block.node, self.context.typed(self.block.node, fresh))
        return Relation(distinct(node) if self.tree.args.get("distinct") else node, tuple(names))

    # the select list

    def item_trees(self) -> list[tuple[str | None, exp.Expr]]:
        """Alias and expression of each item; stars stay stars."""
        return [
            (item.alias if isinstance(item, exp.Alias) else None, _unaliased(item)) for item in self.tree.expressions
        ]

    def items(self, trees: list[tuple[str | None, exp.Expr]]) -> tuple[list[Expr], list[str]]:
        exprs: list[Expr] = []
        names: list[str] = []
        for alias, tree in trees:
            if _is_star(tree):
                for entry in self.star(tree):
                    exprs.append(self.block.after_grouping(col(entry[1]), _star_span(tree)))
                    names.append(entry[0])
                continue
            given = self.generated.get(id(tree))
            if given is not None:
                exprs.extend(col(column) for column, _ in given)
                names.extend(name for _, name in given)
                continue
            expr = self.block.lower(tree)
            exprs.append(expr)
            names.append(alias or self.auto_name(tree))
            if alias:
                self.block.aliases.setdefault(alias.lower(), expr)
        return exprs, names

    def star(self, tree: exp.Expr) -> list[tuple[str, str]]:
        qualifier = [p.name for p in tree.parts[:-1]] if isinstance(tree, exp.Column) else []
        star = tree.this if isinstance(tree, exp.Column) else tree
        entries = self.block.scope.star(qualifier)
        if not entries and qualifier:
            self.context.refuse(Code.UNSUPPORTED_SYNTAX, "the star of a struct", _star_span(tree)[0])
        dropped: set[str] = set()
        for name in [name for key in ("except_", "except") for name in star.args.get(key) or ()]:
            if isinstance(name, exp.Dot) or (isinstance(name, exp.Column) and len(name.parts) > 1):
                what = "a name of several parts in EXCEPT"
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, what, _star_span(tree)[0], "List the columns instead.")
            dropped.add(name.name.lower())
        if star.args.get("replace") or star.args.get("rename"):
            self.context.refuse(Code.UNSUPPORTED_SYNTAX, "a star with REPLACE or RENAME", _star_span(tree)[0])
        return [(e.name, e.column) for e in entries if e.name.lower() not in dropped]

    def auto_name(self, tree: exp.Expr) -> str:
        """The name that Spark itself gives an expression without an alias."""
        if isinstance(tree, exp.Column):
            return str(tree.parts[-1].name)
        span, block = span_of(tree), self.block
        if any(is_subquery(node) for node in surface(tree)):
            return "scalarsubquery()"
        visible: dict[str, Field] = {}
        replacements: list[tuple[Span, Expr]] = []
        source = block.grouped.over_input if block.grouped else block
        for node in surface(tree):
            if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
                place, expr = block.column(node)
                if expr.column not in source.node.fields:
                    return "expression"
                name = str(node.parts[0 if len(node.parts) == 1 else -1].name)
                field = source.node.fields[expr.column]
                visible[name.lower()] = Field(name, field.type)
                replacements.append((place, col(name)))
        sql = block.build(span, replacements).sql
        return self.context.catalog.types(f"SELECT {sql} FROM {stub(visible.values())}")[0].name

    def generators(self) -> None:
        """A generator in the select list becomes a Generate below it."""
        self.generated: dict[int, list[tuple[str, str]]] = {}
        for item in self.tree.expressions:
            tree = _unaliased(item)
            if _is_star(tree):
                continue
            span = tree.meta.get(SPAN) or tree.meta.get(OPERAND)
            if span is None:
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, f"{tree.sql()} in a select list")
            calls = [c for c in self.context.text.calls(span) if c.name in functions.GENERATORS]
            if calls and calls[0].span == tuple(span):
                self.generate(item, tree, calls[0])

    def generate(self, item: exp.Expr, tree: exp.Expr, call: Call) -> None:
        given = [i.name for i in item.expressions] if isinstance(item, exp.Aliases) else []
        given = given or ([item.alias] if isinstance(item, exp.Alias) else [])
        generator = self.block.lower(tree, call.span)
        fields, names = generated_fields(self.context, self.block.node, generator, given)
        self.block.node = Generate(self.block.node, generator, False, fields)
        self.generated[id(tree)] = [(f.name, n) for f, n in zip(fields, names, strict=True)]

    # GROUP BY

    def is_aggregated(self, trees: list[tuple[str | None, exp.Expr]]) -> bool:
        if self.tree.args.get("group") is not None or self.tree.args.get("having") is not None:
            return True
        return any(self.block.aggregate_calls(t, span_of(t)) for _, t in trees if not _is_star(t))

    def aggregate(self, trees: list[tuple[str | None, exp.Expr]]) -> None:
        if self.generated:
            self.context.refuse(Code.UNSUPPORTED_SYNTAX, "a generator beside aggregates in one SELECT")
        block = self.block
        grouping = read_grouping(block, self.tree.args.get("group"), trees)
        grouping.prepare(block)
        calls: dict[str, str] = {}
        aggregates = self.aggregates(trees, grouping, calls)
        if not grouping.elements and not aggregates and grouping.set_column is None:
            self.context.refuse(Code.UNSUPPORTED_SYNTAX, "one group of all rows, and nothing computed of it")
        node = Aggregate(block.node, grouping.items(block), aggregates)
        grouped = Grouped(block.node.column_set, calls, grouping.tokens, block, grouping.special)
        self.block = Block(
            self.context, node, block.scope, block.ctes, block.apply, block.aliases, grouped, block.windows
        )

    def aggregates(
        self,
        trees: list[tuple[str | None, exp.Expr]],
        grouping: Grouping,
        calls: dict[str, str],
    ) -> tuple[Item, ...]:
        """The distinct aggregate calls of the block, each typed and judged for stability."""
        found: list[tuple[str, Expr, str]] = []
        apart: dict[str, nodes.Call] = {}
        for tree in self.aggregate_trees(trees):
            done: list[Span] = []
            for call in self.block.aggregate_calls(tree, span_of(tree)):
                inner = any(s[0] <= call.span[0] and call.span[1] <= s[1] for s in done)
                if inner or grouping.special(call) is not None:
                    continue
                done.append(call.span)
                expr = self.block.lower(tree, call.span)
                if expr.sql not in calls:
                    calls[expr.sql] = self.context.names.fresh(call.name)
                    found.append((calls[expr.sql], expr, call.name))
                    self.take_apart(tree, call, calls[expr.sql], apart)
        typed = self.context.typed(self.block.node, [(name, expr) for name, expr, _ in found])
        parts = self.typed_calls(apart)
        return tuple(
            Item(item.name, _judged(item, function), item.type, call=parts.get(item.name))
            for item, (_, _, function) in zip(typed, found, strict=True)
        )

    def take_apart(self, tree: exp.Expr, call: Call, name: str, apart: dict[str, nodes.Call]) -> None:
        split = self.block.text.split_call(call)
        if split is None:
            return
        arguments = tuple(
            text("*") if self.block.text.slice(p) == "*" else self.block.lower(tree, p) for p in split.arguments
        )
        where = None if split.where is None else self.block.lower(tree, split.where)
        apart[name] = nodes.Call(call.name, arguments, (), where, split.distinct)

    def typed_calls(self, apart: dict[str, nodes.Call]) -> dict[str, nodes.Call]:
        """The calls with the types of their arguments; asked of Spark in one question."""
        numbered = [(f"{name}.{n}", e) for name, call in apart.items() for n, e in enumerate(call.arguments)]
        known = [(name, e) for name, e in numbered if e.sql != "*"]
        types = {item.name: item.type for item in self.context.typed(self.block.node, known)} if known else {}
        return {
            name: replace(call, types=tuple(types.get(f"{name}.{n}", "") for n in range(len(call.arguments))))
            for name, call in apart.items()
        }

    def aggregate_trees(self, trees: list[tuple[str | None, exp.Expr]]) -> list[exp.Expr]:
        clauses = [self.tree.args.get(name) for name in ("having", "qualify")]
        found = [t for _, t in trees if not _is_star(t)]
        return found + [clause.this for clause in clauses if clause is not None]

    # HAVING and QUALIFY

    def condition(self, clause: str) -> Expr | None:
        tree = self.tree.args.get(clause)
        return None if tree is None else self.block.lower(tree.this)

    def check_qualify(self) -> None:
        """A name may be a column's and an alias's: which one Spark takes depends on the other names beside it."""
        tree = self.tree.args.get("qualify")
        for node in surface(tree.this) if tree is not None else ():
            if not isinstance(node, exp.Column) or len(node.parts) > 1:
                continue
            found, alias = self.block.scope.resolve([node.name]), self.block.aliases.get(node.name.lower())
            if found is not None and alias is not None and alias != col(found.column):
                self.context.refuse(
                    Code.UNSUPPORTED_SYNTAX,
                    f"{node.name} in QUALIFY, which is a column and an alias",
                    node.parts[0].meta.get("start"),
                    "Give the alias another name.",
                )

    def filter(self, clause: str) -> None:
        predicate = self.condition(clause)
        if predicate is not None:
            self.block.node = Filter(self.block.node, predicate)


def _unaliased(item: exp.Expr) -> exp.Expr:
    tree: exp.Expr = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
    return tree


def _star_span(tree: exp.Expr) -> Span:
    """A star that sqlglot put in itself (for VALUES) has no place in the text."""
    span: Span = tree.meta.get(SPAN, (0, 0))
    return span


def _judged(item: Item, function: str) -> Expr:
    return Expr(item.expr.parts, functions.aggregate_is_unstable(function, item.type))


def _is_star(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star))
