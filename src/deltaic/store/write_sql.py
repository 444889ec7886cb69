"""The SQL that writes a view's table: pure text, so that explain shows what runs.

The artifact of a refresh says "replace by key". Its rows are the view's columns and `__deltaic_op`: -1 takes
out every row of the view with this row's key, +1 puts this row in. Keys are equal as `<=>` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltaic.algebra.quoting import quote, quote_list, text_literal
from deltaic.plan.program import OP

VIEW_PROPERTIES: Mapping[str, str] = {
    # A name like sum(v) is legal in a query and not in a plain Delta table.
    "delta.columnMapping.mode": "name",
    # A merge by Spark marks rows deleted instead of writing their files anew; delta-rs reads the marks.
    "delta.enableDeletionVectors": "true",
    # A view's change is the delta its refresh computed. Delta's feed would make every merge half as dear
    # again.
    "delta.enableChangeDataFeed": "false",
}

_TARGET, _SOURCE = "__deltaic_target", "__deltaic_source"


def create_sql(
    relation: str,
    query: str,
    *,
    replace: bool = False,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    location: str | None = None,
) -> str:
    """The table with its content, in one commit: nothing is ever half made."""
    told = {**VIEW_PROPERTIES, **(properties or {})}
    pairs = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in told.items())
    clauses = [
        f"CREATE {'OR REPLACE ' if replace else ''}TABLE {relation} USING delta",
        f"PARTITIONED BY ({quote_list(partition_by)})" if partition_by else "",
        f"CLUSTER BY ({quote_list(cluster_by)})" if cluster_by else "",
        f"LOCATION {text_literal(location)}" if location else "",
        f"COMMENT {text_literal(comment)}" if comment else "",
        f"TBLPROPERTIES ({pairs})",
        f"AS {query}",
    ]
    return "\n".join(clause for clause in clauses if clause)


def append_sql(relation: str, artifact: str, columns: Sequence[str]) -> str:
    """For an artifact that takes nothing out."""
    listed = quote_list(columns)
    return f"INSERT INTO {relation} ({listed})\nSELECT {listed} FROM {artifact} WHERE {quote(OP)} = 1"


def overwrite_sql(relation: str, query: str, columns: Sequence[str]) -> str:
    """All of the table's rows for others; the table's definition stays."""
    listed = quote_list(columns)
    return f"INSERT OVERWRITE {relation} ({listed})\nSELECT {listed} FROM ({query})"


def nothing_sql(relation: str) -> str:
    """A commit of no rows. Delta makes one only under a transaction number, which every write of ours has."""
    return f"INSERT INTO {relation}\nSELECT * FROM {relation} WHERE false"


def merge_sql(relation: str, artifact: str, key: Sequence[str], columns: Sequence[str]) -> str:
    """Replace by key.

    A row to put in matches nothing, since only rows to take out are matched; so duplicates are all put in.
    """
    target, source = quote(_TARGET), quote(_SOURCE)
    equal = [f"{target}.{quote(name)} <=> {source}.{quote(name)}" for name in key]
    on = " AND ".join([f"{source}.{quote(OP)} = -1", *equal])
    return (
        f"MERGE INTO {relation} AS {target} USING {artifact} AS {source}\n"
        f"ON {on}\n"
        f"WHEN MATCHED THEN DELETE\n"
        f"WHEN NOT MATCHED AND {source}.{quote(OP)} = 1 THEN INSERT ({quote_list(columns)})\n"
        f"VALUES ({quote_list(columns, source)})"
    )
