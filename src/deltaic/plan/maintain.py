"""How a view is kept: what it stores beside the user's columns, and what a refresh replaces.

Every refresh does the same to the view's table: delete the rows of some keys, insert rows.

* CHANGES: one row per touched group says what to add (the change table); the view's own rows are read,
  the sources are not, but for groups that an old value and a change do not tell.
* KEYS: the keys that the change touches are deleted and their rows computed anew. The old rows come
  out by key, never by value, so an unstable value in them does no harm, and the past is not read.
* ROWS: the view's signed delta is computed; a row of it is found in the view by its hash. Where a
  row goes away, all rows of that hash are replaced by those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, text
from deltaic.algebra.nodes import (
    SHOWN,
    WEIGHT,
    Aggregate,
    Apply,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    ScanColumn,
    UnionAll,
    Window,
    is_groupable,
    is_storable,
    keep,
    pass_through,
    sources,
)
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import Code, Reason
from deltaic.algebra.stability import is_unstable, unstable_columns
from deltaic.delta.matches import MatchDerivation, Seen
from deltaic.delta.moments import ChangeTables, signed_value, totals
from deltaic.delta.rules import Derivation, key_exprs
from deltaic.plan.bags import KIND, Bag, BagTable, hidden_columns
from deltaic.plan.fold import change_items, counts_copies, one_by_one
from deltaic.plan.outer import Mark, marked
from deltaic.plan.padding import without_padding
from deltaic.plan.state import STATE_PREFIX, Fold, Kept, kept

ROW_KEY = "__deltaic_row"
KEY_PREFIX = "__deltaic_k"

VIEW = "@view"
"""The source name under which a program reads the view's own table."""


class Way(Enum):
    CHANGES = "change tables"
    KEYS = "keys"
    ROWS = "rows"


@dataclass(frozen=True)
class Known:
    """What is known of the sources before a refresh is derived."""

    changed: frozenset[str]
    appended: frozenset[str] = frozenset()
    """Of these, the ones that only got more rows."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows a source has, and under VIEW the view itself."""


@dataclass(frozen=True)
class Maintenance:
    """`root` has the user's columns in order, then the hidden ones; `key` names root's columns."""

    root: Node
    way: Way
    key: tuple[str, ...]
    visible: int
    kept: Kept | None = None
    stored: tuple[tuple[str, str], ...] = ()
    """For a view kept by change tables: its parts, and which columns of root hold them."""
    marks: tuple[Mark, ...] = ()
    """For a view kept by rows: what it stores of its outer joins, under root's column names."""
    plain: bool = False
    """Whether it is pinned to the base rules."""

    @property
    def bags(self) -> tuple[Bag, ...]:
        return self.kept.bags if self.kept else ()

    @property
    def bag_table(self) -> BagTable:
        assert self.kept is not None
        return BagTable(self.kept.top, self.root.schema, self.key, VIEW)

    @property
    def whole(self) -> Node:
        """Everything that the view's table holds."""
        if not self.bags:
            return self.root
        nullable = tuple(replace(f, nullable=True) for f in self.root.schema)
        return UnionAll((self.root, *map(self.bag_table.rows, self.bags)), nullable)

    def by_groups(self, known: Known) -> bool:
        """Whether touched groups are computed anew, for a view that could do with its bags.

        Either way a table is gone through once: the sources, or the view with its bags."""
        counts = [known.rows.get(source) for source in (*sources(self.root), VIEW)]
        there = [count for count in counts if count is not None]
        return bool(self.bags) and len(there) == len(counts) and sum(there[:-1]) <= there[-1]

    def replaced(self, known: Known) -> tuple[str, ...]:
        """The columns that say which rows a refresh replaces."""
        if not self.bags or self.by_groups(known):
            return self.key
        return (*self.key, KIND, *(f.name for bag in self.bags for f in bag.columns))

    @property
    def hidden(self) -> tuple[str, ...]:
        return self.root.columns[self.visible :]

    def derivation(self, known: Known) -> Derivation:
        """The delta rules by which the view is kept."""
        if self.plain:
            return Derivation(known.changed)
        seen = {mark.rule: self._seen(mark) for mark in self.marks}
        return MatchDerivation(known.changed, seen=seen, appended=known.appended, rows=known.rows)

    def _seen(self, mark: Mark) -> Seen:
        names = dict.fromkeys((mark.marker, *mark.keys))
        fields = [replace(self.root.fields[name], name=f"{name}_{mark.marker}_seen") for name in names]
        seen = Scan(VIEW, tuple(ScanColumn(f, name) for f, name in zip(fields, names, strict=True)))
        by = dict(zip(names, seen.columns, strict=True))
        return Seen(self.root, mark.join, seen, by[mark.marker], tuple(by[key] for key in mark.keys), mark.dropping)


def choose(query: Node, technique: str = "auto", partitioned: frozenset[int] = frozenset()) -> Maintenance | Reason:
    """The way to keep the view of `query`, or the reason why there is none; "base" allows no other rule.

    `partitioned` are the places of STRING columns by which the view's table is partitioned. Delta reads '' there back
    as NULL, so none of them is a key."""
    query = _as_project(prune(query))
    reason = _ungroupable(query)
    if reason is not None:
        return reason
    shaky: list[tuple[Node, Expr]] = []
    unstorable: str | None = None
    for found in _candidates(query, technique, partitioned):
        candidate = replace(found, plain=technique == "base")
        kinds = [candidate.root.fields[name].type for name in candidate.hidden]
        if not all(map(is_storable, kinds)):
            unstorable = next(kind for kind in kinds if not is_storable(kind))
            continue
        derivation = candidate.derivation(Known(frozenset(sources(query))))
        if candidate.way is Way.CHANGES:
            change_table(candidate, derivation)
        elif candidate.way is Way.KEYS:
            derivation.touched(candidate.root, [col(name) for name in candidate.key])
        else:
            derivation.delta(candidate.root)
        if not derivation.shaky:
            return candidate
        shaky = shaky or derivation.shaky
    if unstorable is not None and not shaky:
        detail = f"a value of type {unstorable} would have to be stored beside the view's columns, and Delta cannot"
        return Reason(Code.UNGROUPABLE_TYPE, detail, hint="CAST it to another type.")
    return _unstable(query, shaky)


def _as_project(query: Node) -> Project:
    return query if isinstance(query, Project) else Project(query, keep(query))


@dataclass(frozen=True)
class Change:
    """`table` has one row per touched group, its columns and what changed of every part; None if nothing did."""

    table: Node | None
    how: ChangeTables
    bags: tuple[Ref, ...] = ()
    """What changed of each bag."""


def change_table(way: Maintenance, derivation: Derivation) -> Change:
    assert way.kept is not None
    top, parts = way.kept.top, way.kept.parts
    tables = ChangeTables(derivation)
    groups = tuple(i.expr for i in top.groups)
    derivation.shaky.extend((top, e) for e in groups if is_unstable(e, unstable_columns(top.input)))
    bags = way.bags
    parts = tuple(part for part in parts if part.bag is None)
    wanted = {p.name: p.moment for p in parts if p.moment is not None}
    used = frozenset[str]().union(*(e.columns for e in groups))
    items = tuple(item for part in parts for item in change_items(part))
    if len(wanted) == len(parts) and not bags:
        rows = tables.changes(top.input, used, wanted)
        return Change(None if rows is None else Aggregate(rows, top.groups, items), tables)
    delta = derivation.delta(top.input)
    if delta is None:
        return Change(None, tables)
    if bags:
        delta = derivation.bind("rows", delta)
    shaky = unstable_columns(top.input)
    derivation.shaky.extend((top, e) for b in bags for e in (*b.values, b.counted) if is_unstable(e, shaky))
    exprs = [expr for part in parts for expr in (*part.values, part.where) if expr is not None]
    derivation.shaky.extend((top, expr) for expr in exprs if is_unstable(expr, shaky))
    # Rows that came and went again, or that two terms of a join's delta count and uncount, are no extremes:
    # equal rows are netted first. What adds up needs no netting, and is added up on the way.
    looked_at = used.union(*(part.looked_at for part in parts if part.moment is None))
    adding = tuple(Item(n, signed_value(m), m.type) for n, m in wanted.items())
    rows = Project(delta, (*(i for i in keep(delta) if i.name in {*looked_at, WEIGHT}), *adding))
    total = Item(WEIGHT, join_parts("sum(", col(WEIGHT), ")"), "bigint", False)
    equal = tuple(item for item in keep(rows) if item.name in looked_at)
    netted: Node = Aggregate(rows, equal, (total, *totals(wanted)))
    if counts_copies(parts):
        netted = one_by_one(netted, wanted)
    table = Aggregate(netted, top.groups, items)
    return _with_bags(way, derivation, delta, Change(table, tables)) if bags else Change(table, tables)


def _with_bags(way: Maintenance, derivation: Derivation, delta: Node, change: Change) -> Change:
    """The parts that come from bags as well, one after another."""
    assert way.kept is not None
    assert change.table is not None
    stored, moved = way.bag_table, list[Ref]()
    table: Node = derivation.bind("table", change.table)
    for bag in way.bags:
        moved.append(derivation.bind(f"bag_{bag.number}", stored.changed(bag, delta)))
        for fold, aggregated in ((Fold.ADD, stored.flips), (Fold.BAG, partial(stored.over, bag, touched=table))):
            parts = [
                (p.name, p.over, p.item.type) for p in way.kept.parts if p.bag == bag and p.fold is fold and p.over
            ]
            if parts:
                table = stored.beside(table, aggregated(moved[-1], parts=parts))
    return replace(change, table=table, bags=tuple(moved))


def _candidates(query: Project, technique: str, partitioned: frozenset[int]) -> Iterator[Maintenance]:
    """Best first: by the key of the operator on top; by rows; by the key of one further down."""
    top = _top(query)
    if isinstance(top, Aggregate) and technique != "base":
        for whole in dict.fromkeys((without_padding(query), query)):
            summed = _top(whole)
            assert isinstance(whole, Project)
            assert isinstance(summed, Aggregate)
            yield from _by_changes(whole, summed, partitioned)
    if isinstance(top, Aggregate | Window):
        yield from _by_key(query, top, key_exprs(top), partitioned)
    if not unstable_columns(query):
        yield _by_rows(query, (), partitioned) if technique == "base" else _by_rows(*marked(query), partitioned)
    for node in _preserved(query):
        if isinstance(node, Aggregate | Window) and node is not top:
            yield from _by_key(query, node, key_exprs(node), partitioned)
        if isinstance(node, Join | Apply):
            left = node.inputs[0]
            if not unstable_columns(left):
                yield from _by_key(query, left, (_hash(left.columns),), partitioned)


def _top(query: Node) -> Node:
    """The first operator that does more than to choose or rename."""
    while isinstance(query, Filter | Project):
        query = query.input
    return query


def _by_changes(query: Project, top: Aggregate, partitioned: frozenset[int]) -> Iterator[Maintenance]:
    found = kept(top)
    if isinstance(found, str) or _cannot_be_netted(found):
        return
    items = [Item(f"{STATE_PREFIX}{n}", col(p.name), p.item.type) for n, p in enumerate(found.parts)]
    if not _filters_groups_only(query, top):
        query, shown = _unfiltered(query, top)
        items.append(Item(SHOWN, shown, "boolean", False))
    elif found.bags:
        items.append(Item(SHOWN, text("TRUE"), "boolean", False))
    if found.bags:
        items.extend(hidden_columns(found.bags))
    whole = _replaced(query, top, found.top)
    for way in _by_key(whole, found.top, key_exprs(found.top), partitioned, tuple(items)):
        carried = way.key[len(way.key) - len(items) :]
        key = way.key[: len(way.key) - len(items)]
        stored = tuple((part.name, name) for part, name in zip(found.parts, carried, strict=False))
        yield replace(way, way=Way.CHANGES, key=key, kept=found, stored=stored)


def _cannot_be_netted(found: Kept) -> bool:
    netted = [part for part in found.parts if part.moment is None and part.bag is None]
    names = frozenset[str]().union(*(part.looked_at for part in netted))
    return any(not is_groupable(found.top.input.fields[name].type) for name in names)


def _unfiltered(query: Project, top: Aggregate) -> tuple[Project, Expr]:
    """The query without its filters above the aggregate, and when a row passes them: all groups are kept."""
    items, passes = query.items, list[Expr]()
    node = query.input
    while node is not top:
        if isinstance(node, Project):
            by = node.by_name
            items = tuple(replace(item, expr=item.expr.substitute(by)) for item in items)
            passes = [predicate.substitute(by) for predicate in passes]
        elif isinstance(node, Filter):
            passes.append(node.predicate)
        node = node.inputs[0]
    every = conjunction(*passes)
    assert every is not None
    return Project(top, items), join_parts("coalesce(", every, ", FALSE)")


def _filters_groups_only(query: Node, top: Aggregate) -> bool:
    """Whether no filter above the aggregate looks at what it computes: what such a one hides may be shown later."""
    fixed = {item.name for item in top.groups}
    chain: list[Node] = []
    while query is not top:
        chain.append(query)
        query = query.inputs[0]
    for node in reversed(chain):
        if isinstance(node, Project):
            fixed = {item.name for item in node.items if item.expr.columns <= fixed}
        elif isinstance(node, Filter) and not node.predicate.columns <= fixed:
            return False
    return True


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node is old:
        return new
    assert isinstance(node, Project | Filter)
    return replace(node, input=_replaced(node.input, old, new))


def _by_rows(query: Node, marks: tuple[Mark, ...], partitioned: frozenset[int]) -> Maintenance:
    """The columns of marks stand behind the user's; one that the user sees anyway is not stored twice."""
    assert isinstance(query, Project)
    names = [name for mark in marks for name in (mark.marker, *mark.keys)]
    visible = query.items[: len(query.items) - len(names)]
    shown = {_origin(query, item.name): item.name for n, item in enumerate(visible) if n not in partitioned}
    kept = {name: shown.get(_origin(query, name), name) for name in names}
    row = Item(ROW_KEY, _hash(tuple(item.name for item in visible)), "bigint", False)
    hidden = tuple(pass_through(query.fields[name]) for name in names if kept[name] == name)
    root = Project(query, (*(pass_through(item.field) for item in visible), row, *hidden))
    stored = tuple(replace(m, marker=kept[m.marker], keys=tuple(kept[key] for key in m.keys)) for m in marks)
    return Maintenance(root, Way.ROWS, (ROW_KEY,), len(visible), marks=stored)


def _hash(columns: tuple[str, ...]) -> Expr:
    pieces: list[str | Expr] = ["xxhash64("]
    for number, name in enumerate(columns):
        pieces.extend([", ", col(name)] if number else [col(name)])
    return join_parts(*pieces, ")")


def _by_key(
    query: Node, target: Node, exprs: tuple[Expr, ...], partitioned: frozenset[int], extra: tuple[Item, ...] = ()
) -> Iterator[Maintenance]:
    """The view keyed by `exprs` of an operator inside it, if its rows reach the top unpadded.

    `extra` columns of that operator are handed up too, and stand behind the key."""
    assert isinstance(query, Project)
    literal = (join_parts("0"),)
    names = tuple(f"{KEY_PREFIX}{number}" for number in range(len(exprs or literal)))
    kinds = [target.fields[e.column].type if e.column else "bigint" for e in exprs] or ["int"]
    items = tuple(Item(n, e, k) for n, e, k in zip(names, exprs or literal, kinds, strict=True)) + extra
    carried = _carry(query, target, items)
    if not isinstance(carried, Project):
        return
    visible_items = [item for n, item in enumerate(carried.items[: len(query.items)]) if n not in partitioned]
    shown = {item.expr: item.name for item in visible_items if item.expr.column}
    key: list[str] = []
    hidden: list[Item] = []
    for item in carried.items[len(query.items) :]:
        # the carried key is a column of its own; the user may show the very column it was made of
        origin = _origin(carried.input, item.name)
        visible = next((name for expr, name in shown.items() if _origin(carried.input, expr.column) == origin), None)
        key.append(visible or item.name)
        if visible is None:
            hidden.append(item)
    root = Project(carried.input, (*carried.items[: len(query.items)], *hidden))
    yield Maintenance(root, Way.KEYS, tuple(key), len(query.items))


def _origin(node: Node, name: str | None) -> tuple[Node, str | None]:
    """Where a column that is only passed through comes from."""
    while name is not None:
        if isinstance(node, Project):
            expr = node.by_name[name]
            if expr.column is None:
                break
            node, name = node.input, expr.column
        elif isinstance(node, Filter):
            node = node.input
        elif isinstance(node, Join):
            node = node.left if name in node.left.columns else node.right
        else:
            break
    return node, name


def _carry(node: Node, target: Node, items: tuple[Item, ...]) -> Node | None:
    """The tree with `items` computed at `target` and handed up to its root."""
    if node is target:
        return Project(node, keep(node) + items)
    match node:
        case Project():
            below = _carry(node.input, target, items)
            passed = tuple(Item(i.name, col(i.name), i.type) for i in items)
            return below and Project(below, node.items + passed)
        case Filter() | Generate() | Apply() | Window():
            below = _carry(node.input, target, items)
            return below and replace(node, input=below)
        case Join() if node.kind is not JoinKind.FULL:
            left = _carry(node.left, target, items)
            if left is not None:
                return replace(node, left=left)
            right = _carry(node.right, target, items) if node.kind is JoinKind.INNER else None
            return right and replace(node, right=right)
    return None


def _preserved(node: Node) -> Iterator[Node]:
    """The operators whose rows reach the top of the tree without being padded or merged."""
    yield node
    match node:
        case Project() | Filter() | Generate() | Apply() | Window():
            yield from _preserved(node.input)
        case Join() if node.kind is not JoinKind.FULL:
            yield from _preserved(node.left)
            if node.kind is JoinKind.INNER:
                yield from _preserved(node.right)


def _ungroupable(query: Project) -> Reason | None:
    for item in query.items:
        if not is_groupable(item.type):
            return Reason(
                Code.UNGROUPABLE_TYPE,
                f"column {item.name.split('#')[0]} is of type {item.type}, whose values cannot be compared",
                hint="Leave it out, or turn it into a string or an array of structs.",
            )
    return None


def _unstable(query: Project, shaky: list[tuple[Node, Expr]]) -> Reason:
    if shaky:
        _, expr = shaky[0]
        detail = f"{expr} decides which rows there are, and may come out differently when computed again"
    else:
        names = ", ".join(sorted(name.split("#")[0] for name in unstable_columns(query)))
        detail = f"{names} may come out differently when computed again, and no stable key reaches the top"
    return Reason(Code.UNSTABLE_VALUE, detail, hint="Use DECIMAL instead of DOUBLE, or order windows by a unique key.")
