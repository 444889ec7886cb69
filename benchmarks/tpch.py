"""TPC-H: its tables as Delta tables, and streams of changes to all of them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deltaic import Warehouse

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
SCALE = float(os.environ.get("BENCH_SCALE", "1"))


def load(wh: Warehouse, folder: Path, scale: float = SCALE) -> None:
    """Generated once, in `folder`; the tables have a change feed."""
    files = folder / f"tpch-{scale:g}"
    if not files.exists():
        beside = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or "tpchgen-cli"
        command = [beside, "parquet", "-s", f"{scale:g}", f"--output-dir={files}"]
        subprocess.run(command, check=True, capture_output=True)
    for name in TABLES:
        rows = f"SELECT * FROM parquet.`{files / name}.parquet`"
        described = wh.spark.sql(rows).schema
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in described.fields)
        wh.sql(f"CREATE TABLE {name} ({columns})")
        wh.sql(f"INSERT INTO {name} {rows}")


def data_folder() -> Path:
    folder = Path(os.environ.get("BENCH_DATA", Path(tempfile.gettempdir()) / "deltaic-bench"))
    folder.mkdir(exist_ok=True)
    return folder


def refresh_functions(wh: Warehouse, share: float, number: int) -> None:
    """RF1 and RF2: this share of the orders comes, with their lines, and as many go with theirs."""
    gone, copied = (f"pmod(xxhash64(o_orderkey, {number}, {n}), 1000000) < {share * 1_000_000:.0f}" for n in (1, 2))
    shift = 10_000_000_000 * (number + 1)
    orders = "o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment"
    wh.sql(f"INSERT INTO orders SELECT o_orderkey + {shift}, {orders} FROM orders WHERE {copied}")
    listed = ", ".join(f.name for f in wh.table("lineitem").schema.fields if f.name != "l_orderkey")
    line_copied, line_gone = (text.replace("o_orderkey", "l_orderkey") for text in (copied, gone))
    wh.sql(f"INSERT INTO lineitem SELECT l_orderkey + {shift}, {listed} FROM lineitem WHERE {line_copied}")
    wh.sql(f"DELETE FROM orders WHERE {gone}")
    wh.sql(f"DELETE FROM lineitem WHERE {line_gone}")


def change(wh: Warehouse, share: float, number: int, *, small_too: bool = True) -> None:
    """Change this share of the rows of every table: a third goes, as RF2 has it, a third comes, as RF1, and a third is
    updated. Orders go and come with their lines. Of nation and region a row is updated, if `small_too`."""
    third = share / 3

    def picked(key: str, part: int) -> str:
        return f"pmod(xxhash64({key}, {number}, {part}), 1000000) < {third * 1_000_000:.0f}"

    shift = 10_000_000_000 * (number + 1)
    refresh_functions(wh, third, number)
    wh.sql(f"UPDATE orders SET o_totalprice = o_totalprice + 1 WHERE {picked('o_orderkey', 3)}")
    wh.sql(f"UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE {picked('l_orderkey, l_linenumber', 3)}")
    for table, key, value in (("customer", "c_custkey", "c_acctbal"), ("supplier", "s_suppkey", "s_acctbal")):
        wh.sql(f"UPDATE {table} SET {value} = {value} + 1 WHERE {picked(key, 3)}")
        others = ", ".join(f.name for f in wh.table(table).schema.fields if f.name != key)
        wh.sql(f"INSERT INTO {table} SELECT {key} + {shift}, {others} FROM {table} WHERE {picked(key, 2)}")
        wh.sql(f"DELETE FROM {table} WHERE {picked(key, 1)}")
    if small_too:
        wh.sql(f"UPDATE nation SET n_comment = '{number}' WHERE n_nationkey = {number % 25}")
        wh.sql(f"UPDATE region SET r_comment = '{number}' WHERE r_regionkey = {number % 5}")
