"""Which way a view is kept: the candidates, best first, and what stands against each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, text
from deltaic.algebra.keys import Declared, Reference
from deltaic.algebra.nodes import SHOWN, Aggregate, Apply, Filter, Item, Join, Node, Project, Scan, Window
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import Code, NotLowered, Reason, too_deep, too_large
from deltaic.algebra.recursion import Component, Predicate
from deltaic.algebra.simplify import simplify
from deltaic.algebra.stability import is_unstable, unstable_columns
from deltaic.algebra.trees import keep, pass_through, sources, top_of, walk, with_top
from deltaic.algebra.types import is_exact_key, is_groupable, is_storable
from deltaic.delta.graph import Graph, is_joined
from deltaic.delta.rules import Derivation, key_exprs
from deltaic.delta.sets import ALGORITHMS, SetQuery
from deltaic.plan.bags import hidden_columns
from deltaic.plan.carrying import carried_up, origin, preserved
from deltaic.plan.change import change_table
from deltaic.plan.maintain import ROW_KEY, Form, Known, Maintenance, Way
from deltaic.plan.outer import PreservedSide, with_markers
from deltaic.plan.padding import without_padding
from deltaic.plan.program import sets_program
from deltaic.plan.recursion import Recursion, maintained
from deltaic.plan.state import STATE_PREFIX, KeptAggregate, kept
from deltaic.plan.strata import Stratum, expanded, stratified
from deltaic.plan.strata import hidden_columns as hidden_columns_of_strata

KEY_PREFIX = "__deltaic_k"
_USUAL = Form()
_JOINED = {"base": 10, "blakeley": 10, **dict.fromkeys(ALGORITHMS, 20)}
"""Relations in one join up to which these techniques are taken: with each more, the work of the first two doubles."""


def choose(
    query: Node,
    technique: str = "auto",
    partitioned: frozenset[int] = frozenset(),
    *,
    form: Form = _USUAL,
    declared: Declared = MappingProxyType({}),
    references: tuple[Reference, ...] = (),
    components: tuple[Component, ...] = (),
) -> Maintenance | Reason:
    """The way to keep the view of `query`, or the reason why there is none. `components` define the predicates that it
    scans.

    A view may be pinned to "base", which allows no other rule, or to one of the techniques that others are measured by.

    `form` says what is stored of sets: without counts, a set of rows is kept by a reducing algorithm, from what is
    known of `declared` keys and `references`.

    `partitioned` are the places of STRING columns by which the view's table is partitioned. Delta reads '' there back
    as NULL, so none of them is a key."""
    try:
        return _chosen(query, technique, partitioned, form, declared, references, components)
    except RecursionError:
        return too_deep()
    except NotLowered as large:
        return large.reason


def _chosen(
    query: Node,
    technique: str,
    partitioned: frozenset[int],
    form: Form,
    declared: Declared,
    references: tuple[Reference, ...],
    components: tuple[Component, ...],
) -> Maintenance | Reason:
    query = _as_project(prune(query))
    reason = _ungroupable(query) or _ungroupable_inside(query) or _too_many_joined(query, technique)
    if reason is not None:
        return reason
    shaky: list[tuple[Node, Expr]] = []
    unstorable: str | None = None
    if technique in ALGORITHMS and SetQuery.of(top_of(query)) is None:
        return _no_set(technique)
    recursive = _recursive_candidates(query, technique, partitioned, components) if components else None
    for found in recursive or _layered_candidates(query, technique, partitioned, form):
        candidate = replace(found, technique=technique, declared=declared, references=references)
        if candidate.layered is not None:
            candidate = replace(candidate, layered=replace(candidate.layered, technique=technique))
        kinds = [candidate.root.fields[name].type for name in candidate.hidden]
        if not all(map(is_storable, kinds)):
            unstorable = next(kind for kind in kinds if not is_storable(kind))
            continue
        found_shaky = _shaky(candidate, Known(_read(candidate, query)))
        if not found_shaky:
            return candidate
        shaky = shaky or found_shaky
    if unstorable is not None and not shaky:
        detail = f"a value of type {unstorable} would have to be stored beside the view's columns, and Delta cannot"
        return Reason(Code.UNGROUPABLE_TYPE, detail, hint="CAST it to another type.")
    return _unstable(query, shaky)


def _read(way: Maintenance, query: Node) -> frozenset[str]:
    found = frozenset(sources(query))
    return found | way.recursion.reads if way.recursion else found


def _recursive_candidates(
    query: Project, technique: str, partitioned: frozenset[int], components: tuple[Component, ...]
) -> Iterator[Maintenance]:
    """For a view over predicates that are defined by recursion: they are kept in its table, in rows that are not shown.
    One that is the view itself is not kept twice."""
    itself = _scanned_whole(query)
    if len(components) == 1 and len(components[0].predicates) == 1 and itself is not None and not partitioned:
        yield replace(_by_rows(query, (), partitioned), recursion=Recursion(components, {}))
        return
    predicates = [p for component in components for p in component.predicates]
    strata = tuple(Stratum(n, _all_of(p)) for n, p in enumerate(predicates, 1))
    recursion = Recursion(components, {p.source: s for p, s in zip(predicates, strata, strict=True)})
    for way in _candidates(query, technique, partitioned, counts=True):
        if way.bags or way.preserved or way.way is Way.SETS:
            continue
        more = hidden_columns_of_strata(strata, shown=SHOWN not in way.root.fields)
        inner = replace(way, root=Project(way.root, (*keep(way.root), *more)))
        yield replace(inner, strata=strata, layered=inner, recursion=recursion)


def _scanned_whole(query: Project) -> Scan | None:
    """The scan that a query gives as it is."""
    scan = simplify(query)
    items = scan.items if isinstance(scan, Project) else keep(scan)
    scan = scan.input if isinstance(scan, Project) else scan
    names = tuple(item.expr.column for item in items)
    return scan if isinstance(scan, Scan) and names == scan.columns else None


def _all_of(predicate: Predicate) -> Aggregate:
    scan = predicate.scan([f"{name.name}#{predicate.source}" for name in predicate.fields])
    return Aggregate(scan, keep(scan))


def _shaky(way: Maintenance, known: Known) -> list[tuple[Node, Expr]]:
    """Where, if everything changes, a value that may come out differently decides about rows."""
    if way.recursion is not None:
        derivation = Derivation(known.changed | way.recursion.moved(known.changed))
        for component in way.recursion.components:
            maintained(component, derivation)
        if derivation.shaky:
            return derivation.shaky
        known = replace(known, changed=derivation.changed)
    if way.layered is not None:
        known = replace(known, changed=known.changed | {stratum.source for stratum in way.strata})
        inner = way.layered
        derivation = inner.derivation(known)
        for stratum in way.strata:
            derivation.delta(stratum.node.input)
        way = inner
    else:
        derivation = way.derivation(known)
    if way.way is Way.CHANGES:
        change_table(way, derivation)
    elif way.way is Way.SETS:
        sets_program(way, derivation, known)
    elif way.way is Way.KEYS:
        derivation.touched(way.root, [col(name) for name in way.key])
    else:
        derivation.delta(way.root)
    return derivation.shaky


def _layered_candidates(
    query: Project, technique: str, partitioned: frozenset[int], form: Form
) -> Iterator[Maintenance]:
    """For a view that stores the sets inside it, those over these come first."""
    if technique == "counting" or (form.strata and technique == "auto"):
        cut, strata = stratified(query, top_of(query))
        assert isinstance(cut, Project)
        for way in _candidates(cut, technique, partitioned, form.counts) if strata else ():
            # one kind of rows that are not shown is enough: touched groups are computed anew
            if way.bags or way.preserved or way.way is Way.SETS:
                continue
            more = hidden_columns_of_strata(strata, shown=SHOWN not in way.root.fields)
            inner = replace(way, root=Project(way.root, (*keep(way.root), *more)))
            top = way.kept and replace(way.kept, top=_expanded_top(way.kept.top, strata))
            yield replace(inner, root=expanded(inner.root, strata), kept=top, strata=strata, layered=inner)
    yield from _candidates(query, technique, partitioned, form.counts)


def _expanded_top(top: Aggregate, strata: tuple[Stratum, ...]) -> Aggregate:
    return replace(top, input=expanded(top.input, strata))


def _as_project(query: Node) -> Project:
    return query if isinstance(query, Project) else Project(query, keep(query))


def _candidates(query: Project, technique: str, partitioned: frozenset[int], counts: bool) -> Iterator[Maintenance]:
    """Best first: by the key of the operator on top; by rows; by the key of one further down."""
    top = top_of(query)
    is_set = isinstance(top, Aggregate) and _shows_groups_only(query, top)
    if technique in ALGORITHMS or (not counts and technique == "auto"):
        yield from _by_sets(query, top, partitioned, technique)
    counted = technique not in ("base", *ALGORITHMS) and (counts or not is_set)
    if isinstance(top, Aggregate) and counted:
        wholes = (without_padding(query), query) if technique == "auto" else (query,)
        for whole in dict.fromkeys(wholes):
            summed = top_of(whole)
            assert isinstance(whole, Project)
            assert isinstance(summed, Aggregate)
            yield from _by_changes(whole, summed, partitioned)
    if isinstance(top, Aggregate | Window):
        yield from _by_key(query, top, key_exprs(top), partitioned)
    if not unstable_columns(query):
        yield _by_rows(*with_markers(query), partitioned) if technique == "auto" else _by_rows(query, (), partitioned)
    for node in preserved(query):
        if isinstance(node, Aggregate | Window) and node is not top:
            yield from _by_key(query, node, key_exprs(node), partitioned)
        if isinstance(node, Join | Apply):
            left = node.inputs[0]
            if not unstable_columns(left):
                yield from _by_key(query, left, (_hash(left.columns),), partitioned)


def _carried_types(found: SetQuery, technique: str) -> Iterator[str]:
    """Of all that an algorithm compares: where it projects early, columns that one table decides on are not carried."""
    yield from (item.type for item in found.items)
    early = ALGORITHMS.get(technique, ALGORITHMS["reducing"]).early
    exprs = (*found.graph.conditions, *(item.expr for item in found.items))
    for leaf in found.graph.leaves:
        own = set(leaf.columns)
        looked_at = frozenset[str]().union(*(expr.columns for expr in exprs if not expr.columns <= own))
        yield from (f.type for f in leaf.schema if not early or f.name in looked_at)


def _by_sets(query: Project, top: Node, partitioned: frozenset[int], technique: str) -> Iterator[Maintenance]:
    """By a reducing algorithm: a set whose rows, and what decides about them, come out the same every time."""
    found = SetQuery.of(top)
    if found is None or len(found.graph.leaves) > _JOINED["reducing"]:
        return
    if not all(map(is_exact_key, _carried_types(found, technique))):
        return
    shaky = frozenset[str]().union(*map(unstable_columns, found.graph.leaves))
    exprs = (*found.graph.conditions, *(item.expr for item in found.items))
    if any(is_unstable(expr, shaky) for expr in exprs):
        return
    assert isinstance(top, Aggregate)
    for way in _by_key(query, top, key_exprs(top), partitioned):
        yield replace(way, way=Way.SETS, sets=found)


def _no_set(technique: str) -> Reason:
    detail = f"deltaic.technique is {technique!r}, which is for SELECT DISTINCT over joins, and the view is not one"
    return Reason(Code.TECHNIQUE, detail, hint="Leave deltaic.technique out, or choose another.")


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
    whole = with_top(query, found.top)
    for way in _by_key(whole, found.top, key_exprs(found.top), partitioned, tuple(items)):
        carried = way.key[len(way.key) - len(items) :]
        key = way.key[: len(way.key) - len(items)]
        stored = tuple((part.name, name) for part, name in zip(found.parts, carried, strict=False))
        yield replace(way, way=Way.CHANGES, key=key, kept=found, stored=stored)


def _cannot_be_netted(found: KeptAggregate) -> bool:
    netted = [part for part in found.parts if part.moment is None and part.bag is None]
    names = frozenset[str]().union(*(part.looked_at for part in netted))
    return any(not is_groupable(found.top.input.fields[name].type) for name in names)


def _unfiltered(query: Project, top: Aggregate) -> tuple[Project, Expr]:
    """The query without its filters above the aggregate, and when a row passes them: all groups are kept.

    Of those that do not pass nothing else is computed, nor looked at by the filters above: HAVING sum(b) <> 0 may stand
    there for a division by it."""
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
    every = conjunction(*(join_parts("coalesce(", one, ", FALSE)") for one in reversed(passes)))
    assert every is not None
    return Project(top, tuple(replace(item, expr=_only_where(every, item.expr)) for item in items)), every


def _only_where(condition: Expr, expr: Expr) -> Expr:
    return expr if expr.column is not None else join_parts("CASE WHEN ", condition, " THEN ", expr, " END")


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


def _shows_groups_only(query: Project, top: Aggregate) -> bool:
    """Whether nothing of what the aggregate computes is shown: the view is a set."""
    items: tuple[Expr, ...] = tuple(item.expr for item in query.items)
    node = query.input
    while isinstance(node, Project | Filter):
        if isinstance(node, Project):
            by = node.by_name
            items = tuple(expr.substitute(by) for expr in items)
        node = node.input
    groups = {item.name for item in top.groups}
    return node is top and all(expr.columns <= groups for expr in items)


def _by_rows(query: Node, sides: tuple[PreservedSide, ...], partitioned: frozenset[int]) -> Maintenance:
    """The columns of preserved sides stand behind the user's; one that the user sees anyway is not stored twice."""
    assert isinstance(query, Project)
    names = [name for side in sides for name in (side.marker, *side.keys)]
    visible = query.items[: len(query.items) - len(names)]
    shown = {origin(query, item.name): item.name for n, item in enumerate(visible) if n not in partitioned}
    kept = {name: shown.get(origin(query, name), name) for name in names}
    row = Item(ROW_KEY, _hash(tuple(item.name for item in visible)), "bigint", False)
    hidden = tuple(pass_through(query.fields[name]) for name in names if kept[name] == name)
    root = Project(query, (*(pass_through(item.field) for item in visible), row, *hidden))
    stored = tuple(replace(s, marker=kept[s.marker], keys=tuple(kept[key] for key in s.keys)) for s in sides)
    return Maintenance(root, Way.ROWS, (ROW_KEY,), len(visible), preserved=stored)


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
    carried = carried_up(query, target, Project(target, keep(target) + items), items)
    if not isinstance(carried, Project):
        return
    visible_items = [item for n, item in enumerate(carried.items[: len(query.items)]) if n not in partitioned]
    shown: dict[tuple[Node, str | None], str] = {}
    for expr, name in {item.expr: item.name for item in visible_items if item.expr.column}.items():
        shown.setdefault(origin(carried.input, expr.column), name)
    key: list[str] = []
    hidden: list[Item] = []
    for item in carried.items[len(query.items) :]:
        # the carried key is a column of its own; the user may show the very column it was made of
        visible = shown.get(origin(carried.input, item.name))
        key.append(visible or item.name)
        if visible is None:
            hidden.append(item)
    root = Project(carried.input, (*carried.items[: len(query.items)], *hidden))
    yield Maintenance(root, Way.KEYS, tuple(key), len(query.items))


def _too_many_joined(query: Node, technique: str) -> Reason | None:
    most = _JOINED.get(technique)
    joined = max((len(Graph.of(node).leaves) for node in walk(query) if is_joined(node)), default=0) if most else 0
    if most is None or joined <= most:
        return None
    return too_large(f"deltaic.technique is {technique!r}, which is for joins of up to {most}, and {joined} are joined")


def _ungroupable(query: Project) -> Reason | None:
    for item in query.items:
        if not is_groupable(item.type):
            return Reason(
                Code.UNGROUPABLE_TYPE,
                f"column {item.name.split('#')[0]} is of type {item.type}, whose values cannot be compared",
                hint="Leave it out, or turn it into a string or an array of structs.",
            )
    return None


def _ungroupable_inside(query: Node) -> Reason | None:
    """Spark groups by a MAP, and counts different ones, but does not compare two: neither can the delta."""
    for node in walk(query):
        if not isinstance(node, Aggregate):
            continue
        for item in node.groups:
            if not is_groupable(item.type):
                detail = f"values of type {item.type} are grouped, which cannot be compared"
                return Reason(
                    Code.UNGROUPABLE_TYPE, detail, hint="Group by a string or an array of structs made of it."
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
