"""GROUP BY in all its forms: expressions, ordinals, aliases, ALL, ROLLUP, CUBE, GROUPING SETS.

Grouping sets are lowered the way Spark runs them: every input row once per set, with the columns
that the set leaves out as NULL, grouped by the set's number too. One Aggregate carries them all.
"""

from __future__ import annotations

from itertools import combinations, product

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from deltaic.algebra.expr import Expr, col, join_parts, text
from deltaic.algebra.nodes import Field, Item, Join, JoinKind, Values
from deltaic.algebra.reasons import Code
from deltaic.sql.block import Block, normal_tokens, with_columns
from deltaic.sql.parse import CLOSING, OPENING, OPERAND, SPAN, Call, Span, start_of

Element = tuple[exp.Expr, Span]
Items = list[tuple[str | None, exp.Expr]]


def any_span(tree: exp.Expr) -> Span:
    span: Span = tree.meta.get(SPAN) or tree.meta[OPERAND]
    return span


class Grouping:
    def __init__(self, elements: list[Element], sets: list[tuple[int, ...]] | None) -> None:
        self.elements, self.sets = elements, sets
        self.columns: list[str] = []
        self.tokens: list[tuple[tuple[str, ...], str]] = []
        self.set_column: str | None = None
        self.block: Block | None = None

    def prepare(self, block: Block) -> None:
        """Makes every group a plain column of the block's node."""
        extra: list[tuple[str, Expr]] = []
        for tree, span in self.elements:
            expr = block.lower(tree, span)
            name = expr.column
            if name is None or name not in block.node.columns:
                name = block.context.names.fresh("group")
                extra.append((name, expr))
            self.columns.append(name)
        tokens = [tuple(t[0] for t in normal_tokens(block, tree, span)) for tree, span in self.elements]
        if extra:
            block.node = with_columns(block.context, block.node, extra)
        if self.sets is not None:
            self.expand(block, self.sets)
        self.tokens = [(_unwrapped(t), c) for t, c in zip(tokens, self.columns, strict=True)]
        self.block = block

    def expand(self, block: Block, sets: list[tuple[int, ...]]) -> None:
        number = Field(block.context.names.fresh("set"), "int", False)
        rows = tuple((text(str(n)),) for n in range(len(sets)))
        block.node = Join(block.node, Values(rows, (number,)), JoinKind.INNER, None)
        extra = []
        for index, column in enumerate(self.columns):
            members = ", ".join(str(n) for n, members in enumerate(sets) if index in members) or "-1"
            chosen = join_parts("CASE WHEN ", col(number.name), f" IN ({members}) THEN ", col(column), " END")
            extra.append((block.context.names.fresh(column.split("#")[0]), chosen))
        block.node = with_columns(block.context, block.node, extra)
        self.columns = [name for name, _ in extra]
        self.set_column = number.name

    def items(self, block: Block) -> tuple[Item, ...]:
        names = dict.fromkeys(([self.set_column] if self.set_column else []) + self.columns)
        fields = block.node.fields
        return tuple(Item(n, col(n), fields[n].type, fields[n].nullable) for n in names)

    def special(self, call: Call) -> Expr | None:
        """grouping(x) and grouping_id(...) from the number of the set."""
        if call.name not in ("grouping", "grouping_id") or self.block is None:
            return None
        sets = self.sets or [tuple(range(len(self.elements)))]
        places = self.argument_places(call) or list(range(len(self.elements)))
        values = [sum((place not in members) << bit for bit, place in enumerate(reversed(places))) for members in sets]
        kind = "TINYINT" if call.name == "grouping" else "BIGINT"
        if self.set_column is None:
            return text(f"CAST({values[0]} AS {kind})")
        cases = " ".join(f"WHEN {n} THEN {value}" for n, value in enumerate(values))
        return join_parts("CAST(CASE ", col(self.set_column), f" {cases} END AS {kind})")

    def argument_places(self, call: Call) -> list[int]:
        assert self.block is not None
        text_ = self.block.text
        inside = (call.arguments[0] + 1, call.arguments[1] - 1)
        arguments: list[list[str]] = [[]]
        depth = 0
        for token in text_.within(inside):
            depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
            if token.token_type is TokenType.COMMA and not depth:
                arguments.append([])
            else:
                arguments[-1].append(text_.sql[token.start : token.end + 1].lower())
        if arguments == [[]]:
            return []
        written = [[text_.sql[t.start : t.end + 1].lower() for t in text_.within(span)] for _, span in self.elements]
        places = []
        for argument in arguments:
            matching = [n for n, own in enumerate(written) if own == argument]
            if not matching and _is_column(argument):
                named = [n for n, own in enumerate(written) if _is_column(own)]
                matching = [n for n in named if written[n][-1] == argument[-1]]
            if len(matching) != 1:
                self.block.context.refuse(
                    Code.UNSUPPORTED_SYNTAX, f"{call.name}() of something not grouped", call.span[0]
                )
            places.append(matching[0])
        return places


def _is_column(written: list[str]) -> bool:
    """Whether tokens are a column's name, with or without its table's."""
    return all((word == ".") == bool(place % 2) for place, word in enumerate(written))


def read_grouping(block: Block, group: exp.Group | None, items: Items) -> Grouping:
    if group is None:
        return Grouping([], None)
    if group.args.get("all"):
        ungrouped = [t for _, t in items if not block.aggregate_calls(t, any_span(t))]
        return Grouping([(t, any_span(t)) for t in ungrouped], None)
    reader = _Reader(block, items)
    parts: list[list[tuple[int, ...]]] = []
    plain: list[tuple[int, ...]] = []
    with_sets = False
    for tree in _in_text_order(group):
        if not isinstance(tree, exp.Rollup | exp.Cube | exp.GroupingSets):
            plain.append(reader.members(tree))
            parts.append([plain[-1]])
            continue
        with_sets = True
        units = [reader.members(inner) for inner in tree.expressions]
        if not units:  # GROUP BY a, b WITH ROLLUP
            return Grouping(reader.elements, _sets(tree, [(i,) for members in plain for i in members]))
        if isinstance(tree, exp.GroupingSets) and reader.listed_before(tree):  # GROUP BY a, b GROUPING SETS (...)
            return Grouping(reader.elements, units)
        parts.append(_sets(tree, units))
    if not with_sets:
        return Grouping(reader.elements, None)
    combined = [tuple(dict.fromkeys(index for members in choice for index in members)) for choice in product(*parts)]
    if combined == [()]:  # GROUPING SETS (()) is what no GROUP BY is
        return Grouping([], None)
    return Grouping(reader.elements, combined)


def _in_text_order(group: exp.Group) -> list[exp.Expr]:
    """The elements of GROUP BY as written; sqlglot keeps some kinds apart from the others."""
    found = list(group.expressions)
    for clause in ("rollup", "cube", "grouping_sets"):
        found.extend(group.args.get(clause) or ())
    return sorted(found, key=_start)


def _start(tree: exp.Expr) -> int:
    """WITH ROLLUP names nothing, and stands last."""
    start = start_of(tree)
    return 1 << 30 if start is None else start


def _sets(kind: exp.Expr, units: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    def flat(chosen: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return tuple(index for unit in chosen for index in unit)

    if isinstance(kind, exp.Rollup):
        return [flat(tuple(units[:length])) for length in range(len(units), -1, -1)]
    if isinstance(kind, exp.Cube):
        sizes = range(len(units), -1, -1)
        return [flat(chosen) for size in sizes for chosen in combinations(units, size)]
    return units


class _Reader:
    """Collects the group expressions, each once, and names them by their number."""

    def __init__(self, block: Block, items: Items) -> None:
        self.block, self.items_ = block, items
        self.elements: list[Element] = []
        self.spelled: dict[tuple[str, ...], int] = {}

    def members(self, tree: exp.Expr) -> tuple[int, ...]:
        if isinstance(tree, exp.Tuple):
            return tuple(index for inner in tree.expressions for index in self.members(inner))
        if isinstance(tree, exp.Rollup | exp.Cube | exp.GroupingSets):
            self.block.context.refuse(Code.UNSUPPORTED_SYNTAX, "grouping sets inside grouping sets")
        while isinstance(tree, exp.Paren):
            tree = tree.this
        target = self.meant(tree)
        element = (target, any_span(target))
        spelling = tuple(token[0] for token in normal_tokens(self.block, *element))
        index = self.spelled.setdefault(spelling, len(self.elements))
        if index == len(self.elements):
            self.elements.append(element)
        return (index,)

    def meant(self, tree: exp.Expr) -> exp.Expr:
        """The expression an ordinal or an alias of the select list stands for."""
        if isinstance(tree, exp.Literal) and not tree.is_string:
            place = int(tree.name)
            items = self.items_
            if place > len(items) or any(t.find(exp.Star) for _, t in items[:place] if not t.find(exp.Count)):
                self.block.context.refuse(Code.UNSUPPORTED_SYNTAX, "an ordinal after a star")
            return items[place - 1][1]
        if isinstance(tree, exp.Column) and self.block.scope.resolve([p.name for p in tree.parts]) is None:
            for alias, target in self.items_:
                if alias and alias.lower() == tree.name.lower():
                    return target
        return tree

    def listed_before(self, node: exp.Expr) -> bool:
        """Whether GROUPING SETS follows a list without a comma: then it chooses among that list."""
        text_ = self.block.text
        if not self.elements or not node.expressions:
            return False
        index = text_.index_at(any_span(node.expressions[0])[0])
        while text_.tokens[index].text.upper() not in ("GROUPING SETS", "GROUPING"):
            index -= 1
        before = text_.tokens[index - 1]
        return before.token_type is not TokenType.COMMA and before.text.upper() not in ("BY", "GROUP BY")


def _unwrapped(tokens: tuple[str, ...]) -> tuple[str, ...]:
    while len(tokens) > 2 and tokens[0] == "(" and tokens[-1] == ")":
        depth = 0
        for number, token in enumerate(tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0 and number < len(tokens) - 1:
                return tokens
        tokens = tokens[1:-1]
    return tokens
