"""What is done instead, where the incremental way turns out to be closed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deltaic.algebra.reasons import Code, Reason
from deltaic.app.refresh.choice import Choice
from deltaic.app.refresh.decide import Plan
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.values.definition import Definition
from deltaic.errors import NotIncremental
from deltaic.plan.cost import Learnt, Predicted
from deltaic.plan.steps import Write, WriteView
from deltaic.sql.statements import Policy
from deltaic.store.progress import Progress

GONE = Reason(Code.HISTORY_GONE, "its files are vacuumed")
CHOICE = Choice("base (rows)", Predicted(0.1, 0.2, 0.3, 5), Predicted(1, 2, 3, 500), Learnt.of([]), {"marks": 0.3})


def incremental() -> Plan:
    figures = {"mode": "incremental", "started": 7, "table": "an id", **CHOICE.recorded()}
    nothing: Any = SimpleNamespace()
    return Plan(
        Definition("s", "v", "SELECT 1"), nothing, "incremental", "base (rows)", (), {}, [], nothing,
        Progress(3, {}, "base (rows)", figures), known=nothing, writer="marks", choice=CHOICE, properties={"a": "b"},
    )  # fmt: skip


def refresher(monkeypatch: pytest.MonkeyPatch, step: WriteView) -> Refresher:
    found = Refresher(cast(Any, SimpleNamespace(use_rs=True)))
    monkeypatch.setattr(found.planner, "full_steps", lambda *_: [step])
    return found


def test_a_recompute_does_not_tell_what_the_other_way_was_chosen_by(monkeypatch: pytest.MonkeyPatch) -> None:
    step = WriteView("recompute", "INSERT OVERWRITE", kind=Write.OVERWRITE)
    plan = refresher(monkeypatch, step).fall_back(incremental(), GONE)
    assert (plan.mode, plan.technique, plan.reasons, plan.steps) == ("full", "recompute", (GONE,), [step])
    assert (plan.choice, plan.known, plan.writer, plan.properties) == (None, None, "spark", {"a": "b"})
    assert plan.progress is not None
    assert plan.progress.technique == "recompute"
    assert plan.progress.figures == {"mode": "full", "started": 7, "table": "an id", "reasons": [str(GONE)]}


def test_a_recompute_that_makes_the_table_anew_is_not_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = refresher(monkeypatch, WriteView("anew", "CREATE OR REPLACE TABLE", kind=Write.ANEW)).fall_back(
        incremental(), GONE
    )
    assert plan.progress is not None
    assert "table" not in plan.progress.figures


def test_a_strict_view_is_not_recomputed_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = incremental()
    strict = replace(plan, definition=replace(plan.definition, policy=Policy.STRICT))
    with pytest.raises(NotIncremental, match="HISTORY_GONE"):
        refresher(monkeypatch, WriteView("recompute", "INSERT")).fall_back(strict, GONE)
