"""Between Arrow and Spark."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from deltaic.store.arrow import arrow_to_spark


def test_a_table_without_chunks_and_with_a_nested_column(spark: SparkSession) -> None:
    """PySpark cannot tell the type of no chunks where a column is a struct."""
    inner = pa.struct([pa.field("i", pa.int32())])
    empty = pa.table({"s": pa.chunked_array([], inner), "k": pa.chunked_array([], pa.int32())})
    schema = StructType(
        [StructField("k", IntegerType()), StructField("s", StructType([StructField("i", IntegerType())]))]
    )
    frame = arrow_to_spark(spark, empty, schema)
    assert frame.schema == schema
    assert frame.collect() == []
