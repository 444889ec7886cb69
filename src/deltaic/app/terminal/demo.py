"""The demo: a retail warehouse whose views are kept from changes, each checked against its query run anew.

It uses what any user has (`deltaic.open`, `sql`, `table`, `refresh`, `check`) and knows nothing else of Deltaic.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import deltaic
from deltaic.app.pipeline.progress_bar import progress_bar
from deltaic.app.terminal.retail import VIEWS, Batch, View, batches, tables

if TYPE_CHECKING:
    from deltaic.app.values.report import Report
    from deltaic.app.warehouse import Warehouse


@dataclass(frozen=True)
class Checked:
    """One view after one batch: what its refresh did, and whether it was right."""

    report: Report
    kind: str
    recompute_seconds: float
    equal: bool

    @property
    def name(self) -> str:
        return self.report.view.removeprefix("default.")

    @property
    def rows_read(self) -> int | None:
        """Of all sources together, and of the view itself."""
        return None if self.report.rows_read is None else sum(self.report.rows_read.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "view": self.name,
            "kind": self.kind,
            "mode": self.report.mode,
            "technique": self.report.technique,
            "reasons": list(self.report.reasons),
            "rows_read": self.report.rows_read,
            "rows_changed": self.report.rows_changed,
            "jobs": self.report.jobs,
            "seconds": round(self.report.seconds, 3),
            "recompute_seconds": round(self.recompute_seconds, 3),
            "equal": self.equal,
        }


@dataclass(frozen=True)
class Round:
    """One batch of changes, and every view after it."""

    batch: Batch
    views: list[Checked]

    @property
    def change_rows(self) -> dict[str, int | None]:
        """Rows of the tables' changes: an update is two, one that goes and one that comes."""
        own = {checked.report.view.lower() for checked in self.views}
        found = {key: rows for c in self.views for key, rows in c.report.change_rows.items()}
        return {key.removeprefix("default."): rows for key, rows in found.items() if key not in own}


@dataclass
class Demo:
    """All figures of one run."""

    sales: int
    rounds: list[Round] = field(default_factory=list)
    idle_seconds: float = 0.0
    """A refresh of all views when nothing had changed."""
    idle_jobs: int = 0
    seconds: float = 0.0

    @property
    def checks(self) -> list[Checked]:
        return [checked for one in self.rounds for checked in one.views]

    @property
    def equal(self) -> bool:
        return all(checked.equal for checked in self.checks)

    def as_dict(self) -> dict[str, Any]:
        return {
            "sales": self.sales,
            "views": [asdict(view) for view in VIEWS],
            "batches": [
                {
                    "title": one.batch.title,
                    "statements": list(one.batch.statements),
                    "change_rows": one.change_rows,
                    "views": [checked.as_dict() for checked in one.views],
                }
                for one in self.rounds
            ],
            "nothing_changed": {"seconds": round(self.idle_seconds, 3), "jobs": self.idle_jobs},
            "seconds": round(self.seconds, 1),
            "equal": self.equal,
        }


def run_demo(sales: int, keep: Path | None, tell: Callable[[RenderableType], None], *, bars: bool) -> Demo:
    """Runs it all, in `keep` or in a folder that is gone afterwards; `tell` is given each part to show."""
    folder = keep or Path(tempfile.mkdtemp(prefix="deltaic-demo-"))
    scratch = Path(tempfile.mkdtemp(prefix="deltaic-demo-check-"))
    started = time.perf_counter()
    demo = Demo(sales)
    try:
        with deltaic.open(folder) as warehouse:
            _build(warehouse, sales, tell, bars)
            for number, batch in enumerate(batches(sales), 1):
                demo.rounds.append(_round(warehouse, batch, scratch, bars))
                tell(batch_shown(demo.rounds[-1], number))
            _idle(warehouse, demo)
        demo.seconds = time.perf_counter() - started
        tell(summary(demo))
        return demo
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


# what is done


def _build(warehouse: Warehouse, sales: int, tell: Callable[[RenderableType], None], bars: bool) -> None:
    started = time.perf_counter()
    statements = [(statement, "tables") for statement in tables(sales)]
    statements += [(_create(v), v.name) for v in VIEWS]
    with progress_bar("building", len(statements), enabled=bars) as advance:
        for statement, name in statements:
            warehouse.sql(statement)
            advance(name)
    spent = time.perf_counter() - started
    tell(f"{sales:,} sales in a new warehouse, and {len(VIEWS)} materialized views: {spent:.1f} s.")


def _create(view: View) -> str:
    """Of some hundred thousand rows the planner would rather compute some views anew, which is not to be shown here."""
    return f"CREATE MATERIALIZED VIEW {view.name} COMMENT '{view.kind}' REFRESH POLICY INCREMENTAL AS\n{view.query}"


def _round(warehouse: Warehouse, batch: Batch, scratch: Path, bars: bool) -> Round:
    """Changes the sources, refreshes every view to one common time, then checks them all."""
    for statement in batch.statements:
        warehouse.sql(statement)
    reports = warehouse.refresh()
    assert isinstance(reports, list)
    views = {f"default.{view.name}": view for view in VIEWS}
    checked = []
    with progress_bar("checking", len(reports), enabled=bars) as advance:
        for report in reports:
            checked.append(_check(warehouse, views[report.view], report, scratch))
            advance(report.view)
    return Round(batch, checked)


def _check(warehouse: Warehouse, view: View, report: Report, scratch: Path) -> Checked:
    """Recomputing means: Spark runs the query and writes its rows to plain files, without a Delta commit."""
    query, stored = warehouse.sql(view.query), warehouse.table(view.name)
    started = time.perf_counter()
    query.write.mode("overwrite").parquet(str(scratch / view.name))
    spent = time.perf_counter() - started
    found = warehouse.check(view.name)
    assert not isinstance(found, list)
    same = query.schema.simpleString() == stored.schema.simpleString()
    return Checked(report, view.kind, spent, same and found.right and not any(found.commits_behind.values()))


def _idle(warehouse: Warehouse, demo: Demo) -> None:
    started = time.perf_counter()
    reports = warehouse.refresh()
    demo.idle_seconds = time.perf_counter() - started
    assert isinstance(reports, list)
    demo.idle_jobs = sum(report.jobs or 0 for report in reports)


# what is shown


def batch_shown(one: Round, number: int) -> RenderableType:
    title = Text(f"\nBatch {number}. {one.batch.title}", "bold")
    changed = ", ".join(f"{name} {_number(rows)}" for name, rows in one.change_rows.items())
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("view", "what it is", "technique"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rows read", "rows changed", "seconds", "to recompute"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("equal", justify="center")
    for checked in one.views:
        right = Text("yes", "green") if checked.equal else Text("NO", "bold red")
        table.add_row(
            checked.name,
            checked.kind,
            Text(checked.report.technique, "yellow" if checked.report.mode == "full" else ""),
            _number(checked.rows_read),
            _number(checked.report.rows_changed),
            f"{checked.report.seconds:.2f}",
            f"{checked.recompute_seconds:.2f}",
            right,
        )
    told = [Text(f"  {_one_line(s)}", "dim") for s in one.batch.statements]
    return Group(title, *told, Text(f"Change rows: {changed}"), table)


def _one_line(statement: str) -> str:
    """The statements of a batch are shown for their meaning; how rows are made up is no part of that."""
    text = " ".join(statement.split())
    if text.startswith("INSERT"):
        return text.split(" SELECT ")[0] + " SELECT … FROM " + text.rsplit(" FROM ", 1)[1]
    return text


def _number(figure: int | None) -> str:
    return "?" if figure is None else f"{figure:,}"


def summary(demo: Demo) -> RenderableType:
    checks = demo.checks
    kept = [c for c in checks if c.report.mode == "incremental"]
    wrong = [c for c in checks if not c.equal]
    verdict = Text(f"{len(checks) - len(wrong)} of {len(checks)} refreshed views equal their query run anew", "bold")
    verdict.append(": " + ", ".join(sorted({c.name for c in wrong})) + " do not." if wrong else ".", "bold red")
    reasons = _reasons(checks)
    lines = [
        Text(),
        verdict,
        Text(f"{len(kept)} refreshes were incremental" + ("; a recompute says why:" if reasons else ".")),
        *(Text(f"  {name}: {reason}", "yellow") for name, reason in reasons),
        Text(
            f"With nothing changed, all {len(VIEWS)} views were found fresh in {demo.idle_seconds * 1000:,.0f} ms, "
            f"by {demo.idle_jobs} Spark jobs."
        ),
        Text(f"{demo.seconds:.0f} seconds in all, Spark's start and every check included."),
    ]
    return Group(*lines)


def _reasons(checks: list[Checked]) -> list[tuple[str, str]]:
    found = {(c.name, reason) for c in checks for reason in c.report.reasons}
    return sorted(found)


def next_steps(keep: Path | None) -> RenderableType:
    """What a person may want to try after the demo."""
    place = str(keep) if keep else "retail"
    steps = [] if keep else [f"deltaic demo --keep {place}"]
    steps += [
        f"deltaic explain CitySales -w {place}",
        f'deltaic sql -w {place} "UPDATE sales SET price = price + 1 WHERE storeID = 3; SHOW MATERIALIZED VIEWS"',
        f"deltaic refresh -w {place}",
        f"deltaic history CitySales -w {place}",
        "deltaic demo --rows 3000000",
    ]
    return Group(Text("\nTry next:", "bold"), *(Text(f"  {step}") for step in steps))
