"""One change, larger and larger tables: the six-way join at growing scales, the same number of orders changed."""

import os
import tempfile
from pathlib import Path

from rich.console import Console

import deltaic
from benchmarks import results, six_way, tpch

SCALES = [float(scale) for scale in os.environ.get("BENCH_SCALES", "0.1,0.3,1").split(",")]
SHARE = 0.001
"""Of the smallest."""
ROUNDS = 3


def main() -> None:
    found = [measured(scale) for scale in SCALES]
    title = f"six-way join, {SHARE:.2%} of scale {SCALES[0]:g} changed in tables of growing scale"
    Console(width=150).print(six_way.shown(found, title))
    results.keep("growth", found)
    kinds = ("seconds", "recompute")
    points = {kind: [(float(str(f["scale"])), float(str(f[kind]))) for f in found] for kind in kinds}
    results.lines("growth", title, "scale", points)


def measured(scale: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        tpch.load(wh, tpch.data_folder(), scale)
        for kind in ("auto", "recompute"):
            pinned = f"TBLPROPERTIES (deltaic.technique = '{kind}')"
            wh.sql(f"CREATE MATERIALIZED VIEW v_{kind} {pinned} AS {six_way.QUERY}")
        for number in range(ROUNDS):  # the first ones warm Spark up
            tpch.change(wh, SHARE * SCALES[0] / scale, number, small_too=False)
            kept = six_way.measured(wh, "auto", SHARE, False)
        again = six_way.measured(wh, "recompute", SHARE, False)
        six_way.check(wh, ["auto", "recompute"])
        return {"scale": scale, "how": kept["how"], "seconds": kept["seconds"], "recompute": again["seconds"],
                "delta rows": kept["delta rows"], "source rows": kept["source rows"]}  # fmt: skip
