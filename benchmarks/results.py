"""What benchmarks leave behind: JSON and plots under benchmarks/results, and the check that every figure rests on."""

import json
from pathlib import Path
from typing import Any

from deltaic import Check, Warehouse

FOLDER = Path(__file__).parent / "results"


def keep(name: str, found: list[dict[str, Any]]) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=2, default=str))


def check(wh: Warehouse, *views: str) -> None:
    """That views are what their queries say, and fresh."""
    for view in views:
        found = wh.check(view)
        assert isinstance(found, Check)
        assert found.right, found
        assert not any(found.commits_behind.values()), found


def bars(name: str, title: str, labels: list[str], ratios: list[float]) -> None:
    """How many times faster than a recompute."""
    figure, axes = _figure(title)
    axes.bar(labels, ratios, color=["tab:blue" if ratio >= 1 else "tab:red" for ratio in ratios])
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(yscale="log", ylabel="times faster than a recompute")
    axes.tick_params(axis="x", rotation=60)
    _saved(figure, name)


def lines(name: str, title: str, xlabel: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Seconds of each technique, both axes by powers."""
    figure, axes = _figure(title)
    for label, points in found.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="seconds")
    axes.legend()
    _saved(figure, name)


def _figure(title: str) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5))
    axes.set_title(title)
    axes.grid(alpha=0.3)
    return figure, axes


def _saved(figure: Any, name: str) -> None:
    from matplotlib import pyplot as plt

    FOLDER.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(FOLDER / f"{name}.png", dpi=120)
    plt.close(figure)
