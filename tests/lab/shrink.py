"""Makes a failing case smaller: fewer batches, statements, rows and parts of views, as long as it fails.

`fails` gets a case and says whether the failure that is hunted is still there; it must say False for a case
that has become nonsense (a column that no longer exists), so it should catch what it does not hunt.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypeVar

import sqlglot
from sqlglot import exp

from tests.lab.case import Case, Statement, Table, View, values_sql

Item = TypeVar("Item")


def shrink(case: Case, fails: Callable[[Case], bool], most_tries: int = 2000) -> Case:
    """The smallest case that greedy removal reaches."""
    tries = 0
    progress = True
    while progress and tries < most_tries:
        progress = False
        for candidate in _smaller(case):
            tries += 1
            if fails(candidate):
                case, progress = candidate, True
                break
            if tries >= most_tries:
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Every case that is one step smaller, the boldest steps first."""
    yield from _fewer_views(case)
    yield from _fewer_batches(case)
    yield from _fewer_rows(case)
    yield from _simpler_views(case)
    yield from _fewer_statements(case)


def _fewer_views(case: Case) -> Iterator[Case]:
    for number in reversed(range(len(case.views))):
        if len(case.views) > 1:
            yield replace(case, views=case.views[:number] + case.views[number + 1 :])


def _fewer_batches(case: Case) -> Iterator[Case]:
    for size in (len(case.history) // 2, 1):
        for start in range(0, len(case.history), max(size, 1)):
            rest = case.history[:start] + case.history[start + max(size, 1) :]
            if rest:
                yield replace(case, history=rest)


def _fewer_statements(case: Case) -> Iterator[Case]:
    for number, batch in enumerate(case.history):
        for place, statement in enumerate(batch):
            rest = batch[:place] + batch[place + 1 :]
            yield replace(case, history=_changed(case.history, number, rest))
            for fewer in _fewer_inserts(case, statement):
                changed = _changed(batch, place, fewer)
                yield replace(case, history=_changed(case.history, number, changed))


def _fewer_inserts(case: Case, statement: Statement) -> Iterator[Statement]:
    if len(statement.inserts) < 2:
        return
    columns = next(table.columns for table in case.tables if table.name == statement.table)
    for place in range(len(statement.inserts)):
        rows = statement.inserts[:place] + statement.inserts[place + 1 :]
        yield replace(statement, sql=f"INSERT INTO {statement.table} {values_sql(columns, rows)}", inserts=rows)


def _fewer_rows(case: Case) -> Iterator[Case]:
    for number, table in enumerate(case.tables):
        for size in (len(table.rows), len(table.rows) // 2, len(table.rows) // 4, 1):
            for start in range(0, len(table.rows), max(size, 1)):
                rows = table.rows[:start] + table.rows[start + max(size, 1) :]
                yield _with_table(case, number, replace(table, rows=rows))


def _with_table(case: Case, number: int, table: Table) -> Case:
    return replace(case, tables=_changed(case.tables, number, table))


def _simpler_views(case: Case) -> Iterator[Case]:
    for number, view in enumerate(case.views):
        for sql in _simpler_queries(view.sql):
            yield replace(case, views=_changed(case.views, number, _rewritten(view, sql)))


def _rewritten(view: View, sql: str) -> View:
    """The columns are no longer known for sure; whoever runs the view asks DuckDB for them."""
    return replace(view, sql=sql)


def _simpler_queries(sql: str) -> Iterator[str]:
    """Texts of queries with one part taken out or put in place of the whole."""
    tree = sqlglot.parse_one(sql, read="spark")
    nodes = list(tree.walk())
    for place, node in enumerate(nodes):
        for edit in _edits(node):
            copy = tree.copy()
            target = list(copy.walk())[place]
            changed = edit(copy, target)
            if changed is not None:
                yield changed.sql(dialect="spark")


Edit: TypeAlias = Callable[[exp.Expr, exp.Expr], exp.Expr | None]


def _edits(node: exp.Expr) -> Iterator[Edit]:
    if isinstance(node, exp.Select):
        yield from (_without(key) for key in ("where", "having", "qualify", "distinct", "with_") if node.args.get(key))
        yield from (_without_item("expressions", n) for n in range(len(node.expressions)) if len(node.expressions) > 1)
        for key in ("joins", "laterals"):
            yield from (_without_item(key, n) for n in range(len(node.args.get(key) or [])))
        if node.parent is not None:
            yield _as_whole
    elif isinstance(node, (exp.SetOperation, exp.And, exp.Or)):
        yield from (_in_place_of_parent_by(key) for key in ("this", "expression"))
    elif isinstance(node, exp.Group):
        yield from (_without_item("expressions", n) for n in range(len(node.expressions)) if len(node.expressions) > 1)
    elif isinstance(node, (exp.Not, exp.Paren, exp.Coalesce, exp.Filter, exp.Abs, exp.Neg)):
        yield _in_place_of_parent_by("this")
    elif isinstance(node, exp.Case):
        yield _first_branch


def _without(key: str) -> Edit:
    def edit(tree: exp.Expr, node: exp.Expr) -> exp.Expr:
        node.set(key, None)
        return tree

    return edit


def _without_item(key: str, place: int) -> Edit:
    def edit(tree: exp.Expr, node: exp.Expr) -> exp.Expr:
        items = list(node.args[key])
        node.set(key, items[:place] + items[place + 1 :])
        return tree

    return edit


def _in_place_of_parent_by(key: str) -> Edit:
    def edit(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
        part = node.args.get(key)
        if not isinstance(part, exp.Expr):
            return None
        if node is tree:
            return part.copy()
        node.replace(part.copy())
        return tree

    return edit


def _as_whole(tree: exp.Expr, node: exp.Expr) -> exp.Expr:
    return node.copy()


def _first_branch(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    if node is tree:
        return None
    node.replace(node.args["ifs"][0].args["true"].copy())
    return tree


def _changed(items: tuple[Item, ...], place: int, item: Item) -> tuple[Item, ...]:
    return (*items[:place], item, *items[place + 1 :])
