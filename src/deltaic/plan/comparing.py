"""How the columns of a view are compared with its query, computed again.

Most values come out the same every time. A float sum differs in its last digits, a list in its order, and where rows
tie row_number is any of several right numbers: a comparison that knew nothing of this would cry wolf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from deltaic.algebra.expr import Col, Expr, col, join_parts, text
from deltaic.algebra.nodes import Aggregate, Filter, Item, Node, Project, UnionAll, Window
from deltaic.algebra.quoting import quote
from deltaic.algebra.stability import is_unstable, own_unstable_decisions, unstable_columns
from deltaic.algebra.trees import keep, null_item, walk, with_inputs
from deltaic.plan.carrying import carried_up, origin
from deltaic.plan.maintain import Maintenance
from deltaic.plan.state import Fold, Part
from deltaic.plan.support import call_of
from deltaic.sql.parse import Text
from deltaic.sql.rounding import is_continuous, only_rounds, step_of

_LISTS = ("collect_list", "collect_set", "array_agg")
_ROUNDED_PARTS = (Fold.ADD_FLOAT, Fold.MEAN, Fold.SPREAD)
_SIZE = "__deltaic_size_"


class How(Enum):
    EXACT = "exactly"
    SORTED = "without regard to order"
    ROUNDED = "but for rounding"
    CHOSEN = "not: the query allows several values"


@dataclass(frozen=True)
class Compared:
    """A column of a tree, and how it is compared."""

    column: str
    how: How = How.EXACT
    step: float = 0.0
    """By how much more than by rounding it may differ: it is rounded itself."""
    sizes: tuple[str, ...] = ()
    """Columns of the tree that say how large the numbers are that were added up."""
    zero: bool = False
    """Whether NULL is 0: a sum of no values that is stored for the next change."""


@dataclass(frozen=True)
class Terms:
    """A tree that computes what a view should hold, if there is one, and how that is compared with what it holds."""

    root: Node | None
    columns: tuple[Compared, ...]
    decided_by: tuple[str, ...]
    """Unstable values by which it is decided which rows there are: rows that differ may still be right."""

    @property
    def exact(self) -> bool:
        return not self.decided_by and all(column.how is How.EXACT for column in self.columns)


def terms_of(root: Node, states: Mapping[str, Part] | None = None, parts: Sequence[Part] = ()) -> Terms:
    """`states` are the columns that hold parts of aggregates."""
    unstable = unstable_columns(root)
    chosen = unstable_columns(root, _is_chosen)
    columns = []
    for name in root.columns:
        part = (states or {}).get(name)
        if part is not None and part.fold in _ROUNDED_PARTS:
            columns.append(Compared(name, How.ROUNDED))
        elif name in chosen:
            columns.append(_chosen(root, name))
        elif name in unstable:
            columns.append(Compared(name, How.ROUNDED))
        else:
            columns.append(Compared(name, zero=part is not None and part.fold in (Fold.ADD, Fold.BITS_XOR)))
    sized, sizes = _with_sizes(root, [c.column for c in columns if c.how is How.ROUNDED], parts)
    told = tuple(replace(c, sizes=sizes.get(c.column, ())) for c in columns)
    return Terms(sized, told, tuple(dict.fromkeys(str(expr) for expr in _decisions(root))))


def stored_terms(way: Maintenance, root: Node) -> Terms:
    """Of everything that a view's table holds; `root` is that of its own rows."""
    kept = way.kept
    by_name = {part.name: part for part in kept.parts} if kept else {}
    hidden = set(way.hidden)
    states = {column: by_name[part] for part, column in way.stored if column in hidden}
    terms = terms_of(root, states, kept.parts if kept else ())
    if way.whole is way.root:
        return terms
    assert isinstance(way.whole, UnionAll)
    assert terms.root is not None
    more = [f for f in terms.root.schema if f.name not in way.root.fields]
    nothing = tuple(map(null_item, more))
    others = [Project(branch, (*keep(branch), *nothing)) for branch in way.whole.branches[1:]]
    nullable = tuple(replace(f, nullable=True) for f in terms.root.schema)
    return replace(terms, root=UnionAll((terms.root, *others), nullable))


def _is_chosen(expr: Expr, below: frozenset[str], inputs: tuple[Node, ...]) -> bool:
    """Whether it is one of several right values, and no more is known of them."""
    if expr.columns & below:
        return True
    if expr.unstable:
        return not only_rounds(expr)
    inexact = frozenset[str]().union(*map(unstable_columns, inputs))
    return bool(expr.columns & inexact) and not is_continuous(expr, inexact)


def _chosen(root: Node, name: str) -> Compared:
    """A column that is chosen, unless it is a list whose order is all that may differ, or a number that was rounded."""
    node, own = origin(root, name)
    if isinstance(node, Aggregate):
        call = next((item.call for item in node.aggregates if item.name == own), None)
        if call is not None and call.function in _LISTS:
            below = unstable_columns(node.input)
            if not any(is_unstable(argument, below) for argument in call.arguments):
                return Compared(name, How.SORTED)
    if isinstance(node, Project) and own is not None:
        below = unstable_columns(node.input)
        expr = node.by_name[own]
        clear = not expr.unstable and not expr.columns & unstable_columns(node.input, _is_chosen)
        step = step_of(expr, below) if clear else None
        if step is not None:
            return Compared(name, How.ROUNDED, step)
    return Compared(name, How.CHOSEN)


def _decisions(root: Node) -> Iterator[Expr]:
    """Every expression by which, on an unstable value, it is decided which rows there are."""
    for node in walk(root):
        yield from (expr for _, expr in own_unstable_decisions(node))
        if isinstance(node, Aggregate | Window):
            below = unstable_columns(node.input)
            keys = [item.expr for item in node.groups] if isinstance(node, Aggregate) else node.partition
            yield from (expr for expr in keys if is_unstable(expr, below))


# A sum of large numbers that nearly cancel out is as uncertain as they are large: how large, the tree is made to say.


def _with_sizes(root: Node, names: Sequence[str], parts: Sequence[Part]) -> tuple[Node, dict[str, tuple[str, ...]]]:
    by_part = {part.name: part for part in parts}
    wanted: dict[int, tuple[Aggregate, dict[str, Item]]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        own: list[str] = []
        for node, item in _summands(root, name):
            size = _size(item, by_part.get(item.name))
            if size is None:
                own = []
                break
            items = wanted.setdefault(id(node), (node, {}))[1]
            number = sum(len(each) for _, each in wanted.values())
            items.setdefault(item.name, Item(f"{_SIZE}{number}", size, "double"))
            own.append(items[item.name].name)
        found[name] = tuple(own)
    lost: set[str] = set()
    for node, items in wanted.values():
        more = tuple(items.values())
        carried = carried_up(root, node, replace(node, aggregates=node.aggregates + more), more)
        lost.update(item.name for item in more if carried is None)
        root = carried or root
    return root, {name: () if lost & set(own) else own for name, own in found.items()}


def _summands(root: Node, name: str) -> Iterator[tuple[Aggregate, Item]]:
    """The aggregates that a column is the sum or the difference of."""
    node, own = origin(root, name)
    if isinstance(node, Aggregate):
        yield from ((node, item) for item in node.aggregates if item.name == own)
    elif isinstance(node, Project) and own is not None:
        expr = node.by_name[own]
        if all(isinstance(part, Col) or re.fullmatch(r"[\s()+-]*", part) for part in expr.parts):
            inexact = unstable_columns(node.input)
            for column in sorted(expr.columns & inexact):
                yield from _summands(node.input, column)


def _size(item: Item, part: Part | None) -> Expr | None:
    """About how large the numbers are that a value is made of; for those that are not added up, what they may be off
    by, in the same measure."""
    if item.call is not None:
        function, values, where = item.call.function, item.call.arguments, item.call.where
    elif part is not None and part.fold in _ROUNDED_PARTS:
        function = {Fold.ADD_FLOAT: "sum", Fold.MEAN: "avg", Fold.SPREAD: "spread"}[part.fold]
        values, where = part.values, part.where
    else:
        return None

    def of(aggregate: str, *factors: Expr) -> Expr:
        product: list[str | Expr] = []
        for factor in factors:
            product.extend([" * " if product else "", "CAST(", factor, " AS DOUBLE)"])
        return call_of(aggregate, join_parts("abs(", *product, ")"), where)

    squares = [of("sum" if function == "spread" else "avg", value, value) for value in values]
    match function:
        case "sum" | "try_sum" | "avg" | "mean" | "try_avg":
            return of("sum" if function.endswith("sum") else "avg", values[0])
        case "var_pop" | "var_samp" | "variance":
            return squares[0]
        case "std" | "stddev" | "stddev_pop" | "stddev_samp":
            return join_parts("1e6D * sqrt(", squares[0], ")")
        case "covar_pop" | "covar_samp" | "spread":
            return join_parts("sqrt(", squares[0], " * ", squares[-1], ")")
        case "corr" | "skewness" | "kurtosis":
            return text("max(1e6D)")
    return None


# Whether rows tie at all: if none do, an order settles everything that a window computes by it.


def ties(root: Node) -> list[Node]:
    """For each order that unstable window calls go by: the rows that tie in it."""
    found: list[Node] = []
    for node in walk(root):
        for item in node.items if isinstance(node, Window) else ():
            over = _order_of(item.expr) if item.expr.unstable else None
            if over is not None and isinstance(node, Window):
                numbers = [join_parts(f"{name}() ", over) for name in ("row_number", "rank")]
                items = tuple(Item(f"__deltaic_tie_{n}", expr, "int", False) for n, expr in enumerate(numbers))
                ranked = Window(node.input, items, node.partition)
                found.append(Filter(ranked, join_parts(col(items[0].name), " <> ", col(items[1].name))))
    return found


def settled(root: Node) -> Node:
    """The tree where no rows tie."""
    below = with_inputs(root, settled)
    if not isinstance(below, Window):
        return below
    items = (
        replace(item, expr=Expr(item.expr.parts)) if item.expr.unstable and _order_of(item.expr) else item
        for item in below.items
    )
    return replace(below, items=tuple(items))


def _order_of(expr: Expr) -> Expr | None:
    """`OVER (...)` of a window call that has no frame of its own."""
    sql = expr.sql
    text = Text.of(sql)
    call = next(text.calls((0, len(sql))), None)
    if call is None or call.over is None or only_rounds(expr):
        return None
    words = " ".join(token.text.upper() for token in text.within(call.over)).split()
    if "ORDER" not in words or "ROWS" in words or "RANGE" in words:
        return None
    start = max(token.start for token in text.tokens if token.start < call.over[0] and token.text.upper() == "OVER")
    return _from_place(expr, start)


def _from_place(expr: Expr, start: int) -> Expr:
    """What stands in an expression from some place of its SQL on."""
    here, parts = 0, list[str | Col]()
    for part in expr.parts:
        length = len(part) if isinstance(part, str) else len(quote(part.name))
        if isinstance(part, str) and here <= start < here + length:
            parts.append(part[start - here :])
        elif here > start:
            parts.append(part)
        here += length
    return Expr(tuple(parts))
