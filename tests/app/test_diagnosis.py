"""What the doctor makes of facts, without a machine to look at."""

import pytest

from deltaic.app.care.diagnosis import (
    ADAPTIVE,
    CATALOG,
    ERROR,
    FINE,
    GB,
    NOTE,
    SHUFFLE,
    SNAPSHOT,
    WARNING,
    Diagnosis,
    Finding,
    SessionFacts,
    TableFacts,
    ViewFacts,
    allows,
    bytes_of,
    judge_disk,
    judge_filesystem,
    judge_java,
    judge_memory,
    judge_packages,
    judge_python,
    judge_session,
    judge_slot,
    judge_source,
    judge_view,
)

DELTA = {
    CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


@pytest.mark.parametrize(
    ("command", "version", "severity"),
    [(None, None, ERROR), ("/bin/java", None, ERROR), ("/bin/java", 11, ERROR), ("/j", 17, FINE), ("/j", 24, NOTE)],
)
def test_java(command: str | None, version: int | None, severity: str) -> None:
    found = judge_java(command, version)
    assert found.severity == severity
    assert severity == FINE or (found.do or "").startswith("Install a JDK")


def test_python_and_packages() -> None:
    assert judge_python((3, 11), ">=3.10,<3.14").severity == FINE
    assert judge_python((3, 9), ">=3.10,<3.14").severity == ERROR
    wanted = ["pyspark==4.2.0", "rich<16,>=14", "lark (>=1.3,<2)", "psycopg[binary]<4,>=3.2; extra == 'postgres'"]
    found = judge_packages(wanted, {"pyspark": "4.2.0", "rich": "15.0.0", "lark": "1.3.1", "psycopg": None})
    assert [(f.severity, f.what) for f in found] == [(FINE, "pyspark 4.2.0")]
    found = judge_packages(wanted, {"pyspark": "4.1.1", "rich": "13.0", "lark": None})
    assert [(f.severity, f.what) for f in found] == [
        (ERROR, "pyspark is 4.1.1, and Deltaic was tested with ==4.2.0"),
        (WARNING, "rich is 13.0, and Deltaic was tested with <16,>=14"),
        (ERROR, "lark is not installed"),
    ]
    assert found[0].do == "pip install 'pyspark==4.2.0'"


@pytest.mark.parametrize(
    ("wanted", "version", "allowed"),
    [
        ("==4.2.0", "4.2.0", True),
        ("==4.2", "4.2.0", True),
        ("==4.2.0", "4.2.0.post1", True),
        ("==4.2.0", "4.2.1", False),
        (">=1.3,<2", "1.10", True),
        (">=1.3,<2", "2.0.0", False),
        ("~=1.4.2", "1.4.9", True),
        ("~=1.4.2", "1.5.0", False),
        ("", "9", True),
    ],
)
def test_ranges_of_versions(wanted: str, version: str, allowed: bool) -> None:
    assert allows(wanted, version) == allowed


def test_memory_disk_and_lock() -> None:
    assert (bytes_of("4g"), bytes_of("1024m"), bytes_of("512kb"), bytes_of("much")) == (4 * GB, GB, GB // 2048, None)
    assert judge_memory(16 * GB, "4g").severity == FINE
    tight = judge_memory(4 * GB, "4g")
    assert (tight.severity, tight.do) == (WARNING, "Set DELTAIC_DRIVER_MEMORY to 1024m, or give the machine more.")
    assert judge_memory(GB, "512m").severity == WARNING
    assert judge_memory(None, "4g").severity == NOTE
    assert [judge_disk("/x", free).severity for free in (1000, GB, 50 * GB)] == [ERROR, WARNING, FINE]
    assert judge_filesystem("/x", "ext4", None).severity == FINE
    assert judge_filesystem("/x", "nfs4", None).severity == WARNING
    assert judge_filesystem("/x", "ext4", "No locks available").severity == ERROR


def severities(facts: SessionFacts) -> list[str]:
    return [finding.severity for finding in judge_session(facts)]


def test_a_session() -> None:
    good = {**DELTA, SNAPSHOT: "2", SHUFFLE: "2", "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}
    assert severities(SessionFacts("local[2]", 2, True, good)) == [FINE]
    assert severities(SessionFacts("local[2]", 2, False, good)) == [ERROR]
    assert severities(SessionFacts("local[2]", 2, True, {**good, CATALOG: None})) == [ERROR]
    slow = judge_session(SessionFacts("local[2]", 2, True, {**good, SNAPSHOT: None, SHUFFLE: None, ADAPTIVE: "false"}))
    assert [f.severity for f in slow] == [WARNING, WARNING, WARNING]
    assert [f.what.split(" ")[0] for f in slow] == [SNAPSHOT, SHUFFLE, ADAPTIVE]
    assert slow[1].do == "Set it to 2."
    cluster = SessionFacts("spark://host:7077", 2, True, {**good, SNAPSHOT: None, SHUFFLE: "200"})
    assert severities(cluster) == [NOTE]


def test_sources() -> None:
    assert judge_source(TableFacts("default.t", True, 10, 1000, 5)) == []
    found = judge_source(TableFacts("default.t", False, 1000, 1000 << 20, 300))
    assert [f.severity for f in found] == [NOTE, WARNING, WARNING]
    assert found[0].do == "ALTER TABLE default.t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    assert "OPTIMIZE default.t" in (found[1].do or "")
    assert judge_source(TableFacts("default.t", True, 1000, 1000 * (200 << 20), None)) == []


def test_views() -> None:
    assert judge_view(ViewFacts("default.v", {"default.t": 0}, None, None)) == []
    found = judge_view(
        ViewFacts("default.v", {"a.t": 3, "a.u": None}, "LIMIT: looks at all rows", "Rank.", ("x",), "edited")
    )
    assert [(f.severity, f.do) for f in found] == [
        (ERROR, "Make the table again, or repair it; or ALTER the view, or DROP it."),
        (NOTE, "Refresh it."),
        (WARNING, "deltaic check default.v says whether it is still right; its next refresh recomputes it."),
        (WARNING, "Rank."),
    ]
    (once,) = judge_view(ViewFacts("default.v", {}, None, None, ("COST: faster",)))
    assert (once.severity, once.what) == (NOTE, "default.v was recomputed by its last refresh: COST: faster")


def test_slots() -> None:
    assert judge_slot("default.o", "deltaic_1", 1 << 20, "reserved").severity == FINE
    assert judge_slot("default.o", "deltaic_1", 3 << 30, "extended").severity == WARNING
    assert judge_slot("default.o", "deltaic_1", 1, "lost").what.endswith("is invalidated")
    assert judge_slot("default.o", "deltaic_1", None, None).what.endswith("is gone")


def test_the_worst_comes_first() -> None:
    found = Diagnosis((Finding(FINE, "a", "b"), Finding(ERROR, "c", "d", "Do it."), Finding(NOTE, "e", "f")))
    assert [f.severity for f in found.sorted()] == [ERROR, NOTE, FINE]
    assert str(found).splitlines()[0].split() == ["error:", "c:", "d"]
    assert "Do it." in str(found)
    assert found.as_dict()["findings"][0] == {"severity": "error", "about": "c", "what": "d", "do": "Do it."}
    assert len(found.errors) == 1
