"""How much a query is once everything in it is written out: known from its tree, before Spark is asked anything.

Spark writes common table expressions and grouping sets out, too, and a short text can ask for more of them than fit
into any memory. Such a query is refused: Spark could not run it.
"""

from __future__ import annotations

from sqlglot import exp

from deltaic.algebra.reasons import PARTS
from deltaic.errors import UnsupportedError
from deltaic.sql.parse import Text, start_of

RELATIONS = 2_000
"""Tables that a query may read, those of a common table expression as often as that is read."""
GROUPING_SETS = 4_096
"""What a GROUP BY may have: Spark makes as many of every row."""
_MANY = 1 << 60
"""Numbers end here: they double faster than one would like to multiply them."""
_WHOLE = id(None)
"""The query itself, among the expressions that it reads."""


def check_extent(tree: exp.Expr, text: Text) -> None:
    """Refuses a query that Spark could only hang on."""
    if relations_in(tree) > RELATIONS:
        what = f"the query reads more than {RELATIONS:,} relations, if its common table expressions are written out"
        raise UnsupportedError(what, hint=PARTS)
    for group in tree.find_all(exp.Group):
        if grouping_sets(group) > GROUPING_SETS:
            start = start_of(group)
            raise UnsupportedError(
                f"GROUP BY has more than {GROUPING_SETS:,} grouping sets, and Spark makes as many of every row",
                at=None if start is None else text.position(start),
                hint="List the sets that are wanted: GROUPING SETS ((...), ...).",
            )


def relations_in(tree: exp.Expr) -> int:
    """How many tables it reads. One that an expression reads counts each time that the expression is read."""
    meant = ctes_meant(tree)
    tables: dict[int, int] = {}
    reads: dict[int, list[int]] = {}
    for table in tree.find_all(exp.Table):
        reader = id(table.find_ancestor(exp.CTE)) if meant else _WHOLE
        if id(table) in meant:
            reads.setdefault(reader, []).append(id(meant[id(table)]))
        else:
            tables[reader] = tables.get(reader, 0) + 1
    known: dict[int, int] = {}
    waiting = [_WHOLE]
    while waiting:
        reader = waiting[-1]
        begun = reader in known
        known.setdefault(reader, 0)  # of one that reads itself: a recursion is run in rounds
        missing = [cte for cte in reads.get(reader, ()) if cte not in known]
        if begun or not missing:
            waiting.pop()
            known[reader] = min(_MANY, tables.get(reader, 0) + sum(known[cte] for cte in reads.get(reader, ())))
        else:
            waiting.extend(dict.fromkeys(missing))
    return known[_WHOLE]


def ctes_meant(tree: exp.Expr) -> dict[int, exp.Expr]:
    """By the identity of a table in the tree, the common table expression that it is: what it names may be one that is
    not in reach."""
    names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = {}
    for table in tree.find_all(exp.Table) if names else ():
        if isinstance(table.this, exp.Identifier) and len(table.parts) == 1 and table.name.lower() in names:
            cte = _in_reach(table, table.name.lower())
            if cte is not None:
                found[id(table)] = cte
    return found


def _in_reach(inner: exp.Expr, name: str) -> exp.Expr | None:
    """An earlier expression of that name, or one of a query around."""
    while inner.parent is not None:
        outer = inner.parent
        clause = outer.args.get("with_") or outer.args.get("with")
        known = clause.expressions if clause is not None and inner is not clause else []
        if isinstance(outer, exp.With) and outer.args.get("recursive"):
            known = outer.expressions
        elif isinstance(outer, exp.With):
            known = outer.expressions[: next(n for n, cte in enumerate(outer.expressions) if cte is inner)]
        found: exp.Expr | None = next((cte for cte in known if cte.alias.lower() == name), None)
        if found is not None:
            return found
        inner = outer
    return None


def grouping_sets(group: exp.Group) -> int:
    """How many sets a GROUP BY has: those of each element with those of every other."""
    elements = list(group.expressions)
    for kind in ("rollup", "cube", "grouping_sets"):
        elements.extend(group.args.get(kind) or ())
    plain = sum(not isinstance(element, exp.Rollup | exp.Cube | exp.GroupingSets) for element in elements)
    total = 1
    for element in elements:
        total = min(_MANY, total * _sets(element, plain))
    return total


def _sets(element: exp.Expr, listed: int) -> int:
    """Of one element; WITH CUBE and WITH ROLLUP are of the columns that are listed before them."""
    match element:
        case exp.Cube():
            return int(2 ** min(len(element.expressions) or listed, 60))
        case exp.Rollup():
            return (len(element.expressions) or listed) + 1
        case exp.GroupingSets():
            return sum(_sets(inner, 0) for inner in element.expressions)
    return 1
