"""A query as Deltaic took it apart, tried against the user's own text: on a few made-up rows both must give the same.

Spark reads the text, sqlglot read it for Deltaic, and the two may differ over what belongs to what. Types and names do
not tell that, rows do. It is done once, when a view is made. What cannot be tried is trusted: rows over which an
expression fails, and values that may come out differently each time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from sqlglot import exp

from deltaic.algebra.nodes import Node, Scan
from deltaic.algebra.quoting import quote_list
from deltaic.algebra.reasons import Code, Reason
from deltaic.algebra.simplify import simplify
from deltaic.algebra.stability import own_unstable_decisions, unstable_columns
from deltaic.algebra.trees import walk
from deltaic.app.refresh.own_text import over
from deltaic.app.refresh.recursive_text import Recursive
from deltaic.app.refresh.sources import SourceCatalog
from deltaic.sql.parse import Span, Text
from deltaic.sql.render import render
from deltaic.sql.samples import Named, sample
from deltaic.store.table import first_line

_log = logging.getLogger(__name__)
_ROWS = {1: 16, 2: 10, 3: 8, 4: 6, 5: 4, 6: 4}
"""How many a table has, by how many are read: all may be joined with all."""
_SCANS, _COLUMNS, _LETTERS = 8, 300, 20_000
"""Of a query that reads more, or is longer, a trial would take longer than it may."""
_SIDE = "__deltaic_side"


def other_rows(
    node: Node, tree: exp.Expr, text: Text, places: Mapping[Span, str], recursion: Recursive, world: SourceCatalog
) -> Reason | None:
    """Why the query must not be taken apart: it gives other rows then."""
    scans = [part for part in walk(node) if isinstance(part, Scan)]
    columns = sum(len(source.columns) for source in world.sources.values())
    if not 0 < len(scans) <= _SCANS or columns > _COLUMNS or len(text.sql) > _LETTERS or recursion.components:
        return None
    if any(True for part in walk(node) for _ in own_unstable_decisions(part)):
        return None
    unstable = unstable_columns(node)
    told = [n for n, name in enumerate(node.columns) if name not in unstable]
    named = Named.of(tree, text)
    names, rows = quote_list(f"c{n}" for n in range(len(node.columns))), _ROWS.get(len(scans), 3)
    for tame in (False, True):
        random, sides = Random(text.sql), list[str]()
        for nulls in (True, False):
            made = {
                key: f"({sample(source.columns, rows, named, random, nulls=nulls, tame=tame)})"
                for key, source in world.sources.items()
            }
            sides += over(made, tree, text, places, recursion), render(simplify(node), partial(_made, made))
        queries = [f"SELECT {n} AS {_SIDE}, * FROM (\n{query}\n) AS q({names})" for n, query in enumerate(sides)]
        try:
            found = world.analyzer.spark.sql("\nUNION ALL\n".join(queries)).collect()
        except Exception as problem:  # whatever Spark throws over rows that do not suit the query tells nothing of it
            _log.info("a trial over made-up rows failed: %s", first_line(problem))
            continue
        return _differing([Counter(_cells(row, told) for row in found if row[0] == n) for n in range(len(sides))])
    return None


def _differing(sides: list[Counter[tuple[str, ...]]]) -> Reason | None:
    """By the text and taken apart, in turn."""
    extra = sum((taken - own).total() for own, taken in zip(sides[::2], sides[1::2], strict=True))
    missing = sum((own - taken).total() for own, taken in zip(sides[::2], sides[1::2], strict=True))
    if not extra and not missing:
        return None
    detail = f"taken apart, it gives {extra} rows too many and {missing} too few over a few made-up ones"
    return Reason(Code.SEMANTICS, detail)


def _made(rows: Mapping[str, str], scan: Scan) -> str:
    return rows[scan.source]


def _cells(row: Any, told: list[int]) -> tuple[str, ...]:
    return tuple(repr(row[n + 1]) for n in told)
