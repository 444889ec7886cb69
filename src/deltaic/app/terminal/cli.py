"""The command line. Spark is imported by the commands that need it, so that help and version are instant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaic.app.terminal import care_commands, printing
from deltaic.app.terminal.failure import ExitCode, Failure, failure_of, told
from deltaic.app.terminal.options import HERE, JsonOption, WarehouseOption, announce, opened
from deltaic.app.values.texts import text_in, text_piped_in

if TYPE_CHECKING:
    from deltaic.app.values.report import Report
    from deltaic.app.warehouse import Warehouse
    from deltaic.errors import DeltaicError
    from deltaic.spark.result import Result

EXIT_CODES = """\b
Exit codes
    0  done
    1  an error of Deltaic's or Spark's: stderr says what, and what to do
       (demo: a view was not equal; doctor: it found an error)
    2  wrong usage of the command line
    3  refused: it cannot be done incrementally, and the policy INCREMENTAL STRICT, or propagate and apply, allow
       nothing else
    4  another refresh of the same view won; this one changed nothing
    5  check, repair: a view is not what its query says, or cannot be read
    6  check, repair: nothing differs for certain, and of some view it could not be told
  130  interrupted by Ctrl-C (141: the reader of a pipe went away)

With --json an error is one JSON object on stderr: error (a stable code), message, hint, line, column."""

app = typer.Typer(
    name="deltaic",
    help="Incremental materialized views for Apache Spark on Delta Lake.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ROWS_SHOWN = 20


def main() -> None:
    """The console script."""
    if "--json" not in sys.argv:
        app(prog_name="deltaic")
    try:
        code = app(prog_name="deltaic", standalone_mode=False)
    except typer.TyperException as error:
        print(Failure("USAGE", error.format_message()).as_json(), file=sys.stderr)
        code = error.exit_code
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from deltaic import __version__

        print(f"deltaic {__version__} (Spark {version('pyspark')}, Delta Lake {version('delta-spark')})")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


@app.command()
def sql(
    statement: Annotated[
        str | None, typer.Argument(help="One or more statements, separated by ; (- or nothing: from stdin).")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, allow_dash=True, help="Read them from a file."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", "-n", min=0, help=f"Rows to show of each result ({ROWS_SHOWN}; with --json all)."),
    ] = None,
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Run Spark SQL and the MATERIALIZED VIEW statements."""
    with told(json):
        text = _text_of(statement, file)
        from deltaic.spark.result import fetched
        from deltaic.sql.parse_statement import split_statements

        limit = rows if json or rows is not None else ROWS_SHOWN
        statements = in_place(text, split_statements(text))
        with opened(warehouse, make=True) as wh:
            results = []
            for number, one in enumerate(statements):
                result = fetched(wh.sql(one), limit, as_json=json)
                results.append({"statement": one.strip(), **result.as_dict()})
                if not json:
                    _show_result(result, first=number == 0)
            if json:
                printing.print_json(results)


def _text_of(statement: str | None, file: Path | None) -> str:
    """What to run: the argument, a file, or what is piped in."""
    if statement not in (None, "-") and file is not None:
        raise typer.BadParameter("give a statement or --file, not both")
    if statement not in (None, "-"):
        text = statement or ""
    elif file is not None and str(file) != "-":
        text = text_in(file)
    elif statement is None and file is None and sys.stdin.isatty():
        raise typer.BadParameter("give a statement, --file PATH, or pipe statements in")
    else:
        text = text_piped_in()
    if not text.strip():
        raise typer.BadParameter("there is no statement in the text")
    return text


def in_place(script: str, statements: list[str]) -> list[str]:
    """Each statement with blanks before it, so that the line and column of an error are those of the script."""
    placed, start = [], 0
    for statement in statements:
        start = script.index(statement, start)
        before = script[:start]
        last_line = before.rpartition("\n")[2]
        placed.append("\n" * before.count("\n") + " " * len(last_line) + statement)
        start += len(statement)
    return placed


def _show_result(result: Result, *, first: bool) -> None:
    shown = printing.console()
    if not first:
        shown.print()
    shown.print(printing.result_shown(result))
    if result.columns:
        shown.print(f"({printing.rows_told(result)})", style="dim")


@app.command()
def datalog(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program (-: from stdin).")],
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Make a view of each derived predicate that a Datalog program asks for."""
    with told(json), opened(warehouse) as wh:
        views = wh.datalog(text_piped_in() if str(file) == "-" else file)
        if json:
            printing.print_json({"views": views})
        else:
            print("\n".join(views) or "the program asks for no view")


@app.command()
def refresh(
    views: Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="All views, if none is named.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute, whatever could be done incrementally.")] = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="To this time, of one view: its number, or a timestamp.")
    ] = None,
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Bring views up to date with their sources, those that others read first."""
    with told(json), opened(warehouse) as wh:
        if as_of is not None and len(views or []) != 1:
            raise typer.BadParameter("--as-of is for one view")
        reports, problems = _refreshed(wh, views or [], full, _time(as_of))
        if json:
            printing.print_json([report.as_dict() for report in reports])
        elif len(reports) == 1:
            printing.console().print(reports[0])
        elif reports:
            printing.console().print(printing.reports_shown(reports))
        elif not problems:
            print("there are no materialized views here")
        for other in problems[1:]:
            if not json:
                print(failure_of(other).as_text(), file=sys.stderr)
        if problems:
            raise problems[0]


def _refreshed(
    wh: Warehouse, names: list[str], full: bool, as_of: int | str | None
) -> tuple[list[Report], list[DeltaicError]]:
    """What was done, and what could not be."""
    from deltaic.app.pipeline.pipeline import Pipeline
    from deltaic.app.pipeline.progress_bar import progress_bar
    from deltaic.errors import DeltaicError

    if not names:
        return Pipeline(wh.engine).refreshed(full=full)
    wanted = {wh.definition(name).full_name: name for name in names}
    order = [wanted[d.full_name] for d in Pipeline(wh.engine).in_order() if d.full_name in wanted]
    reports: list[Report] = []
    with progress_bar("refreshing", len(order), enabled=sys.stderr.isatty() and len(order) > 1) as advance:
        for name in order:
            try:
                report = wh.refresh(name, full=full, as_of=as_of)
            except DeltaicError as problem:
                return reports, [problem]
            assert not isinstance(report, list)
            reports.append(report)
            advance(report.view)
    return reports, []


@app.command()
def explain(
    view: Annotated[
        str, typer.Argument(metavar="VIEW_OR_STATEMENT", help="A view, or a CREATE MATERIALIZED VIEW statement.")
    ],
    warehouse: WarehouseOption = HERE,
    propagate: Annotated[bool, typer.Option(help="The next step of propagation, instead of a refresh.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how a view is kept, and every step that a refresh would take now."""
    with told(json), opened(warehouse) as wh:
        text = wh.explain(view, propagate=propagate)
        if json and propagate:
            printing.print_json({"explained": view, "text": text})
        elif json:
            printing.print_json({"explained": view, "text": text, **_plan(wh, view)})
        else:
            print(text)


def _plan(wh: Warehouse, view: str) -> dict[str, Any]:
    """The steps of a refresh as values; a statement that made no view yet has none."""
    from deltaic.app.refresh.decide import Planner
    from deltaic.app.statements.explaining import is_statement

    if is_statement(view):
        return {}
    plan = Planner(wh.engine).plan(wh.definition(view))
    return {
        "view": plan.definition.full_name,
        "mode": plan.mode,
        "technique": plan.technique,
        "reasons": [str(reason) for reason in plan.reasons],
        "sources": [
            {"source": key, "from": read.old, "to": read.new, "change_rows": read.change_rows}
            for key, read in plan.reads.items()
        ],
        "steps": [{"title": s.title, "relation": s.relation, "sql": s.sql or None} for s in plan.steps],
    }


@app.command()
def status(warehouse: WarehouseOption = HERE, json: JsonOption = False) -> None:
    """List the views: policy, last technique, the versions of their sources, commits behind."""
    with told(json), opened(warehouse) as wh:
        views = wh.views()
        if json:
            printing.print_json(views)
        elif views:
            printing.console().print(printing.status_shown(views))
        else:
            print("there are no materialized views here")


@app.command()
def propagate(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The name of a view.")],
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="At most so many steps.")] = None,
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Compute what changed of a view and keep it, with its times; the view stays as it is."""
    with told(json), opened(warehouse) as wh:
        reports = wh.propagate(view, steps=steps)
        if json:
            printing.print_json([report.as_dict() for report in reports])
        elif reports:
            printing.console().print(printing.reports_shown(reports))
        else:
            print("nothing has changed")


@app.command()
def apply(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The name of a view.")],
    to: Annotated[str | None, typer.Option("--to", help="A time: its number, or a timestamp.")] = None,
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Fold what was propagated into a view, up to a time."""
    with told(json), opened(warehouse) as wh:
        report = wh.apply(view, to=_time(to))
        if json:
            printing.print_json(report.as_dict())
        else:
            printing.console().print(report)


def _time(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text


@app.command()
def run(
    views: Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="All views, if none is named.")] = None,
    lag: Annotated[
        str | None, typer.Option("--lag", help="How far behind views may be that do not say so: '30 seconds'.")
    ] = None,
    warehouse: WarehouseOption = HERE,
) -> None:
    """Keep views at their target lag, until interrupted. A step under way is finished first."""
    import signal
    from threading import Event

    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with told(False), opened(warehouse) as wh:
        print("running; Ctrl-C ends it", file=sys.stderr)
        wh.run(stop, lag=lag, views=views or (), tell=lambda line: print(line, flush=True))


@app.command()
def history(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The name of a view.")],
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """List the refreshes of a view, newest first."""
    with told(json), opened(warehouse) as wh:
        commits = wh.history(view)
        if json:
            printing.print_json(commits)
        else:
            printing.console().print(printing.history_shown(commits))


@app.command()
def demo(
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Sales to begin with.")] = 300_000,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="PATH", help="Build it in this new folder, and keep it.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Keep the views of a retail warehouse fresh through batches of changes, and check each against recompute."""
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise typer.BadParameter(f"{keep} is already there; --keep takes a new folder")
    with told(json):
        from deltaic.app.terminal.demo import next_steps, run_demo

        shown = printing.console()
        announce()
        done = run_demo(rows, keep, (lambda part: None) if json else shown.print, bars=sys.stderr.isatty())
        if json:
            printing.print_json(done.as_dict())
        else:
            shown.print(next_steps(keep))
        if not done.equal:
            raise typer.Exit(ExitCode.FAILED)


care_commands.add_to(app)


if __name__ == "__main__":
    main()
