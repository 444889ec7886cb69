"""Spark's own examples of its functions survive the way from text to algebra to text.

Each example of `DESCRIBE FUNCTION EXTENDED` either comes back with the same result, or is refused by a reason: it is
never silently different.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltaic import Warehouse
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import Code, NotLowered
from deltaic.algebra.simplify import simplify
from deltaic.app.refresh.sources import SourceCatalog
from deltaic.errors import DeltaicError
from deltaic.sql.functions import NON_DETERMINISTIC
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render

OPERATORS = ["!", "%", "&", "*", "+", "-", "/", "<", "<=", "<=>", "=", "==", ">", ">=", "^", "|", "||", "~"]


def examples(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """Function and query of every example that Spark shows."""
    names = [str(row[0]) for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    for name in names:
        if name in NON_DETERMINISTIC:
            continue
        quoted = f"`{name}`" if name in OPERATORS or not name.isidentifier() else name
        try:
            told = "\n".join(str(row[0]) for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {quoted}").collect())
        except PySparkException:
            continue
        for query in re.findall(r"^\s*> (SELECT .*?);\s*$", told, re.MULTILINE | re.DOTALL):
            yield name, query


def answer(spark: SparkSession, query: str) -> list[str] | None:
    try:
        return sorted(str(tuple(row)) for row in spark.sql(query).collect())
    except Exception:  # an example may show an error, or need what this Spark has not
        return None


@pytest.mark.long
def test_every_example_comes_back_the_same(wh: Warehouse) -> None:
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for name, query in examples(wh.spark):
        expected = answer(wh.spark, query)
        if expected is None:
            seen["does not run"] += 1
            continue
        try:
            tree, text = parse_query(query)
            lowered = lower(tree, text, SourceCatalog(wh.engine.catalog, wh.spark, lambda *_: ()))
        except NotLowered as refusal:
            seen[f"refused: {refusal.reason.code.name}"] += 1
            if refusal.reason.code is Code.UNKNOWN_FUNCTION:
                wrong.append(f"{name}: {query}\n  {refusal.reason}")
            continue
        except DeltaicError:
            seen["refused: cannot be parsed"] += 1
            continue
        except (PySparkException, ValueError, KeyError, IndexError):  # compile_view makes a reason of these
            seen["refused: SEMANTICS"] += 1
            continue
        again = render(simplify(prune(lowered.node)), lambda scan: scan.source)
        if answer(wh.spark, again) == expected:
            seen["the same"] += 1
        else:
            wrong.append(f"{name}: {query}\n  {again}")
    print(dict(seen))
    assert not wrong, "\n".join(wrong)
    assert seen["the same"] > 900, seen
