"""Delta propagation trees: in which groups, and in which order, the changes of a join's sources go through it.

For the parts P1 .. Pm of a set of relations (Lee, Son and Kim, definition 1),

    d(P1 ⋈ .. ⋈ Pm)  =  sum over i of   P1' ⋈ .. ⋈ dPi ⋈ .. ⋈ Pm        parts before i new, parts after it old

and dPi is found in the same way. Relations that every term would read again are read once if the other parts' changes
are joined first. The price of a tree is the linear work metric: what its terms read, rows of every relation they join
and of every delta. A part in which nothing changed has no term, and is joined by the terms of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod

MOST = 10
"""Relations for which the best tree is sought; the work triples with each."""


@dataclass(frozen=True)
class Tree:
    """The delta of some relations: of one of them, or of parts in their order."""

    relations: frozenset[int]
    parts: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        if not self.parts:
            return f"d{min(self.relations)}"
        return f"({' '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Sizes:
    """Rows of each relation as it is and as it was, of its change, and how selective a join of two of them is.

    Pairs without a selectivity are joined by no condition."""

    new: Sequence[float]
    old: Sequence[float]
    change: Sequence[float]
    selectivity: Mapping[tuple[int, int], float]

    @property
    def count(self) -> int:
        return len(self.new)

    @cached_property
    def beside(self) -> list[frozenset[int]]:
        """The relations that each is joined with by a condition."""
        found: list[set[int]] = [set() for _ in self.new]
        for a, b in self.selectivity:
            found[a].add(b)
            found[b].add(a)
        return list(map(frozenset, found))

    def moves(self, relation: int) -> bool:
        return self.change[relation] > 0

    def between(self, relation: int, others: frozenset[int]) -> float:
        """How selective the conditions are that join a relation with others."""
        pairs = ((relation, o) if relation < o else (o, relation) for o in others)
        return prod(self.selectivity.get(pair, 1.0) for pair in pairs)

    def delta(self, relations: Iterator[int] | Sequence[int] | frozenset[int]) -> float:
        """Rows of the delta of a join: what each relation's change meets in the new ones before and old ones after."""
        inside = sorted(relations)
        pairs = [self.selectivity.get((a, b), 1.0) for a in inside for b in inside if a < b]
        total = 0.0
        for place, relation in enumerate(inside):
            before, after = inside[:place], inside[place + 1 :]
            total += self.change[relation] * prod(self.new[r] for r in before) * prod(self.old[r] for r in after)
        return prod(pairs) * total


def singletons(order: Sequence[int]) -> Tree:
    """One term per changed relation: the counting algorithm's."""
    return Tree(frozenset(order), tuple(Tree(frozenset({r})) for r in order))


def cost(tree: Tree, sizes: Sizes) -> float:
    """The rows that the tree's terms read."""
    total = 0.0
    for place, part in enumerate(tree.parts):
        if not any(sizes.moves(r) for r in part.relations):
            continue
        total += cost(part, sizes) + sizes.delta(part.relations)
        total += sum(sizes.new[r] for before in tree.parts[:place] for r in before.relations)
        total += sum(sizes.old[r] for after in tree.parts[place + 1 :] for r in after.relations)
    return total


def accesses(tree: Tree, sizes: Sizes) -> list[int]:
    """How often each relation is read, new or old (theorem 2: the siblings' terms, from the leaf to the root)."""
    found = [0] * sizes.count
    moving = [part for part in tree.parts if any(sizes.moves(r) for r in part.relations)]
    for part in tree.parts:
        for relation in part.relations:
            found[relation] += len(moving) - (part in moving)
    for part in moving:
        found = [a + b for a, b in zip(found, accesses(part, sizes), strict=True)]
    return found


def best(sizes: Sizes) -> Tree:
    """The cheapest tree that joins no two relations without a condition, if that can be avoided."""
    if sizes.count > MOST:
        return singletons(sorted(range(sizes.count), key=lambda r: (sizes.new[r], r)))
    return _Search(sizes).tree()


@dataclass
class _Search:
    """Dynamic programming over sets of relations, as bits of a number.

    f(S, m), the price of splitting S into parts of which m move, takes the first part P away: its own delta and its
    rows, P new for each later term, the rest of S old for its own.
    """

    sizes: Sizes
    whole: dict[int, tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    """For each set, the price of the best way to find its delta, and its parts."""
    split: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = self.sizes
        count = 1 << sizes.count
        self.new, self.old = [0.0] * count, [0.0] * count
        self.moving = sum(1 << r for r in range(sizes.count) if sizes.moves(r))
        self.beside = self._neighbours()
        for bits in range(1, count):
            low = bits & -bits
            relation = low.bit_length() - 1
            self.new[bits] = self.new[bits ^ low] + sizes.new[relation]
            self.old[bits] = self.old[bits ^ low] + sizes.old[relation]
        self.parts = [bits for bits in range(1, count) if bits & self.moving and self._is_connected(bits)]
        self.delta = {bits: sizes.delta(_members(bits)) for bits in self.parts}

    def _neighbours(self) -> list[int]:
        beside = [sum(1 << other for other in others) for others in self.sizes.beside]
        whole = (1 << self.sizes.count) - 1
        if _reached(1, whole, beside) != whole:  # a cross product is in the query: it cannot be avoided
            return [whole & ~(1 << r) for r in range(self.sizes.count)]
        return beside

    def _is_connected(self, bits: int) -> bool:
        return _reached(bits & -bits, bits, self.beside) == bits

    def tree(self) -> Tree:
        whole = (1 << self.sizes.count) - 1
        by_size = sorted(self.parts, key=int.bit_count)
        inside: dict[int, list[int]] = {}
        for bits in by_size:
            if bits.bit_count() > 1:
                self._solve(bits, inside)
            else:
                self.whole[bits] = (0.0, ())
        return self._built(whole)

    def _solve(self, bits: int, inside: dict[int, list[int]]) -> None:
        terms = (bits & self.moving).bit_count()
        self.whole[bits] = min(self._split(bits, m, bits, inside) for m in range(1, terms + 1))

    def _split(self, rest: int, m: int, apart: int, inside: dict[int, list[int]]) -> tuple[float, tuple[int, ...]]:
        """The best order of m moving parts of `rest`; none of them is `apart`, the set that is being split."""
        if m == 0:
            return (inf if rest & self.moving else 0.0), ()
        known = self.split.get((rest, m)) if rest != apart else None
        if known is not None:
            return known
        if rest not in inside:
            inside[rest] = [part for part in self.parts if part & rest == part]
        found: tuple[float, tuple[int, ...]] = (inf, ())
        for part in inside[rest]:
            after = rest ^ part
            if part == apart or (after & self.moving).bit_count() < m - 1:
                continue
            own = self.whole[part][0] + self.delta[part] + (m - 1) * self.new[part] + self.old[after]
            if own >= found[0]:
                continue
            price, order = self._split(after, m - 1, apart, inside)
            if own + price < found[0]:
                found = (own + price, (part, *order))
        if rest != apart:
            self.split[rest, m] = found
        return found

    def _built(self, bits: int) -> Tree:
        if bits not in self.whole or bits.bit_count() == 1:
            return Tree(frozenset(_members(bits)))
        order = list(self.whole[bits][1])
        still = bits & ~sum(order)
        parts = [self._built(part) for part in order]
        parts += [Tree(frozenset({r})) for r in _members(still)]
        return Tree(frozenset(_members(bits)), tuple(parts))


def _members(bits: int) -> list[int]:
    return [r for r in range(bits.bit_length()) if bits >> r & 1]


def _reached(start: int, within: int, beside: Sequence[int]) -> int:
    reached, new = start, start
    while new:
        around = 0
        for r in _members(new):
            around |= beside[r]
        new = around & within & ~reached
        reached |= new
    return reached
