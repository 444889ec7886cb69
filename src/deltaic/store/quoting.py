"""Names and texts written into SQL, so that nothing in them can be read as SQL."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """One identifier for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def quoted_list(names: Iterable[str], owner: str | None = None) -> str:
    """Identifiers separated by commas, each as a column of `owner` if that is given."""
    prefix = f"{owner}." if owner else ""
    return ", ".join(prefix + quoted(name) for name in names)


def text_literal(text: str) -> str:
    """A string literal for Spark SQL, under its default escaping of backslashes.

    Spark puts its settings in the place of ${name}, inside of literals too; not where the brace is escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{") + "'"


def rs_quoted(name: str) -> str:
    """One identifier for delta-rs, whose SQL is DataFusion's: double quotes, case kept."""
    return '"' + name.replace('"', '""') + '"'
