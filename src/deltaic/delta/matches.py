"""Outer, semi and anti joins whose other side changed: a better rule than evaluating them twice.

In `X op Y` a row of X is seen alone (padded, kept by ANTI, dropped by SEMI) exactly while it has no match in Y.
So a change of Y adds and takes away pairs, and flips the rows whose *first* match came or whose *last* one went:

    X op Y' - X op Y   =   X join dY   +   w(x) alone(x)       w = [no match in Y'] - [no match in Y]

Whether there is a match is a matter of the columns that ON looks at, the *key*: it is found once per touched key.

* From Y as it is now: count the matches in Y'; those in Y are that count less the change's.
* From the view, where the join's rows reach its top and it stores who stands alone (`Seen`): the outer-join change
  tables of Gupta and Mumick, section 6. Y is then not read. The view tells the past; that a match came is told by
  the change (theorem 2, row 7b); that the last one went, by the view's rows less the ones that go (algorithm 1, taken
  as a set), carried up through the operators between the join and the view (table 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import (
    WEIGHT,
    WEIGHT_FIELD,
    Aggregate,
    Apply,
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
    UnionAll,
)
from deltaic.algebra.trees import keep, null_item, pass_through, sources, walk
from deltaic.algebra.types import is_exact_key
from deltaic.delta.groups import Groups
from deltaic.delta.rules import ViewCounts, ordered, sum_of, with_weight

FAR_LESS = 4
"""A row of a view is read by its key and marker only, and where only first matches count, files without them are
skipped; so the view is asked unless the other side is smaller by this factor."""

ALONE, SHOWN_PAIRS = "__deltaic_alone", "__deltaic_pairs"
"""Of a key: how many rows of the view stand alone, and how many have a match."""

FLIP = "__deltaic_w"
"""Of a key: 1 if its rows stand alone from now on, -1 if they do no longer."""


@dataclass(frozen=True)
class Seen:
    """Where a view shows which rows of a join's preserved side stand alone.

    `view` has, for each row of the view, the `marker` (NULL if the row is not of that side) and the key."""

    root: Node
    join: Join
    """The join as it stands in `root`: LEFT or FULL."""
    view: Scan
    marker: str
    keys: tuple[str, ...]
    dropping: bool = False
    """Whether an operator above the join may drop rows of it, so that the view does not show them all."""


@dataclass
class MatchDerivation(Groups):
    """The rules for groups, and for a change on the other side of an outer, semi or anti join."""

    seen: Mapping[Join, Seen] = field(default_factory=dict)
    appended: frozenset[str] = frozenset()
    """Of the changed sources, those that only got more rows."""

    def delta_by_partner(self, node: Join | Apply, left: Node, right: Node, on: Expr | None) -> Node | None:
        if isinstance(node, Apply) or not all(is_exact_key(left.fields[k].type) for k in key_columns(node)):
            return super().delta_by_partner(node, left, right, on)
        found = self.delta(right)
        if found is None:
            return None
        moved = self.bind("moved", found)
        reached = Project(moved, tuple(i for i in keep(moved) if i.name != WEIGHT))
        touched = self.bind("touched", Join(self.old(left), reached, JoinKind.SEMI, on))
        terms: list[Node] = []
        if node.kind is JoinKind.LEFT:
            terms.append(ordered(Join(touched, moved, JoinKind.INNER, on), node.columns))
        terms.append(self.turned(node, touched, moved))
        return sum_of(terms)

    def turned(self, node: Join, touched: Ref, moved: Ref) -> Node:
        """The rows that stand alone from now on, or no longer, as the join shows them."""
        seen = self.seen.get(node)
        if seen is None or not self.is_told(seen) or self.is_small(node.right, seen) or not _meets_exactly(node):
            return self.flipped(node, touched, self.counted(node, self.keys_of(node, touched), moved))
        if self.grows(node.right):
            return self.first_matches(node, touched, seen)
        keys = self.keys_of(node, touched)
        pairs = self.carried_pairs(node, touched, moved, keys)
        if pairs is None:
            return self.flipped(node, touched, self.counted(node, keys, moved))
        return self.flipped(node, touched, self.told_by_view(node, keys, moved, seen, pairs))

    def flipped(self, node: Join, touched: Ref, flips: Node) -> Node:
        """`flips` has the keys that got their first match or lost their last one."""
        names = [name for name in flips.columns if name != FLIP]
        pairs = zip(key_columns(node), names, strict=False)
        on = conjunction(*(null_safe_equal(col(x), col(k)) for x, k in pairs))
        sign = join_parts("-", col(FLIP)) if node.kind is JoinKind.SEMI else col(FLIP)
        return _alone(node, Join(touched, flips, JoinKind.INNER, on), sign)

    def is_told(self, seen: Seen) -> bool:
        """Whether a row that the view does not show has no part in the change.

        What the operators above drop may be let through when their other sides change."""
        return not seen.dropping or not self.moves_beside(seen.root, seen.join)

    def moves_beside(self, root: Node, inside: Node) -> bool:
        """Whether a source changed that stands in `root` and not, or not only, `inside`."""
        beside = Counter(n.source for n in walk(root) if isinstance(n, Scan))
        beside.subtract(n.source for n in walk(inside) if isinstance(n, Scan))
        return any(beside[source] > 0 for source in self.changed)

    def is_small(self, other: Node, seen: Seen) -> bool:
        """Whether counting in the other side reads far less than looking into the view."""
        counts = [self.rows.get(source) for source in sources(other)]
        known = [count for count in counts if count is not None]
        return len(known) == len(counts) and FAR_LESS * sum(known) < self.rows.get(seen.view.source, 0)

    def keys_of(self, node: Join, touched: Ref) -> Ref:
        number = len(self.bindings)
        columns = key_columns(node)
        items = [Item(f"__deltaic_{number}k{n}", col(c), touched.fields[c].type) for n, c in enumerate(columns)]
        items = items or [Item(f"__deltaic_{number}k0", text("0"), "int", False)]
        found = Project(touched, tuple(items))
        return self.bind("keys", Aggregate(found, keep(found)))

    # from the other side

    def counted(self, node: Join, keys: Ref, moved: Ref) -> Node:
        on = _over_keys(node, keys)
        now, change = Field("__deltaic_now", "bigint", False), Field("__deltaic_moved", "bigint", False)
        there = Project(Join(keys, node.right, JoinKind.INNER, on), (*keep(keys), _one(now), _zero(change)))
        came = Project(
            Join(keys, moved, JoinKind.INNER, on),
            (*keep(keys), _zero(now), Item(change.name, col(WEIGHT), "bigint", False)),
        )
        both = Aggregate(UnionAll((there, came), there.schema), keep(keys), (_sum(now), _sum(change)))
        here, more = col(now.name), col(change.name)
        lost = join_parts("WHEN ", here, " = 0 AND ", more, " < 0 THEN 1L")
        first = join_parts("WHEN ", here, " > 0 AND ", here, " = ", more, " THEN -1L")
        return _flipping(both, keys, join_parts("CASE ", lost, " ", first, " END"))

    # from the view

    def grows(self, node: Node) -> bool:
        """Whether the node's delta can have no deletion."""
        if not self.moves(node):
            return True
        match node:
            case Scan():
                return node.source in self.appended
            case Project() | Filter() | Generate() | UnionAll() | Join(kind=JoinKind.INNER | JoinKind.SEMI):
                return all(self.grows(below) for below in node.inputs)
            case Join(kind=JoinKind.LEFT):
                return self.grows(node.left) and not self.moves(node.right)
        return False

    def first_matches(self, node: Join, touched: Ref, seen: Seen) -> Node:
        """All touched rows have a match now: those that the view shows alone do so no longer."""
        stood = self.view_counts(seen, only_true=True)
        pairs = zip(key_columns(node), stood.columns, strict=False)
        on = conjunction(*(null_safe_equal(col(x), col(k)) for x, k in pairs))
        return _alone(node, Join(touched, stood, JoinKind.SEMI, on), text("-1L"))

    def view_counts(self, seen: Seen, *, only_true: bool) -> Ref:
        """What the view shows of each key: its rows that stand alone, and those that have a match."""
        number, marker = len(self.bindings), col(seen.marker)
        items = [Item(f"__deltaic_{number}k{n}", col(k), seen.view.fields[k].type) for n, k in enumerate(seen.keys)]
        items = items or [Item(f"__deltaic_{number}k0", text("0"), "int", False)]
        case = "CASE WHEN ", marker, " THEN 1L ELSE 0L END"
        alone = Item(ALONE, join_parts(*case), "bigint", False)
        shown = Item(SHOWN_PAIRS, join_parts("1L - ", *case), "bigint", False)
        rows = Filter(seen.view, marker if only_true else join_parts(marker, " IS NOT NULL"))
        each = Project(rows, (*items, alone, shown))
        groups = tuple(pass_through(item.field) for item in items)
        counted = Aggregate(each, groups, (_sum(alone.field), _sum(shown.field)))
        origins = {column.field.name: column.origin for column in seen.view.scanned}
        known = ViewCounts(origins[seen.marker], tuple(origins[k] for k in seen.keys), only_true)
        return self.bind("alone", counted, known)

    def carried_pairs(self, node: Join, touched: Ref, moved: Ref, keys: Ref) -> Node | None:
        """The pairs that come and go, as rows of the view; None if the view does not show every pair of a key.

        Rows of the view can be counted against them only if nothing else has changed."""
        seen = self.seen[node]
        if self.moves_beside(seen.root, node.right):
            return None
        pairs = ordered(Join(touched, moved, JoinKind.INNER, node.on), seen.join.columns)
        lifted = lift(seen.root, seen.join, pairs, frozenset(node.right.columns))
        if lifted is None:
            return None
        origins = {column.field.name: column.origin for column in seen.view.scanned}
        items = [
            Item(k, col(origins[s]), keys.fields[k].type)
            for k, s in zip(keys.columns, seen.keys, strict=bool(seen.keys))
        ]
        items = items or [Item(keys.columns[0], text("0"), "int", False)]
        return Project(lifted[0], (*items, pass_through(WEIGHT_FIELD)))

    def told_by_view(self, node: Join, keys: Ref, moved: Ref, seen: Seen, pairs: Node) -> Node:
        """Algorithm 1 as a set, and theorem 2: matches shown, and what is added to or taken from them."""
        came, more = Field("__deltaic_came", "bigint", False), Field("__deltaic_more", "bigint", False)
        alone, shown = Field(ALONE, "bigint", False), Field(SHOWN_PAIRS, "bigint", False)
        theirs = tuple(i for i in keep(moved) if node.on and i.name in node.on.columns)
        total = Item(WEIGHT, join_parts("sum(", col(WEIGHT), ")"), "bigint", False)
        net = Filter(Aggregate(moved, theirs, (total,)), join_parts(col(WEIGHT), " > 0"))
        gained = Project(
            Join(keys, net, JoinKind.SEMI, _over_keys(node, keys)),
            (*keep(keys), _one(came), _zero(alone), _zero(shown), _zero(more)),
        )
        stood = self.view_counts(seen, only_true=False)
        same = zip(stood.columns, keys.columns, strict=False)
        on = conjunction(*(null_safe_equal(col(a), col(b)) for a, b in same))
        touched = Join(stood, keys, JoinKind.SEMI, on)
        own = tuple(Item(k, col(s), keys.fields[k].type) for s, k in zip(stood.columns, keys.columns, strict=False))
        existing = Project(touched, (*own, _zero(came), pass_through(alone), pass_through(shown), _zero(more)))
        moving = Project(
            pairs, (*keep(keys), _zero(came), _zero(alone), _zero(shown), Item(more.name, col(WEIGHT), "bigint", False))
        )
        parts = UnionAll((gained, existing, moving), gained.schema)
        both = Aggregate(parts, keep(keys), (_sum(came), _sum(alone), _sum(shown), _sum(more)))
        is_alone, has_come = join_parts(col(alone.name), " > 0"), join_parts(col(came.name), " > 0")
        left = join_parts(col(shown.name), " > 0 AND ", col(shown.name), " + ", col(more.name), " = 0")
        first = join_parts("WHEN ", is_alone, " AND ", has_come, " THEN -1L")
        lost = join_parts("WHEN NOT (", is_alone, ") AND NOT (", has_come, ") AND ", left, " THEN 1L")
        return _flipping(both, keys, join_parts("CASE ", first, " ", lost, " END"))


def key_columns(node: Join) -> tuple[str, ...]:
    """The columns of the left side that decide what it matches."""
    return tuple(name for name in node.left.columns if node.on is not None and name in node.on.columns)


def _meets_exactly(node: Join) -> bool:
    """Whether a row of the other side with equal columns meets the same."""
    fields = node.right.fields
    return node.on is None or all(is_exact_key(fields[c].type) for c in node.on.columns if c in fields)


def lift(node: Node, target: Join, rows: Node, other: frozenset[str]) -> tuple[Node, frozenset[str]] | None:
    """Signed rows of `target` through the operators above it, up to `node`; and what became of the `other` columns.

    None if one of the operators drops rows by the other columns: a key's rows would not all be seen."""
    if node == target:
        return rows, other
    match node:
        case Project():
            below = lift(node.input, target, rows, other)
            if below is None:
                return None
            names = frozenset(i.name for i in node.items if i.expr.columns & below[1])
            return Project(below[0], (*node.items, pass_through(WEIGHT_FIELD))), names
        case Filter() | Generate():
            below = lift(node.input, target, rows, other)
            expr = node.predicate if isinstance(node, Filter) else node.generator
            if below is None or expr.columns & below[1]:
                return None
            return replace(node, input=below[0]), below[1]
        case Apply():
            below = lift(node.input, target, rows, other)
            return below and (replace(node, input=below[0]), below[1] | {node.output.name})
        case Join():
            return _lift_join(node, target, rows, other)
        case UnionAll():
            branch = next(b for b in node.branches if target in walk(b))
            below = lift(branch, target, rows, other)
            if below is None:
                return None
            named = zip(node.schema, branch.columns, strict=True)
            items = tuple(Item(f.name, col(own), f.type) for f, own in named)
            names = frozenset(i.name for i in items if i.expr.columns & below[1])
            return Project(below[0], (*items, pass_through(WEIGHT_FIELD))), names
    return None


def _lift_join(node: Join, target: Join, rows: Node, other: frozenset[str]) -> tuple[Node, frozenset[str]] | None:
    on_left = target in walk(node.left)
    side, beside = (node.left, node.right) if on_left else (node.right, node.left)
    below = lift(side, target, rows, other)
    if below is None:
        return None
    preserved = node.kind in (JoinKind.LEFT, JoinKind.FULL)
    if not preserved and node.on is not None and node.on.columns & below[1]:
        return None
    kind = JoinKind.LEFT if preserved else node.kind
    return ordered(Join(below[0], beside, kind, node.on), node.columns), below[1]


def _over_keys(node: Join, keys: Ref) -> Expr | None:
    names = dict(zip(key_columns(node), map(col, keys.columns), strict=False))
    return node.on and node.on.substitute(names)


def _alone(node: Join, rows: Join, weight: Expr) -> Node:
    """Rows of the preserved side as the join shows those that stand alone."""
    if node.kind is not JoinKind.LEFT:
        return with_weight(rows, node.columns, weight)
    own = tuple(item for item in keep(rows) if item.name in {*node.left.columns, *weight.columns})
    nulls = tuple(null_item(f) for f in node.right.schema)
    return with_weight(Project(rows, (*own, *nulls)), node.columns, weight)


def _flipping(counts: Node, keys: Ref, flip: Expr) -> Node:
    told = Project(counts, (*keep(keys), Item(FLIP, flip, "bigint")))
    return Filter(told, join_parts(col(FLIP), " IS NOT NULL"))


def _one(field: Field) -> Item:
    return Item(field.name, text("1L"), field.type, False)


def _zero(field: Field) -> Item:
    return Item(field.name, text("0L"), field.type, False)


def _sum(field: Field) -> Item:
    return Item(field.name, join_parts("sum(", col(field.name), ")"), field.type, False)
