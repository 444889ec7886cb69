"""Large tables read near the keys that they are asked for.

A join or a restriction drops the rows of a table whose key is not among some values. If these values are a binding's,
which is computed first, the scan of the table may leave those rows out as well: it is `near` them. How far down a tree
such a wish goes is the law of `restrict`; it also goes over to the other side of a join, by the join's equality.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from deltaic.algebra.expr import Col, Expr
from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Filter,
    Generate,
    Join,
    JoinKind,
    Near,
    Node,
    Project,
    Ref,
    Scan,
    State,
    UnionAll,
    Window,
)
from deltaic.algebra.trees import with_inputs

LARGE, FEW, SHARE = 20_000, 10_000, 0.1
"""A table of so many rows is read near the keys that it is joined by, where these are thought to be few, or at most
this share of its rows."""
_LITERALS = frozenset({"tinyint", "smallint", "int", "bigint", "string"})
"""Types whose values can be written into a query, and skip files there."""

Pairs = frozenset[tuple[str, str]]
"""Columns that are equal in every row that is wanted."""
_NONE: Pairs = frozenset()


@dataclass(frozen=True)
class Narrowing:
    """`rows` of the sources, as far as they are known; `wanted` is about how many keys are asked for."""

    rows: Mapping[str, int]
    wanted: float

    def of(self, node: Node) -> Node:
        """The tree, its scans near what the bindings in it ask of them."""
        below = with_inputs(node, self.of)
        match below:
            case Join():
                return self._joined(below)
            case Apply():
                return replace(below, body=self.beside(below.body, below.input, [below.on]))
        return below

    def _joined(self, node: Join) -> Join:
        if node.kind is JoinKind.FULL:
            return node
        right = self.beside(node.right, node.left, [node.on])
        if node.kind in (JoinKind.INNER, JoinKind.SEMI):
            return replace(node, left=self.beside(node.left, node.right, [node.on]), right=right)
        return replace(node, right=right)

    def beside(self, node: Node, other: Node, conditions: Iterable[Expr | None]) -> Node:
        """`node`, of which only rows matter that meet one of `other`; itself if it gains nothing."""
        for one, two, safe in (pair for condition in conditions for pair in equal_pairs(condition)):
            here, there = (one, two) if one in node.columns else (two, one)
            if here not in node.columns or there not in other.columns:
                continue
            found = _origin(other, there)
            if found is None or found[0].fields[found[1]].type != node.fields[here].type:
                continue
            near = Near("", found[0].name, found[1], safe)
            narrowed = self.narrow(node, frozenset({here}), near, node.fields[here].type)
            if narrowed is not node:
                return narrowed
        return node

    def narrow(self, node: Node, columns: frozenset[str], near: Near, kind: str, equal: Pairs = _NONE) -> Node:
        """The node, only rows of which are wanted whose columns have one of the values, which are of this type; itself
        if it gains nothing."""
        columns = _closed(columns, equal) & frozenset(node.columns)
        if not columns:
            return node
        match node:
            case Scan():
                return self._scan(node, columns, near, kind)
            case Filter():
                more = equal | _plain(node.predicate, node.input)
                return _over(node, self.narrow(node.input, columns, near, kind, more))
            case Project():
                names = {item.name: item.expr.column for item in node.items if item.expr.column}
                more = frozenset((names[a], names[b]) for a, b in equal if a in names and b in names)
                return _over(node, self.narrow(node.input, _renamed(columns, names), near, kind, more))
            case Aggregate():
                names = {item.name: item.expr.column for item in node.groups if item.expr.column}
                return _over(node, self.narrow(node.input, _renamed(columns, names), near, kind))
            case Window():
                parts = frozenset(expr.column for expr in node.partition if expr.column)
                return _over(node, self.narrow(node.input, columns & parts, near, kind))
            case Generate():
                return _over(node, self.narrow(node.input, columns, near, kind))
            case UnionAll():
                return self._union(node, columns, near, kind)
            case Apply():
                reached = _closed(columns, _plain(node.on, node.input, node.body))
                body = self.narrow(node.body, reached, near, kind)
                found = self.narrow(node.input, columns, near, kind)
                return node if body is node.body and found is node.input else replace(node, input=found, body=body)
            case Join():
                return self._join(node, columns, near, kind, equal)
        return node

    def _join(self, node: Join, columns: frozenset[str], near: Near, kind: str, equal: Pairs) -> Node:
        if node.kind is JoinKind.FULL:
            return node
        own = _plain(node.on, node.left, node.right)
        if node.kind is JoinKind.INNER:
            both = equal | own
            reached = _closed(columns, both)
            left, right = (self.narrow(side, reached, near, kind, both) for side in (node.left, node.right))
        else:  # what is said of the right side is said of padded rows, too
            of_left = columns & frozenset(node.left.columns)
            left = self.narrow(node.left, of_left, near, kind, equal)
            right = self.narrow(node.right, _closed(of_left, own), near, kind)
        return node if left is node.left and right is node.right else replace(node, left=left, right=right)

    def _union(self, node: UnionAll, columns: frozenset[str], near: Near, kind: str) -> Node:
        branches = []
        for branch in node.branches:
            names = dict(zip(node.columns, branch.columns, strict=True))
            branches.append(self.narrow(branch, _renamed(columns, names), near, kind))
        same = all(a is b for a, b in zip(branches, node.branches, strict=True))
        return node if same else replace(node, branches=tuple(branches))

    def _scan(self, node: Scan, columns: frozenset[str], near: Near, kind: str) -> Node:
        rows = self.rows.get(node.source)
        if rows is None or rows < LARGE or self.wanted > max(FEW, SHARE * rows):
            return node
        if node.near is not None or node.state is State.CHANGE:
            return node
        found = [c for c in node.scanned if c.field.name in columns and c.field.type == kind and kind in _LITERALS]
        return replace(node, near=replace(near, column=found[0].origin)) if found else node


_WORD = re.compile(r"<=>|=|\(|\)|\bAND\b|\S+?(?=<=>|[=()\s]|$)")
_BAR = re.compile(r"['\"`]|\b(?:OR|NOT|BETWEEN|CASE|END|IN|LIKE|IS)\b", re.IGNORECASE)


def equal_pairs(on: Expr | None) -> list[tuple[str, str, bool]]:
    """Columns that a condition makes equal, and whether NULLs are; others of its terms are passed over.

    Nothing is said of a condition with a word in it by which its terms might hang together otherwise."""
    if on is None or any(isinstance(part, str) and _BAR.search(part) for part in on.parts):
        return []
    words: list[str | Col] = []
    for part in on.parts:
        words.extend([part] if isinstance(part, Col) else _WORD.findall(part))
    found = []
    for term in _terms(words):
        match term:
            case [Col(a), "=", Col(b)] | ["(", Col(a), ")", "=", "(", Col(b), ")"]:
                found.append((a, b, False))
            case [Col(a), "<=>", Col(b)] | ["(", Col(a), ")", "<=>", "(", Col(b), ")"]:
                found.append((a, b, True))
    return found


def is_only_equality(on: Expr) -> bool:
    """Whether a condition says no more than that columns are equal."""
    words = sum(len(_WORD.findall(part)) for part in on.parts if isinstance(part, str))
    plain = all(isinstance(part, Col) or re.fullmatch(r"(?:<=>|=|[\s()]|\bAND\b)*", part) for part in on.parts)
    return plain and words > 0 and 2 * len(equal_pairs(on)) == sum(isinstance(part, Col) for part in on.parts)


def _terms(words: list[str | Col]) -> list[list[str | Col]]:
    """What stands between the ANDs, also of terms that are in parentheses as a whole."""
    terms: list[list[str | Col]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and isinstance(word, str) and word.upper() == "AND":
            terms.append([])
        else:
            terms[-1].append(word)
    if len(terms) > 1:
        return [part for term in terms for part in _terms(term)]
    return _terms(words[1:-1]) if _is_wrapped(words) else terms


def _is_wrapped(words: list[str | Col]) -> bool:
    """Whether the first parenthesis ends with the last word."""
    depth = 0
    for place, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return place == len(words) - 1 and place > 0
    return False


def _plain(on: Expr | None, *sides: Node) -> Pairs:
    """Columns of one type that are equal: values of several types may be equal, and not equal among each other."""
    types = {field.name: field.type for side in sides for field in side.schema}
    return frozenset((a, b) for a, b, _ in equal_pairs(on) if types.get(a) == types.get(b) is not None)


def _closed(columns: frozenset[str], equal: Pairs) -> frozenset[str]:
    """With all columns that are equal to one of them."""
    found, before = columns, frozenset[str]()
    while found != before:
        before = found
        found = found.union(*(frozenset(pair) for pair in equal if found & frozenset(pair)))
    return found


def _renamed(columns: Iterable[str], names: Mapping[str, str]) -> frozenset[str]:
    return frozenset(names[name] for name in columns if name in names)


def _over(node: Filter | Project | Aggregate | Window | Generate, below: Node) -> Node:
    return node if below is node.input else replace(node, input=below)


def _origin(node: Node, column: str) -> tuple[Ref, str] | None:
    """The binding, and its column, whose values are all that a column can have."""
    match node:
        case Ref():
            return node, column
        case Filter() | Generate() | Window() if column in node.input.columns:
            return _origin(node.input, column)
        case Project():
            below = node.by_name[column].column
            return _origin(node.input, below) if below else None
        case Aggregate():
            below = next((i.expr.column for i in node.groups if i.name == column), None)
            return _origin(node.input, below) if below else None
        case Join() if column in node.left.columns and node.kind is not JoinKind.FULL:
            return _origin(node.left, column)
        case Join(kind=JoinKind.INNER):
            return _origin(node.right, column)
        case Apply() if column in node.input.columns:
            return _origin(node.input, column)
    return None
