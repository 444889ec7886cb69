"""The steps of recursion: predicates that are evaluated, or maintained, before what reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deltaic.algebra.nodes import Scan
from deltaic.algebra.recursion import PREFIX, Component, Predicate
from deltaic.delta.dred import Of, relation_of
from deltaic.delta.joins import JoinTrees
from deltaic.plan.maintain import Known, Maintenance
from deltaic.plan.recursion import Fixpoint, Part, Phase, Recursion, evaluated, maintained, old_sql, parts
from deltaic.plan.steps import (
    Compute,
    Iterate,
    SourceRead,
    Step,
    StoredView,
    relation_name,
)
from deltaic.sql.render import render


def pinned_in(reads: Mapping[str, SourceRead]) -> Callable[[Scan], str]:
    """What a scan reads, in a query that is computed whole."""

    def pinned(scan: Scan) -> str:
        if scan.source.startswith(PREFIX):
            return relation_name(scan, {})
        read = reads[scan.source]
        pinned = read.at(read.new)
        return f"(SELECT * FROM {pinned}{read.where})" if read.shown else pinned

    return pinned


def evaluation_steps(components: Sequence[Component], reads: Mapping[str, SourceRead]) -> list[Iterate]:
    """The predicates that a query reads, evaluated from nothing."""
    pinned = pinned_in(reads)
    found: list[Iterate] = []
    for fixpoint in map(evaluated, components):
        relations = tuple((b.name, render(b.node, pinned)) for b in fixpoint.leaves)
        phases = tuple((phase, parts(rounds, pinned)) for phase, rounds in fixpoint.phases)
        told = _told(relations, phases)
        found.append(Iterate(f"evaluate {_names(fixpoint)}", told, None, None, fixpoint, relations, phases))
    return found


def fixpoints(way: Maintenance, known: Known) -> list[Fixpoint]:
    """What is maintained before the view itself."""
    if way.recursion is None:
        return []
    changed = known.changed | way.recursion.moved(known.changed, known.altered.predicates)
    moved = [component for component in way.recursion.components if component.sources <= changed]
    return [maintained(component, JoinTrees(changed), known.altered) for component in moved]


def maintain_step(fixpoint: Fixpoint, way: Maintenance, view: StoredView, named: Callable[[Scan], str]) -> Iterate:
    recursion = way.recursion
    assert recursion is not None
    olds = [(relation_of(p.source, Of.OLD), _stored_sql(recursion, p, view)) for p in recursion.predicates]
    relations = (*((b.name, render(b.node, named)) for b in fixpoint.leaves), *olds)
    phases = tuple((phase, parts(rounds, named)) for phase, rounds in fixpoint.phases)
    told = _told(relations, phases)
    return Iterate(f"maintain {_names(fixpoint)}", told, None, None, fixpoint, relations, phases)


def unmoved_steps(way: Maintenance, view: StoredView, known: Known) -> list[Step]:
    """Predicates that stay as they are, for what reads them."""
    recursion = way.recursion
    if recursion is None:
        return []
    moved = recursion.moved(known.changed, known.altered.predicates)
    return [
        Compute(f"read {p.name}, which does not change", _stored_sql(recursion, p, view), relation_of(p.source, Of.NEW))
        for p in recursion.predicates
        if p.source not in moved
    ]


def _stored_sql(recursion: Recursion, p: Predicate, view: StoredView) -> str:
    return old_sql(recursion, p, f"{view.relation} VERSION AS OF {view.version}", view.columns)


def _names(fixpoint: Fixpoint) -> str:
    return ", ".join(p.name for p in fixpoint.component.predicates)


def _told(relations: Sequence[tuple[str, str]], phases: Sequence[tuple[Phase, Sequence[Part]]]) -> str:
    """Everything that is run, for people."""
    texts = [f"-- {name}\n{sql}" for name, sql in relations]
    for phase, of in phases:
        for part in of:
            for when, query in (("first", part.first), ("then, until nothing is found", part.again)):
                texts.append(f"-- {phase.value} {part.predicate.name}, {when}\n{query.sql if query else '(nothing)'}")
    return "\n".join(texts)
