"""Delta propagation trees: the paper's figures and equations, the optimum, and what may be read."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from deltaic.delta.trees import Sizes, Tree, accesses, best, cost, singletons
from deltaic.plan.maintain import Known, Maintenance
from deltaic.plan.program import program_for
from deltaic.store.literals import among
from tests.lab.case import Case, View
from tests.lab.duck import Duck
from tests.lab.keeper import keep_case
from tests.lab.outer_trees import outer_tables

THREE = Sizes([100, 200, 1_000_000], [90, 180, 999_000], [10, 20, 1000], {(0, 1): 0.01, (1, 2): 0.001})


def tree(*parts: object) -> Tree:
    """`tree(tree(0, 1), 2)`: relations by number, parts in order."""
    found = tuple(part if isinstance(part, Tree) else Tree(frozenset({int(str(part))})) for part in parts)
    return Tree(frozenset[int]().union(*(part.relations for part in found)), found)


def test_equation_7() -> None:
    """n terms: 2|R1'| + |R2| + |R2'| + 2|R3| + the changes."""
    new, old, change = THREE.new, THREE.old, THREE.change
    expected = 2 * new[0] + old[1] + new[1] + 2 * old[2] + sum(change)
    assert cost(singletons(range(3)), THREE) == expected


def test_equation_8() -> None:
    """The third relation once, and the delta of the first two."""
    new, old, change = THREE.new, THREE.old, THREE.change
    expected = 2 * new[0] + old[1] + new[1] + old[2] + THREE.delta([0, 1]) + sum(change)
    assert cost(tree(tree(0, 1), 2), THREE) == expected


def test_figure_1() -> None:
    """Theorem 2: a relation is read once less than its part has siblings, from the leaf up to the root."""
    six = Sizes([1.0] * 6, [1.0] * 6, [1.0] * 6, {})
    assert accesses(tree(tree(tree(0, 1), 2, tree(3, 4)), 5), six) == [4, 4, 3, 4, 4, 1]
    assert accesses(singletons(range(6)), six) == [5] * 6


def test_figure_2_the_large_relation_is_read_once() -> None:
    found = best(THREE)
    assert str(found) in ("((d0 d1) d2)", "(d2 (d0 d1))")
    assert accesses(found, THREE)[2] == 1


def test_a_relation_that_did_not_change_has_no_term_but_is_joined() -> None:
    sizes = Sizes([100, 200, 1000], [100, 180, 1000], [0, 20, 0], {(0, 1): 0.01, (1, 2): 0.001})
    assert accesses(best(sizes), sizes) == [1, 0, 1]
    assert cost(best(sizes), sizes) == 100 + 20 + 1000


def test_no_cross_product_if_it_can_be_avoided() -> None:
    sizes = Sizes([10, 1_000_000, 10], [11, 1_000_001, 11], [1, 1, 1], {(0, 1): 1e-6, (1, 2): 1e-6})
    assert {0, 2} not in [set(part.relations) for part in best(sizes).parts]


@pytest.mark.parametrize("seed", range(40))
def test_the_best_of_all(seed: int) -> None:
    sizes = random_sizes(random.Random(seed), count=2 + seed % 3)
    cheapest = min(cost(each, sizes) for each in every_tree(frozenset(range(sizes.count)), sizes))
    assert cost(best(sizes), sizes) == pytest.approx(cheapest)


def test_ten_relations_are_planned() -> None:
    sizes = random_sizes(random.Random(3), count=10)
    every = {(a, b): 0.001 for a in range(10) for b in range(a + 1, 10)}
    for graph in (sizes.selectivity, every, {(0, b): 0.01 for b in range(1, 10)}):
        found = best(Sizes(sizes.new, sizes.old, sizes.change, graph))
        assert found.relations == frozenset(range(10))


def test_a_change_of_no_rows_is_a_change() -> None:
    """A row that came and went again: the source has changed, by nothing."""
    duck = Duck()
    tables, _ = outer_tables(1)
    for query in ("SELECT r.a, s.c FROM r JOIN s ON r.a = s.a", "SELECT s.c, r.a FROM s JOIN r ON r.a = s.a"):
        case = Case(tables, (View("v0", query, ()),), (), 1)
        duck.reset(case)
        way = keep_case(duck, case)[0][-1].way
        assert isinstance(way, Maintenance)
        program = program_for(way, Known(frozenset({"r"}), changes={"r": 0}))
        assert program is not None
        assert [str(join.tree) for join in program.joins] in (["(d0 d1)"], ["(d1 d0)"])
    duck.close()


def test_values_in_a_query() -> None:
    texts, large = pa.chunked_array([["x", None, "y", "x"]]), pa.chunked_array([pa.array(["it's"], pa.large_string())])
    numbers = pa.chunked_array([list(range(-1, 2000))])
    assert among("a`b", texts) == "`a``b` IN ('x', 'y')"
    assert among("n", numbers) == "`n` BETWEEN -1 AND 1999"
    for odd in (large, pa.chunked_array([["a${x}b"]]), pa.chunked_array([["\\"]])):
        assert among("s", odd) == "TRUE"


def random_sizes(choice: random.Random, count: int) -> Sizes:
    graph = {(choice.randrange(n), n): 1 / choice.choice([10, 100, 1000]) for n in range(1, count)}
    new = [choice.choice([10.0, 100.0, 1000.0, 1e5]) for _ in range(count)]
    change = [choice.choice([0.0, 1.0, 10.0, 100.0]) for _ in range(count)]
    change[choice.randrange(count)] = 5.0
    old = [n + c for n, c in zip(new, change, strict=True)]
    return Sizes(new, old, change, graph)


def every_tree(relations: frozenset[int], sizes: Sizes) -> Iterator[Tree]:
    if len(relations) == 1:
        yield Tree(relations)
        return
    for parts in ordered_partitions(relations):
        if len(parts) > 1 and all(len(part) == 1 or is_connected(part, sizes) for part in parts):
            for found in itertools.product(*(list(every_tree(part, sizes)) for part in parts)):
                yield Tree(relations, found)


def ordered_partitions(relations: frozenset[int]) -> Iterator[tuple[frozenset[int], ...]]:
    if not relations:
        yield ()
    for size in range(1, len(relations) + 1):
        for first in itertools.combinations(sorted(relations), size):
            for rest in ordered_partitions(relations - set(first)):
                yield (frozenset(first), *rest)


def is_connected(relations: frozenset[int], sizes: Sizes) -> bool:
    reached = {min(relations)}
    while True:
        more = {n for pair in sizes.selectivity for n in pair if set(pair) & reached} & relations
        if more <= reached:
            return reached == relations
        reached |= more
