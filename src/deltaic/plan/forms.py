"""In which form a view stores its sets: by what its refreshes are thought to take.

With counts of derivations or without, and with the sets inside it or without, are different tables, so it is decided
when a view is made. Each form is priced by the steps of a refresh after a thousandth of one source changed, for each
of the largest, weighed by their sizes: a large table is thought to change as much oftener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from deltaic.algebra.nodes import Aggregate, State
from deltaic.algebra.reasons import Reason
from deltaic.algebra.trees import sources, walk
from deltaic.plan.cost import delta_rows, price_of_steps, price_of_write
from deltaic.plan.maintain import Form, Maintenance
from deltaic.plan.program import program_for
from deltaic.plan.refreshing import known_of, refresh_steps
from deltaic.plan.steps import RS_ROWS, STATE_ROWS, SourceRead, StoredView

SHARE = 0.001
"""Of a source's rows, what a change is thought to be."""
LARGEST = 3
"""So many sources, the largest, are thought to change: a view of ten must be planned in well under a second."""
ADVANTAGE = 1.2
"""So many times faster must another form be than the usual one."""
GROUPED = 0.1
"""Of the rows that are grouped, or of which a set is made, how many are thought to be different."""


@dataclass(frozen=True)
class Decided:
    form: Form
    way: Maintenance | Reason
    prices: Mapping[Form, float] = field(default_factory=dict)
    """Seconds, where there was something to choose."""


def decide(
    chosen: Callable[[Form], Maintenance | Reason],
    counts: bool | None,
    strata: bool | None,
    rows: Mapping[str, int],
    *,
    here: bool,
) -> Decided:
    """The form that is told by the user, and where it is not, the cheapest.

    `here`: whether small tables and changes are read into this process."""
    usual = Form(counts is not False, strata is True)
    first = chosen(usual)
    if isinstance(first, Reason):
        return Decided(usual, first)
    ways = {usual: first}
    for form in _forms(counts, strata):
        way = chosen(form)
        if not isinstance(way, Reason) and way not in ways.values():
            ways[form] = way
    if len(ways) == 1:
        return Decided(usual, first)
    prices = {form: price_of_form(way, rows, here=here) for form, way in ways.items()}
    best = min(prices, key=prices.__getitem__)
    form = best if prices[best] * ADVANTAGE < prices[usual] else usual
    return Decided(form, ways[form], prices)


def _forms(counts: bool | None, strata: bool | None) -> Iterator[Form]:
    """A set that is to be without counts has no counts of sets inside it either, unless that is told."""
    for stored in (True, False) if counts is None else (counts,):
        for inside in (False, True) if strata is None else (strata,):
            if stored or not inside or strata:
                yield Form(stored, inside)


def price_of_form(way: Maintenance, rows: Mapping[str, int], *, here: bool) -> float:
    """Seconds that a refresh is thought to take."""
    largest = sorted((name for name in rows if rows[name]), key=rows.__getitem__)[-LARGEST:]
    total = sum(rows[name] for name in largest)
    return sum(rows[name] / total * _after_change(way, rows, name, here) for name in largest)


def _after_change(way: Maintenance, rows: Mapping[str, int], changed: str, here: bool) -> float:
    reads = {name: _read(name, count, name == changed, here) for name, count in rows.items()}
    names = {name: name for name in way.root.columns}
    stored_rows = _stored_rows(way, rows)
    view = StoredView("", 0, names, here and stored_rows <= STATE_ROWS, stored_rows, here, here, here)
    known = known_of(reads, view)
    program = program_for(way, known)
    if program is None:
        return 0.0
    steps = refresh_steps(way, reads, view, known)
    writer = "marks" if here else "spark"
    writing = price_of_write(writer, way, delta_rows(program, known), view, 0)
    return price_of_steps(steps, reads, view, program, known, writing).seconds


def _read(name: str, rows: int, changed: bool, here: bool) -> SourceRead:
    change = max(int(rows * SHARE), 1)
    small = frozenset({State.OLD, State.NEW}) if here and rows <= STATE_ROWS else frozenset[State]()
    return SourceRead(
        name, name, 0, 1,
        change_kind="feed" if changed else "none", change_sql=None if here and change <= RS_ROWS else name,
        change_rows=change if changed else 0, rs_states=small, rows=rows, files=1, rs_finds=here,
    )  # fmt: skip


def _stored_rows(way: Maintenance, rows: Mapping[str, int]) -> int:
    """Of the view and of the sets that it stores: before it is made, a guess."""
    grouped = any(isinstance(node, Aggregate) for node in walk(way.root))
    own = max((rows.get(name, 0) for name in sources(way.root)), default=0) * (GROUPED if grouped else 1)
    inner = (max((rows.get(name, 0) for name in sources(stratum.node)), default=0) for stratum in way.strata)
    return int(own + GROUPED * sum(inner))
