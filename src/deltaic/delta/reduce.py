"""The reducing algorithms of Furukawa and Elmagarmid: sets of joined rows, kept without counts of their derivations.

A view is  π σ (R1 ⋈ .. ⋈ Rn)  as a set, and R1 changes: S+ comes, S- goes. What comes or goes of the view is derived
from them (the *candidates*), but for what is derived from the rest of R1 as well (the *existing* rows):

    V' = V - (f(S-) - f(R1 - S-)) + (f(S+) - f(R1 - S-))          proposition 1, definition 5

Candidates and existing rows go through the same joins, as one relation T with a flag for each; every Ri is read once:

    T1 = S+, S- and the rows of R1 - S- that agree with one of them in Y1
    Ti = Ti-1 ⋈ Ri      and then, where the algorithm has it,
         RIC: a candidate is dropped that agrees with an existing row in Zi    (whatever it derives, that row does)
         RIE: an existing row is dropped that agrees with no candidate in Yi   (what it derives, no candidate does)

Yi are the view's columns that R1 .. Ri tell; Zi are these and every column that a later join, selection or column of
the view looks at. (The paper's Zi, of join attributes of neighbours, is right only for chains.) Several changed
relations are taken one after the other: those before it in their new state, those after it in their old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, text
from deltaic.algebra.keys import Declared, Reference
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
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
    Values,
    Window,
)
from deltaic.algebra.trees import keep, pass_through, sources, walk
from deltaic.delta.facts import Facts
from deltaic.delta.flags import COMES, FLAGS, GOES, STAYS, any_of, any_over, flag_item, flags_of, with_flags
from deltaic.delta.joins import JoinTrees
from deltaic.delta.near import LARGE, Narrowing
from deltaic.delta.netting import net
from deltaic.delta.restrict import restrict
from deltaic.delta.rules import Stage, ordered, sum_of
from deltaic.delta.sets import Reducing, SetQuery


@dataclass
class Reduction:
    """All phases of one refresh."""

    derivation: JoinTrees
    query: SetQuery
    how: Reducing
    declared: Declared = field(default_factory=dict)
    references: Sequence[Reference] = ()
    only_comes: bool = False
    """Whether no source lost a row: what comes may then be there already (lemma 3)."""
    view: Node | None = None
    """The view's own rows under the names of the query's items, for what it tells itself."""

    @property
    def merges(self) -> bool:
        """Whether what is found to come may be there already."""
        return self.how.free and self.only_comes and all(map(_is_monotone, self.query.graph.leaves))

    def delta(self) -> Node | None:
        """What comes and goes, netted; None if nothing moves."""
        leaves = self.query.graph.leaves
        moving = [n for n, leaf in enumerate(leaves) if self.derivation.moves(leaf)]
        moving.sort(key=lambda n: not self.tells_what_goes(n))
        found = [_Phase(self, number, start, frozenset(moving[number + 1 :])).target() for number, start in
                 enumerate(moving)]  # fmt: skip
        if not found:
            return None
        if self.merges:
            rows = sum_of(found)
            shown = tuple(pass_through(rows.fields[item.name]) for item in self.query.items)
            return Project(Aggregate(rows, shown), (*shown, Item(WEIGHT, text("1L"), "bigint", False)))
        return found[0] if len(found) == 1 else net(sum_of(found))

    def tells_what_goes(self, leaf: int) -> bool:
        """Whether the view itself says what a deletion from the leaf takes out of it: all rows with its key."""
        return self.how.free and self.view is not None and bool(self.key_in_view(leaf))

    @cached_property
    def facts(self) -> Facts:
        return Facts(self.query.graph, self.declared, self.references)

    def key_in_view(self, leaf: int) -> dict[str, str] | None:
        """A key of the leaf among the columns of the view, and what it is called there."""
        shown: dict[str, str] = {}
        for item in self.query.items:
            if item.expr.column:
                shown.setdefault(item.expr.column, item.name)
        for key in self.keys_of[leaf]:
            if key and key <= shown.keys():
                return {column: shown[column] for column in sorted(key)}
        return None

    @cached_property
    def keys_of(self) -> list[list[frozenset[str]]]:
        """Of each leaf."""
        return [sorted(self.facts.keys(leaf), key=sorted) for leaf in range(len(self.query.graph.leaves))]


@dataclass
class _Phase:
    """The change of one leaf, those of `past` as they were before."""

    whole: Reduction
    number: int
    start: int
    past: frozenset[int]

    def __post_init__(self) -> None:
        self.moved: Ref
        self.graph, self.how = self.whole.query.graph, self.whole.how
        self.derivation = self.whole.derivation
        self.sizes = self.graph.sizes(self.derivation.rows, self.derivation.changes, self.derivation.changed)
        self.there: frozenset[int] = frozenset()
        self.pending = list(self.graph.conditions)
        self.carried = True
        """Whether existing rows are carried along."""
        self.checked = False
        self.merged = False
        """Whether the last join made rows equal that were not before."""
        self.by_view = False
        """Whether the view tells what goes, by a key of the changed leaf."""
        self.told_rest: Node | None = None
        """What goes, where the view told it half way."""

    # which columns matter

    @property
    def present(self) -> tuple[Field, ...]:
        """The columns of the leaves that are joined."""
        return tuple(f for n in sorted(self.there) for f in self.graph.leaves[n].schema)

    @property
    def told(self) -> list[Item]:
        """The columns of the view that the leaves so far tell: Yi."""
        names = {f.name for f in self.present}
        return [item for item in self.whole.query.items if item.expr.columns <= names]

    @property
    def looked_at(self) -> list[Item]:
        """The columns that something later looks at; with Yi, Zi."""
        told = {item.name for item in self.told}
        later = [item.expr for item in self.whole.query.items if item.name not in told]
        wanted = frozenset[str]().union(*(expr.columns for expr in (*self.pending, *later)))
        return [pass_through(f) for f in self.present if f.name in wanted]

    # the relations

    def target(self) -> Node:
        """Rows that come with 1, rows that go with -1."""
        if self.whole.merges and not self.is_reduced_first():
            self.carried = False
        self.by_view = self.number == 0 and not self.whole.merges and self.whole.tells_what_goes(self.start)
        rows = self.first()
        others = [n for n in range(len(self.graph.leaves)) if n != self.start]
        while others:
            if self.goes_by_view(others):
                rows = self.with_what_goes_told(rows)
            following = min(others, key=self.rank)
            others.remove(following)
            rows = self.joined(rows, following, last=not others)
        return self.finished(rows)

    def is_reduced_first(self) -> bool:
        """Whether what comes is looked for in its own table, before others are joined: if that is the smaller one."""
        sizes = self.sizes.new
        return 2 * sizes[self.start] <= sum(sizes)

    def rank(self, leaf: int) -> tuple[object, ...]:
        """Joined by a condition; a key of it in the view (theorem 3); the smallest."""
        connected = not self.sizes.beside[leaf].isdisjoint(self.there)
        return (not connected, not self.whole.key_in_view(leaf), self.sizes.new[leaf], leaf)

    def first(self) -> Ref:
        leaf = self.graph.leaves[self.start]
        found = self.derivation.delta(leaf)
        assert found is not None
        self.there = frozenset({self.start})
        conditions = self.now_decided(frozenset({self.start})) if self.how.early else []
        items = self.kept_items()
        kept = (*items, pass_through(Field(WEIGHT, "bigint", False)))
        moved = net(Project(_filtered(ordered(found, leaf.columns), conditions), kept))
        change = self.derivation.bind("moved", moved)
        self.moved = change
        names = tuple(pass_through(change.fields[item.name]) for item in items)
        comes, goes = (join_parts(col(WEIGHT), sign) for sign in (" > 0", " < 0"))
        if self.by_view:  # the view tells what goes, and nothing else derives what comes
            self.carried = False
            rows: Node = Project(Filter(change, comes), (*names, *flags_of("TRUE", "FALSE", "FALSE")))
        elif not self.carried:
            rows = Project(
                change, (*names, flag_item(COMES, comes), flag_item(GOES, goes), flag_item(STAYS, text("FALSE")))
            )
        else:
            rows = self.beside_the_existing(leaf, change, conditions, items, comes, goes)
        return self.reduced(rows, self.label(self.start), last=len(self.graph.leaves) == 1)

    def beside_the_existing(
        self, leaf: Node, change: Ref, conditions: Sequence[Expr], items: Sequence[Item], comes: Expr, goes: Expr
    ) -> Node:
        """The change, and the rows of R1 - S- that agree with one of it in Y1.

        They are those of R1 as it is, less what came, by count: tables hold equal rows several times."""
        there = _filtered(leaf, conditions)
        told = self.told
        if told:
            values = Project(change, tuple(replace(item, expr=_shown(item, change)) for item in told))
            asked = self.derivation.bind("asked", Aggregate(values, keep(values)))
            there = restrict(there, [item.expr for item in told], asked)
        names = tuple(pass_through(change.fields[item.name]) for item in items)
        count = Item(STAYS, text("1L"), "bigint", False)
        came = join_parts("CASE WHEN ", col(WEIGHT), " > 0 THEN -", col(WEIGHT), " ELSE 0L END")
        standing = Project(there, (*items, *flags_of("FALSE", "FALSE")[:2], count))
        moving = Project(
            change, (*names, flag_item(COMES, comes), flag_item(GOES, goes), Item(STAYS, came, "bigint", False))
        )
        both = UnionAll((standing, moving), tuple(replace(f, nullable=True) for f in moving.schema))
        return Aggregate(
            both,
            tuple(pass_through(both.fields[item.name]) for item in items),
            (*(any_of(flag) for flag in (COMES, GOES)), flag_item(STAYS, join_parts("sum(", col(STAYS), ") > 0"))),
        )

    def joined(self, rows: Ref, following: int, *, last: bool) -> Ref:
        before, self.there = self.there, self.there | {following}
        leaf = self.graph.leaves[following]
        if following in self.past:
            leaf = self.derivation.old(leaf)
        decided = self.now_decided(self.there, None if self.how.early else (following, before))
        own = [c for c in decided if self.graph.reach(c) <= {following}]
        between = [c for c in decided if c not in own]
        narrowing = Narrowing(self.derivation.rows, self.sizes.change[self.start])
        near = narrowing.beside(_filtered(leaf, own), rows, between)
        found = Join(rows, near, JoinKind.INNER, conjunction(*between))
        items = self.kept_items(found)
        projected: Node = Project(found, (*items, *(pass_through(found.fields[flag]) for flag in FLAGS)))
        self.merged = self.how.early and self.merges_rows(found, items)
        if self.merged:
            groups = tuple(pass_through(projected.fields[item.name]) for item in items)
            projected = Aggregate(projected, groups, tuple(any_of(flag) for flag in FLAGS))
        return self.reduced(projected, self.label(following), last=last, following=following)

    def merges_rows(self, found: Node, items: Sequence[Item]) -> bool:
        """Whether rows that differed before may be equal now: a column was dropped. Else there is nothing to drop."""
        kept = {item.expr.column for item in items}
        return not self.how.free or any(f.name not in kept and f.name not in FLAGS for f in found.schema)

    def reduced(self, rows: Node, joined: str, *, last: bool, following: int | None = None) -> Ref:
        """RIC, then RIE, and the rows that are left."""
        first = len(self.there) == 1
        told = [_shown(item, rows) for item in self.told]
        exact = tuple(dict.fromkeys([*told, *(col(item.name) for item in self.looked_at)]))
        if self.carried and self.how.candidates and not (first and not self.how.early):
            rows = self.without_what_stays(rows, exact)
        if self.carried and self.how.free and following is not None and self.leaves_nothing(following):
            self.carried = False
            rows = with_flags(rows, {STAYS: text("FALSE")})
        if self.carried and self.whole.merges:  # what comes was looked for in its own table; the rest is the view's
            self.carried = False
            rows = with_flags(rows, {STAYS: text("FALSE")})
        if self.carried and self.how.existing and not first and not last and self.may_part(following):
            rows = self.without_what_nobody_asks(rows, told)
        any_flag = join_parts(col(COMES), " OR ", col(GOES), " OR ", col(STAYS))
        stage = None
        if self.is_checked():
            self.checked = True
            number, changed = len(self.there), self.label(self.start)
            where = f"after {number} tables, {joined} the last" if number > 1 else "in its own table"
            what = f"what may come or go by the change of {changed}, and what stays, {where}"
            stage = Stage(self.number, what, changed, joined, number)
        return self.derivation.bind("reduced", Filter(rows, any_flag), stage=stage)

    def is_checked(self) -> bool:
        """Whether it is seen, before the others are read, if there are candidates left. It costs a query: one of the
        others should be large."""
        left = [leaf for number, leaf in enumerate(self.graph.leaves) if number not in self.there]
        rows = (self.derivation.rows.get(source, 0) for leaf in left for source in sources(leaf))
        return not self.how.free or self.by_view or any(count >= LARGE for count in rows)

    def without_what_stays(self, rows: Node, exact: tuple[Expr, ...]) -> Node:
        """MU2 takes what comes for existing, where it agrees with what goes. What both derive is there before and
        after, so here they make an existing row together: no row is then found to come that is in the view already."""
        comes, goes, stays = map(col, FLAGS)
        if not self.how.early:  # else there is one row for each value of Zi
            rows = Window(rows, tuple(any_over(f"{flag}_z", flag, exact) for flag in FLAGS), exact)
            comes, goes, stays = (col(f"{flag}_z") for flag in FLAGS)
        if self.how.mixed:
            stays = join_parts("(", stays, " OR (", comes, " AND ", goes, "))")
        flags = {flag: join_parts(col(flag), " AND NOT ", stays) for flag in (COMES, GOES)}
        if self.how.mixed:
            flags[STAYS] = join_parts(col(STAYS), " OR (", comes, " AND ", goes, ")")
        return with_flags(rows, flags)

    def may_part(self, following: int | None) -> bool:
        """Whether existing rows may have come to differ from all candidates at this join: by a column of the view that
        it brought, or because candidates were dropped. Else looking for such rows would gain little."""
        assert following is not None
        brought = set(self.graph.leaves[following].columns)
        return not self.how.free or self.merged or any(item.expr.columns & brought for item in self.told)

    def without_what_nobody_asks(self, rows: Node, told: Sequence[Expr]) -> Node:
        either = Item("__deltaic_either", join_parts(col(COMES), " OR ", col(GOES)), "boolean", False)
        marked = Project(rows, (*keep(rows), either))
        asked = Window(marked, (any_over("__deltaic_asked", either.name, tuple(told)),), tuple(told))
        return with_flags(asked, {STAYS: join_parts(col(STAYS), " AND ", col("__deltaic_asked"))})

    # Theorem 3: a key of Ri among the view's columns, and Zi within Yi and Xi. An existing row and a candidate that
    # agree in Yi are joined with the same row of Ri, so they agree in Zi, and RIC dropped the candidate.
    def leaves_nothing(self, leaf: int) -> bool:
        own = set(self.graph.leaves[leaf].columns)
        return self.whole.key_in_view(leaf) is not None and all(item.name in own for item in self.looked_at)

    def finished(self, rows: Ref) -> Node:
        """The rows of the view that are derived from candidates, and from nothing that stays."""
        shown: Node = _filtered(rows, self.pending)
        items = [replace(item, expr=_shown(item, rows)) for item in self.whole.query.items]
        shown = Project(shown, (*items, *(pass_through(rows.fields[flag]) for flag in FLAGS)))
        groups = tuple(pass_through(shown.fields[item.name]) for item in items)
        sets = Aggregate(shown, groups, tuple(any_of(flag) for flag in FLAGS))
        # a row that both comes and goes is there before and after (lemma 4)
        found = Filter(sets, join_parts("NOT ", col(STAYS), " AND ", col(COMES), " <> ", col(GOES)))
        sign = join_parts("CASE WHEN ", col(COMES), " THEN 1L ELSE -1L END")
        signed = Project(found, (*groups, Item(WEIGHT, sign, "bigint", False)))
        what = f"the rows that come and go by the change of {self.label(self.start)}"
        last = Stage(self.number, what, number=len(self.there) + 1, last=True) if self.checked else None
        target = self.derivation.bind("target", signed, stage=last)
        told = self.told_by_the_view() if self.by_view else self.told_rest
        return net(sum_of([target, told])) if told is not None else target

    def told_by_the_view(self) -> Node:
        """The rows of the view with the key of a row that goes: nothing else derives them."""
        key = self.whole.key_in_view(self.start)
        assert key is not None
        return self.lost_from_the_view(Filter(self.moved, join_parts(col(WEIGHT), " < 0")), list(key.values()))

    def lost_from_the_view(self, gone: Node, names: Sequence[str]) -> Node:
        assert self.whole.view is not None
        lost = self.derivation.bind("asked", Aggregate(gone, tuple(pass_through(gone.fields[n]) for n in names)))
        rows = restrict(self.whole.view, [col(name) for name in names], lost)
        minus = Item(WEIGHT, text("-1L"), "bigint", False)
        return Project(rows, (*(pass_through(rows.fields[i.name]) for i in self.whole.query.items), minus))

    # Theorem 4, for what goes: what goes of the view has a Yi of a candidate and of no existing row, and the view
    # itself has the rest of it. What comes must still be joined. It holds where rows so far that agree in Yi agree in
    # all that is looked at later, and so derive the same; or where Yi determines the row of the view, and no row so far
    # is left dangling, which the paper forgets: each table that is left has a row for it.
    def goes_by_view(self, others: Sequence[int]) -> bool:
        alone = self.number == 0 and self.whole.view is not None and not self.by_view and self.told_rest is None
        if not (self.how.free and self.carried and alone and self.told):
            return False
        facts, told = self.whole.facts, [item.expr.column for item in self.told if item.expr.column]
        decided = [condition for condition in self.graph.conditions if condition not in self.pending]
        if {item.name for item in self.looked_at} <= facts.determined(told, self.there, decided):
            return True
        shown = facts.determined(told, range(len(self.graph.leaves)), self.graph.conditions)
        if not all(item.expr.columns <= shown for item in self.whole.query.items):
            return False
        return facts.are_total(self.there, others, self.pending)

    def with_what_goes_told(self, rows: Ref) -> Ref:
        names = [item.name for item in self.told]
        groups = tuple(pass_through(rows.fields[name]) for name in names)
        flags = (any_of(GOES), any_of(STAYS))
        gone = Filter(Aggregate(rows, groups, flags), join_parts(col(GOES), " AND NOT ", col(STAYS)))
        self.told_rest = self.lost_from_the_view(gone, names)
        self.checked = True
        number, changed = len(self.there), self.label(self.start)
        stage = Stage(
            self.number, f"what may come by the change of {changed}: the view tells what goes", changed, "", number
        )
        comes = Filter(with_flags(rows, {GOES: text("FALSE")}), join_parts(col(COMES), " OR ", col(STAYS)))
        return self.derivation.bind("reduced", comes, stage=stage)

    def now_decided(self, there: frozenset[int], between: tuple[int, frozenset[int]] | None = None) -> list[Expr]:
        """The conditions that can be decided; or only those between a leaf and those before it, as the others wait
        until the end where nothing is done early."""
        found = [c for c in self.pending if self.graph.reach(c) <= there]
        if between is not None:
            leaf, before = between
            found = [c for c in found if leaf in self.graph.reach(c) and self.graph.reach(c) & before]
        self.pending = [c for c in self.pending if c not in found]
        return found

    def kept_items(self, rows: Node | None = None) -> list[Item]:
        """What a relation keeps: with early projection Zi, else all columns."""
        if not self.how.early:
            return [pass_through(f) for f in self.present]
        told = [replace(item, expr=_shown(item, rows)) if rows else item for item in self.told]
        names = {item.name for item in told}
        return [*told, *(item for item in self.looked_at if item.name not in names)]

    def label(self, leaf: int) -> str:
        return ", ".join(sources(self.graph.leaves[leaf]))


def _is_monotone(node: Node) -> bool:
    """Whether more rows below never make fewer."""
    return all(
        isinstance(n, Scan | Values | Project | Filter | UnionAll | Generate)
        or (isinstance(n, Join) and n.kind in (JoinKind.INNER, JoinKind.SEMI))
        or (isinstance(n, Aggregate) and not n.aggregates)
        for n in walk(node)
    )


def _shown(item: Item, rows: Node) -> Expr:
    """A column of the view over relations that may hold it already."""
    return col(item.name) if item.name in rows.columns else item.expr


def _filtered(node: Node, conditions: Sequence[Expr]) -> Node:
    for condition in conditions:
        node = Filter(node, condition)
    return node
