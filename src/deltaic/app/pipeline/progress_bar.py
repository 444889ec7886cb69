"""A progress bar in a terminal, silence elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(title: str, total: int, *, enabled: bool) -> Iterator[Callable[[str], None]]:
    """Gives a function to call with the name of each thing done."""
    if not enabled:
        yield lambda name: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)

        def advance(name: str) -> None:
            progress.update(task, advance=1, description=f"{title} {name}")

        yield advance
