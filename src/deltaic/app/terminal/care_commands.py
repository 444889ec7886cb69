"""The commands that look after views and machines: check, repair, doctor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deltaic.app.terminal import printing
from deltaic.app.terminal.failure import ExitCode, told
from deltaic.app.terminal.options import HERE, JsonOption, WarehouseOption, opened
from deltaic.app.values.report import ROWS_SHOWN

if TYPE_CHECKING:
    from deltaic.app.values.report import Check
    from deltaic.app.warehouse import Warehouse


def add_to(app: typer.Typer) -> None:
    for command in (check, repair, doctor):
        app.command()(command)


def check(
    views: Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="All views, if none is named.")] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="About so many rows of each view, chosen by a hash.")
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=0, help="Rows that differ, to show of each view.")
    ] = ROWS_SHOWN,
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Compare views with their queries, as of the source versions that they were made of."""
    with told(json), opened(warehouse) as wh:
        checks = _checked(wh, views or [], sample, rows)
        if json:
            printing.print_json([one.as_dict() for one in checks])
        elif checks:
            for one in checks:
                printing.console().print(printing.check_shown(one))
        else:
            print("there are no materialized views here")
        _end(checks)


def _checked(wh: Warehouse, names: list[str], sample: int | None, rows: int) -> list[Check]:
    from deltaic.algebra.quoting import quote
    from deltaic.app.care.repairing import views_to_check
    from deltaic.app.pipeline.progress_bar import progress_bar

    wanted = names or [".".join(map(quote, name)) for name in views_to_check(wh.engine)]
    found: list[Check] = []
    with progress_bar("checking", len(wanted), enabled=sys.stderr.isatty() and len(wanted) > 1) as advance:
        for name in wanted:
            one = wh.check(name, sample=sample, rows=rows)
            assert not isinstance(one, list)
            found.append(one)
            advance(name)
    return found


def _end(checks: Sequence[Check]) -> None:
    if any(one.wrong for one in checks):
        raise typer.Exit(ExitCode.DIFFERS)
    if not all(one.right for one in checks):
        raise typer.Exit(ExitCode.UNCERTAIN)


def repair(
    views: Annotated[list[str], typer.Argument(metavar="VIEW...", help="The names of views.")],
    force: Annotated[bool, typer.Option("--force", help="Compute them anew, whatever the check says.")] = False,
    warehouse: WarehouseOption = HERE,
    json: JsonOption = False,
) -> None:
    """Check views, and compute those anew that are not what their queries say."""
    with told(json), opened(warehouse) as wh:
        done = [wh.repair(view, force=force) for view in views]
        if json:
            printing.print_json([one.as_dict() for one in done])
        else:
            for one in done:
                printing.console().print(one)
        _end([one.after for one in done])


def doctor(warehouse: WarehouseOption = HERE, json: JsonOption = False) -> None:
    """Say what is missing or slow: on this machine, in the session, and in the warehouse, if it is there."""
    with told(json):
        from deltaic.app.doctor import doctor as examine

        found = examine(warehouse)
        if json:
            printing.print_json(found.as_dict())
        else:
            printing.console().print(printing.findings_shown(found.sorted()))
        if found.errors:
            raise typer.Exit(ExitCode.FAILED)
