"""What all commands share: their options, and the warehouse that they open."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deltaic.errors import MissingError

if TYPE_CHECKING:
    from deltaic.app.warehouse import Warehouse

WarehouseOption = Annotated[
    Path,
    typer.Option("--warehouse", "-w", envvar="DELTAIC_WAREHOUSE", metavar="PATH", help="The folder of the warehouse."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
HERE = Path("warehouse")


@contextmanager
def opened(path: Path, *, make: bool = False) -> Iterator[Warehouse]:
    """The warehouse, for the length of a command; only SQL makes one that is not there."""
    if not (path / ".deltaic").is_dir() and not make:
        raise MissingError(
            f"there is no warehouse at {path}", hint="Name its folder with --warehouse or DELTAIC_WAREHOUSE."
        )
    announce()
    with Console(stderr=True).status("starting Spark") if sys.stderr.isatty() else nullcontext():
        import deltaic

        warehouse = deltaic.open(path)
    try:
        yield warehouse
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            warehouse.close()
        raise
    warehouse.close()


def announce() -> None:
    """The first start on a machine fetches the jars; that wait deserves a word, and no other does."""
    from deltaic.spark.jars import jars_are_cached

    if not jars_are_cached():
        print("fetching Delta Lake's jars, once (12 MB) …", file=sys.stderr)
