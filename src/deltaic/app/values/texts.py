"""Texts that people keep in files or pipe in: UTF-8, with the mark that Windows puts before it or without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaic.errors import MissingError, ParseError


def text_in(file: Path) -> str:
    try:
        with _as_utf8(str(file)):
            return file.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise MissingError(f"{file} cannot be read: {problem.strerror}") from None


def text_piped_in() -> str:
    with _as_utf8("what is piped in"):
        return sys.stdin.read().removeprefix("\ufeff")


@contextmanager
def _as_utf8(what: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as problem:
        raise ParseError(f"{what} is not a text in UTF-8: {problem.reason}, {problem.start} bytes in") from None
