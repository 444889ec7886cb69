"""Logs of sources that misbehave, written by hand: what they are planned as needs no Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from deltaic.app.refresh.stored import may_be_looked_up
from deltaic.store.change import plan_change
from deltaic.store.log import Log
from deltaic.store.progress import SourceState
from deltaic.store.table import stored_as, table_at

PLAIN = {"minReaderVersion": 1, "minWriterVersion": 4}
NAMED = {"minReaderVersion": 2, "minWriterVersion": 5}
VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "changeDataFeed"],
}


def column(name: str, kind: object = "integer", stored: str | None = None) -> dict[str, Any]:
    told = {"delta.columnMapping.id": ord(stored[-1]), "delta.columnMapping.physicalName": stored} if stored else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": told}


def struct(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(*columns: Mapping[str, Any], partitions: Sequence[str] = (), mapped: bool = False) -> dict[str, Any]:
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"} if mapped else {}
    return {
        "metaData": {
            "id": "the-table",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct(*columns)),
            "partitionColumns": list(partitions),
            "configuration": {"delta.enableChangeDataFeed": "true", **mode},
        }
    }


def added(name: str, **partition: str) -> dict[str, Any]:
    stats = json.dumps({"numRecords": 2})
    told = {"path": name, "partitionValues": partition, "size": 10, "modificationTime": 0}
    return {"add": {**told, "dataChange": True, "stats": stats}}


def written(folder: Path, *commits: Sequence[Mapping[str, Any]], start: int = 0) -> Log:
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, actions in enumerate(commits, start):
        info = {"commitInfo": {"timestamp": 1000 + version, "operation": "WRITE"}}
        (log / f"{version:020}.json").write_text("\n".join(json.dumps(action) for action in (info, *actions)))
    return Log(table_at(folder))


def test_a_column_renamed_and_renamed_back_has_its_name_at_both_ends_only(tmp_path: Path) -> None:
    there = metadata(column("id", stored="c1"), column("v", stored="c2"), mapped=True)
    between = metadata(column("id", stored="c1"), column("val", stored="c2"), mapped=True)
    log = written(tmp_path / "t", [{"protocol": NAMED}, there], [between], [added("a.parquet")], [there])
    whole, narrow = plan_change(log, 0, 3, ["id", "v"]), plan_change(log, 0, 3, ["id"])
    assert (whole.after, whole.upto) == (0, 3)
    assert whole.kind == "states-rs"
    assert (narrow.after, narrow.upto) == (1, 2)
    by_spark = plan_change(log, 0, 3, ["id", "v"], allow_rs=False)
    assert by_spark.sql is not None
    assert "VERSION AS OF 3" in by_spark.sql


def test_properties_at_the_ends_are_left_out_as_ever(tmp_path: Path) -> None:
    same = metadata(column("id"))
    log = written(tmp_path / "t", [{"protocol": PLAIN}, same], [same], [added("a.parquet")], [same])
    plan = plan_change(log, 0, 3, ["id"])
    assert (plan.kind, plan.after, plan.upto) == ("feed-rs", 1, 2)


def test_a_feed_of_another_partitioning_is_not_read(tmp_path: Path) -> None:
    columns = column("id"), column("k")
    log = written(
        tmp_path / "t",
        [{"protocol": PLAIN}, metadata(*columns)],
        [metadata(*columns, partitions=["k"]), added("k=1/a.parquet", k="1")],
    )
    plan = plan_change(log, 0, 1, ["id", "k"], allow_rs=False)
    assert (plan.kind, plan.reason.split(":")[0]) == ("files", "partitioned otherwise in between")


def test_a_feed_of_a_table_that_had_deletion_vectors_is_not_read(tmp_path: Path) -> None:
    log = written(
        tmp_path / "t",
        [{"protocol": VECTORS}, metadata(column("id"))],
        [{"protocol": PLAIN}, added("a.parquet")],
    )
    assert "deletionVectors" not in log.snapshot(1).features
    plan = plan_change(log, 0, 1, ["id"], allow_rs=False)
    assert (plan.kind, plan.reason.split(":")[0]) == ("files", "deletion vectors were dropped in between")


def test_a_table_that_was_put_back_has_other_commits(tmp_path: Path) -> None:
    first = [{"protocol": PLAIN}, metadata(column("id"))]
    log = written(tmp_path / "t", first, [added("a.parquet")], [added("b.parquet")])
    seen = SourceState(2, log.snapshot().table_id, None, log.fingerprint(2))
    assert seen.is_of(log)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    assert seen.is_of(Log(table_at(tmp_path / "copy"))), "a copy has the same commits"
    written(tmp_path / "t", [added("c.parquet")], start=2)
    assert log.snapshot().table_id == seen.table_id
    assert not seen.is_of(log)
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").unlink()
    assert seen.is_of(log), "what was cleaned up tells nothing"
    assert SourceState(2, "the-table").is_of(log), "written before marks were"


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        (column("a"), "a"),
        (column("a", stored="c1"), "c1"),
        (column("a", struct(column("x"), column("y"))), "a"),
        (column("a", struct(column("x", stored="x"), column("y", stored="y")), "a"), "a"),
        (column("a", struct(column("x", stored="c2"), column("y", stored="c3")), "c1"), ["c1", "c2", "c3"]),
        (
            column("a", {"type": "array", "elementType": struct(column("x", stored="c2")), "containsNull": True}, "c1"),
            ["c1", ["c2"]],
        ),
    ],
)
def test_where_a_column_and_what_is_inside_it_are_stored(field: dict[str, Any], stored: object) -> None:
    assert stored_as(field) == stored


def test_rows_are_not_looked_up_where_fields_have_other_names(tmp_path: Path) -> None:
    """By the names of its fields a struct of a file would be NULL in all of them."""
    inner = struct(column("a", stored="c3"))
    mapped = metadata(column("k", stored="c1"), column("note", inner, "c2"), mapped=True)
    plain = metadata(column("k"), column("note", struct(column("a"))))
    for name, protocol, told, found in (("mapped", NAMED, mapped, False), ("plain", PLAIN, plain, True)):
        log = written(tmp_path / name, [{"protocol": protocol}, told, added("a.parquet")])
        assert may_be_looked_up(log, 0, ["k", "note"]) is found
        assert may_be_looked_up(log, 0, ["k"])
