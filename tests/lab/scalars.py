"""Random scalar expressions and predicates that mean the same in Spark and in DuckDB.

Left out on purpose, because the engines differ: integer and decimal division, remainders of negative numbers,
casts of fractions to integers (but for FLOOR) and of doubles to strings, positions below 1 in SUBSTRING,
coercions between strings and numbers, anything that can overflow.
"""

from collections.abc import Sequence
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
        return float("nan") if choice.chance(3) and choice.chance(20) else choice.integer(-5, 20) / 10
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
    if type_ is Type.BOOLEAN:
        return Expr(f"({predicate(ctx, scope, depth - 1)})", Type.BOOLEAN)
    if type_ is Type.DOUBLE:
        return _double(ctx, scope, depth, worst)
    return _call(ctx, scope, type_, depth)


def _generic(ctx: Context, scope: Sequence[Ref], type_: Type, depth: int, worst: Grade) -> Expr:
    """The forms that exist for every type."""
    one = scalar(ctx, scope, type_, depth - 1, worst)
    two = scalar(ctx, scope, type_, depth - 1, worst)
    if two.sql == one.sql:
        two = Expr(random_literal(ctx.choice, type_), type_)
    grade = max(one.grade, two.grade)
    form = ctx.choice.weighted([(4, "coalesce"), (4, "case"), (2, "nullif"), (2, "if"), (1, "greatest"), (1, "switch")])
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


_INT = [
    (3, (Type.INT,), "({0} + {n})"),
    (2, (Type.INT, Type.INT), "({0} - {1})"),
    (2, (Type.INT,), "({0} * {n})"),
    (2, (Type.INT,), "ABS({0})"),
    (2, (Type.INT,), "(ABS({0}) % ({n} + 1))"),
    (1, (Type.INT,), "PMOD({0}, {n} + 1)"),
    (1, (Type.INT,), "(-{0})"),
    (2, (Type.STRING,), "LENGTH({0})"),
    (1, (Type.STRING,), "INSTR({0}, 'b')"),
    (1, (Type.DATE,), "YEAR({0})"),
    (1, (Type.DATE,), "MONTH({0})"),
    (1, (Type.DATE,), "DAY({0})"),
    (1, (Type.DATE,), "QUARTER({0})"),
    (1, (Type.DATE,), "DAYOFWEEK({0})"),
    (1, (Type.DATE, Type.DATE), "DATEDIFF({0}, {1})"),
    (1, (Type.BOOLEAN,), "CAST({0} AS INT)"),
    (1, (Type.DOUBLE,), "CAST(FLOOR({0}) AS INT)"),
]
_BIGINT = [
    (3, (Type.BIGINT, Type.INT), "({0} + {1})"),
    (2, (Type.BIGINT,), "({0} * 2)"),
    (1, (Type.BIGINT,), "ABS({0})"),
    (1, (Type.BIGINT, Type.INT), "COALESCE({0}, {1})"),
    (2, (Type.INT,), "CAST({0} AS BIGINT)"),
]
_STRING = [
    (3, (Type.STRING,), "UPPER({0})"),
    (1, (Type.STRING,), "LOWER({0})"),
    (2, (Type.STRING, Type.STRING), "CONCAT({0}, {1})"),
    (2, (Type.STRING,), "({0} || '-')"),
    (1, (Type.STRING, Type.STRING), "CONCAT_WS('-', {0}, {1})"),
    (2, (Type.STRING,), "SUBSTRING({0}, {n}, 2)"),
    (1, (Type.STRING,), "LEFT({0}, {n})"),
    (1, (Type.STRING,), "RIGHT({0}, {n})"),
    (1, (Type.STRING,), "TRIM({0})"),
    (1, (Type.STRING,), "REPLACE({0}, 'a', 'b')"),
    (1, (Type.STRING,), "REVERSE({0})"),
    (1, (Type.STRING,), "LPAD({0}, 3, '*')"),
    (1, (Type.STRING,), "REPEAT({0}, 2)"),
    (1, (Type.INT,), "CAST({0} AS STRING)"),
    (1, (Type.BIGINT,), "CAST({0} AS STRING)"),
    (1, (Type.DATE,), "CAST({0} AS STRING)"),
    (1, (Type.BOOLEAN,), "CAST({0} AS STRING)"),
]
_DECIMAL = [
    (3, (Type.DECIMAL, Type.DECIMAL), "({0} + {1})"),
    (2, (Type.DECIMAL,), "({0} - 1.05)"),
    (2, (Type.DECIMAL,), "({0} * 2)"),
    (1, (Type.DECIMAL,), "ABS({0})"),
    (1, (Type.DECIMAL,), "ROUND({0}, 1)"),
    (2, (Type.INT,), "CAST({0} AS DECIMAL(10,2))"),
]
_DATE = [
    (3, (Type.DATE,), "DATE_ADD({0}, {n})"),
    (1, (Type.DATE,), "DATE_SUB({0}, {n})"),
    (1, (Type.DATE,), "LAST_DAY({0})"),
    (2, (Type.DATE,), "TRUNC({0}, 'MM')"),
    (1, (Type.DATE,), "ADD_MONTHS({0}, {n})"),
]
_FORMS: dict[Type, Sequence[tuple[int, tuple[Type, ...], str]]] = {
    Type.INT: _INT,
    Type.BIGINT: _BIGINT,
    Type.STRING: _STRING,
    Type.DECIMAL: _DECIMAL,
    Type.DATE: _DATE,
}


def _call(ctx: Context, scope: Sequence[Ref], type_: Type, depth: int) -> Expr:
    """A function or an operator of which at least the first argument can be a column."""
    there = {ref.type for ref in scope if ref.grade is Grade.EXACT}
    forms = [(weight, (types, form)) for weight, types, form in _FORMS[type_] if types[0] in there]
    if not forms:
        return Expr(random_literal(ctx.choice, type_), type_)
    types, form = ctx.choice.weighted(forms)
    arguments = [scalar(ctx, scope, argument, depth - 1, Grade.EXACT).sql for argument in types]
    for place, argument in enumerate(arguments):
        form = form.replace("{" + str(place) + "}", argument, 1)
    return Expr(form.replace("{n}", str(ctx.choice.integer(1, 3))), type_)


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
        key = ctx.choice.pick(keys)
        return f"NOT ({key.sql} {ctx.choice.pick(('=', '<', '>'))} {random_literal(ctx.choice, key.type)})"
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
        members = [constant() for _ in range(ctx.choice.integer(1, 2) if negated else ctx.choice.integer(2, 5))]
        members += ["NULL"] * ctx.choice.chance(6)
        return f"{key.sql} {'NOT ' * negated}IN ({', '.join(members)})"
    if form == "between":
        low, high = sorted((random_value(ctx.choice, key.type), random_value(ctx.choice, key.type)), key=_order)
        negated = low == high or ctx.choice.chance(30)
        bounds = f"{literal(low, key.type)} AND {literal(high, key.type)}"
        return f"{key.sql} {'NOT ' * negated}BETWEEN {bounds}"
    if form == "like" and key.type is Type.STRING:
        pattern = ctx.choice.pick(("NOT LIKE 'a%'", "LIKE '%b%'", "NOT LIKE '_'", "LIKE '%'", "RLIKE '^[a-z]'"))
        return f"{key.sql} {pattern}"
    if form == "boolean" and (flags := of_type(scope, Type.BOOLEAN)):
        condition = ctx.choice.pick(flags).sql
        test = ctx.choice.pick((" IS NOT FALSE", "", " IS NOT TRUE", " IS TRUE", " IS NOT FALSE", " IS NOT TRUE"))
        return f"{condition}{test}"
    operator = ctx.choice.weighted([(6, "<>"), (4, ">="), (4, "<="), (1, "="), (1, "<=>"), (2, ">"), (2, "<")])
    left = key.sql if ctx.choice.chance(60) else arg()
    right = constant() if ctx.choice.chance(60) else arg()
    return f"{left} {operator} {right if key.sql not in right else constant()}"


def _order(value: Value) -> str | float:
    """A sort key for values of one type; exact order does not matter."""
    return value.toordinal() if isinstance(value, date) else value if isinstance(value, str) else float(value or 0)
