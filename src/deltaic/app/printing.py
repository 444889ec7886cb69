"""How the command line shows things: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from deltaic.app.failure import ExitCode, leave_pipe

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from deltaic.app.diagnosis import Finding
    from deltaic.app.report import Check, Report

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


@dataclass(frozen=True)
class Result:
    """The first rows of a result, as text or as JSON values."""

    columns: list[tuple[str, str]]
    rows: list[list[Any]]
    more: bool

    def as_dict(self) -> dict[str, Any]:
        columns = [{"name": name, "type": kind} for name, kind in self.columns]
        return {"columns": columns, "rows": self.rows, "truncated": self.more}


def fetched(frame: DataFrame, limit: int | None, *, as_json: bool) -> Result:
    """Names may be used twice in a result, so columns go by their place."""
    fields = frame.schema.fields
    columns = [(field.name, field.dataType.simpleString()) for field in fields]
    if not fields:
        return Result([], [], False)
    plain = frame.toDF(*(f"c{n}" for n in range(len(fields))))
    shown = plain.select(*(_shown(f"c{n}", f.dataType, as_json) for n, f in enumerate(fields)))
    rows = shown.collect() if limit is None else shown.take(limit + 1)
    kept = rows if limit is None else rows[:limit]
    values = [list(row) for row in kept]
    if as_json:
        nested = [f.dataType.typeName() in _NESTED for f in fields]
        values = [[_json_value(v, n) for v, n in zip(row, nested, strict=True)] for row in values]
    return Result(columns, values, len(rows) > len(kept))


_NESTED = frozenset({"struct", "array", "map", "variant"})
_AS_THEY_ARE = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "string", "void"})


def _shown(name: str, kind: DataType, as_json: bool) -> Column:
    """Spark itself writes values as text, in the session's time zone; JSON keeps what JSON has.

    A DECIMAL is text in JSON too: most readers of JSON would make it a double, and lose digits.
    """
    from pyspark.sql import functions as F

    column = F.col(name)
    word = kind.typeName()
    if word == "binary":
        return F.base64(column) if as_json else F.concat(F.lit("0x"), F.hex(column))
    if as_json and word in _NESTED:
        return F.to_json(column, {"ignoreNullFields": "false"})
    if as_json and word in _AS_THEY_ARE:
        return column
    return column.cast("string")


def _json_value(value: Any, nested: bool) -> Any:
    if nested and value is not None:
        return json.loads(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value


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
