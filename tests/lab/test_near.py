"""Scans near keys: what a condition says of columns, and views whose every scan is narrowed as far as it can be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.delta import near
from deltaic.delta.near import equal_pairs
from tests.lab.case import Case
from tests.lab.duck import Duck
from tests.lab.generate import case_of
from tests.lab.outer_trees import outer_tree_of
from tests.lab.test_views import run
from tests.lab.towers import tower_of

A, B, C, D = map(col, "abcd")


def equal(one: Expr, two: Expr, sign: str = " = ") -> Expr:
    return join_parts(one, sign, two)


def test_equal_pairs() -> None:
    both = conjunction(equal(A, B), null_safe_equal(C, D))
    assert both is not None
    told = [("a", "b", False), ("c", "d", True)]
    assert equal_pairs(both) == told
    assert equal_pairs(join_parts("((", both, ") AND (", equal(A, D, " <> "), "))")) == told
    assert equal_pairs(join_parts(equal(A, B), " and ", equal(C, D))) == [("a", "b", False), ("c", "d", False)]
    assert equal_pairs(join_parts(equal(A, B), " AND abs(", C, ") = ", D)) == told[:1]
    for untold in (
        None,
        text("TRUE"),
        join_parts(equal(A, B), " OR ", equal(C, D)),
        join_parts("NOT (", equal(A, B), ")"),
        join_parts("!(", equal(A, B), ")"),
        join_parts("(", equal(A, B), " AND ", C, ") = ", D),
        join_parts("(", equal(A, B), ") = (", equal(C, D), ")"),
        join_parts("if(", equal(A, B), ", 1, 0) = ", D),
        join_parts(A, " BETWEEN ", B, " AND ", equal(C, D)),
        join_parts("CASE WHEN ", C, " THEN ", equal(A, B), " END"),
        join_parts(equal(A, B), " AND ' = ' <> ", C),
        join_parts(A, " = ", B, " + 1"),
        join_parts(A, " = ", B, " = ", C),
        *(equal(A, B, sign) for sign in (" < ", " <= ", " >= ", " <> ", " != ", " == ")),
    ):
        assert equal_pairs(untold) == [], untold


@pytest.mark.parametrize("generator", [case_of, outer_tree_of, tower_of])
def test_every_scan_is_near(
    generator: Callable[[int], Case], duck: Duck, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(near, "LARGE", 1)
    monkeypatch.setattr(near, "FEW", 10**9)
    for seed in range(7000, 7300 if pytestconfig.getoption("--fuzz") else 7005):
        run(seed, duck, generator)
