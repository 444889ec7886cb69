"""Two relations compared as multisets, in Spark: which rows one has more often than the other.

Rows that are equal in every column cancel out first. Of what is left, rows that agree in all that is compared exactly
are paired in the order of their numbers; a pair whose numbers are close is a pair of equal rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType

from deltaic.algebra.quoting import quote
from deltaic.plan.comparing import How
from deltaic.spark.canonical import canonical, numbers, skeleton

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOSE = 1e-9
"""By how much two numbers may differ that were added up in another order, relative to themselves; or to the largest of
their column, where it is not known what they were made of."""
NOISE = 1e-12
"""The same, relative to the numbers that they were made of."""

_LEFT = "__deltaic_left"


@dataclass(frozen=True)
class Column:
    """One column of both relations."""

    name: str
    kind: DataType
    how: How = How.EXACT
    step: float = 0.0
    sizes: tuple[str, ...] = ()
    """Columns of the expected relation, which say how large the numbers are that it was made of."""
    zero: bool = False
    """Whether NULL is 0."""
    blank: bool = False
    """Whether '' is NULL, as it is in a column that a Delta table is partitioned by."""

    @property
    def value(self) -> str:
        """What is compared."""
        sql = quote(self.name)
        if self.zero:
            sql = f"coalesce({sql}, CAST(0 AS {self.kind.simpleString()}))"
        if self.blank:
            sql = f"nullif({sql}, '')"
        found = canonical(sql, self.kind)
        return f"array_sort({found})" if self.how is How.SORTED else found

    def close(self, numbers: str) -> str:
        """Whether the numbers of a row that is expected and of one that is there are equal but for rounding."""
        noise = " + ".join(f"coalesce(expected.{quote(size)}, 0)" for size in self.sizes)
        more = f"{NOISE}D * ({noise})" if noise else f"{CLOSE}D * largest_{numbers}"
        allowed = f"{CLOSE}D * greatest(abs(a), abs(b)) + {more} + {self.step * (1 + CLOSE)}D"
        same = f"(a, b) -> a <=> b OR coalesce(abs(a - b) <= {allowed}, FALSE)"
        return f"forall(zip_with(expected.{numbers}, found.{numbers}, {same}), x -> x)"


@dataclass(frozen=True)
class Sampled:
    """One of `buckets` buckets of the rows, by a hash of some columns."""

    columns: tuple[str, ...]
    buckets: int
    bucket: int

    @property
    def where(self) -> str:
        return f" WHERE pmod(xxhash64({', '.join(map(quote, self.columns))}), {self.buckets}) = {self.bucket}"

    @property
    def told(self) -> str:
        return f"bucket {self.bucket} of {self.buckets}, by a hash of {', '.join(self.columns)}"


@dataclass(frozen=True)
class Difference:
    """`missing` and `extra` count rows; so do `rounded` and `chosen`, of those that count as equal though they differ
    by rounding, or in columns for which the query allows several values."""

    missing: int
    extra: int
    rounded: int
    chosen: int
    rows: DataFrame = field(compare=False)
    """What is missing (n > 0) and extra (n < 0): n, then the columns. It lasts as long as the comparison does."""

    @property
    def is_none(self) -> bool:
        return not self.missing and not self.extra


@contextmanager
def compared(
    session: SparkSession, expected: str, found: str, columns: Sequence[Column], sample: Sampled | None = None
) -> Iterator[Difference]:
    """What differs between two queries that have these columns. The session must be one's own."""
    comparison = _Comparison(tuple(columns), sample)
    left = session.sql(comparison.left_over(expected, found)).persist()
    try:
        left.createOrReplaceTempView(_LEFT)
        yield comparison.judged(session, left) if left.count() else Difference(0, 0, 0, 0, left)
    finally:
        left.unpersist()


@dataclass(frozen=True)
class _Comparison:
    """Columns go by their places: v is what is compared, o what is shown; of numbers that may differ by rounding, k
    says where they are, and l what they are."""

    columns: tuple[Column, ...]
    sample: Sampled | None

    @property
    def places(self) -> list[tuple[int, Column]]:
        return list(enumerate(self.columns))

    def of(self, how: How) -> list[tuple[int, Column]]:
        return [(n, c) for n, c in self.places if c.how is how]

    @property
    def sizes(self) -> list[str]:
        return [quote(size) for size in dict.fromkeys(size for c in self.columns for size in c.sizes)]

    def shown(self, n: int, c: Column) -> str:
        return f"v{n}" if c.value == quote(c.name) else f"o{n}"

    def left_over(self, expected: str, found: str) -> str:
        """The rows that do not cancel out, each once, with how often more it is expected than found."""
        others = [(self.shown(n, c), quote(c.name)) for n, c in self.places if self.shown(n, c) != f"v{n}"]
        sides = []
        for sign, query in ((1, expected), (-1, found)):
            items = [f"{c.value} AS v{n}" for n, c in self.places]
            items += [f"{name} AS {place}" for place, name in others]
            items += [f"{size if sign > 0 else 'CAST(NULL AS DOUBLE)'} AS {size}" for size in self.sizes]
            where = self.sample.where if self.sample else ""
            sides.append(f"SELECT {', '.join([*items, f'{sign} AS n'])} FROM (\n{query}\n){where}")
        groups = ", ".join(f"v{n}" for n, _ in self.places)
        told = [f"any_value({place}) AS {place}" for place, _ in others]
        told += [f"max({size}) AS {size}" for size in self.sizes]
        rows = "\nUNION ALL\n".join(sides)
        listed = ", ".join([groups, *told, "sum(n) AS n"])
        netted = f"SELECT {listed} FROM (\n{rows}\n) GROUP BY {groups} HAVING sum(n) <> 0"
        more = []
        for n, c in self.of(How.ROUNDED):
            own = self.shown(n, c)
            more += [f"{skeleton(own, c.kind)} AS k{n}", f"{numbers(own, c.kind)} AS l{n}"]
        return f"SELECT {', '.join(['*', *more])} FROM (\n{netted}\n)"

    def judged(self, session: SparkSession, left: DataFrame) -> Difference:
        if not self.of(How.ROUNDED) and not self.of(How.CHOSEN):
            return self.told(left, {})
        pairs = session.sql(self.paired())
        counts = {row[0]: row[1] for row in pairs.groupBy("verdict").count().collect()}
        both = "array(named_struct('n', 1L, 'row', expected), named_struct('n', -1L, 'row', found))"
        wrong = pairs.where("verdict = 'wrong'").selectExpr(f"inline(filter({both}, x -> x.row IS NOT NULL))")
        return self.told(wrong.selectExpr("n", "row.*"), counts)

    def told(self, wrong: DataFrame, counts: Mapping[str, int]) -> Difference:
        sums = (f"coalesce(sum(greatest({sign}n, 0)), 0)" for sign in ("", "-"))
        missing, extra = wrong.selectExpr(*sums).collect()[0]
        # columns of the frame itself: a process may have a classic session beside a client of Spark Connect
        by = [wrong[f"v{n}"] for n, c in self.places if c.how in (How.EXACT, How.SORTED)]
        rows = wrong.orderBy(*by, wrong["n"].desc())
        shown = rows.selectExpr("n", *(f"{self.shown(n, c)} AS {quote(c.name)}" for n, c in self.places))
        return Difference(missing, extra, counts.get("rounded", 0), counts.get("chosen", 0), shown)

    def paired(self) -> str:
        """The rows that are left side by side, those that agree in what is compared exactly. A pair is `wrong` unless
        it differs by rounding only (`rounded`), or in what the query allows several values of (`chosen`) too."""
        keys = [f"v{n}" for n, c in self.places if c.how in (How.EXACT, How.SORTED)]
        keys += [f"k{n}" for n, _ in self.of(How.ROUNDED)]
        listed, free = [f"l{n}" for n, _ in self.of(How.ROUNDED)], [f"v{n}" for n, _ in self.of(How.CHOSEN)]
        # a FLOAT has fewer digits: where one number is close to another, the next one decides about the order
        order = ", ".join([*(f"transform({name}, x -> CAST(x AS FLOAT))" for name in listed), *listed, *free])
        number = f"row_number() OVER (PARTITION BY {', '.join([*keys, 'n > 0'])} ORDER BY {order}) AS place"
        copies = f"SELECT *, explode(sequence(1L, abs(n))) AS copy FROM {_LEFT}"
        others = [place for n, c in self.places if (place := self.shown(n, c)) != f"v{n}"]
        row = ", ".join([*(f"v{n}" for n, _ in self.places), *others, *listed, *self.sizes])
        sides = ((">", "expected"), ("<", "found"))
        told = [f"any_value(CASE WHEN n {sign} 0 THEN struct({row}) END, TRUE) AS {name}" for sign, name in sides]
        placed = f"SELECT *, {number} FROM (\n{copies}\n)"
        pairs = f"SELECT {', '.join(told)} FROM (\n{placed}\n) GROUP BY {', '.join([*keys, 'place'])}"
        close = " AND ".join(c.close(f"l{n}") for n, c in self.of(How.ROUNDED)) or "TRUE"
        same = " AND ".join(f"expected.{name} <=> found.{name}" for name in free) or "TRUE"
        wrong = f"expected IS NULL OR found IS NULL OR NOT ({close})"
        verdict = f"CASE WHEN {wrong} THEN 'wrong' WHEN {same} THEN 'rounded' ELSE 'chosen' END AS verdict"
        size = "x -> CASE WHEN abs(x) < double('Infinity') THEN abs(x) END"
        largest = [f"coalesce(max(array_max(transform({own}, {size}))), 0D) AS largest_{own}" for own in listed]
        beside = f"SELECT {', '.join(largest or ['0'])} FROM {_LEFT}"
        return f"SELECT expected, found, {verdict} FROM (\n{pairs}\n) CROSS JOIN ({beside})"
