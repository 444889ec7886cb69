from __future__ import annotations

from deltaic.algebra.quoting import double_quoted, quote, text_literal
from deltaic.store.write_sql import append_sql, create_sql, merge_sql, overwrite_sql


def test_nothing_escapes_from_a_name_or_a_text() -> None:
    assert quote("a`b; DROP") == "`a``b; DROP`"
    assert text_literal("it's \\") == "'it\\'s \\\\'"
    assert text_literal("${spark.app.name}") == "'$\\{spark.app.name}'"
    assert double_quoted('a"b') == '"a""b"'


def test_replace_by_key() -> None:
    assert merge_sql("`s`.`v`", "artifact", ["k"], ["k", "sum(v)"]) == (
        "MERGE INTO `s`.`v` AS `__deltaic_target` USING artifact AS `__deltaic_source`\n"
        "ON `__deltaic_source`.`__deltaic_op` = -1 AND `__deltaic_target`.`k` <=> `__deltaic_source`.`k`\n"
        "WHEN MATCHED THEN DELETE\n"
        "WHEN NOT MATCHED AND `__deltaic_source`.`__deltaic_op` = 1 THEN INSERT (`k`, `sum(v)`)\n"
        "VALUES (`__deltaic_source`.`k`, `__deltaic_source`.`sum(v)`)"
    )


def test_append_and_overwrite() -> None:
    assert append_sql("v", "a", ["k"]) == "INSERT INTO v (`k`)\nSELECT `k` FROM a WHERE `__deltaic_op` = 1"
    assert overwrite_sql("v", "SELECT 1 AS k", ["k"]) == "INSERT OVERWRITE v (`k`)\nSELECT `k` FROM (SELECT 1 AS k)"


def test_create() -> None:
    sql = create_sql(
        "v",
        "SELECT 1 AS k",
        replace=True,
        cluster_by=["k"],
        properties={"a'": "b"},
        comment="c",
        location="/x y",
    )
    assert sql == (
        "CREATE OR REPLACE TABLE v USING delta\n"
        "CLUSTER BY (`k`)\n"
        "LOCATION '/x y'\n"
        "COMMENT 'c'\n"
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true', "
        "'delta.enableChangeDataFeed' = 'false', 'a\\'' = 'b')\n"
        "AS SELECT 1 AS k"
    )
