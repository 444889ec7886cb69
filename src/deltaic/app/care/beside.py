"""A view beside its query, in one session.

Two comparisons, both of multisets. What people see is compared with the user's own text, run by Spark. What the view
stores beyond that, counts and sums that the next refresh relies on, is compared with what a recompute would store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StringType

from deltaic.algebra.nodes import WEIGHT, Node
from deltaic.algebra.prune import prune
from deltaic.algebra.quoting import quote
from deltaic.algebra.simplify import simplify
from deltaic.algebra.types import is_exact_key
from deltaic.app.refresh.compile import Compiled, pinned_text
from deltaic.app.refresh.stored import same_columns
from deltaic.app.values.definition import Definition
from deltaic.app.values.report import DIFFERS, EQUAL, UNCERTAIN, Check
from deltaic.plan.comparing import Compared, How, Terms, settled, stored_terms, terms_of, ties
from deltaic.plan.iterating import pinned_in
from deltaic.plan.maintain import Maintenance
from deltaic.plan.steps import SourceRead
from deltaic.spark.comparison import Column, Sampled, compared
from deltaic.spark.result import Result, fetched
from deltaic.sql import functions
from deltaic.sql.render import render
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Past:
    """What a view says it was made of, and how that is read."""

    compiled: Compiled
    reads: Mapping[str, SourceRead]
    table: OwnTable
    version: int
    """Of the view's own table, now."""
    last: Progress

    @property
    def definition(self) -> Definition:
        return self.compiled.definition


@dataclass(frozen=True)
class Differing:
    """One comparison: how many rows differ, and the first of them."""

    missing: int
    extra: int
    rounded: int
    chosen: int
    rows: Result
    columns: Sequence[Column]
    decided_by: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not (self.missing or self.extra or self.chosen)

    @property
    def wrong(self) -> bool:
        return bool(self.missing or self.extra) and not self.decided_by

    def notes(self) -> list[str]:
        found = []
        if self.rounded:
            found.append(f"{self.rounded:,} rows differ by rounding only, in {self.named(How.ROUNDED)}")
        if self.chosen:
            what = f"{self.chosen:,} rows have another value of {self.named(How.CHOSEN)} than the query gives now"
            found.append(f"{what}, of which the order of rows or rounding decides: both may be right")
        if (self.missing or self.extra) and self.decided_by:
            what = f"which rows there are is decided by {', '.join(self.decided_by)}"
            found.append(f"{what}, which may come out differently each time: rows that differ may be right")
        return found

    def named(self, how: How) -> str:
        return ", ".join(column.name for column in self.columns if column.how is how)


class Comparing:
    def __init__(self, session: SparkSession, past: Past, limit: int) -> None:
        self.session, self.past, self.limit = session, past, limit
        self.compiled, self.snapshot = past.compiled, past.table.log.snapshot(past.version)
        self.relation = past.table.ref.as_of(past.version)
        schema = session.sql(f"SELECT * FROM {self.relation}").schema
        self.kinds: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}

    def check(self, found: Check, sample: int | None) -> Check:
        visible = self.visible_sql()
        chosen = self.sampled(visible, sample) if sample is not None else None
        shown = self.visible(visible, chosen)
        state = self.state(chosen)
        outcomes = [outcome for outcome in (shown, state) if outcome is not None]
        verdict = EQUAL if all(outcome.clean for outcome in outcomes) else UNCERTAIN
        if any(outcome.wrong for outcome in outcomes):
            verdict = DIFFERS
        notes = [note for outcome in outcomes for note in outcome.notes()]
        if state is None and isinstance(self.compiled.way, Maintenance) and self.compiled.way.hidden:
            notes.append("what it stores for refreshes was not compared: it will be stored in another way")
        if shown.wrong and state is not None and state.clean:
            notes.append(
                "a recompute would give the same: Deltaic reads the query otherwise than Spark. Report it, please"
            )
        told = shown if shown.missing or shown.extra or state is None else state
        return replace(
            found,
            verdict=verdict,
            missing=shown.missing,
            extra=shown.extra,
            state=None if state is None else state.missing + state.extra,
            columns=(WEIGHT, *(name for name, _ in told.rows.columns[1:])),
            rows=tuple(map(tuple, told.rows.rows)),
            compared=self.counted(visible, chosen),
            sample=chosen.told if chosen else None,
            notes=tuple(dict.fromkeys(notes)),
            hint=_HINTS.get(verdict),
        )

    # what people see

    def visible_sql(self) -> str:
        listed = ", ".join(map(quote, self.past.definition.columns))
        where = f" WHERE {quote(self.snapshot.shown)}" if self.snapshot.shown else ""
        return f"SELECT {listed} FROM {self.relation}{where}"

    def visible(self, visible: str, sample: Sampled | None) -> Differing:
        """Beside the text itself. What numbers are made of, a text does not tell."""
        names = self.past.definition.columns
        listed = ", ".join(map(quote, names))
        expected = f"SELECT * FROM (\n{pinned_text(self.compiled, self.past.reads)}\n) AS q({listed})"

        def run(terms: Terms) -> Differing:
            plain = [replace(c, sizes=()) for c in terms.columns]
            return self.compare(expected, visible, self.columns(names, plain), terms.decided_by, sample)

        if self.compiled.node is None:
            return run(self.terms_of_text())
        return self.settling(prune(self.compiled.node), terms_of, run)

    def terms_of_text(self) -> Terms:
        """Of a query without algebra: numbers may always be off, and rows too if something may decide about them."""
        names = self.past.definition.columns
        columns = [Compared(n, How.ROUNDED if _holds_float(self.kinds[n]) else How.EXACT) for n in names]
        return Terms(None, tuple(columns), tuple(_deciding_words(self.compiled)))

    # what is stored

    def state(self, sample: Sampled | None) -> Differing | None:
        """Beside what a recompute would store; None where that is no more than people see, or something else."""
        way, compiled = self.compiled.way, self.compiled
        if not isinstance(way, Maintenance) or not same_columns(self.past.table, compiled):
            return None
        if not way.hidden and terms_of(way.root).exact:
            return None
        names = compiled.stored
        found = f"SELECT {', '.join(map(quote, names.values()))} FROM {self.relation}"
        more = [name for s in way.strata for f in s.columns if is_exact_key(f.type) for name in (names[f.name],)]
        wider = sample and replace(sample, columns=(*sample.columns, *more))

        def run(terms: Terms) -> Differing:
            assert terms.root is not None
            listed = [f"{quote(name)} AS {quote(names.get(name, name))}" for name in terms.root.columns]
            tree = render(simplify(terms.root), pinned_in(self.past.reads))
            expected = f"SELECT {', '.join(listed)} FROM (\n{tree}\n)"
            columns = self.columns([names[c.column] for c in terms.columns], terms.columns)
            return self.compare(expected, found, columns, terms.decided_by, wider)

        return self.settling(way.root, lambda root: stored_terms(way, root), run)

    # both

    def settling(self, root: Node, terms: Callable[[Node], Terms], run: Callable[[Terms], Differing]) -> Differing:
        """What differs, though rows may tie, is looked at again if none do."""
        outcome = run(terms(root))
        queries = [] if outcome.clean else ties(root)
        if not queries or any(self.has_rows(query) for query in queries):
            return outcome
        return run(terms(settled(root)))

    def has_rows(self, node: Node) -> bool:
        return not self.session.sql(render(simplify(prune(node)), pinned_in(self.past.reads))).isEmpty()

    def columns(self, names: Sequence[str], columns: Sequence[Compared]) -> list[Column]:
        found = []
        for name, c in zip(names, columns, strict=True):
            kind = self.kinds[name]
            blank = name in self.snapshot.partition_columns and isinstance(kind, StringType)
            found.append(Column(name, kind, c.how, c.step, c.sizes, c.zero, blank))
        return found

    def compare(
        self, expected: str, found: str, columns: Sequence[Column], decided_by: tuple[str, ...], sample: Sampled | None
    ) -> Differing:
        with compared(self.session, expected, found, columns, sample) as d:
            rows = fetched(d.rows, self.limit, as_json=True) if not d.is_none else Result([], [], False)
            return Differing(d.missing, d.extra, d.rounded, d.chosen, rows, columns, decided_by)

    def sampled(self, visible: str, sample: int) -> Sampled | None:
        """By the key of its groups, if they are shown: Spark then computes these groups only."""
        names = self.past.definition.columns
        exact = [n for n in names if is_exact_key(self.kinds[n].simpleString())]
        exact = [n for n in exact if n not in self.snapshot.partition_columns]
        way = self.compiled.way
        key = [self.compiled.stored[name] for name in way.key] if isinstance(way, Maintenance) else []
        buckets = self.counted(visible, None) // max(sample, 1)
        columns = key if key and set(key) <= set(exact) else exact
        if buckets < 2 or not columns:
            return None
        return Sampled(tuple(columns), buckets, self.past.last.refresh % buckets)

    def counted(self, query: str, sample: Sampled | None) -> int:
        where = sample.where if sample else ""
        return int(self.session.sql(f"SELECT count(*) FROM ({query}){where}").collect()[0][0])


_HINTS = {
    DIFFERS: "deltaic repair, or Warehouse.repair(name), computes it anew.",
    UNCERTAIN: "DECIMAL instead of DOUBLE, and an ORDER BY without ties, leave nothing to chance; repair with force"
    " computes it anew.",
}


def _holds_float(kind: DataType) -> bool:
    return any(word in kind.simpleString() for word in ("float", "double"))


def _deciding_words(compiled: Compiled) -> list[str]:
    """What in a text may choose between rows, or between values."""
    text = compiled.text
    called = {call.name for call in text.calls((0, len(text.sql)))}
    known = functions.ROUNDED | functions.STABLE_AGGREGATES | functions.STABLE_WINDOWS
    shaky = called & (functions.AGGREGATES | functions.WINDOW_ONLY) - known
    words = {token.text.upper() for token in text.tokens} & {"LIMIT", "OFFSET", "ROWS"}
    return sorted([*(f"{name}()" for name in shaky), *words])
