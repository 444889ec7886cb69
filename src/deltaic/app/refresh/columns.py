"""A view's columns: what they are called, and whether Delta can store them, in the layout that is asked for."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import DataType, StructType

from deltaic.algebra.nodes import RESERVED
from deltaic.app.values.definition import Definition
from deltaic.errors import NameProblem, TypeNotStorable, UnsupportedError


def with_columns(definition: Definition, schema: StructType) -> Definition:
    """The definition with its column names, all of which Delta can store."""
    names = definition.given or tuple(f.name for f in schema.fields)
    if len(names) != len(schema.fields):
        raise NameProblem(f"{len(names)} column names are given for {len(schema.fields)} columns")
    seen: dict[str, DataType] = {}
    for name, column in zip(names, schema.fields, strict=True):
        if name.lower() in seen:
            raise NameProblem(f"the column {name} stands twice in the result", hint="Give each column an alias.")
        if name.lower().startswith(RESERVED):
            raise NameProblem(f"the column {name} begins with {RESERVED}, which is Deltaic's own")
        seen[name.lower()] = column.dataType
        _check_storable(name, column.dataType)
    for name in (*definition.partitioned_by, *definition.clustered_by):
        if name.lower() not in seen:
            raise NameProblem(f"the view has no column {name} to be laid out by")
    for name in definition.partitioned_by:
        if seen[name.lower()].typeName() == "binary":  # Spark writes them as a text, which bytes need not be
            raise UnsupportedError(
                f"the view cannot be partitioned by {name}: bytes come back from Delta's partitions as others",
                hint=f"Partition it by hex({name}).",
            )
    return replace(definition, columns=names)


def is_collated(kind: DataType) -> bool:
    """Delta takes the default collation too for one, where it was asked for by its name."""
    return "collat" in kind.simpleString() or "collat" in kind.json()


_NOT_STORED = ("void", "time", "geometry", "geography")


def _check_storable(name: str, kind: DataType) -> None:
    inner = [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    inner += [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []
    for part in inner:
        _check_storable(name, part)
    word = kind.typeName()
    if "interval" in word or word in _NOT_STORED or is_collated(kind):
        raise TypeNotStorable(
            f"column {name} is of type {kind.simpleString()}, which Delta cannot store", hint="CAST it to another type."
        )
