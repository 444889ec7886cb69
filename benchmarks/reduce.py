"""Sets with and without counts: the chain of figure 1 of Furukawa and Elmagarmid, made large.

r1 has `fan-out` rows of the same a. Of some a they all lead to the same c and d, so that a row which goes leaves the
view as it is; of the others (the share that `survives`) each leads elsewhere. A thousand rows of r1 go, one of each a,
and a thousand come. Rows are those of candidates and existing rows after each table; "auto" and
"counting", which store counts, have none to show. "stored" is what the view's files take.
"""

import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import deltaic
from benchmarks import results
from deltaic import Report, Warehouse

ROWS = int(os.environ.get("BENCH_ROWS", "300000"))
CHANGED = 1_000
FANS = [int(fan) for fan in os.environ.get("BENCH_FANS", "2,16").split(",")]
SURVIVE = [float(share) for share in os.environ.get("BENCH_SURVIVE", "0,0.5,1").split(",")]
TECHNIQUES = ("auto", "counting", "naive", "rie", "ric", "reduce", "reduce+", "mu2", "reducing", "recompute")
QUERY = "SELECT DISTINCT a, c, e FROM {s}.r1 JOIN {s}.r2 USING (b) JOIN {s}.r3 USING (d)"


def main() -> None:
    found = list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder, deltaic.open(Path(folder) / "warehouse") as wh:
        for number, (fan, survives) in enumerate((fan, share) for fan in FANS for share in SURVIVE):
            schema = f"s{number}"
            prepare(wh, schema, fan, survives)
            for round_ in range(2):  # the first warms Spark up
                change(wh, schema, fan, round_)
                rows = [{"fan-out": fan, "survives": survives, **measured(wh, schema, name)} for name in TECHNIQUES]
            found += rows
            results.check(wh, *(view_name(schema, name) for name in TECHNIQUES))
            Console(width=150).print(shown(rows))
    results.keep("reduce", found)


def view_name(schema: str, technique: str) -> str:
    return f"{schema}.v_{technique.replace('+', '_plus')}"


def prepare(wh: Warehouse, schema: str, fan: int, survives: float) -> None:
    wh.sql(f"CREATE SCHEMA {schema}")
    wh.sql(f"CREATE TABLE {schema}.r1 (a BIGINT, b BIGINT)")
    wh.sql(f"CREATE TABLE {schema}.r2 (b BIGINT, c BIGINT, d BIGINT)")
    wh.sql(f"CREATE TABLE {schema}.r3 (d BIGINT, e BIGINT)")
    wh.sql(f"INSERT INTO {schema}.r1 SELECT id DIV {fan}, id FROM range({ROWS})")
    alone = f"pmod(xxhash64(id DIV {fan}), 1000) < {survives * 1000:.0f}"
    leads = f"SELECT id, CASE WHEN {alone} THEN id ELSE id DIV {fan} END AS k FROM range({2 * ROWS})"
    wh.sql(f"INSERT INTO {schema}.r2 SELECT id, k % 1000, k % 50000 FROM ({leads})")
    wh.sql(f"INSERT INTO {schema}.r3 SELECT id % 50000, id FROM range(150000)")
    for name in TECHNIQUES:
        pinned = f"TBLPROPERTIES (deltaic.technique = '{name}')"
        wh.sql(f"CREATE MATERIALIZED VIEW {view_name(schema, name)} {pinned} AS {QUERY.format(s=schema)}")


def change(wh: Warehouse, schema: str, fan: int, round_: int) -> None:
    step = max(ROWS // fan // CHANGED, 1)
    gone = f"a % {step} = {round_ % step} AND b % {fan} = 0"
    wh.sql(f"DELETE FROM {schema}.r1 WHERE {gone}")
    first = ROWS + round_ * CHANGED * fan
    wh.sql(f"INSERT INTO {schema}.r1 SELECT id DIV {fan}, id FROM range({first}, {first + CHANGED})")


def measured(wh: Warehouse, schema: str, technique: str) -> dict[str, object]:
    started = time.perf_counter()
    report = wh.refresh(view_name(schema, technique))
    assert isinstance(report, Report)
    stored = wh.engine.view_table(wh.definition(view_name(schema, technique))).log.snapshot().bytes
    return {
        "technique": technique,
        "seconds": time.perf_counter() - started,
        "rows": sum(stage.comes + stage.goes + stage.stays for stage in report.stages),
        "sources read": sum((report.rows_read or {}).values()),
        "changed": report.rows_changed,
        "stored": stored,
    }


def shown(rows: list[dict[str, object]]) -> Table:
    table = Table(title=f"{ROWS:,} rows, {CHANGED:,} go and {CHANGED:,} come")
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "technique" else "right")
    for row in rows:
        table.add_row(*map(_told, row.values()))
    return table


def _told(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
