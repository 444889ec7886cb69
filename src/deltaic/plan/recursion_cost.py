"""What keeping or evaluating recursive predicates is thought to take, before it is done.

A row that is found in round n rests on about n rows of the tables below. So a changed row of a table is under

    rows of the predicates * mean round in which they were found / rows of the table

of their rows, which is what is over-deleted for one that goes, and found for one that comes. In a graph that is one
large cycle it is more: that is seen only while it runs (`rounds.OverDeleted`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltaic.plan.recursion import Recursion
from deltaic.plan.rounds import RoundsFound
from deltaic.plan.steps import SourceRead

READ, FOUND, ROUND = 4e-7, 2e-6, 0.01
"""In this process: per row that rounds begin with, per row that they find, and per round."""
SPARK_FOUND, SPARK_ROUND = 4e-6, 0.5
"""On Spark."""
USUAL_DEPTH = 3.0
"""Where it was not recorded."""


def mean_round(told: Sequence[RoundsFound]) -> float | None:
    """In which round a row was found, on average."""
    counts = [(n, count) for one in told for found in one.rows.values() for n, count in enumerate(found, 1)]
    rows = sum(count for _, count in counts)
    return sum(n * count for n, count in counts) / rows if rows else None


@dataclass(frozen=True)
class Reach:
    """`derived`: rows of the predicates. `moved`: those that a change is thought to reach. `begun_with`: rows of the
    tables. `here`: whether rounds run in this process."""

    derived: float
    moved: float
    begun_with: float
    depth: float
    here: bool

    @staticmethod
    def of(
        recursion: Recursion, reads: Mapping[str, SourceRead], rows: int | None, depth: float | None, *, here: bool
    ) -> Reach:
        depth, derived = depth or USUAL_DEPTH, float(rows or 0)
        tables = [reads[name] for name in recursion.reads]
        shares = [(read.change_rows or 0) / max(read.rows or 0, 1) for read in tables if read.changed]
        moved = derived * min(1.0, depth * sum(shares))
        return Reach(derived, moved, float(sum(read.rows or 0 for read in tables)), depth, here)

    @property
    def kept(self) -> float:
        """Seconds by DRed: what is over-deleted is looked at in every step of it."""
        return self._seconds(self.begun_with + self.derived, 3 * self.moved, 3)

    @property
    def evaluated(self) -> float:
        return self._seconds(self.begun_with, self.derived, 1)

    def _seconds(self, begun_with: float, found: float, phases: int) -> float:
        per_row, per_round = (FOUND, ROUND) if self.here else (SPARK_FOUND, SPARK_ROUND)
        return READ * begun_with + per_row * found + per_round * phases * 2 * self.depth
