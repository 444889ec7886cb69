"""Incremental or full, and by which writer: what each is predicted to take, corrected by what past refreshes took.

Predictions stand in the commit of a refresh, with the time it was started at; the commit's own time says how long it
took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltaic.algebra.reasons import Code, Reason
from deltaic.app.values.definition import Definition
from deltaic.app.values.settings import Settings
from deltaic.errors import HistoryGone
from deltaic.plan.cost import WRITTEN, Learnt, Past, Predicted, price_of_full
from deltaic.plan.maintain import Maintenance
from deltaic.plan.steps import SourceRead, StoredView
from deltaic.sql.statements import Policy
from deltaic.store.commit import Commit
from deltaic.store.log import Log
from deltaic.store.progress import Progress

_LOOKED_BACK = 20
_FIRST = "first"
PATIENCE = 10.0
"""Seconds that a refresh over few rows may be priced at: beyond it is Spark that plans a large delta."""
COLD = 2.0
"""What creating a view takes longer than recomputing it: nothing of it is compiled yet, in Spark or in Java."""


@dataclass(frozen=True)
class Choice:
    """What stood to choose from, in seconds."""

    technique: str
    incremental: Predicted
    full: Predicted
    learnt: Learnt
    writers: Mapping[str, float]
    """What each writer that could do it would take."""

    @property
    def seconds(self) -> dict[str, float]:
        """By technique."""
        return {
            self.technique: self.incremental.seconds * self.learnt.incremental,
            "recompute": self.full.seconds * self.learnt.full,
        }

    def recorded(self) -> dict[str, Any]:
        """For the commit: what the prices say, and what is expected with what was learnt."""
        raw = {"incremental": round(self.incremental.seconds, 3), "full": round(self.full.seconds, 3)}
        return {"prices": raw, "predicted": {name: round(value, 3) for name, value in self.seconds.items()}}

    def why_full(self, definition: Definition, reads: Mapping[str, SourceRead], settings: Settings) -> Reason | None:
        """Why a view that may be recomputed had better be; a small one is not if that takes no time either way."""
        rows = [read.rows for read in reads.values()]
        if definition.policy is not Policy.AUTO or definition.technique != "auto" or None in rows:
            return None
        incremental, full = self.seconds[self.technique], self.seconds["recompute"]
        small = sum(count or 0 for count in rows) < settings.full_rows and self.incremental.seconds <= PATIENCE
        if small or full * settings.full_advantage >= incremental:
            return None
        changed = sum(read.change_rows or 0 for read in reads.values() if read.changed)
        return Reason(
            Code.COST,
            f"by {self.technique} the refresh is predicted to take {incremental:.1f} s ({changed:,} rows changed, "
            f"a delta of about {self.incremental.delta_rows:,.0f}), by a recompute {full:.1f} s",
            hint="Refreshing after fewer changes, or REFRESH POLICY INCREMENTAL, keeps it incremental.",
        )

    def lines(self) -> list[str]:
        """For explain."""
        told = []
        for name, parts, factor in (
            (self.technique, self.incremental, self.learnt.incremental),
            ("recompute", self.full, self.learnt.full),
        ):
            spent = f"reading {parts.reading:.2f}, computing {parts.computing:.2f}, writing {parts.writing:.2f}"
            learnt = f"; past refreshes took {factor:.2f} times what was predicted" if factor != 1.0 else ""
            told.append(f"  {name}: {parts.seconds * factor:.2f} s ({spent}{learnt})")
        writers = ", ".join(
            f"{name} {seconds:.2f} s" for name, seconds in sorted(self.writers.items(), key=lambda w: w[1])
        )
        return ["Predicted:", *told, f"  writing a delta of about {self.incremental.delta_rows:,.0f} rows: {writers}"]


def first_price(way: Maintenance, reads: Mapping[str, SourceRead]) -> dict[str, Any]:
    """For the commit that creates a view: what computing it is priced at, but for its rows, which are not known yet."""
    full = price_of_full(way, reads, StoredView("", None, {}, rows=0))
    return {"prices": {_FIRST: round(full.seconds, 3)}}


def seconds_of(commit: Commit) -> float | None:
    """How long a refresh took, up to its commit."""
    own = Progress.of(commit)
    started = own.figures.get("started") if own else None
    if not isinstance(started, int) or commit.timestamp is None:
        return None
    return max(commit.timestamp - started, 1) / 1000


def learnt_from(log: Log) -> Learnt:
    """From the view's newest refreshes."""
    past: list[Past] = []
    newest = log.version()
    for version in range(newest, max(-1, newest - _LOOKED_BACK), -1):
        try:
            commit = log.commit(version)
        except HistoryGone:
            break
        own = Progress.of(commit)
        figures = own.figures if own else {}
        actual, prices = seconds_of(commit), figures.get("prices")
        if not actual or not isinstance(prices, dict) or not all(isinstance(p, int | float) for p in prices.values()):
            continue
        if figures.get("mode") in prices:
            past.insert(0, Past(figures["mode"], prices[figures["mode"]], actual))
        elif _FIRST in prices:
            rows = sum(file.rows or 0 for file in commit.adds)
            past.insert(0, Past("full", prices[_FIRST] + WRITTEN * rows, max(actual - COLD, actual / 2)))
    return Learnt.of(past)
