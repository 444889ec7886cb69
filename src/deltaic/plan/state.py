"""What an aggregate view stores so that a change can be added to it, and how it is added.

An aggregate call is made of *parts*, each an aggregate call itself whose value is stored: an average is a
sum and a count. A refresh folds the change of every part into the stored value, and computes what the
user sees from the parts. Some parts cannot always be folded (the minimum when it was deleted, a float
sum when anything was): the group is then computed *again* from the sources, and only that group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, text
from deltaic.algebra.nodes import Aggregate, Call, Item
from deltaic.algebra.types import is_exact_key
from deltaic.delta.moments import INTEGERS, Moment, additive, is_exact, is_wide, linear
from deltaic.plan.bags import COUNT, Bag
from deltaic.plan.support import call_of, with_rows, with_support

STATE_PREFIX = "__deltaic_s"

_ALWAYS_DISTINCT = (
    "min", "max", "bool_and", "every", "bool_or", "any", "some", "bit_and", "bit_or", "collect_set", "min_by", "max_by"
)  # fmt: skip


class Fold(Enum):
    """How a part takes in its change."""

    ADD = "add"
    """Insertions and deletions alike; exact."""
    ADD_FLOAT = "add floats"
    """Insertions only: taking away would leave the rounding of what is gone."""
    LEAST = "least"
    GREATEST = "greatest"
    AT_LEAST = "where least"
    AT_GREATEST = "where greatest"
    """What stands beside an extreme, which is a part of its own."""
    BITS_AND = "&"
    BITS_OR = "|"
    """Insertions only: a bit does not tell how many rows set it."""
    BITS_XOR = "^"
    """Insertions and deletions alike; exact."""
    MEAN = "mean"
    SPREAD = "spread"
    """Sums of squared distances from a mean, and of products of two: insertions only, merged with those there are."""
    BAG = "bag"
    """Not folded: computed over the stored multiplicities of its values."""


@dataclass(frozen=True)
class Part:
    """One stored value; `item` computes it from scratch over the aggregate's input."""

    item: Item
    fold: Fold
    moment: Moment | None = None
    values: tuple[Expr, ...] = ()
    where: Expr | None = None
    beside: tuple[str, ...] = ()
    """Other parts that it is folded with: its extreme; its count; its count and its means."""
    bag: Bag | None = None
    """Where its change comes from stored multiplicities: those, and the value that one adds or the call over them."""
    over: Expr | None = None

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def looked_at(self) -> frozenset[str]:
        """The columns of the input that decide its value."""
        return frozenset[str]().union(*(expr.columns for expr in (*self.values, self.where) if expr is not None))


@dataclass(frozen=True)
class KeptAggregate:
    """An aggregate whose groups are kept from changes: `top` computes all parts beside the query's calls."""

    top: Aggregate
    parts: tuple[Part, ...]
    rows: str
    """The part that is 0 exactly where a group has no row left."""
    finals: tuple[tuple[str, Expr], ...]
    """The query's calls out of the parts."""
    doubts: tuple[Expr, ...] = ()
    """When parts that are all known still do not tell a call: the group is computed again."""
    bags: tuple[Bag, ...] = ()


def kept(top: Aggregate) -> KeptAggregate | str:
    """How to keep the aggregate, or why it cannot be kept from changes."""
    return _Keeping(top).kept()


class _Keeping:
    def __init__(self, top: Aggregate) -> None:
        self.top, self.input = top, top.input
        self.parts: dict[str, Part] = {}
        self.own = {item.expr.sql: item.name for item in reversed(top.aggregates)}
        self.doubts: list[Expr] = []
        self.bags: list[Bag] = []
        self.number = 0

    def kept(self) -> KeptAggregate | str:
        finals: list[tuple[str, Expr]] = []
        for item in self.top.aggregates:
            final = self.final(item) if item.call is not None else None
            if final is None:
                return f"{item.expr} cannot be told from its old value and the change"
            finals.append((item.name, final))
        rows = self.rows()
        own = {item.name for item in self.top.aggregates}
        items = (*self.top.aggregates, *(p.item for p in self.parts.values() if p.name not in own))
        top = Aggregate(self.input, self.top.groups, items)
        return KeptAggregate(top, tuple(self.parts.values()), rows, tuple(finals), tuple(self.doubts), tuple(self.bags))

    def final(self, item: Item) -> Expr | None:
        """The call out of its parts, in the type that Spark gave it."""
        call = item.call
        assert call is not None
        if call.distinct and call.function not in _ALWAYS_DISTINCT:
            return self.of_distinct(item, call)
        match call.function:
            case "percentile" | "median" | "collect_set":
                return self.over_bag(item, call)
            case "count" | "count_if":
                if linear(call) is None:
                    return None
                return col(self.part(item.expr, "bigint", call, Fold.ADD, linear(call), item.name))
            case "sum" if (moment := additive(call)) is not None:
                total = self.part(item.expr, item.type, call, Fold.ADD, moment, item.name)
                if is_wide(call.types[0]):  # one that does not fit is NULL, unless that is an error
                    self.doubts.append(join_parts(col(self.known(call)), " > 0 AND ", col(total), " IS NULL"))
                return self.unless_none(call, col(total))
            case "sum" if call.types[0] in ("float", "double"):
                total = self.part(item.expr, item.type, call, Fold.ADD_FLOAT, None, item.name)
                return self.unless_none(call, col(total))
            case "avg" | "mean":
                return self.average(item, call)
            case "min" | "bool_and" | "every" if len(call.arguments) == 1:
                return col(self.part(item.expr, item.type, call, Fold.LEAST, None, item.name))
            case "max" | "bool_or" | "any" | "some" if len(call.arguments) == 1:
                return col(self.part(item.expr, item.type, call, Fold.GREATEST, None, item.name))
            case "bit_and":
                return col(self.part(item.expr, item.type, call, Fold.BITS_AND, None, item.name))
            case "bit_or":
                return col(self.part(item.expr, item.type, call, Fold.BITS_OR, None, item.name))
            case "bit_xor":
                bits = self.part(item.expr, item.type, call, Fold.BITS_XOR, None, item.name)
                return self.unless_none(call, col(bits))
            case "min_by" | "max_by" if len(call.arguments) == 2:
                return self.beside_extreme(item, call)
            case "var_pop" | "var_samp" | "variance" | "stddev_pop" | "stddev_samp" | "stddev" | "std":
                return self.variance(call)
            case "covar_pop" | "covar_samp" | "corr":
                return self.covariance(call)
        return None

    # Over stored multiplicities. Of a type whose equal values may differ it is not said which of them is stored.

    def bag(self, values: tuple[Expr, ...], types: tuple[str, ...], where: Expr | None) -> Bag | None:
        if not values or not all(is_exact_key(kind) and "<" not in kind for kind in types):
            return None
        known = next((bag for bag in self.bags if bag.values == values and bag.where == where), None)
        if known is None:
            known = Bag(len(self.bags) + 1, values, types, where)
            self.bags.append(known)
        return known

    def of_distinct(self, item: Item, call: Call) -> Expr | None:
        kind = call.types[0]
        summed = call.function in ("sum", "avg", "mean")
        if summed and not (is_exact(kind) if call.function == "sum" else kind in INTEGERS[:3]):
            return None  # an average of larger numbers is Spark's to round
        if not summed and call.function != "count":
            return None
        bag = self.bag(call.arguments, call.types, call.where)
        if bag is None:
            return None
        known = _distinct_call("count", call)
        count = col(self.bag_part(known, "bigint", Fold.ADD, bag, text("1L"), "" if summed else item.name))
        if not summed:
            return count
        value = col(bag.columns[0].name)
        wide = join_parts("CAST(", value, " AS BIGINT)") if kind in INTEGERS[:3] else value
        averaged = call.function != "sum"
        expr, stored = (_distinct_call("sum", call), "bigint") if averaged else (item.expr, item.type)
        total = col(self.bag_part(expr, stored, Fold.ADD, bag, wide, "" if averaged else item.name))
        answer = join_parts("CAST(", total, " AS DOUBLE) / ", count) if averaged else total
        return join_parts("CASE WHEN ", count, " > 0 THEN ", answer, " END")

    def over_bag(self, item: Item, call: Call) -> Expr | None:
        share = call.arguments[1] if len(call.arguments) == 2 else text("0.5D")
        listed = call.function == "collect_set"
        is_number = is_exact(call.types[0]) or call.types[0].startswith("decimal")
        wanted = 2 if call.function == "percentile" else 1
        if len(call.arguments) != wanted or share.columns or not (listed or is_number):
            return None
        bag = self.bag(call.arguments[:1], call.types[:1], call.where)
        if bag is None:
            return None
        value = col(bag.columns[0].name)
        weighed = join_parts("percentile(", value, ", ", share, ", ", col(COUNT), ")")
        over = join_parts("collect_set(", value, ")") if listed else weighed
        found = col(self.bag_part(item.expr, item.type, Fold.BAG, bag, over, item.name))
        return join_parts("coalesce(", found, f", CAST(array() AS {item.type}))") if listed else found

    def bag_part(self, expr: Expr, kind: str, fold: Fold, bag: Bag, over: Expr, name: str) -> str:
        if expr.sql not in self.parts:
            item = Item(self.own.get(expr.sql, name) or self.fresh("part"), expr, kind)
            self.parts[expr.sql] = Part(item, fold, bag=bag, over=over)
        return self.parts[expr.sql].name

    def beside_extreme(self, item: Item, call: Call) -> Expr:
        least = call.function == "min_by"
        by, kind = call.arguments[1], call.types[1]
        extreme = Call("min" if least else "max", (by,), (kind,), call.where)
        fold = Fold.LEAST if least else Fold.GREATEST
        found = self.part(call_of(extreme.function, by, call.where), kind, extreme, fold, None)
        at = Fold.AT_LEAST if least else Fold.AT_GREATEST
        return col(self.part(item.expr, item.type, call, at, None, item.name, (found,)))

    # Of values x: their number, their mean, and the sum of (x - mean)². Numbers of different kinds are all DOUBLE here.

    def variance(self, call: Call) -> Expr:
        count = self.known(call)
        mean = self.mean(call, count)
        squares = self.spread((call.arguments[0],), call, (count, mean))
        freedom = "" if call.function.endswith("_pop") else " - 1"
        quotient = join_parts(col(squares), " / (", col(count), freedom, ")")
        root = join_parts("sqrt(", quotient, ")") if call.function.startswith("std") else quotient
        return join_parts("CASE WHEN ", col(count), f"{freedom} > 0 THEN ", root, " END")

    def covariance(self, call: Call) -> Expr:
        """Only rows in which both are known count."""
        known = [join_parts("(", argument, ") IS NOT NULL") for argument in call.arguments]
        both = conjunction(*known, *([call.where] if call.where else []))
        one, other = (Call("avg", (a,), (t,), both) for a, t in zip(call.arguments, call.types, strict=True))
        count = self.known(one)
        means = (self.mean(one, count), self.mean(other, count))
        products = col(self.spread(call.arguments, replace(call, where=both), (count, *means)))
        if call.function != "corr":
            freedom = "" if call.function == "covar_pop" else " - 1"
            quotient = join_parts(products, " / (", col(count), freedom, ")")
            return join_parts("CASE WHEN ", col(count), f"{freedom} > 0 THEN ", quotient, " END")
        squares = [
            col(self.spread(own.arguments, own, (count, mean))) for own, mean in zip((one, other), means, strict=True)
        ]
        area = join_parts(squares[0], " * ", squares[1])
        # where one side does not vary, it is for Spark to say NULL or to refuse the division
        self.doubts.append(join_parts(col(count), " > 1 AND ", area, " = 0"))
        defined = join_parts(col(count), " > 1 AND ", area, " <> 0")
        return join_parts("CASE WHEN ", defined, " THEN ", products, " / sqrt(", area, ") END")

    def mean(self, call: Call, count: str) -> str:
        """The mean of equal values is that value, to the last digit; their average may not be."""
        value = _wide(call.arguments[0])
        pieces = [call_of(f, value, call.where) for f in ("var_pop", "min", "avg")]
        expr = join_parts("CASE WHEN ", pieces[0], " = 0 THEN ", pieces[1], " ELSE ", pieces[2], " END")
        return self.part(expr, "double", replace(call, arguments=call.arguments[:1]), Fold.MEAN, None, None, (count,))

    def spread(self, values: tuple[Expr, ...], call: Call, beside: tuple[str, ...]) -> str:
        own = replace(call, arguments=values)
        expr = join_parts(spread_of(values, call.where), " * ", call_of("count", values[0], call.where))
        return self.part(expr, "double", own, Fold.SPREAD, None, None, beside)

    def average(self, item: Item, call: Call) -> Expr | None:
        kind, argument = call.types[0], call.arguments[0]
        if kind in ("float", "double", "bigint"):  # Spark adds integers up as DOUBLE: large ones round
            wide = join_parts("CAST(", argument, " AS DOUBLE)")
            total = self.part(call_of("sum", wide, call.where), "double", call, Fold.ADD_FLOAT, None)
            return self.unless_none(call, join_parts(col(total), " / ", col(self.known(call))))
        if kind in INTEGERS:
            moment = Moment(argument, kind, call.where)
            total = self.part(call_of("sum", argument, call.where), "bigint", call, Fold.ADD, moment)
            return self.unless_none(call, join_parts("CAST(", col(total), " AS DOUBLE) / ", col(self.known(call))))
        precision = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
        if precision is None or int(precision[1]) > 15:  # the division would round before Spark's own does
            return None
        stored = f"decimal({int(precision[1]) + 10},{precision[2]})"
        total = self.part(
            call_of("sum", argument, call.where), stored, call, Fold.ADD, Moment(argument, kind, call.where)
        )
        quotient = join_parts(col(total), " / CAST(", col(self.known(call)), " AS DECIMAL(20,0))")
        return self.unless_none(call, join_parts("CAST(", quotient, f" AS {item.type})"))

    def unless_none(self, call: Call, value: Expr) -> Expr:
        """A sum or an average of no values is NULL."""
        return join_parts("CASE WHEN ", col(self.known(call)), " > 0 THEN ", value, " END")

    def known(self, call: Call) -> str:
        """The part that counts the values that are not NULL, or is 0 exactly where that count is."""
        argument = call.arguments[0]
        exact = call.function == "sum" and is_exact(call.types[0])
        below = with_support(self.input, argument.column, self.fresh) if exact and argument.column else None
        if below is not None:
            self.input, support = below
            return self.sum_of(support, call.where)
        count = Call("count", (argument,), ("",), call.where)
        return self.part(call_of("count", argument, call.where), "bigint", call, Fold.ADD, linear(count))

    def rows(self) -> str:
        below = with_rows(self.input, self.fresh) if self.top.groups else None
        if below is not None:
            self.input, support = below
            return self.sum_of(support)
        count = Call("count", (text("*"),), ("",))
        return self.part(text("count(*)"), "bigint", count, Fold.ADD, linear(count))

    def sum_of(self, column: str, where: Expr | None = None) -> str:
        call = Call("sum", (col(column),), ("bigint",), where)
        return self.part(call_of("sum", col(column), where), "bigint", call, Fold.ADD, linear(call))

    def part(
        self, expr: Expr, kind: str, call: Call, fold: Fold, moment: Moment | None,
        name: str | None = None, beside: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        """The part's name; equal parts are stored once."""
        key = expr.sql
        if key not in self.parts:
            item = Item(self.own.get(key, name) or self.fresh("part"), expr, kind)
            self.parts[key] = Part(item, fold, moment, call.arguments, call.where, beside)
        return self.parts[key].name

    def fresh(self, name: str) -> str:
        self.number += 1
        return f"{STATE_PREFIX}_{name}_{self.number}"


def spread_of(values: tuple[Expr, ...], where: Expr | None = None) -> Expr:
    """The mean product of distances from the mean: the variance, or the covariance of two."""
    if len(values) == 1:
        return call_of("var_pop", _wide(values[0]), where)
    return call_of("covar_pop", join_parts(_wide(values[0]), ", ", _wide(values[1])), where)


def _wide(value: Expr) -> Expr:
    return join_parts("CAST(", value, " AS DOUBLE)")


def _distinct_call(function: str, call: Call) -> Expr:
    listed: list[str | Expr] = []
    for argument in call.arguments:
        listed.extend((", ", argument) if listed else (argument,))
    return call_of(function, join_parts("DISTINCT ", *listed), call.where)
