"""How the command line fails: an exit code for scripts, and a line or JSON for whoever reads it."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import IntEnum

import typer

from deltaic.errors import ConcurrentRefresh, DeltaicError, NotIncremental

_SILENT = "Spark gave no message"


class ExitCode(IntEnum):
    """Besides 0, done, and 2, wrong usage, which typer ends with."""

    FAILED = 1
    REFUSED = 3
    LOST = 4
    DIFFERS = 5
    UNCERTAIN = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


@dataclass(frozen=True)
class Failure:
    """One error, as `--json` tells it."""

    error: str
    message: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    exit_code: ExitCode = ExitCode.FAILED
    is_bug: bool = False

    def as_json(self) -> str:
        fields = {k: v for k, v in asdict(self).items() if k not in ("exit_code", "is_bug")}
        return json.dumps(fields, ensure_ascii=False)

    def as_text(self) -> str:
        place = f" (line {self.line}, column {self.column})" if self.line else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"error [{self.error}]: {self.message}{place}{hint}"


def failure_of(error: Exception) -> Failure:
    if isinstance(error, DeltaicError):
        line, column = (error.at.line, error.at.column) if error.at else (None, None)
        code = ExitCode.FAILED
        if isinstance(error, NotIncremental):
            code = ExitCode.REFUSED
        elif isinstance(error, ConcurrentRefresh):
            code = ExitCode.LOST
        return Failure(error.code, error.what, error.hint, line, column, code)
    # Whoever raised an error of Spark's has imported it; nobody else pays for the import.
    of_spark = _of_spark(error) if "pyspark" in sys.modules else None
    if of_spark is not None:
        return of_spark
    if isinstance(error, OSError):
        return Failure("SYSTEM", str(error))
    hint = "This is a bug in Deltaic. Please report it with the lines above."
    return Failure("INTERNAL", f"{type(error).__name__}: {error}", hint, is_bug=True)


def _of_spark(error: Exception) -> Failure | None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from deltaic.store.table import first_line

    if isinstance(error, Py4JJavaError):
        return Failure("SPARK", first_line(error) or _SILENT)
    if not isinstance(error, PySparkException):
        return None
    text = first_line(error.getMessage() or error) or _SILENT
    place = re.search(r"[;(]?\s*\(?line (\d+),? pos (\d+)\)?", str(error))
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text).removeprefix(f"[{error.getCondition()}] ")
    line, column = (int(place.group(1)), int(place.group(2)) + 1) if place else (None, None)
    return Failure(error.getCondition() or "SPARK", text, None, line, column)


@contextmanager
def told(as_json: bool) -> Iterator[None]:
    """Runs a command so that whatever goes wrong in it ends the process as the help text says. With JSON the error is
    all that stands on stderr."""
    logger = logging.getLogger("deltaic")
    before = logger.level
    if as_json:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        leave_pipe()
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        failure = failure_of(error)
        if failure.is_bug and not as_json:
            traceback.print_exc()
        print(failure.as_json() if as_json else failure.as_text(), file=sys.stderr)
        raise typer.Exit(failure.exit_code) from None
    finally:
        logger.setLevel(before)


def leave_pipe() -> None:
    """The reader has gone, as `head` does: end as other programs do, and let Python's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(ExitCode.BROKEN_PIPE)
