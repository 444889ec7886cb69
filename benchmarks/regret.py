"""Where the choice goes wrong: the six-way join with more and more of it changed, by the planner's choice, always
incrementally, and always recomputed. Regret is what the choice took, as a multiple of the best of all three.
"""

import os
import tempfile
from pathlib import Path

from rich.console import Console

import deltaic
from benchmarks import results, six_way, tpch

SHARES = [float(share) for share in os.environ.get("BENCH_SHARES", "0.0001,0.001,0.01,0.05,0.2,1").split(",")]
KINDS = {
    "auto": "",
    "incremental": "REFRESH POLICY INCREMENTAL",
    "recompute": "TBLPROPERTIES (deltaic.technique = 'recompute')",
}


def main() -> None:
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        tpch.load(wh, tpch.data_folder())
        for kind, clause in KINDS.items():
            wh.sql(f"CREATE MATERIALIZED VIEW v_{kind} {clause} AS {six_way.QUERY}")
        six_way.warm_up(wh, list(KINDS))
        for number, share in enumerate(SHARES, 1):
            tpch.change(wh, share, number, small_too=False)
            took = {kind: six_way.measured(wh, kind, share, False) for kind in six_way.rotated(list(KINDS), number)}
            six_way.check(wh, list(KINDS))
            best = min(float(str(result["seconds"])) for result in took.values())
            for kind, result in took.items():
                found.append({**result, "technique": kind, "regret": float(str(result["seconds"])) / best})
                Console(width=150).print({"changed": result["changed"], "kind": kind, "how": result["how"],
                                          "seconds": result["seconds"], "regret": found[-1]["regret"]})  # fmt: skip
    title = f"six-way join, TPC-H scale {tpch.SCALE:g}: regret"
    Console(width=150).print(six_way.shown(found, title))
    results.keep("regret", found)
    results.lines("regret", title, "share of the rows that changed", _points(found))


def _points(found: list[dict[str, object]]) -> dict[str, list[tuple[float, float]]]:
    return {
        kind: [(float(str(f["share"])), float(str(f["seconds"]))) for f in found if f["technique"] == kind]
        for kind in KINDS
    }
