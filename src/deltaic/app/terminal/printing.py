"""How the command line shows things: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from deltaic.app.terminal.failure import ExitCode, leave_pipe

if TYPE_CHECKING:
    from deltaic.app.care.diagnosis import Finding
    from deltaic.app.values.report import Check, Report
    from deltaic.spark.result import Result

WIDE = 4000
"""Columns to print in where no terminal sets a limit: a file or a pipe gets every line whole."""


class _Console(Console):
    """Rich would end a broken pipe with the exit code of an error."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        try:
            leave_pipe()
        except BaseException as gone:
            raise SystemExit(ExitCode.BROKEN_PIPE) from gone


def console() -> Console:
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    # names and reasons are the user's: brackets in them are no markup
    return _Console(width=None if limited else WIDE, highlight=False, soft_wrap=False, markup=False)


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def table(*headings: str, right: Iterable[str] = ()) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        shown.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return shown


# the result of a statement


def result_shown(result: Result) -> Table | Text:
    if not result.columns:
        return Text("done", "dim")
    numeric = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, kind in result.columns:
        justify: Any = "right" if kind.startswith(numeric) and kind != "interval" else "left"
        shown.add_column(Text(name), justify=justify, overflow="fold")
    for row in result.rows:
        shown.add_row(*(Text("NULL", "dim") if value is None else Text(value) for value in row))
    return shown


def rows_told(result: Result) -> str:
    count = len(result.rows)
    if result.more:
        return f"the first {count:,} rows; --rows N shows more"
    return "1 row" if count == 1 else f"{count:,} rows"


# refreshes, status, history


def reports_shown(reports: Sequence[Report]) -> Table:
    figures = ("rows read", "rows changed", "jobs", "seconds")
    shown = table("view", "mode", "technique", *figures, "reason", right=figures)
    for report in reports:
        read = None if report.rows_read is None else sum(report.rows_read.values())
        shown.add_row(
            report.view,
            Text(report.mode, _MODE_STYLE.get(report.mode, "")),
            report.technique,
            figure(read),
            figure(report.rows_changed),
            figure(report.jobs),
            f"{report.seconds:.2f}",
            Text("\n".join(report.reasons), "yellow"),
        )
    return shown


_MODE_STYLE = {"incremental": "green", "full": "yellow", "noop": "dim"}


def status_shown(views: Sequence[Mapping[str, Any]]) -> Table:
    shown = table(
        "view",
        "policy",
        "refreshes",
        "last technique",
        "sources at",
        "commits behind",
        "at",
        "lag",
        "waiting",
        "kept up to",
    )
    for view in views:
        if view["policy"] is None:
            shown.add_row(view["view"], Text("damaged", "red"), "", Text(view["comment"]))
            continue
        behind = view["commits_behind"]
        late = {name: count for name, count in behind.items() if count != 0}
        shown.add_row(
            view["view"],
            view["policy"],
            str(view["refreshes"]),
            view["technique"] or "",
            versions(view["sources"]),
            _behind(late),
            view["materialized_at"] or "",
            f"{view['lag_seconds']:g} s",
            f"{view['commits_waiting']:,}",
            view["high_water_mark"] or "",
        )
    return shown


def _behind(late: Mapping[str, int | None]) -> Text:
    if not late:
        return Text("none: fresh", "green")
    parts = [f"{name} is gone" if n is None else f"{name} {n:,}" for name, n in late.items()]
    return Text(", ".join(parts), "yellow")


def history_shown(commits: Sequence[Mapping[str, Any]]) -> Table:
    names = ("version", "when", "refresh", "mode", "technique", "seconds", "predicted", "sources at", "reasons")
    shown = table(*names, right=("version", "seconds"))
    for commit in commits:
        mode = commit["mode"] or ""
        shown.add_row(
            str(commit["version"]),
            when(commit["timestamp"]),
            str(commit["refresh"] or "") or Text(f"not Deltaic's: {commit['operation']}", "yellow"),
            Text(mode, _MODE_STYLE.get(mode, "")),
            commit["technique"] or "",
            "" if commit["seconds"] is None else f"{commit['seconds']:.2f}",
            "\n".join(f"{name} {value:.2f}" for name, value in (commit["predicted"] or {}).items()),
            versions(commit["sources"]),
            Text("\n".join(commit["reasons"] or ()), "yellow"),
        )
    return shown


# checks and findings


_VERDICT_STYLE = {"equal": "green", "differs": "bold red", "damaged": "bold red", "uncertain": "yellow"}


def check_shown(check: Check) -> Group:
    """One view on a line or two; rows that differ, as a table below."""
    late = {name: count for name, count in check.commits_behind.items() if count != 0}
    head = Text(check.view, "bold")
    head.append(f"  {check.verdict}", _VERDICT_STYLE[check.verdict])
    if check.compared is not None:
        head.append(
            f"  {check.compared:,} rows{f' ({check.sample})' if check.sample else ''} at {versions(check.versions)}"
        )
    if late:
        head.append("  stale: behind ").append_text(_behind(late))
    parts: list[RenderableType] = [head]
    if check.rows:
        parts += [Text(f"  {check.told}; + is missing, - is too many"), _differing(check)]
    parts += [Text(f"  {note}", "dim") for note in check.notes]
    return Group(*parts, *([Text(f"  {check.hint}")] if check.hint and not check.right else []))


def _differing(check: Check) -> Table:
    shown = Table(box=None, pad_edge=True, header_style="bold", padding=(0, 1, 0, 1))
    for name in check.columns:
        shown.add_column(Text(name), overflow="fold")
    for count, *values in check.rows:
        cells = [Text("NULL", "dim") if v is None else Text(v if isinstance(v, str) else json.dumps(v)) for v in values]
        shown.add_row(Text(f"{count:+,}"), *cells)
    return shown


_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "note": "cyan", "fine": "green"}


def findings_shown(findings: Sequence[Finding]) -> Table:
    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        told = Text(finding.what)
        if finding.do:
            told.append(f"\n{finding.do}", "dim")
        shown.add_row(Text(finding.severity, _SEVERITY_STYLE[finding.severity]), Text(finding.about), told)
    return shown


def versions(sources: Mapping[str, int]) -> str:
    return ", ".join(f"{name} v{version}" for name, version in sources.items())


def when(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    local = datetime.fromtimestamp(milliseconds / 1000, timezone.utc).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S")


def figure(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
