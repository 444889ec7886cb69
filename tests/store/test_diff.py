from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltaic.store.commit import Commit, FileAction
from deltaic.store.diff import are_told_by_name, differing_files, reads_only
from deltaic.store.table import Snapshot


def file(path: str, *, change: bool = True, stats: object = None) -> FileAction:
    return FileAction(path, change, None, None, {}, json.dumps(stats) if stats else None)


def commit(version: int, adds: Sequence[FileAction] = (), removes: Sequence[FileAction] = ()) -> Commit:
    return Commit(version, None, "", None, tuple(adds), tuple(removes), (), None, {})


def rewrite(version: int, adds: Sequence[str], removes: Sequence[str]) -> Commit:
    return commit(version, [file(p, change=False) for p in adds], [file(p, change=False) for p in removes])


def paths(commits: Sequence[Commit]) -> tuple[list[str], list[str]]:
    found = differing_files(commits)
    return sorted(one.path for one in found.old), sorted(one.path for one in found.new)


def test_files_added_and_removed() -> None:
    assert paths([commit(1, [file("b")], [file("a")])]) == (["a"], ["b"])


def test_a_file_that_came_and_went_is_in_neither() -> None:
    assert paths([commit(1, [file("a")]), commit(2, [], [file("a")])]) == ([], [])


def test_a_file_that_went_and_came_back_is_in_both_and_nets_out() -> None:
    assert paths([commit(1, [], [file("a")]), commit(2, [file("a")])]) == (["a"], ["a"])


def test_a_file_under_another_deletion_vector_is_in_both() -> None:
    assert paths([commit(1, [file("a")], [file("a")])]) == (["a"], ["a"])


def test_an_optimize_alone_drops_out() -> None:
    assert paths([commit(1, [file("n")]), rewrite(2, ["c"], ["a", "b"])]) == ([], ["n"])


def test_an_optimize_whose_file_changed_later_stays_as_a_whole() -> None:
    assert paths([rewrite(1, ["c", "d"], ["a", "b"]), commit(2, [file("e")], [file("c")])]) == (
        [
            "a",
            "b",
            "c",
            "d",
        ],  # c and d may repeat files that were there, for all the log says; reading finds out
        ["d", "e"],
    )


def test_chained_optimizes_stay_together() -> None:
    steps = [
        rewrite(1, ["c"], ["a", "b"]),
        rewrite(2, ["d"], ["c", "x"]),
        commit(3, [file("e")], [file("d")]),
    ]
    assert paths(steps) == (["a", "b", "c", "d", "x"], ["e"])


def test_an_add_that_repeats_a_file_is_read_on_both_sides() -> None:
    assert paths([commit(1, [file("n")]), rewrite(2, ["a", "n"], [])]) == (["a"], ["a", "n"])


# --- conditions -----------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "d`y",
            "type": "date",
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": "c2"},
        },
        {"name": "x", "type": "double", "nullable": True, "metadata": {}},
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
    ],
}
STATS = {
    "minValues": {"id": 1, "c2": "2024-01-01", "x": 1.0},
    "maxValues": {"id": 5, "c2": "2024-01-02", "x": 2.0},
}


def snapshot(partition: Sequence[str] = ()) -> Snapshot:
    return Snapshot(1, "t", json.dumps(SCHEMA), {}, tuple(partition), frozenset(), None, None, None)


AT_BOTH = [snapshot(), snapshot()]


def test_names_and_ranges() -> None:
    assert reads_only([file("p=1/f.parquet", stats=STATS)], AT_BOTH) == (
        "_metadata.file_name IN ('f.parquet')"
        " AND (`id` IS NULL OR `id` BETWEEN 1 AND 5)"
        " AND (`d``y` IS NULL OR `d``y` BETWEEN DATE'2024-01-01' AND DATE'2024-01-02')"
    )


def test_a_file_without_statistics_leaves_the_names() -> None:
    files = [file("f.parquet", stats=STATS), file("g.parquet")]
    assert reads_only(files, AT_BOTH) == "_metadata.file_name IN ('f.parquet', 'g.parquet')"


def test_a_name_that_spark_may_show_otherwise_is_not_compared() -> None:
    assert reads_only([file("f%20x.parquet")], AT_BOTH) == "true"


def test_partition_values_are_quoted_and_null_safe() -> None:
    files = [FileAction("f%.parquet", True, None, None, {"p": value}, None) for value in ("it's", None)]
    assert reads_only(files, [snapshot(["p"])] * 2) == r"(`p` <=> NULL OR `p` <=> CAST('it\'s' AS STRING))"


def test_what_is_another_column_by_now_is_not_compared() -> None:
    other = replace(snapshot(), schema_json=json.dumps({**SCHEMA, "fields": SCHEMA["fields"][1:]}))
    assert reads_only([file("f.parquet", stats=STATS)], [snapshot(), other]) == "_metadata.file_name IN ('f.parquet')"


def test_only_a_name_with_a_uuid_is_one_file_s() -> None:
    unique = "p=1/part-00000-3f2504e0-4f89-11d3-9a0c-0305e82c3301-c000.snappy.parquet"
    assert are_told_by_name([file(unique)], AT_BOTH)
    assert not are_told_by_name([file(unique), file("p=1/000000_0")], AT_BOTH)
    assert not are_told_by_name([file(unique.replace("part", "p%20"))], AT_BOTH)
