"""A query's own text over other relations than those that it names: how a view without algebra is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from deltaic.algebra.quoting import quote
from deltaic.app.refresh.recursive_text import Recursive
from deltaic.sql.parse import Span, Text, replaced


def over(
    relations: Mapping[str, str], tree: exp.Expr, text: Text, places: Mapping[Span, str], recursion: Recursive
) -> str:
    """The text with relations, by the keys of its sources, in the places of these. What is recursive in it is read from
    where it was evaluated."""
    computed = recursion.places
    named = {table.parts[0].meta["start"]: table for table in tree.find_all(exp.Table) if _is_named(table)}
    edits = dict(computed)
    for (start, end), key in places.items():
        if any(first <= start < last for first, last in computed):
            continue
        edits[start, end] = relations[key]
        if not named[start].alias:
            after = _end_of_sample(text, end) if named[start].args.get("sample") else end
            alias = f" AS {quote(named[start].name)}"
            if after == end:
                edits[start, end] += alias
            else:
                edits[after, after] = alias
    return replaced(text.sql, {**edits, **dict.fromkeys(_schemas(tree, set(places.values())), "")})


def _is_named(table: exp.Table) -> bool:
    return isinstance(table.this, exp.Identifier)


def _schemas(tree: exp.Expr, sources: set[str]) -> Iterator[Span]:
    """What stands before the table in a column's name, `default.t.a`: what is read instead has no schema."""
    for column in tree.find_all(exp.Column):
        parts = column.parts
        first = 1 if len(parts) > 3 and parts[0].name.lower() == "spark_catalog" else 0
        if len(parts) > first + 2 and f"{parts[first].name}.{parts[first + 1].name}".lower() in sources:
            yield parts[0].meta["start"], parts[first + 1].meta["start"]


def _end_of_sample(text: Text, end: int) -> int:
    """Where TABLESAMPLE (...) REPEATABLE (...) ends, after which a table's alias stands."""
    index = text.index_at(end)
    while text.tokens[index].text != "(":
        index += 1
    index = text.closing(index)
    if index + 1 < len(text.tokens) and text.tokens[index + 1].text.upper() == "REPEATABLE":
        index = text.closing(index + 2)
    return text.tokens[index].end + 1
