"""Algebra to Spark SQL. One SELECT a node; Spark's optimizer makes one query of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatchmethod

from deltaic.algebra.expr import Expr, col
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
    Apply,
    ApplyKind,
    Field,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    State,
    UnionAll,
    Values,
    Window,
)
from deltaic.algebra.quoting import quote


def render(node: Node, relation: Callable[[Scan], str]) -> str:
    """The SELECT that computes `node`; `relation` names the table a scan reads."""
    return _let_go(_Renderer(lambda scan: _held(relation(scan))).select(node))


_NUMBER = re.compile(r"[\s(+-]*\d+[\s)]*")
_BREAK, _NUL = "\0n", "\0\0"
"""They stand for a line break of the user's own (in a literal, a name), and for a NUL, until the text is indented."""


def _held(text: str) -> str:
    return text.replace("\0", _NUL).replace("\n", _BREAK)


def _let_go(text: str) -> str:
    return re.sub("\0[n\0]", lambda found: "\n" if found[0] == _BREAK else "\0", text) if "\0" in text else text


def _grouped(groups: Sequence[Expr]) -> str:
    """A whole number by itself would be the place of a column."""
    written = [f"coalesce({sql})" if _NUMBER.fullmatch(sql) else sql for sql in map(_sql, groups)]
    return f" GROUP BY {', '.join(written)}" if written else ""


def _sql(expr: Expr) -> str:
    return _held(expr.sql)


def _quoted(name: str) -> str:
    return _held(quote(name))


def select_list(items: Iterable[Item]) -> str:
    return _let_go(_listed(items))


def _listed(items: Iterable[Item]) -> str:
    return ", ".join(_aliased(item.expr, item.name) for item in items)


def _aliased(expr: Expr, name: str) -> str:
    return _quoted(name) if expr.column == name else f"{_sql(expr)} AS {_quoted(name)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(_quoted(name) for name in names)


class _Renderer:
    def __init__(self, relation: Callable[[Scan], str]) -> None:
        self.relation = relation

    def nested(self, node: Node) -> str:
        inner = self.select(node).replace("\n", "\n  ")  # textwrap breaks lines at characters that a literal may hold
        return f"(\n  {inner}\n)"

    @singledispatchmethod
    def select(self, node: Node) -> str:
        raise TypeError(f"the renderer has no case for {type(node).__name__}")

    @select.register
    def _(self, node: Scan) -> str:
        columns = [f"{_quoted(column.origin)} AS {_quoted(column.field.name)}" for column in node.scanned]
        if node.state is State.CHANGE:
            columns.append(_quoted(WEIGHT))
        return f"SELECT {', '.join(columns) or '1'} FROM {self.relation(node)}"

    @select.register
    def _(self, node: Ref) -> str:
        return f"SELECT {_names(node.columns)} FROM {_quoted(node.name)}"

    @select.register
    def _(self, node: Values) -> str:
        if not node.columns:
            return "SELECT 1"
        rows = ", ".join("(" + ", ".join(_sql(expr) for expr in row) + ")" for row in node.rows)
        return f"SELECT * FROM VALUES {rows} AS v({_names(node.columns)})"

    @select.register
    def _(self, node: Project) -> str:
        if isinstance(node.input, Values) and not node.input.columns:
            return f"SELECT {_listed(node.items)}"
        below, where = node.input, ""
        names: dict[str, Expr] = {}
        condition: Expr | None = None
        if isinstance(below, Filter):
            condition = below.predicate
            below = below.input
        if isinstance(below, Scan):  # a scan's new names need no SELECT of their own
            names = {column.field.name: col(column.origin) for column in below.scanned}
            source = self.relation(below)
        else:
            source = self.nested(below)
        if condition is not None:
            where = f" WHERE {_sql(condition.substitute(names))}"
        items = (Item(i.name, i.expr.substitute(names), i.type, i.nullable) for i in node.items)
        return f"SELECT {_listed(items)} FROM {source}{where}"

    @select.register
    def _(self, node: Filter) -> str:
        return f"SELECT * FROM {self.nested(node.input)} WHERE {_sql(node.predicate)}"

    @select.register
    def _(self, node: Join) -> str:
        left, right = self.nested(node.left), self.nested(node.right)
        if node.on is None and node.kind is JoinKind.INNER:
            return f"SELECT * FROM {left} CROSS JOIN {right}"
        on = _sql(node.on) if node.on else "TRUE"
        return f"SELECT * FROM {left} {node.kind.value} JOIN {right} ON {on}"

    @select.register
    def _(self, node: Apply) -> str:
        return f"SELECT *, {self.subquery(node)} AS {_quoted(node.output.name)} FROM {self.nested(node.input)}"

    def subquery(self, node: Apply) -> str:
        select = ", ".join(_sql(expr) for expr in node.select) or "1"
        where = f" WHERE {_sql(node.on)}" if node.on else ""
        query = f"(SELECT {select} FROM {self.nested(node.body)}{where}{_grouped(node.groups)})"
        if node.kind is ApplyKind.EXISTS:
            return f"EXISTS {query}"
        needles = f"({', '.join(_sql(expr) for expr in node.needles)})"
        if node.kind is ApplyKind.MEMBER:
            return f"CASE WHEN {needles} IN {query} THEN TRUE WHEN {needles} NOT IN {query} THEN FALSE END"
        if node.kind.compares:
            return f"{needles} {node.kind.value.upper()} {query}"
        return query

    @select.register
    def _(self, node: Generate) -> str:
        outer = "OUTER " if node.outer else ""
        names = _names(field.name for field in node.generated)
        return f"SELECT * FROM {self.nested(node.input)} LATERAL VIEW {outer}{_sql(node.generator)} g AS {names}"

    @select.register
    def _(self, node: Aggregate) -> str:
        items = _listed(node.groups + node.aggregates)
        return f"SELECT {items} FROM {self.nested(node.input)}{_grouped([item.expr for item in node.groups])}"

    @select.register
    def _(self, node: Window) -> str:
        return f"SELECT *, {_listed(node.items)} FROM {self.nested(node.input)}"

    @select.register
    def _(self, node: UnionAll) -> str:
        branches = []
        for branch in node.branches:
            if branch.columns == node.columns and isinstance(branch, Project | Aggregate):
                branches.append(self.select(branch))
                continue
            pairs = zip(branch.columns, node.columns, strict=True)
            columns = ", ".join(f"{_quoted(own)} AS {_quoted(common)}" for own, common in pairs)
            branches.append(f"SELECT {columns} FROM {self.nested(branch)}")
        return "\nUNION ALL\n".join(branches)


def stub(fields: Iterable[Field]) -> str:
    """A relation of no rows with these columns: lets Spark type an expression without its tables."""
    columns = ", ".join(f"CAST(NULL AS {field.type}) AS {quote(field.name)}" for field in fields)
    return f"(SELECT {columns or '1'})"
