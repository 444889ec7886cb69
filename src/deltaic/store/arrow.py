"""Between Arrow and Spark with exactly the types asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import types as st

from deltaic.errors import TypeNotStorable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLAIN: dict[type[st.DataType], pa.DataType] = {
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.StringType: pa.string(),
    st.CharType: pa.string(),
    st.VarcharType: pa.string(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    # Spark's TIMESTAMP is an instant; TIMESTAMP_NTZ is a reading of a clock, without a zone.
    st.TimestampType: pa.timestamp("us", tz="UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.NullType: pa.null(),
}


def arrow_type(spark_type: st.DataType) -> pa.DataType:
    """The Arrow type that Spark exchanges for one of its own."""
    if isinstance(spark_type, st.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, st.ArrayType):
        return pa.list_(pa.field("element", arrow_type(spark_type.elementType), spark_type.containsNull))
    if isinstance(spark_type, st.MapType):
        value = pa.field("value", arrow_type(spark_type.valueType), spark_type.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(spark_type.keyType), False), value)
    if isinstance(spark_type, st.StructType):
        return pa.struct(list(arrow_schema(spark_type)))
    if type(spark_type) in _PLAIN:
        return _PLAIN[type(spark_type)]
    raise TypeNotStorable(f"{spark_type.simpleString()} has no counterpart in Arrow")


def arrow_schema(schema: st.StructType) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in schema.fields])


def has_arrow_types(schema: st.StructType) -> bool:
    """Whether rows of this schema can come into this process and go back."""
    try:
        arrow_schema(schema)
    except TypeNotStorable:
        return False
    return True


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same values under `schema`, columns taken by name. A value that does not fit is an error.

    delta-rs reads texts as Arrow views, which Spark does not take.
    """
    if not table.num_rows:
        return schema.empty_table()  # one without chunks is more than PySpark can take where a column is nested
    table = table.select(schema.names)
    return table if table.schema.equals(schema) else table.cast(schema, safe=True)


def without_views(table: pa.Table) -> pa.Table:
    """Texts and bytes as plain ones: Arrow's functions do not take its views, which delta-rs gives."""
    return table.cast(pa.schema([field.with_type(_plain(field.type)) for field in table.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without views, inside structs, lists and maps too."""
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(n).with_type(_plain(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def repeated(table: pa.Table, counts: pa.ChunkedArray) -> pa.Table:
    """Each row as often as its count says."""
    return table.take(pa.array(np.repeat(np.arange(table.num_rows), counts.to_numpy())))


def arrow_to_spark(spark: SparkSession, table: pa.Table, schema: st.StructType) -> DataFrame:
    """A DataFrame of exactly `schema` out of Arrow data.

    Arrow alone does not decide the types: it knows no CHAR, and a timestamp without a zone may be meant
    either way.
    """
    return spark.createDataFrame(conform(table, arrow_schema(schema)), schema=schema)
