"""What can happen to a source between two refreshes, as data: the statements, and what becomes of views over it.

`{s}` is the table, `{folder}` where it is. docs/sources.md has a line for each of these cases.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from deltaic import Warehouse

INCREMENTAL, NOOP = "incremental", "noop"
KINDS = {
    "rows": "SELECT k, v * 2 AS w, note FROM {s} WHERE v > 3",
    "star": "SELECT * FROM {s}",
    "groups": "SELECT k, sum(v) AS t, count(*) AS n FROM {s} GROUP BY k",
    "distinct": "SELECT DISTINCT k, v % 10 AS m FROM {s}",
    "outer": "SELECT d.name, s.v FROM dim d LEFT JOIN {s} s ON d.k = s.k",
    "window": "SELECT k, v, sum(v) OVER (PARTITION BY k) AS t FROM {s}",
}

COLUMNS = "k INT, v INT, note STRING, spare STRING"
ROWS = (
    "INSERT INTO {s} (k, v, note, spare) VALUES"
    " (1, 10, 'a', 'x'), (1, 20, 'b', NULL), (2, 30, 'c', 'y'), (NULL, 40, 'd', ''), (1, 10, 'a', 'x'), (3, 2, 'e', '')"
)
BEFORE = "INSERT INTO {s} (k, v) VALUES (1, 5), (4, 4), (4, 4)"
AFTER = "UPDATE {s} SET v = v + 1 WHERE k IN (1, 2)"
LATER = "INSERT INTO {s} (k, v) VALUES (2, 7), (9, 9); DELETE FROM {s} WHERE v IN (11, 60, 4, 2)"

Happening = str | Callable[[Warehouse, str], None]


@dataclass(frozen=True)
class Refused:
    """The refresh is an error of this code whose text has these words; `mend` then brings the source back."""

    code: str
    words: tuple[str, ...]
    mend: Happening


@dataclass(frozen=True)
class Case:
    """`happens` stands between row changes of the same interval. Outcomes are a mode, a reason code, or a refusal;
    those that are not told are incremental."""

    happens: Happening
    outcomes: Mapping[str, str | Refused] = field(default_factory=dict)
    columns: str = COLUMNS
    layout: str = ""
    properties: str = ""
    before: str = BEFORE
    after: str = AFTER
    later: str = LATER
    rows: str = ROWS
    kinds: tuple[str, ...] = tuple(KINDS)
    fed: str | None = None
    """What becomes of views over the table with a change feed, if that is something else."""
    clone: bool = False
    """Whether the table is a shallow clone of another."""


def every(outcome: str | Refused) -> dict[str, str | Refused]:
    return dict.fromkeys(KINDS, outcome)


STAR_SCHEMA = {"star": "SOURCE_SCHEMA"}
MAPPED = "delta.columnMapping.mode = 'name'"


def vacuumed(wh: Warehouse, table: str) -> None:
    setting = "spark.databricks.delta.retentionDurationCheck.enabled"
    wh.sql(f"SET {setting} = false")
    wh.sql(f"VACUUM {table} RETAIN 0 HOURS")
    wh.sql(f"SET {setting} = true")


def feed_files_gone(wh: Warehouse, table: str) -> None:
    """What only the change feed needs is away; the files of both versions are there."""
    shutil.rmtree(folder_of(wh, table) / "_change_data", ignore_errors=True)


def folder_of(wh: Warehouse, table: str) -> Path:
    return Path(str(wh.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"]).removeprefix("file:"))


def cleaned(wh: Warehouse, table: str) -> None:
    wh.sql(f"INSERT INTO {table} (k, v) VALUES (5, 50)")
    log_cleaned(wh, table)


def log_cleaned(wh: Warehouse, table: str) -> None:
    """What Delta does to a log after its retention: the commits before a checkpoint go."""
    log = folder_of(wh, table) / "_delta_log"
    wh.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    wh.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('cleaned' = 'yes')")
    kept = max(int(file.name[:20]) for file in log.glob("0*.checkpoint*"))
    for file in log.glob("*.json"):
        if file.name[:20].isdigit() and int(file.name[:20]) < kept:
            file.unlink()
    for file in log.glob("0*.crc"):
        file.unlink()


def merged_by_rs(wh: Warehouse, table: str) -> None:
    """A writer that is not Spark, which brings a column along."""
    rows = pa.table({"k": pa.array([6], pa.int32()), "v": pa.array([60], pa.int32()), "more": ["m"]})
    write_deltalake(folder_of(wh, table), rows, mode="append", schema_mode="merge")


def appended_by_rs(wh: Warehouse, table: str) -> None:
    rows = pa.table({"k": pa.array([6, 6], pa.int32()), "v": pa.array([60, 60], pa.int32())})
    write_deltalake(folder_of(wh, table), rows, mode="append", schema_mode="merge")


def elsewhere(wh: Warehouse, table: str) -> Path:
    """A folder that is not the warehouse's."""
    return folder_of(wh, "dim").parent.parent.parent / "elsewhere" / table


def put_back(wh: Warehouse, table: str) -> None:
    """From a copy that was made before the last commit that views have seen."""
    copy = elsewhere(wh, f"{table}_copy")
    shutil.copytree(folder_of(wh, table), copy)
    for file in (copy / "_delta_log").iterdir():
        number = file.name.removeprefix(".")[:20]
        if number.isdigit() and int(number) > 1:
            file.unlink()
    wh.sql(f"ALTER TABLE {table} SET LOCATION '{copy}'")


def moved(wh: Warehouse, table: str) -> None:
    other = elsewhere(wh, f"{table}_moved")
    shutil.move(folder_of(wh, table), other)
    wh.sql(f"ALTER TABLE {table} SET LOCATION '{other}'")


def moved_to_another(wh: Warehouse, table: str) -> None:
    """A table of the same columns that is not the same one."""
    other = elsewhere(wh, f"{table}_other")
    wh.spark.sql(f"CREATE TABLE delta.`{other}` ({COLUMNS}) USING delta")
    wh.spark.sql(ROWS.format(s=f"delta.`{other}`"))
    wh.sql(f"ALTER TABLE {table} SET LOCATION '{other}'")


def streamed(wh: Warehouse, table: str) -> None:
    folder = folder_of(wh, table)
    wh.spark.sql(f"CREATE TABLE delta.`{folder}_from` (k INT, v INT) USING delta")
    wh.spark.sql(f"INSERT INTO delta.`{folder}_from` VALUES (6, 60), (6, 60), (1, 61)")
    stream = wh.spark.readStream.format("delta").load(f"{folder}_from").selectExpr("k", "v")
    query = (
        stream.writeStream.format("delta")
        .option("checkpointLocation", f"{folder}_checkpoint")
        .option("mergeSchema", "true")
        .trigger(availableNow=True)
        .start(str(folder))
    )
    query.awaitTermination()


CASES: dict[str, Case] = {
    # columns
    "column added": Case("ALTER TABLE {s} ADD COLUMN fresh STRING", STAR_SCHEMA),
    "column added in front": Case("ALTER TABLE {s} ADD COLUMN fresh STRING FIRST", STAR_SCHEMA),
    "column with a default": Case(
        "ALTER TABLE {s} ADD COLUMN fresh INT; ALTER TABLE {s} ALTER COLUMN fresh SET DEFAULT 7",
        STAR_SCHEMA,
        properties="delta.feature.allowColumnDefaults = 'supported'",
    ),
    "default changed": Case(
        "ALTER TABLE {s} ALTER COLUMN note SET DEFAULT 'none'",
        columns=COLUMNS.replace("note STRING", "note STRING DEFAULT 'first'"),
        properties="delta.feature.allowColumnDefaults = 'supported'",
    ),
    "unused column renamed": Case("ALTER TABLE {s} RENAME COLUMN spare TO other", STAR_SCHEMA, properties=MAPPED),
    "used column renamed": Case(
        "ALTER TABLE {s} RENAME COLUMN v TO val",
        {
            **every(Refused("NAME", ("`v`",), "ALTER TABLE {s} RENAME COLUMN val TO v")),
            "star": "SOURCE_SCHEMA",
        },
        properties=MAPPED,
        after="INSERT INTO {s} (k, val) VALUES (1, 6), (7, 70)",
    ),
    "renamed and back": Case(
        "ALTER TABLE {s} RENAME COLUMN v TO val; INSERT INTO {s} (k, val) VALUES (6, 66);"
        " ALTER TABLE {s} RENAME COLUMN val TO v",
        properties=MAPPED,
    ),
    "names swapped": Case(
        "ALTER TABLE {s} RENAME COLUMN k TO x; ALTER TABLE {s} RENAME COLUMN v TO k;"
        " ALTER TABLE {s} RENAME COLUMN x TO v",
        every("SOURCE_SCHEMA"),
        properties=MAPPED,
    ),
    "unused column dropped": Case("ALTER TABLE {s} DROP COLUMN spare", STAR_SCHEMA, properties=MAPPED),
    "used column dropped": Case(
        "ALTER TABLE {s} DROP COLUMN note",
        {
            "rows": Refused("NAME", ("`note`",), "ALTER TABLE {s} ADD COLUMN note STRING"),
            "star": "SOURCE_SCHEMA",
        },
        properties=MAPPED,
        kinds=("rows", "groups"),
    ),
    "dropped and added with another type": Case(
        "ALTER TABLE {s} DROP COLUMN note; ALTER TABLE {s} ADD COLUMN note INT",
        {"rows": "SOURCE_SCHEMA", "star": "SOURCE_SCHEMA"},
        properties=MAPPED,
    ),
    "dropped and added with the same type": Case(
        "ALTER TABLE {s} DROP COLUMN note; ALTER TABLE {s} ADD COLUMN note STRING",
        {"rows": "SOURCE_SCHEMA", "star": "SOURCE_SCHEMA"},
        properties=MAPPED,
    ),
    "type widened": Case(
        "ALTER TABLE {s} ALTER COLUMN v TYPE BIGINT",
        dict.fromkeys(KINDS, "SOURCE_SCHEMA"),
        properties="delta.enableTypeWidening = 'true'",
    ),
    "unused type widened": Case(
        "ALTER TABLE {s} ALTER COLUMN spare2 TYPE BIGINT",
        STAR_SCHEMA,
        columns=f"{COLUMNS}, spare2 INT",
        properties="delta.enableTypeWidening = 'true'",
    ),
    "columns reordered": Case("ALTER TABLE {s} ALTER COLUMN note FIRST", {"star": "DEFINITION_CHANGED"}),
    "not null dropped": Case(
        "ALTER TABLE {s} ALTER COLUMN v DROP NOT NULL", columns=COLUMNS.replace("v INT", "v INT NOT NULL")
    ),
    "constraint added": Case("ALTER TABLE {s} ADD CONSTRAINT positive CHECK (v > 0)", after=AFTER),
    "constraint dropped": Case(
        "ALTER TABLE {s} ADD CONSTRAINT positive CHECK (v > 0); ALTER TABLE {s} DROP CONSTRAINT positive"
    ),
    "comment changed": Case("COMMENT ON TABLE {s} IS 'other'; ALTER TABLE {s} ALTER COLUMN v COMMENT 'value'"),
    "struct field added": Case(
        "ALTER TABLE {s} ADD COLUMN deep.b INT",
        STAR_SCHEMA,
        columns=f"{COLUMNS}, deep STRUCT<a: INT>",
    ),
    "external schema change": Case(merged_by_rs, STAR_SCHEMA),
    "generated and identity columns": Case(
        "ALTER TABLE {s} ADD COLUMN fresh INT",
        STAR_SCHEMA,
        columns=f"{COLUMNS}, twice INT GENERATED ALWAYS AS (v * 2), id BIGINT GENERATED ALWAYS AS IDENTITY",
    ),
    # tables
    "replaced": Case(
        f"CREATE OR REPLACE TABLE {{s}} ({COLUMNS}); INSERT INTO {{s}} (k, v) VALUES (1, 3), (8, 80)",
        every("SOURCE_REPLACED"),
    ),
    "replaced by a query": Case(
        "CREATE OR REPLACE TABLE {s} AS SELECT 1 AS k, 2 AS v, 'n' AS note, 'o' AS spare, 3 AS fresh",
        every("SOURCE_REPLACED"),
    ),
    "replaced where it is": Case(
        f"REPLACE TABLE {{s}} ({COLUMNS}) USING delta; INSERT INTO {{s}} (k, v) VALUES (1, 3), (8, 80)",
        every("SOURCE_REPLACED"),
    ),
    "overwritten": Case("INSERT OVERWRITE {s} SELECT k, v + 1, note, spare FROM {s} WHERE v > 4"),
    "partition replaced": Case(
        "INSERT INTO {s} REPLACE WHERE k = 1 SELECT 1 AS k, 99 AS v, 'r' AS note, 'r' AS spare;"
        " DELETE FROM {s} WHERE k = 2",
        layout="PARTITIONED BY (k)",
    ),
    "truncated": Case("TRUNCATE TABLE {s}"),
    "restored to before the view": Case("RESTORE TABLE {s} TO VERSION AS OF 0", after=BEFORE),
    "restored to what the view has not seen": Case(
        "RESTORE TABLE {s} TO VERSION AS OF 2", before=f"{BEFORE}; DELETE FROM {{s}} WHERE k = 1"
    ),
    "shallow clone": Case("OPTIMIZE {s}", clone=True),
    # history
    "vacuumed": Case(vacuumed, every("HISTORY_GONE"), before="UPDATE {s} SET v = v + 1 WHERE k = 1"),
    "log cleaned": Case(cleaned, every("HISTORY_GONE")),
    "feed files gone": Case(feed_files_gone, before="UPDATE {s} SET v = v + 1 WHERE k = 1", fed="HISTORY_GONE"),
    "feed off": Case("ALTER TABLE {s} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)"),
    "feed off and on": Case(
        "ALTER TABLE {s} SET TBLPROPERTIES (delta.enableChangeDataFeed = false); DELETE FROM {s} WHERE k = 3;"
        " UPDATE {s} SET v = 41 WHERE v = 40; ALTER TABLE {s} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
    ),
    "put back from a copy": Case(
        put_back,
        every("SOURCE_REWOUND"),
        rows=f"{ROWS}; INSERT INTO {{s}} (k, v) VALUES (5, 5)",
        layout="LOCATION '{place}'",
    ),
    "moved": Case(moved, layout="LOCATION '{place}'"),
    "moved to another table": Case(moved_to_another, every("SOURCE_REPLACED"), layout="LOCATION '{place}'"),
    # layout and protocol
    "column mapping switched on": Case("ALTER TABLE {s} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')"),
    "column mapping by id": Case(
        "ALTER TABLE {s} RENAME COLUMN spare TO other", STAR_SCHEMA, properties="delta.columnMapping.mode = 'id'"
    ),
    "deletion vectors on": Case(
        "ALTER TABLE {s} SET TBLPROPERTIES (delta.enableDeletionVectors = true); DELETE FROM {s} WHERE k = 3"
    ),
    "deletion vectors off": Case(
        "DELETE FROM {s} WHERE k = 3; ALTER TABLE {s} SET TBLPROPERTIES (delta.enableDeletionVectors = false)",
        properties="delta.enableDeletionVectors = 'true'",
    ),
    "purged": Case(
        "DELETE FROM {s} WHERE k = 3; REORG TABLE {s} APPLY (PURGE)",
        properties="delta.enableDeletionVectors = 'true'",
    ),
    "feature dropped": Case(
        "DELETE FROM {s} WHERE k = 3; ALTER TABLE {s} DROP FEATURE deletionVectors",
        properties="delta.enableDeletionVectors = 'true'",
    ),
    "optimized": Case("OPTIMIZE {s}"),
    "optimized by z-order": Case("OPTIMIZE {s} ZORDER BY (k)"),
    "partitioned otherwise": Case(
        "CREATE OR REPLACE TABLE {s} PARTITIONED BY (k) AS SELECT * FROM {s}", every("SOURCE_REPLACED")
    ),
    "clustered": Case("ALTER TABLE {s} CLUSTER BY (k); OPTIMIZE {s}"),
    "clustering changed": Case("ALTER TABLE {s} CLUSTER BY (v); OPTIMIZE {s}", layout="CLUSTER BY (k)"),
    "clustering dropped": Case("ALTER TABLE {s} CLUSTER BY NONE", layout="CLUSTER BY (k)"),
    "row tracking on": Case("ALTER TABLE {s} SET TBLPROPERTIES (delta.enableRowTracking = true)"),
    "in-commit timestamps on": Case("ALTER TABLE {s} SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)"),
    "v2 checkpoints": Case(
        "ALTER TABLE {s} SET TBLPROPERTIES (delta.checkpointPolicy = 'v2', delta.checkpointInterval = 1);"
        " INSERT INTO {s} (k, v) VALUES (5, 51)",
    ),
    "protocol upgraded": Case(
        "ALTER TABLE {s} SET TBLPROPERTIES (delta.minReaderVersion = 3, delta.minWriterVersion = 7)"
    ),
    # writers
    "appended by another writer": Case(appended_by_rs),
    "streamed into": Case(streamed),
}


EDITS: dict[str, tuple[Happening, str]] = {
    "rows deleted": ("DELETE FROM {s} WHERE k = 1", "VIEW_EDITED"),
    "rows inserted": ("INSERT INTO {s} SELECT * FROM {s}", "VIEW_EDITED"),
    "a column added": ("ALTER TABLE {s} ADD COLUMN mine STRING", "VIEW_EDITED"),
    "a column dropped": ("ALTER TABLE {s} DROP COLUMN k", "VIEW_EDITED"),
    "a column renamed": ("ALTER TABLE {s} RENAME COLUMN k TO kk", "VIEW_EDITED"),
    "restored": ("RESTORE TABLE {s} TO VERSION AS OF 0", "VIEW_EDITED"),
    "log cleaned": (log_cleaned, "VIEW_EDITED"),
    "vacuumed": (vacuumed, INCREMENTAL),
    "optimized": ("OPTIMIZE {s}", INCREMENTAL),
    "a property set": ("ALTER TABLE {s} SET TBLPROPERTIES ('mine' = 'yes')", INCREMENTAL),
    "a comment": ("COMMENT ON TABLE {s} IS 'mine'", INCREMENTAL),
    "a comment on a column": ("ALTER TABLE {s} ALTER COLUMN k COMMENT 'mine'", INCREMENTAL),
    "its feed switched on": ("ALTER TABLE {s} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", INCREMENTAL),
    "deletion vectors off": ("ALTER TABLE {s} SET TBLPROPERTIES (delta.enableDeletionVectors = false)", INCREMENTAL),
    "clustered": ("ALTER TABLE {s} CLUSTER BY (k)", INCREMENTAL),
    "row tracking on": ("ALTER TABLE {s} SET TBLPROPERTIES (delta.enableRowTracking = true)", INCREMENTAL),
    "append only": ("ALTER TABLE {s} SET TBLPROPERTIES (delta.appendOnly = true)", "COMPUTE"),
    "a constraint": ("ALTER TABLE {s} ADD CONSTRAINT small CHECK (k < 90 OR k IS NULL)", INCREMENTAL),
}
"""What somebody does to a view's own table, and what becomes of the view."""
