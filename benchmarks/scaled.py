"""Figure 5 of the delta-propagation paper: the six-way join, one share changed of tables of half to twice the size."""

import os
import tempfile
from pathlib import Path

from rich.console import Console

import deltaic
from benchmarks import results, six_way, tpch

SIZES = [float(size) for size in os.environ.get("BENCH_SIZES", "0.5,1,2").split(",")]
"""As multiples of the scale."""
SHARE = 0.02


def main() -> None:
    found = [result for size in SIZES for result in measured(size)]
    title = f"six-way join, {SHARE:.0%} changed, tables of {SIZES[0]:.0%} to {SIZES[-1]:.0%} of scale {tpch.SCALE:g}"
    Console(width=170).print(six_way.shown(found, title))
    results.keep("scaled", found)
    points = {
        technique: [(float(str(f["size"])), float(str(f["seconds"]))) for f in found if f["technique"] == technique]
        for technique in six_way.TECHNIQUES
    }
    results.lines("scaled", title, "size of the tables", points)


def measured(size: float) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        six_way.prepare(wh, tpch.SCALE * size)
        tpch.change(wh, SHARE, 1, small_too=False)
        found = [{"size": size, **six_way.measured(wh, name, SHARE, False)} for name in six_way.TECHNIQUES]
        six_way.check(wh, six_way.TECHNIQUES)
        return found
