"""Whether a refresh that can be incremental is one, by its price and that of a recompute."""

from __future__ import annotations

import pytest

from deltaic.app.refresh.choice import Choice
from deltaic.app.values.definition import Definition
from deltaic.app.values.settings import Settings
from deltaic.plan.cost import Learnt, Predicted
from deltaic.plan.steps import SourceRead
from deltaic.sql.statements import Policy

FEW, MANY = 1_000, 1_000_000


@pytest.mark.parametrize(
    ("seconds", "full", "rows", "policy", "recomputed"),
    [
        (2.0, 1.0, MANY, Policy.AUTO, True),
        (1.1, 1.0, MANY, Policy.AUTO, False),
        (2.0, 1.0, MANY, Policy.INCREMENTAL, False),
        (2.0, 1.0, None, Policy.AUTO, False),
        (2.0, 1.0, FEW, Policy.AUTO, False),
        (40.0, 5.0, FEW, Policy.AUTO, True),
        (40.0, 5.0, FEW, Policy.INCREMENTAL, False),
    ],
)
def test_what_is_chosen(seconds: float, full: float, rows: int | None, policy: Policy, recomputed: bool) -> None:
    choice = Choice("base (rows)", Predicted(0, seconds, 0), Predicted(0, full, 0), Learnt(), {})
    reads = {"t": SourceRead("t", "t", 1, 2, rows=rows)}
    reason = choice.why_full(Definition("s", "v", "SELECT 1", policy=policy), reads, Settings())
    assert (reason is not None) == recomputed
