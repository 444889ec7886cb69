"""`make bench`: runs the benchmarks and prints their tables. Their names as arguments run only those."""

import sys

from benchmarks import (
    change_tables,
    growth,
    long_run,
    recursive,
    reduce,
    regret,
    rolling,
    scaled,
    six_way,
    smallest,
    strata,
    together,
    tpch_queries,
)

BENCHMARKS = {
    "smallest": smallest.main,
    "change_tables": change_tables.main,
    "six_way": six_way.main,
    "tpch_queries": tpch_queries.main,
    "reduce": reduce.main,
    "strata": strata.main,
    "rolling": rolling.main,
    "recursive": recursive.main,
    "together": together.main,
    "scaled": scaled.main,
    "growth": growth.main,
    "regret": regret.main,
    "long_run": long_run.main,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
