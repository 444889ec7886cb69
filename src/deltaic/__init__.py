"""Incremental materialized views for Apache Spark on Delta Lake."""

from deltaic.app.report import Report
from deltaic.app.warehouse import Warehouse
from deltaic.app.warehouse import open_warehouse as open  # noqa: A004
from deltaic.errors import DeltaicError
from deltaic.spark.session import configure

__version__ = "0.1.0"
__all__ = ["DeltaicError", "Report", "Warehouse", "configure", "open"]
