"""What is known of a join by the keys of its relations, and by which of their rows refer to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltaic.algebra.expr import Expr
from deltaic.algebra.keys import Declared, Keys, Reference, determined, keys
from deltaic.algebra.nodes import Scan
from deltaic.algebra.types import is_exact_key
from deltaic.delta.graph import Graph
from deltaic.delta.near import equal_pairs, is_only_equality


@dataclass(frozen=True)
class Facts:
    graph: Graph
    declared: Declared
    references: Sequence[Reference]

    def keys(self, leaf: int) -> Keys:
        return keys(self.graph.leaves[leaf], self.declared)

    def determined(self, columns: Iterable[str], joined: Iterable[int], under: Iterable[Expr]) -> frozenset[str]:
        """All columns that some determine in rows of `joined` leaves under conditions: a key those of its relation,
        equal ones each other."""
        leaves = self.graph.leaves
        known = [(key, frozenset(leaves[n].columns)) for n in joined for key in self.keys(n)]
        types = {field.name: field.type for leaf in leaves for field in leaf.schema}
        for a, b, _ in (pair for condition in under for pair in equal_pairs(condition)):
            if types[a] == types[b] and is_exact_key(types[a]):  # else equal values may differ
                known += [(frozenset({a}), frozenset({b})), (frozenset({b}), frozenset({a}))]
        return determined(columns, known)

    def are_total(self, there: Iterable[int], others: Sequence[int], conditions: Sequence[Expr]) -> bool:
        """Whether every row of the leaves `there` meets a row of each other leaf, under all of the conditions."""
        reached, left, pending = set(there), list(others), list(conditions)
        while left:
            found = next(((n, c) for n in left for c in pending if self.refers(reached, n, c)), None)
            if found is None:
                return False
            left.remove(found[0])
            pending.remove(found[1])
            reached.add(found[0])
        return not pending

    def refers(self, reached: Iterable[int], leaf: int, condition: Expr) -> bool:
        """Whether the condition says no more than that a row there refers to one of the leaf."""
        other, pairs = self.graph.leaves[leaf], equal_pairs(condition)
        if not isinstance(other, Scan) or not is_only_equality(condition):
            return False
        theirs = {column.field.name: column.origin.lower() for column in other.scanned}
        for number in reached:
            own = self.graph.leaves[number]
            if not isinstance(own, Scan):
                continue
            ours = {column.field.name: column.origin.lower() for column in own.scanned}
            both = [(a, b) for one, two, _ in pairs for a, b in ((one, two), (two, one))]
            equal = {(ours[a], theirs[b]) for a, b in both if a in ours and b in theirs}
            if len(equal) == len(pairs) and equal in self.declared_pairs(own.source, other.source):
                return True
        return False

    def declared_pairs(self, source: str, other: str) -> list[set[tuple[str, str]]]:
        found = [ref for ref in self.references if (ref.source, ref.other) == (source, other)]
        return [{(h.lower(), t.lower()) for h, t in zip(ref.here, ref.there, strict=True)} for ref in found]
