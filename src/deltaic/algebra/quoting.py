"""Names and texts written into SQL, so that nothing in them can be read as SQL."""

from __future__ import annotations

from collections.abc import Iterable


def quote(name: str) -> str:
    """An identifier for Spark SQL, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"


def quote_list(names: Iterable[str], owner: str | None = None) -> str:
    """Identifiers separated by commas, each as a column of `owner` if that is given."""
    prefix = f"{owner}." if owner else ""
    return ", ".join(prefix + quote(name) for name in names)


def text_literal(text: str) -> str:
    """A string literal for Spark SQL in one line, under Spark's default escaping of backslashes.

    Spark puts its settings in the place of ${name}, inside of literals too; not where the brace is escaped."""
    for char, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"), ("${", "$\\{")):
        text = text.replace(char, escaped)
    return f"'{text}'"


def double_quoted(name: str) -> str:
    """An identifier as standard SQL writes it, case kept: for delta-rs, whose SQL is DataFusion's, and PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'
