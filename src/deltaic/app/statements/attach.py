"""Making tables in PostgreSQL sources of a warehouse, and letting them go."""

from __future__ import annotations

import logging

from deltaic.app.catalogs.catalog import CAPTURED
from deltaic.app.catalogs.live import LiveTable, capture_name, capture_prefix
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.refresh.engine import Engine
from deltaic.errors import CaptureLost, DependencyError, ExistsError, MissingError, UnsupportedError
from deltaic.spark.session import add_postgres_driver
from deltaic.store.postgres.capture import start_capture
from deltaic.store.postgres.table import PostgresTable

_log = logging.getLogger(__name__)


def attach(engine: Engine, name: str, table: PostgresTable, *, set_identity: bool = True) -> None:
    """Begins to capture a table, and lets queries know its name: both, or nothing."""
    if not isinstance(engine.catalog, LocalCatalog):
        raise UnsupportedError("live sources are for local warehouses: deltaic.open(path)")
    schema, plain = (part.lower() for part in engine.split(name))
    with engine.lock():
        there = engine.catalog.exists(schema, plain)
        if there is not None:
            raise ExistsError(f"{schema}.{plain} is already {there}")
        path = str(engine.catalog.hidden(CAPTURED, schema, plain)[0].path)
        live = LiveTable(f"{schema}.{plain}", table, path, set_identity)
        add_postgres_driver(engine.spark)
        capture = capture_name(live)
        with engine.catalog.attaching(schema, plain, live, capture):
            with start_capture([(table, path)], capture, set_identity=set_identity):
                pass
            engine.catalog.add_live(schema, plain, live)


def detach(engine: Engine, name: str) -> None:
    """Ends the capture of a live source that no view reads."""
    schema, plain = (part.lower() for part in engine.split(name))
    with engine.lock():
        live = engine.catalog.live(schema, plain)
        if live is None or not isinstance(engine.catalog, LocalCatalog):
            raise MissingError(f"there is no live source {schema}.{plain}")
        readers = engine.readers(live.key)
        if readers:
            raise DependencyError(f"{live.key} is read by {', '.join(readers)}", hint="Drop those views first.")
        try:
            engine.captures.of(live).drop()
        except CaptureLost as problem:  # its log, which is gone, has the name; another warehouse's may be like it
            here, prefix = live.table.server, capture_prefix(live)
            _log.warning("%s; drop slot and publication, or triggers, %s… in %s by hand", problem.what, prefix, here)
        engine.captures.close()
        engine.catalog.remove_live(schema, plain)
