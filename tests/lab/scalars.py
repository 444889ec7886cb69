"""Random scalar expressions and predicates that mean the same in Spark and in DuckDB.

Left out on purpose, because the engines differ: integer and decimal division, remainders of negative numbers, casts
of fractions to integers (but for FLOOR) and of doubles to strings, positions below 1 in SUBSTRING, string and number
coercions, anything that can overflow.
"""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal

from tests.lab.case import Grade, Type, Value, literal
from tests.lab.choice import Choice
from tests.lab.context import Context, Expr, Ref, keyable, of_type

STRINGS = ("a", "b", "ab", "", "A", "c d", "o'b", "é")
FIRST_DAY = date(2023, 12, 30)


def random_value(choice: Choice, type_: Type, *, tenths: bool = False) -> Value:
    """A value of a small domain, so that keys collide; never NULL."""
    if type_ is Type.INT:
        return choice.integer(-2, 4)
    if type_ is Type.BIGINT:
        return 10_000_000_000 if choice.chance(5) else choice.integer(-1, 5)
    if type_ is Type.STRING:
        return choice.pick(STRINGS)
    if type_ is Type.DECIMAL:
        return Decimal(choice.integer(-4, 8) * 35) / 100
    if type_ is Type.DATE:
        return FIRST_DAY + timedelta(days=choice.integer(0, 4) * choice.pick((1, 1, 15)))
    if type_ is Type.BOOLEAN:
        return choice.chance(50)
    if tenths:
        return float("nan") if choice.chance(2) else choice.integer(-5, 20) / 10
    return choice.integer(-4, 12) / 4


def random_literal(choice: Choice, type_: Type) -> str:
    return literal(random_value(choice, type_), type_)


def scalar(ctx: Context, scope: Sequence[Ref], type_: Type, depth: int, worst: Grade = Grade.ROUNDED) -> Expr:
    """An expression of the type over the scope's columns, none of a worse grade than asked."""
    columns = of_type(scope, type_, worst)
    leaf = depth <= 0 or ctx.choice.chance(40)
    if leaf and columns:
        ref = ctx.choice.pick(columns)
        return Expr(ref.sql, type_, ref.grade)
    if leaf or not scope:
        return Expr(random_literal(ctx.choice, type_), type_)
    if ctx.choice.chance(30):
        return _generic(ctx, scope, type_, depth, worst)
    return _WRITERS[type_](ctx, scope, depth, worst)


def _generic(ctx: Context, scope: Sequence[Ref], type_: Type, depth: int, worst: Grade) -> Expr:
    """The forms that exist for every type."""
    one = scalar(ctx, scope, type_, depth - 1, worst)
    two = scalar(ctx, scope, type_, depth - 1, worst)
    grade = max(one.grade, two.grade)
    form = ctx.choice.weighted(
        [(4, "coalesce"), (4, "case"), (2, "nullif"), (2, "if"), (1, "greatest"), (1, "switch")]
    )
    ctx.note(f"scalar.{form}")
    if form == "coalesce":
        return Expr(f"COALESCE({one.sql}, {two.sql})", type_, grade)
    if form == "greatest":
        name = ctx.choice.pick(("GREATEST", "LEAST"))
        if type_ is not Type.BOOLEAN and grade <= Grade.STABLE:
            return Expr(f"{name}({one.sql}, {two.sql})", type_, grade)
    if form == "nullif" and grade <= Grade.STABLE:
        return Expr(f"NULLIF({one.sql}, {two.sql})", type_, grade)
    if form == "switch":
        on = scalar(ctx, scope, Type.INT, 0)
        branches = f"WHEN 1 THEN {one.sql} WHEN 2 THEN {two.sql}"
        return Expr(f"CASE {on.sql} {branches} ELSE {one.sql} END", type_, grade)
    condition = predicate(ctx, scope, depth - 1)
    if form == "if":
        return Expr(f"IF({condition}, {one.sql}, {two.sql})", type_, grade)
    return Expr(f"CASE WHEN {condition} THEN {one.sql} ELSE {two.sql} END", type_, grade)


def _int(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    def arg(type_: Type, grade: Grade = Grade.STABLE) -> str:
        return scalar(ctx, scope, type_, depth - 1, grade).sql

    number = ctx.choice.integer(1, 3)
    forms: list[tuple[int, Callable[[], str]]] = [
        (3, lambda: f"({arg(Type.INT)} + {number})"),
        (2, lambda: f"({arg(Type.INT)} - {arg(Type.INT)})"),
        (2, lambda: f"({arg(Type.INT)} * {number})"),
        (2, lambda: f"ABS({arg(Type.INT)})"),
        (2, lambda: f"(ABS({arg(Type.INT)}) % {number + 1})"),
        (1, lambda: f"PMOD({arg(Type.INT)}, {number + 1})"),
        (2, lambda: f"LENGTH({arg(Type.STRING)})"),
        (1, lambda: f"INSTR({arg(Type.STRING)}, 'b')"),
        (3, lambda: f"{ctx.choice.pick(('YEAR', 'MONTH', 'DAY', 'QUARTER', 'DAYOFWEEK'))}({arg(Type.DATE)})"),
        (1, lambda: f"DATEDIFF({arg(Type.DATE)}, {arg(Type.DATE)})"),
        (1, lambda: f"CAST({arg(Type.BOOLEAN)} AS INT)"),
        (1, lambda: f"CAST(FLOOR({arg(Type.DOUBLE, Grade.EXACT)}) AS INT)"),
        (1, lambda: f"(-{arg(Type.INT)})"),
    ]
    return Expr(ctx.choice.weighted(forms)(), Type.INT)


def _bigint(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    def arg(type_: Type) -> str:
        return scalar(ctx, scope, type_, depth - 1).sql

    forms: list[tuple[int, Callable[[], str]]] = [
        (3, lambda: f"({arg(Type.BIGINT)} + {arg(Type.INT)})"),
        (2, lambda: f"CAST({arg(Type.INT)} AS BIGINT)"),
        (2, lambda: f"({arg(Type.BIGINT)} * 2)"),
        (1, lambda: f"ABS({arg(Type.BIGINT)})"),
        (1, lambda: f"COALESCE({arg(Type.BIGINT)}, {arg(Type.INT)})"),
    ]
    return Expr(ctx.choice.weighted(forms)(), Type.BIGINT)


def _string(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    def arg(type_: Type) -> str:
        return scalar(ctx, scope, type_, depth - 1).sql

    number = ctx.choice.integer(1, 3)
    forms: list[tuple[int, Callable[[], str]]] = [
        (3, lambda: f"UPPER({arg(Type.STRING)})"),
        (1, lambda: f"LOWER({arg(Type.STRING)})"),
        (2, lambda: f"CONCAT({arg(Type.STRING)}, {arg(Type.STRING)})"),
        (2, lambda: f"({arg(Type.STRING)} || '-')"),
        (1, lambda: f"CONCAT_WS('-', {arg(Type.STRING)}, {arg(Type.STRING)})"),
        (2, lambda: f"SUBSTRING({arg(Type.STRING)}, {number}, 2)"),
        (1, lambda: f"{ctx.choice.pick(('LEFT', 'RIGHT'))}({arg(Type.STRING)}, {number})"),
        (1, lambda: f"TRIM({arg(Type.STRING)})"),
        (1, lambda: f"REPLACE({arg(Type.STRING)}, 'a', 'b')"),
        (1, lambda: f"REVERSE({arg(Type.STRING)})"),
        (1, lambda: f"LPAD({arg(Type.STRING)}, 3, '*')"),
        (1, lambda: f"REPEAT({arg(Type.STRING)}, 2)"),
        (
            2,
            lambda: (
                f"CAST({arg(ctx.choice.pick((Type.INT, Type.BIGINT, Type.DATE, Type.BOOLEAN)))} AS STRING)"
            ),
        ),
    ]
    return Expr(ctx.choice.weighted(forms)(), Type.STRING)


def _decimal(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    def arg(type_: Type) -> str:
        return scalar(ctx, scope, type_, depth - 1).sql

    forms: list[tuple[int, Callable[[], str]]] = [
        (3, lambda: f"({arg(Type.DECIMAL)} + {arg(Type.DECIMAL)})"),
        (2, lambda: f"({arg(Type.DECIMAL)} - 1.05)"),
        (2, lambda: f"({arg(Type.DECIMAL)} * 2)"),
        (1, lambda: f"ABS({arg(Type.DECIMAL)})"),
        (2, lambda: f"CAST({arg(Type.INT)} AS DECIMAL(10,2))"),
        (1, lambda: f"ROUND({arg(Type.DECIMAL)}, 1)"),
    ]
    return Expr(ctx.choice.weighted(forms)(), Type.DECIMAL)


def _date(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    def arg(type_: Type) -> str:
        return scalar(ctx, scope, type_, depth - 1).sql

    number = ctx.choice.integer(1, 3)
    forms: list[tuple[int, Callable[[], str]]] = [
        (3, lambda: f"DATE_ADD({arg(Type.DATE)}, {number})"),
        (1, lambda: f"DATE_SUB({arg(Type.DATE)}, {number})"),
        (1, lambda: f"LAST_DAY({arg(Type.DATE)})"),
        (2, lambda: f"TRUNC({arg(Type.DATE)}, 'MM')"),
        (1, lambda: f"ADD_MONTHS({arg(Type.DATE)}, {number})"),
    ]
    return Expr(ctx.choice.weighted(forms)(), Type.DATE)


def _boolean(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    return Expr(f"({predicate(ctx, scope, depth - 1)})", Type.BOOLEAN)


def _double(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade) -> Expr:
    one = scalar(ctx, scope, Type.DOUBLE, depth - 1, worst)
    form = ctx.choice.weighted(
        [(3, "add"), (2, "times"), (2, "int"), (1, "negate"), (2, "decimal"), (2, "divide"), (1, "root")]
    )
    if form == "add":
        two = scalar(ctx, scope, Type.DOUBLE, depth - 1, worst)
        return Expr(f"({one.sql} + {two.sql})", Type.DOUBLE, max(one.grade, two.grade))
    if form == "times":
        return Expr(f"({one.sql} * 1.5D)", Type.DOUBLE, one.grade)
    if form == "negate":
        return Expr(f"ABS({one.sql})", Type.DOUBLE, one.grade)
    number = scalar(ctx, scope, Type.INT, depth - 1).sql
    if worst is Grade.EXACT or form == "int":
        return Expr(f"CAST({number} AS DOUBLE)", Type.DOUBLE)
    if form == "decimal":
        amount = scalar(ctx, scope, Type.DECIMAL, depth - 1).sql
        return Expr(f"CAST({amount} AS DOUBLE)", Type.DOUBLE, Grade.STABLE)
    if form == "divide":
        return Expr(f"({one.sql} / NULLIF({number}, 0))", Type.DOUBLE, max(one.grade, Grade.STABLE))
    return Expr(f"SQRT(ABS({number}))", Type.DOUBLE, Grade.STABLE)


_WRITERS: dict[Type, Callable[[Context, Sequence[Ref], int, Grade], Expr]] = {
    Type.INT: _int,
    Type.BIGINT: _bigint,
    Type.STRING: _string,
    Type.DECIMAL: _decimal,
    Type.DATE: _date,
    Type.BOOLEAN: _boolean,
    Type.DOUBLE: _double,
}


def predicate(ctx: Context, scope: Sequence[Ref], depth: int) -> str:
    """A condition over the scope's columns, NULL-prone, true more often than not."""
    keys = keyable(scope)
    if not keys:
        return "TRUE"
    form = ctx.choice.weighted(
        [(8, "compare"), (2, "not null"), (1, "null"), (3, "in"), (2, "between"), (2, "like"), (1, "boolean")]
        + [(4, "or"), (1, "and"), (1, "not")] * (depth > 0)
    )
    if form in ("or", "and"):
        parts = [predicate(ctx, scope, depth - 1) for _ in range(2)]
        return "(" + f" {form.upper()} ".join(parts) + ")"
    if form == "not":
        return f"NOT ({_simple_predicate(ctx, scope, 0, 'compare', ctx.choice.pick(keys))})"
    if form in ("null", "not null"):
        return f"{ctx.choice.pick(scope).sql} IS {form.upper()}"
    return _simple_predicate(ctx, scope, depth, form, ctx.choice.pick(keys))


def _simple_predicate(ctx: Context, scope: Sequence[Ref], depth: int, form: str, key: Ref) -> str:
    def arg() -> str:
        return scalar(ctx, scope, key.type, depth - 1, Grade.STABLE).sql

    def constant() -> str:
        return random_literal(ctx.choice, key.type)

    if form == "in":
        negated = ctx.choice.chance(60)
        members = [
            constant() for _ in range(ctx.choice.integer(1, 2) if negated else ctx.choice.integer(2, 5))
        ]
        members += ["NULL"] * ctx.choice.chance(6)
        return f"{key.sql} {'NOT ' * negated}IN ({', '.join(members)})"
    if form == "between":
        low, high = sorted(
            (random_value(ctx.choice, key.type), random_value(ctx.choice, key.type)), key=_order
        )
        negated = low == high or ctx.choice.chance(30)
        bounds = f"{literal(low, key.type)} AND {literal(high, key.type)}"
        return f"{key.sql} {'NOT ' * negated}BETWEEN {bounds}"
    if form == "like" and key.type is Type.STRING:
        pattern = ctx.choice.pick(
            ("NOT LIKE 'a%'", "LIKE '%b%'", "NOT LIKE '_'", "LIKE '%'", "RLIKE '^[a-z]'")
        )
        return f"{key.sql} {pattern}"
    if form == "boolean":
        condition = scalar(ctx, scope, Type.BOOLEAN, 0).sql
        test = ctx.choice.pick(
            (" IS NOT FALSE", "", " IS NOT TRUE", " IS TRUE", " IS NOT FALSE", " IS NOT TRUE")
        )
        return f"{condition}{test}"
    operator = ctx.choice.weighted(
        [(6, "<>"), (4, ">="), (4, "<="), (1, "="), (1, "<=>"), (2, ">"), (2, "<")]
    )
    left = key.sql if ctx.choice.chance(60) else arg()
    right = constant() if ctx.choice.chance(60) else arg()
    return f"{left} {operator} {right if right != left else constant()}"


def _order(value: Value) -> str | float:
    """A sort key for values of one type; exact order does not matter."""
    return (
        value.toordinal()
        if isinstance(value, date)
        else value
        if isinstance(value, str)
        else float(value or 0)
    )
