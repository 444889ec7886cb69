"""How a stored part takes in its change: old value and change to new value, and when the two do not tell it."""

from __future__ import annotations

from collections.abc import Mapping

from deltaic.algebra.expr import Expr, col, conjunction, join_parts
from deltaic.algebra.nodes import WEIGHT, Field, Generate, Item, Node, Project
from deltaic.algebra.trees import keep, pass_through
from deltaic.algebra.types import is_exact_key
from deltaic.delta.moments import Wanted, total_of
from deltaic.plan.state import Fold, Part, spread_of

INSERTED, DELETED, COUNTED = "_in", "_out", "_number"

COPY = Field("__deltaic_copy", "bigint", False)

_FUNCTIONS = {
    Fold.ADD_FLOAT: "sum",
    Fold.LEAST: "min",
    Fold.GREATEST: "max",
    Fold.AT_LEAST: "min_by",
    Fold.AT_GREATEST: "max_by",
    Fold.BITS_AND: "bit_and",
    Fold.BITS_OR: "bit_or",
}


def change_items(part: Part) -> tuple[Item, ...]:
    """The columns of a change table that tell a part's change, over netted rows with their counts."""
    kind = part.item.type
    came = tuple(_one_side(part, value, " > 0") for value in part.values)
    gone = tuple(_one_side(part, value, " < 0") for value in part.values)

    def inserted(expr: Expr) -> Item:
        return Item(part.name + INSERTED, expr, kind)

    def deleted(expr: Expr, kind: str = "bigint") -> Item:
        return Item(part.name + DELETED, expr, kind)

    match part.fold:
        case Fold.ADD:
            return (Item(part.name, total_of(part.name, part.moment.type if part.moment else kind), kind),)
        case Fold.BITS_XOR:
            odd = _one_side(part, part.values[0], " % 2 <> 0")
            return (inserted(join_parts("bit_xor(", odd, ")")),)
        case Fold.ADD_FLOAT:
            total = _one_side(part, join_parts("CAST(", part.values[0], " AS DOUBLE) * ", col(WEIGHT)), " > 0")
            return inserted(join_parts("sum(", total, ")")), deleted(_count(gone))
        case Fold.LEAST | Fold.GREATEST:
            function = _FUNCTIONS[part.fold]
            return inserted(_of(function, came)), deleted(_of(function, gone), kind)
        case Fold.AT_LEAST | Fold.AT_GREATEST:
            return (inserted(_of(_FUNCTIONS[part.fold], came)),)
        case Fold.MEAN:
            number = Item(part.name + COUNTED, _count(came), "bigint")
            mean = join_parts(
                "CASE WHEN ", spread_of(came), " = 0 THEN ", _of("min", came), " ELSE ", _of("avg", came), " END"
            )
            return inserted(join_parts("CAST(", mean, " AS DOUBLE)")), number, deleted(_count(gone))
        case Fold.SPREAD:
            return (inserted(join_parts(spread_of(came), " * ", _count(came))),)
    return inserted(_of(_FUNCTIONS[part.fold], came)), deleted(_count(gone))


def _one_side(part: Part, value: Expr, condition: str) -> Expr:
    terms = [join_parts(col(WEIGHT), condition), *([part.where] if part.where else [])]
    return join_parts("CASE WHEN ", conjunction(*terms) or terms[0], " THEN ", value, " END")


def _of(function: str, values: tuple[Expr, ...]) -> Expr:
    pieces: list[str | Expr] = []
    for value in values:
        pieces.extend((", ", value) if pieces else (value,))
    return join_parts(f"{function}(", *pieces, ")")


def _count(values: tuple[Expr, ...]) -> Expr:
    return _of("count", values[:1])


def counts_copies(parts: tuple[Part, ...]) -> bool:
    """Whether a part looks at each of several equal rows: a mean does, an extreme does not."""
    return any(part.fold in (Fold.MEAN, Fold.SPREAD) for part in parts)


def one_by_one(netted: Node, adding: Wanted) -> Node:
    """Netted rows as often as they count, with their sign; what adds up stays with the first of them."""
    copies = join_parts("explode(sequence(1L, greatest(CAST(abs(", col(WEIGHT), ") AS BIGINT), 1L)))")
    rows = Generate(netted, copies, False, (COPY,))
    items = []
    for item in keep(netted):
        if item.name == WEIGHT:
            items.append(Item(WEIGHT, join_parts("CAST(sign(", col(WEIGHT), ") AS BIGINT)"), "bigint", False))
        elif item.name in adding:
            first = join_parts("CASE WHEN ", col(COPY.name), " = 1 THEN ", item.expr, " END")
            items.append(Item(item.name, first, item.type))
        else:
            items.append(pass_through(item.field))
    return Project(rows, tuple(items))


def folded(part: Part, stored: Mapping[str, Expr]) -> Expr:
    """The part's new value out of the stored ones and its change."""
    old, came = stored[part.name], col(part.name + INSERTED)
    match part.fold:
        case Fold.ADD:
            kind = part.item.type
            zero, change = f"CAST(0 AS {kind})", join_parts("CAST(", col(part.name), f" AS {kind})")
            value = join_parts("coalesce(", old, f", {zero}) + coalesce(", change, f", {zero})")
            return join_parts("CAST(", value, f" AS {kind})")
        case Fold.ADD_FLOAT:
            return join_parts(
                "CASE WHEN ", old, " IS NULL THEN ", came, " ELSE ", old, " + coalesce(", came, ", 0) END"
            )
        case Fold.LEAST:
            return join_parts("least(", old, ", ", came, ")")
        case Fold.GREATEST:
            return join_parts("greatest(", old, ", ", came, ")")
        case Fold.AT_LEAST | Fold.AT_GREATEST:
            extreme, new = stored[part.beside[0]], col(part.beside[0] + INSERTED)
            better = " < " if part.fold is Fold.AT_LEAST else " > "
            return join_parts(
                "CASE WHEN ", extreme, " IS NULL OR ", new, better, extreme, " THEN ", came, " ELSE ", old, " END"
            )
        case Fold.BAG:
            return col(part.name)
        case Fold.MEAN | Fold.SPREAD:
            return _merged(part, stored)
        case Fold.BITS_XOR:
            kind = part.item.type
            value = join_parts("coalesce(", old, f", CAST(0 AS {kind})) ^ coalesce(", came, f", CAST(0 AS {kind}))")
            return join_parts("CAST(", value, f" AS {kind})")
    sign = part.fold.value
    both = join_parts("CASE WHEN ", came, " IS NULL THEN ", old, " ELSE ", old, f" {sign} ", came, " END")
    return join_parts("CAST(CASE WHEN ", old, " IS NULL THEN ", came, " ELSE ", both, f" END AS {part.item.type})")


def _merged(part: Part, stored: Mapping[str, Expr]) -> Expr:
    """Two sets of values into one, from the number, mean and spread of each (Chan, Golub and LeVeque)."""
    old, came = stored[part.name], col(part.name + INSERTED)
    count, *means = part.beside
    means = means or [part.name]
    here, more = stored[count], col(means[0] + COUNTED)
    total = join_parts("(CAST(", here, " AS DOUBLE) + ", more, ")")
    apart = [join_parts("(", col(mean + INSERTED), " - ", stored[mean], ")") for mean in means]
    if part.fold is Fold.MEAN:
        value = join_parts(old, " + ", apart[0], " * ", more, " / ", total)
    else:
        weight = join_parts("CAST(", here, " AS DOUBLE) * ", more, " / ", total)
        value = join_parts(old, " + ", came, " + ", apart[0], " * ", apart[-1], " * (", weight, ")")
    none = join_parts("coalesce(", more, ", 0) = 0 THEN ", old)
    first = join_parts("coalesce(", here, ", 0) = 0 THEN ", came)
    return join_parts("CASE WHEN ", none, " WHEN ", first, " ELSE ", value, " END")


def doubtful(part: Part, stored: Mapping[str, Expr], rows: Expr) -> Expr | None:
    """When the group must be computed again; None if never."""
    old = stored[part.name]
    came, gone = col(part.name + INSERTED), col(part.name + DELETED)
    match part.fold:
        case Fold.ADD if part.item.type.startswith("decimal"):
            # a sum that did not fit was stored as NULL, unless the session's settings made it an error
            return join_parts(old, " IS NULL AND ", rows, " > 0")
        case Fold.ADD | Fold.BITS_XOR | Fold.SPREAD | Fold.BAG:
            return None
        case Fold.LEAST:
            better, matters = _settles(came, " < ", gone, part.item.type), join_parts(gone, " <= ", old)
        case Fold.GREATEST:
            better, matters = _settles(came, " > ", gone, part.item.type), join_parts(gone, " >= ", old)
        case Fold.AT_LEAST | Fold.AT_GREATEST:
            # among equal ones it is not known whose neighbour is stored: only a better one settles it
            extreme = part.beside[0]
            came, gone, old = col(extreme + INSERTED), col(extreme + DELETED), stored[extreme]
            sign = " < " if part.fold is Fold.AT_LEAST else " > "
            better, matters = join_parts(came, sign, gone), join_parts("NOT ", gone, _opposite(sign), old)
        case _:
            return join_parts(gone, " > 0")
    return join_parts(gone, " IS NOT NULL AND (", matters, ") IS NOT FALSE AND (", better, ") IS NOT TRUE")


def _settles(came: Expr, sign: str, gone: Expr, kind: str) -> Expr:
    """Whether what came is the extreme, whatever else there is: better than what is gone, or the very same."""
    if is_exact_key(kind):
        return join_parts(came, sign.rstrip(), "= ", gone)
    if kind in ("double", "float"):
        return join_parts(came, sign, gone, " OR (", came, " = ", gone, " AND ", came, " <> 0)")
    return join_parts(came, sign, gone)


def _opposite(sign: str) -> str:
    return " > " if sign == " < " else " < "
