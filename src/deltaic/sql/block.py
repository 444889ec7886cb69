"""One SELECT block while it is being lowered: its node so far, its scope, and its expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from deltaic.algebra.expr import Expr, col, join_parts
from deltaic.algebra.nodes import Aggregate, Field, Item, Node, Project, Window
from deltaic.algebra.quoting import quote
from deltaic.algebra.reasons import Code, NotLowered, NotResolved, Reason, too_large
from deltaic.algebra.recursion import Component
from deltaic.algebra.trees import keep
from deltaic.errors import Position
from deltaic.sql import functions
from deltaic.sql.moving import foreign, undecided
from deltaic.sql.parse import OPERAND, QUERY, TEXTS, Call, Span, Text, span_of
from deltaic.sql.render import select_list, stub
from deltaic.sql.scope import Catalog, Ctes, Derived, Scope
from deltaic.sql.surface import in_of, is_subquery, surface

Replacement = tuple[Span, Expr]
MOST_RELATIONS = 2_000
"""Tables and queries in FROM that are lowered: an expression that another reads twice, and that is read twice, doubles
them each time."""


class Names:
    """Column names that no other column of the tree has."""

    def __init__(self) -> None:
        self.count = 0

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base[:40]}#{self.count}"


@dataclass
class Context:
    """What every block of one query shares."""

    text: Text
    catalog: Catalog
    names: Names = field(default_factory=Names)
    components: list[Component] = field(default_factory=list)
    """Of predicates that recursive expressions define, each after those it reads."""
    defined: dict[Span, Derived] = field(default_factory=dict)
    """Where in the text they are."""
    types: set[str] = field(default_factory=set)
    """Of the columns of all tables that were named so far."""
    predicates: int = 0
    relations: int = 0
    """How many were lowered so far; common table expressions are, each time they are read."""

    def one_more_relation(self) -> None:
        self.relations += 1
        if self.relations > MOST_RELATIONS:
            what = f"it reads more than {MOST_RELATIONS:,} relations, if its common table expressions are written out"
            raise NotLowered(too_large(what))

    def next_predicate(self) -> int:
        self.predicates += 1
        return self.predicates

    def refuse(self, code: Code, detail: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        position: Position | None = self.text.position(at) if at is not None else None
        raise NotLowered(Reason(code, detail, position, hint))

    def typed(self, node: Node, items: list[tuple[str, Expr]], group: str = "") -> tuple[Item, ...]:
        """Items with the types that Spark gives them over `node`."""
        typed: dict[str, Field] = {}
        unknown = [(name, expr) for name, expr in items if expr.column is None]
        if unknown:
            bare = tuple(Item(name, expr, "") for name, expr in unknown)
            asked = frozenset[str]().union(*(expr.columns for _, expr in unknown))
            query = f"SELECT {select_list(bare)} FROM {stub(f for f in node.schema if f.name in asked)}{group}"
            typed = {f.name: f for f in self.catalog.types(query)}
        return tuple(
            Item(name, expr, typed[name].type, True)
            if expr.column is None
            else Item(name, expr, node.fields[expr.column].type, node.fields[expr.column].nullable)
            for name, expr in items
        )


_PLAIN = (exp.Connector, exp.Case, exp.If, exp.Coalesce, exp.Count)
"""What makes nothing of the names of a struct's fields."""


@dataclass
class Block:
    """Lowers expressions over `node`. Subqueries in them put an Apply on top of `node`."""

    context: Context
    node: Node
    scope: Scope
    ctes: Ctes
    apply: Callable[[Block, exp.Expr, Span], Expr]
    aliases: dict[str, Expr] = field(default_factory=dict)
    grouped: Grouped | None = None
    windows: dict[str, tuple[Span, exp.Expr]] = field(default_factory=dict)
    window_items: dict[tuple[Expr, ...], list[Item]] = field(default_factory=dict)
    outer_columns: set[str] = field(default_factory=set)

    @property
    def text(self) -> Text:
        return self.context.text

    def lower(self, tree: exp.Expr, span: Span | None = None) -> Expr:
        """The expression over this block's node, windows and subqueries replaced by columns."""
        span = span or span_of(tree)
        return self.build(span, self.replacements(tree, span))

    def replacements(self, tree: exp.Expr, span: Span) -> list[Replacement]:
        self.check_functions(tree, span)
        found: list[Replacement] = []
        hidden = [self.subquery_span(node) for node in surface(tree) if is_subquery(node)]
        if self.grouped:
            found.extend(self.grouped.matches(self, tree, span))
        columns: list[Replacement] = []  # apart, since none of the many covers another
        for node in surface(tree):
            if is_subquery(node):
                place = self.subquery_span(node)
                if _inside(place, span) and not _covered(place, found):
                    found.append((place, self.apply(self, node, place)))
            elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
                place, expr = self.column(node)
                if _inside(place, span) and not _covered(place, found):
                    columns.append((place, self.after_grouping(expr, place)))
        found.extend(columns)
        for call in self.calls(span, hidden):
            if call.over is not None and not _covered(call.span, found):
                found.append((call.span, self.window(call, found)))
        for place in hidden:
            if _overlaps(place, span) and not _covered(place, found) and not _inside(span, place):
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "a subquery whose place was not found", place[0])
        return found

    def after_grouping(self, expr: Expr, place: Span) -> Expr:
        if self.grouped and not (expr.columns & self.grouped.input_columns) <= self.node.column_set:
            self.context.refuse(
                Code.UNSUPPORTED_SYNTAX,
                f"{self.text.slice(place)} is neither grouped nor aggregated as written",
                place[0],
                "Repeat the GROUP BY expression exactly, or compute it in a derived table.",
            )
        return expr

    def build(self, span: Span, replacements: list[Replacement]) -> Expr:
        """The text of the span with the outermost replacements in place."""
        tokens = self.text.within(span)
        span = (tokens[0].start, tokens[-1].end + 1)
        parts: list[str | Expr] = []
        here, names = span[0], self.field_names(span, [place for place, _ in replacements])
        for (start, end), expr in sorted(replacements, key=lambda r: (r[0][0], -r[0][1])):
            if start < here or end > span[1]:
                continue
            parts.append(self.written((here, start), names))
            parts.extend((expr,) if expr.column else ("(", expr, ")"))
            here = end
        parts.append(self.written((here, span[1]), names))
        return join_parts(*(part for part in parts if part))

    def written(self, span: Span, names: Mapping[int, str]) -> str:
        """The user's text, with names where they are wanted."""
        here, found = span[0], ""
        for place in sorted(place for place in names if span[0] <= place < span[1]):
            found, here = f"{found}{self.text.sql[here:place]} AS {quote(names[place])}", place
        return found + self.text.sql[here : span[1]]

    def field_names(self, span: Span, places: Sequence[Span]) -> dict[int, str]:
        """A struct's fields are called as the columns that it is made of, and by their numbers if it is made of
        something else: where another column stands for either, it must be told. By the ends of the arguments."""
        found: dict[int, str] = {}
        around = ""
        for call in self.text.calls(span):
            arguments = self.text.arguments(call.arguments)
            named = [self.text.bare(argument) in places for argument in arguments]
            if call.name == "arrays_zip" and any(named) and around not in ("inline", "inline_outer"):
                what = "arrays_zip() calls its fields as its arguments, which have other names here"
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, what, call.span[0])
            around = call.name
            if call.name == "struct":
                for number, (start, end) in enumerate(arguments, 1):
                    if named[number - 1]:
                        found[end] = self.text.last_name(self.text.bare((start, end))) or f"col{number}"
        return found

    def column(self, node: exp.Column) -> tuple[Span, Expr]:
        parts = node.parts
        names = [part.name for part in parts]
        if any("start" not in part.meta for part in parts):
            self.context.refuse(Code.UNSUPPORTED_SYNTAX, f"the place of {node.sql()} in the text is not known")
        start: int = parts[0].meta["start"]
        stops: list[int] = [part.meta["end"] for part in parts]
        found = self.scope.resolve(names)
        if found is None:
            alias = self.aliases.get(names[0].lower())
            if alias is None:
                what = f"{'.'.join(names)} is no column of what is read here"
                hint = "If it is an alias of the same SELECT, beside an aggregate: put it into a derived table."
                raise NotResolved(Reason(Code.UNSUPPORTED_SYNTAX, what, self.text.position(start), hint))
            return (start, stops[0] + 1), alias
        if found.level > 1:
            self.context.refuse(Code.CORRELATED_SUBQUERY, f"{'.'.join(names)} belongs to a query two levels out", start)
        if found.level:
            self.outer_columns.add(found.column)
        return (start, stops[found.used - 1] + 1), col(found.column)

    def calls(self, span: Span, hidden: list[Span]) -> list[Call]:
        return [call for call in self.text.calls(span) if not any(_inside(call.span, h) for h in hidden)]

    def aggregate_calls(self, tree: exp.Expr, span: Span) -> list[Call]:
        """The aggregate calls of this block in an expression; those inside another's arguments too."""
        hidden = [self.subquery_span(node) for node in surface(tree) if is_subquery(node)]
        return [call for call in self.calls(span, hidden) if call.over is None and call.name in functions.AGGREGATES]

    def check_functions(self, tree: exp.Expr, span: Span) -> None:
        hidden = [self.subquery_span(node) for node in surface(tree) if is_subquery(node)]
        for call in self.calls(span, hidden):
            if call.name in functions.NEIGHBOURS:
                self.context.refuse(
                    Code.UNSUPPORTED_SYNTAX, f"{call.name}() groups rows by their neighbours", call.span[0]
                )
        for node in surface(tree):
            function = isinstance(node.parent, exp.Func) and not isinstance(node.parent, _PLAIN)
            if function and isinstance(node, exp.Tuple):
                what = "a row in parentheses inside a function, which may show the names of its fields"
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, what, span[0], "named_struct() tells its names.")
        self.check_stars(tree, span)
        found = undecided(self.text, span, self.type_of, self.context.types)
        if found is not None:
            self.context.refuse(Code.NON_DETERMINISTIC, *found)
        found = foreign(self.text, span, self.context.catalog.is_builtin)
        if found is not None:
            self.context.refuse(Code.UNKNOWN_FUNCTION, *found)

    def type_of(self, name: str) -> str | None:
        """Of a column in reach; "" for one that is not there any more, after GROUP BY, or is of a query around this."""
        found = self.scope.resolve([name])
        if found is None:
            return None
        column = self.node.fields.get(found.column)
        return column.type if column is not None else ""

    def check_stars(self, tree: exp.Expr, span: Span) -> None:
        """A star inside a function means all columns in reach, of which the algebra keeps the used ones."""
        for node in surface(tree):
            if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count | exp.Column | None):
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "a star inside a function", span[0])
            inside = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            if inside and node is not tree:
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "a star inside an expression", span[0])

    def subquery_span(self, node: exp.Expr) -> Span:
        """Where a subquery stands, with EXISTS, or with IN, its NOT and its left side."""
        member = in_of(node) if isinstance(node, exp.In | exp.Not) else None
        query = member.args["query"] if member is not None else node
        inner = query if query is not None and QUERY in query.meta else query and query.this
        if inner is None or QUERY not in inner.meta:
            self.context.refuse(Code.UNSUPPORTED_SYNTAX, "the place of a subquery is not known")
        span = self.text.parenthesised(inner.meta[QUERY])
        if self.text.sql[inner.meta[QUERY][0]] == "(":
            span = inner.meta[QUERY]
        if isinstance(node, exp.Exists):
            return self.text.tokens[self.text.index_at(span[0]) - 1].start, span[1]
        if member is not None:
            before = self.text.tokens[self.text.index_at(member.this.meta[OPERAND][0]) - 1]
            if before.token_type in _COMPARISONS:
                at = before.start
                self.context.refuse(
                    Code.UNSUPPORTED_SYNTAX, "a comparison before IN", at, "Put parentheses around one."
                )
            return self.negated_span((member.this.meta[OPERAND][0], span[1]), isinstance(node, exp.Not))
        return span

    def _says_not_in(self, span: Span) -> bool:
        """Whether the word before the subquery's IN is NOT: the IN is the one before its parenthesis."""
        last = self.text.index_at(span[1]) - 1
        depth = 0
        while True:
            word = self.text.tokens[last].text
            depth += (word == ")") - (word == "(")
            if depth == 0:
                return self.text.tokens[last - 2].text.upper() == "NOT"
            last -= 1

    def negated_span(self, span: Span, negated: bool) -> Span:
        """`x NOT IN (...)` is one span already; NOT (x IN (...)) has words around it."""
        if not negated or self._says_not_in(span):
            return span
        first, last = self.text.index_at(span[0]) - 1, self.text.index_at(span[1])
        while self.text.tokens[first].text == "(":
            first, last = first - 1, last + 1
        return self.text.tokens[first].start, self.text.tokens[last - 1].end + 1

    def window(self, call: Call, found: list[Replacement]) -> Expr:
        """A window call becomes a column of a Window node that is put on when the block is done."""
        spec = call.over
        assert spec is not None
        inner = [r for r in found if _inside(r[0], call.span)]
        spec_found = inner
        named = self.windows.get(self.text.slice(spec).strip("`").lower())
        over = spec
        if named is not None:
            spec, tree = named
            spec_found = self.replacements(tree, spec)
        partition = tuple(self.build(place, spec_found) for place in self.text.partition_spans(spec))
        if not any(expr.columns for expr in partition):
            self.context.refuse(
                Code.WINDOW_NO_PARTITION,
                f"{call.name}() is computed over all rows",
                call.span[0],
                "Add PARTITION BY to make it incremental.",
            )
        if named is not None:
            inner = [r for r in inner if not _inside(r[0], over)]
            inner.append((over, self.build((spec[0] + 1, spec[1] - 1), spec_found)))
        return self._window_column(call, self.build(call.span, inner), partition, spec)

    def _window_column(self, call: Call, expr: Expr, partition: tuple[Expr, ...], spec: Span) -> Expr:
        items = self.window_items.setdefault(partition, [])
        for item in items:
            if item.expr.parts == expr.parts:
                return col(item.name)
        name = self.context.names.fresh(call.name)
        (typed,) = self.context.typed(self.node, [(name, expr)])
        rows = any(token.text.upper() == "ROWS" for token in self.text.within(spec))
        shaky = functions.window_is_unstable(call.name, typed.type, row_frame=rows)
        items.append(Item(name, Expr(expr.parts, shaky), typed.type))
        return col(name)

    def close_windows(self) -> None:
        """Puts the Window nodes that the expressions so far ask for on top of the block."""
        for partition, items in self.window_items.items():
            columns = self.partition_columns(partition)
            self.node = Window(self.node, tuple(items), columns)
        self.window_items = {}

    def partition_columns(self, partition: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """What a window is partitioned by, as columns below it: their types are known then."""
        names = [None if expr.column else self.context.names.fresh("partition") for expr in partition]
        computed = [(name, expr) for name, expr in zip(names, partition, strict=True) if name is not None]
        if computed:
            self.node = Project(self.node, (*keep(self.node), *self.context.typed(self.node, computed)))
        return tuple(expr if name is None else col(name) for name, expr in zip(names, partition, strict=True))


@dataclass
class Grouped:
    """After GROUP BY: which spans of the text stand for a column of the Aggregate."""

    input_columns: frozenset[str]
    calls: dict[str, str]
    """Aggregate call, as its expression's SQL over the input, to the Aggregate's column."""
    group_tokens: list[tuple[tuple[str, ...], str]]
    """A group expression's tokens to its column."""
    over_input: Block
    special: Callable[[Call], Expr | None]
    """grouping() and grouping_id()."""

    def matches(self, block: Block, tree: exp.Expr, span: Span) -> list[Replacement]:
        found: list[Replacement] = []
        for call in block.aggregate_calls(tree, span):
            special = self.special(call)
            if special is not None:
                found.append((call.span, special))
            elif not _covered(call.span, found):
                expr = self.over_input.lower(tree, call.span)
                found.append((call.span, col(self.calls[expr.sql])))
        tokens = normal_tokens(self.over_input, tree, span)
        there = {token[0] for token in tokens}
        for wanted, column in (group for group in self.group_tokens if group[0][0] in there):
            found.extend((place, col(column)) for place in occurrences(tokens, wanted) if not _covered(place, found))
        return found


_COMPARISONS = frozenset({
    TokenType.EQ, TokenType.NEQ, TokenType.NULLSAFE_EQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
})  # fmt: skip
"""To Spark a = b IN (...) is (a = b) IN (...), to sqlglot a = (b IN (...))."""
Token3 = tuple[str, int, int]


def normal_tokens(block: Block, tree: exp.Expr, span: Span) -> list[Token3]:
    """The span's tokens in one spelling, each column reference one token."""
    columns: dict[int, tuple[int, str]] = {}
    for node in surface(tree):
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            parts = [part.name for part in node.parts]
            found = block.scope.resolve(parts)
            if found is not None:
                start = node.parts[0].meta["start"]
                columns[start] = (node.parts[found.used - 1].meta["end"] + 1, f"\0{found.column}")
    tokens: list[Token3] = []
    skip_to = -1
    for token in block.text.within(span):
        if token.start < skip_to:
            continue
        if token.start in columns:
            skip_to, name = columns[token.start]
            tokens.append((name, token.start, skip_to))
            continue
        raw = block.text.sql[token.start : token.end + 1]
        # the key of a map may stand after a dot like a field, and is a text
        same = token.token_type in TEXTS or (tokens and tokens[-1][0] == ".")
        tokens.append((raw if same else raw.lower(), token.start, token.end + 1))
    return tokens


def occurrences(tokens: list[Token3], wanted: tuple[str, ...]) -> Iterator[Span]:
    """Where the wanted tokens stand as an operand of their own."""
    width = len(wanted)
    whole = width == 1 or (wanted[-1] == ")" and wanted[1] == "(" and _closes_last(wanted))
    for start in range(len(tokens) - width + 1):
        if tuple(token[0] for token in tokens[start : start + width]) != wanted:
            continue
        before = tokens[start - 1][0] if start else ""
        after = tokens[start + width][0] if start + width < len(tokens) else ""
        if (whole and before != "." and after not in (".", "[", "(")) or (
            before in ("", "(", ",") and after in ("", ")", ",")
        ):
            yield tokens[start][1], tokens[start + width - 1][2]


def _closes_last(wanted: tuple[str, ...]) -> bool:
    depth = 0
    for number, token in enumerate(wanted):
        depth += (token == "(") - (token == ")")
        if depth == 0 and 0 < number < len(wanted) - 1:
            return False
    return True


def _inside(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _overlaps(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _covered(span: Span, found: list[Replacement]) -> bool:
    return any(_inside(span, place) for place, _ in found)


def with_columns(context: Context, node: Node, extra: list[tuple[str, Expr]]) -> Project:
    """The node with computed columns beside its own."""
    return Project(node, keep(node) + context.typed(node, extra))


def distinct(node: Node) -> Aggregate:
    return Aggregate(node, keep(node))
