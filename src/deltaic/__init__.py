"""Incremental materialized views for Apache Spark on Delta Lake."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltaic.app.doctor import doctor
    from deltaic.app.values.report import Check, Repair, Report
    from deltaic.app.warehouse import Warehouse
    from deltaic.app.warehouse import open_warehouse as open
    from deltaic.errors import DeltaicError
    from deltaic.spark.session import configure

__version__ = "0.1.0"
__all__ = ["Check", "DeltaicError", "Repair", "Report", "Warehouse", "configure", "doctor", "open"]

_HOMES = {
    "Check": ("deltaic.app.values.report", "Check"),
    "DeltaicError": ("deltaic.errors", "DeltaicError"),
    "Repair": ("deltaic.app.values.report", "Repair"),
    "Report": ("deltaic.app.values.report", "Report"),
    "Warehouse": ("deltaic.app.warehouse", "Warehouse"),
    "configure": ("deltaic.spark.session", "configure"),
    "doctor": ("deltaic.app.doctor", "doctor"),
    "open": ("deltaic.app.warehouse", "open_warehouse"),
}


def __getattr__(name: str) -> object:
    """Importing PySpark takes most of a second; `deltaic --help` and the lab have no use for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found: object = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
