"""What generated cases are made of: the share of each construct, of views that run, of answers with rows."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

from tests.lab.case import Case
from tests.lab.duck import Duck, DuckFailed


def report(case_of: Callable[[int], Case], seeds: Iterable[int]) -> str:
    features: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    failures: list[str] = []
    started = time.perf_counter()
    generating = 0.0
    duck = Duck()
    for seed in seeds:
        before = time.perf_counter()
        case = case_of(seed)
        generating += time.perf_counter() - before
        kinds.update(statement.kind for batch in case.history for statement in batch)
        seen["batches"] += len(case.history)
        duck.reset(case)
        for view in case.views:
            features.update(view.features)
            seen["views"] += 1
            try:
                duck.store(view.name, view.sql)
                rows = len(duck.rows(f"SELECT * FROM {view.name}"))
            except DuckFailed as failed:
                failures.append(f"seed {seed} {view.name}: {str(failed).splitlines()[0]}\n    {view.sql}")
                break
            seen["with rows"] += rows > 0
            seen["rows"] += rows
            seen["large"] += rows > 2000
        changed = _run_history(duck, case, failures)
        seen["changed answers"] += changed
        seen["idle cases"] += not changed
        seen["cases"] += 1
    seconds = time.perf_counter() - started
    views = seen["views"]
    lines = [
        f"{views} views in {seconds:.1f} s ({generating:.1f} s of it generating)",
        f"{len(failures)} failed on DuckDB",
        f"{seen['with rows'] / views:.1%} of the views have rows, on average {seen['rows'] / views:.0f}",
        f"{seen['large']} have more than 2000",
        f"{seen['changed answers'] / max(1, seen['batches']):.1%} of the batches change the first view",
        f"{seen['idle cases'] / seen['cases']:.1%} of the cases have no batch that does",
        *(f"{count / views:8.2%}  {name}" for name, count in sorted(features.items())),
        "changes, by kind:",
        *(f"{count / sum(kinds.values()):8.2%}  {name}" for name, count in kinds.most_common()),
        *failures,
    ]
    return "\n".join(lines)


def _run_history(duck: Duck, case: Case, failures: list[str]) -> int:
    """Applies all batches; how many of them change what the first view says."""
    changed = 0
    try:
        before = sorted(map(repr, duck.rows(case.views[0].sql)))
        for batch in case.history:
            duck.apply(batch)
            after = sorted(map(repr, duck.rows(case.views[0].sql)))
            changed += before != after
            before = after
    except DuckFailed as failed:
        failures.append(f"seed {case.seed} history: {str(failed)[:400]}")
    return changed
