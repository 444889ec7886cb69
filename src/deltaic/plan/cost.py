"""What a refresh is thought to cost, in seconds: its steps, and the recompute that they stand against.

The measure is linear in rows, as in the papers: each step has a price, and a price for each row that it reads, joins or
writes. The prices were measured on two cores; that another machine, or a view, is slower or faster is learnt from the
view's own refreshes (`Learnt`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from deltaic.algebra.nodes import Aggregate, Apply, Join, Node, Scan, State
from deltaic.algebra.trees import walk
from deltaic.plan.maintain import Known, Maintenance, Way
from deltaic.plan.program import Program
from deltaic.plan.recursion_cost import Reach
from deltaic.plan.refreshing import without
from deltaic.plan.steps import (
    Compute,
    ComputeAgain,
    ComputeDelta,
    FindRows,
    Iterate,
    MarkRows,
    Only,
    ReadChange,
    ReadCounts,
    ReadState,
    SourceRead,
    Step,
    StoredView,
    WriteView,
)

SCAN, JOINED, LOOKED_AT, HERE, WRITTEN = 3e-7, 3e-7, 4e-8, 2e-7, 2.5e-6
"""Per row: read by Spark, joined by Spark, looked at in a file for its key, read into this process, written."""
SCANNED, HASHED, SHUFFLED, SUMMED = 1e-7, 5e-8, 1.5e-7, 5e-8
"""Per row of a recompute: read, held against the smaller side of a join, sorted or sent for one of two large sides, and
per value that an aggregate computes of it."""
BROADCAST = 500_000
"""Of more rows than this a side of a join is sent around."""
CARRIED = 2e-6
"""Per row of a delta, for each join it goes through."""
RS_READ, SPARK_READ, OLD_READ, QUERY, STAGE = 0.05, 0.3, 0.8, 0.3, 0.08
"""A read by delta-rs, one by Spark, one of a past version; a query, and each join in it."""
OVERWRITE, MERGE, RS_MERGE, MARK, FOLD = 1.0, 2.5, 0.1, 0.05, 0.2
"""A commit: of a whole view, of a delta by Spark, by delta-rs, by marking rows; and what a marked row costs later."""
WHOLE_ROWS = 20_000
"""A view of so few rows is written whole without Spark."""
ENDS = 0.5
"""How often nothing is left that may come or go before an algorithm is through."""
RARELY = 0.1
"""How often groups that their change does not tell are met."""
RS_MERGE_BYTES = 1 / 30e6
UNKNOWN_ROWS = 100_000


@dataclass(frozen=True)
class Predicted:
    """Seconds, by what they are spent on."""

    reading: float
    computing: float
    writing: float
    delta_rows: float = 0.0

    @property
    def seconds(self) -> float:
        return self.reading + self.computing + self.writing


@dataclass(frozen=True)
class Past:
    """One refresh of the view that is over."""

    mode: str
    predicted: float
    actual: float


@dataclass(frozen=True)
class Learnt:
    """By what the predictions for a view are to be multiplied."""

    incremental: float = 1.0
    full: float = 1.0

    @staticmethod
    def of(past: Sequence[Past]) -> Learnt:
        """The median of the last ones of each kind, and of one that was as predicted: a single refresh may have been
        the first in its process. A kind that was not seen is as wrong as the other."""
        found = {
            mode: median([0.0, *[log(p.actual / p.predicted) for p in past if p.mode == mode][-LAST:]])
            for mode in ("incremental", "full")
            if any(p.mode == mode for p in past)
        }
        factors = {mode: min(max(exp(value), 1 / MOST), MOST) for mode, value in found.items()}
        one = next(iter(factors.values()), 1.0)
        return Learnt(factors.get("incremental", one), factors.get("full", one))


LAST, MOST = 5, 5.0
"""So many refreshes are looked back at; more than so many times off says that something else was slow."""


def price_of_full(
    way: Maintenance, reads: Mapping[str, SourceRead], view: StoredView, reach: Reach | None = None
) -> Predicted:
    """The query run anew, and its rows instead of the stored ones."""
    nodes = walk(way.root)
    scans = [_rows(reads[node.source].rows) for node in nodes if isinstance(node, Scan) and node.source in reads]
    stored = _rows(view.rows, 0)
    return Predicted(
        sum(SPARK_READ / 2 + SCANNED * count for count in scans),
        QUERY + sum(_operator(node, reads) for node in nodes) + (reach.evaluated if reach else 0.0),
        RS_MERGE if stored <= WHOLE_ROWS else OVERWRITE + WRITTEN * stored,
    )


def _operator(node: Node, reads: Mapping[str, SourceRead]) -> float:
    """What a join or an aggregate of a recompute takes, as if nothing below it had dropped or doubled rows."""
    if isinstance(node, Aggregate):
        return SUMMED * (1 + len(node.aggregates)) * _widest(node, reads)
    if not isinstance(node, Join | Apply):
        return 0.0
    less, more = sorted(_widest(side, reads) for side in node.inputs)
    return STAGE + HASHED * more + (SHUFFLED * (less + more) if less > BROADCAST else 0.0)


def _widest(node: Node, reads: Mapping[str, SourceRead]) -> float:
    scans = [n for n in walk(node) if isinstance(n, Scan) and n.source in reads]
    return max((_rows(reads[scan.source].rows) for scan in scans), default=0.0)


def price_of_steps(
    steps: Sequence[Step],
    reads: Mapping[str, SourceRead],
    view: StoredView,
    program: Program,
    known: Known,
    writing: float,
    reach: Reach | None = None,
) -> Predicted:
    """Steps that wait for something to be seen are taken to be run, but for those that look for equal rows; some of the
    times for groups that must be computed again; and every other time for what an algorithm may end before."""
    delta = delta_rows(program, known, reach)
    whole = _spent(steps, reads, view, program, delta)
    if reach is not None:
        return Predicted(whole[0], whole[1] + reach.kept, writing, delta)
    sure = without(steps, _may_be_left_out)
    if len(sure) == len(steps):
        return Predicted(*whole, writing, delta)
    least = _spent(sure, reads, view, program, delta)
    reading, computing = (ENDS * one + (1 - ENDS) * all_ for one, all_ in zip(least, whole, strict=True))
    return Predicted(reading, computing, writing, delta)


def _may_be_left_out(step: Step) -> bool:
    return isinstance(step, Compute) and step.only is Only.CANDIDATES


def _spent(
    steps: Sequence[Step], reads: Mapping[str, SourceRead], view: StoredView, program: Program, delta: float
) -> tuple[float, float]:
    """Seconds for reading, and for computing."""
    reading = computing = 0.0
    for step in steps:
        if step.only is Only.AGAIN:
            if isinstance(step, ReadState):
                reading += RARELY * _state(step, reads, view)
            continue
        match step:
            case ReadChange():
                rows = _rows(reads[step.source].change_rows)
                reading += RS_READ + HERE * rows if not step.sql else SPARK_READ + SCAN * rows
            case ReadState():
                reading += _state(step, reads, view)
            case ReadCounts():
                reading += (
                    RS_READ + LOOKED_AT * _rows(view.rows) if step.by_rs else SPARK_READ + SCAN * _rows(view.rows)
                )
            case MarkRows():
                computing += MARK + LOOKED_AT * _rows(view.rows)
            case Compute(asked=True):
                computing += QUERY / 10
            case Compute() | ComputeDelta():
                computing += QUERY + _joins(step, program) * (STAGE + CARRIED * delta)
            case FindRows():
                computing += 0.0 if view.marked else QUERY + STAGE
            case ComputeAgain() | WriteView() | Iterate():
                pass  # rare; priced by who writes; priced by its rounds
            case _:
                raise TypeError(f"a step without a price: {type(step).__name__}")
    return reading, computing


def price_of_write(writer: str, way: Maintenance, delta: float, view: StoredView, view_bytes: int) -> float:
    """Marked rows also cost those who read the view later, and to fold them in."""
    rows = delta if way.way is Way.ROWS else min(2 * delta, 2 * _rows(view.rows))
    match writer:
        case "marks":
            return MARK + FOLD + LOOKED_AT * _rows(view.rows, 0) + CARRIED * rows
        case "delta-rs":
            return RS_MERGE + RS_MERGE_BYTES * view_bytes + CARRIED * rows
    return MERGE + WRITTEN * (_rows(view.rows, 0) + rows)


def delta_rows(program: Program, known: Known, reach: Reach | None = None) -> float:
    """How many rows the widest of a refresh's deltas is thought to have."""
    if reach is not None:
        return reach.moved
    planned = [join.sizes.delta(range(join.sizes.count)) for join in program.joins]
    return float(max([*planned, sum(known.changes.values())]))


def _state(step: ReadState, reads: Mapping[str, SourceRead], view: StoredView) -> float:
    rows = _rows(reads[step.source].rows if step.source in reads else view.rows)
    if step.near is not None and step.rs_finds:
        return RS_READ + LOOKED_AT * rows
    if not step.sql:
        return RS_READ + HERE * rows
    return (OLD_READ if step.state is State.OLD else SPARK_READ) + (SCAN + JOINED) * rows


def _joins(step: Step, program: Program) -> int:
    nodes: list[Node] = [b.node for b in program.bindings if isinstance(step, ComputeDelta) or b.name == step.relation]
    return sum(isinstance(n, Join) for node in nodes for n in walk(node))


def _rows(count: int | None, unknown: float = UNKNOWN_ROWS) -> float:
    return unknown if count is None else float(count)
