"""What all tests share: one Spark for the whole run, started by the first test that asks for it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pyspark.sql import SparkSession

from deltaic.errors import SetupError
from deltaic.spark.jars import postgres_jars
from deltaic.spark.session import local_session

# Machines are noisy: how long a case takes says nothing.
hypothesis_settings.register_profile("deltaic", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("deltaic")

# Else what Connect's client does at a fork may end the child before it has become the program that it is to be.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

CONNECT_PORT = "spark.connect.grpc.binding.port"


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "run the property lab for FUZZ_CASES cases instead of a few hundred, and the tests marked long"
    parser.addoption("--fuzz", action="store_true", help=what)
    what = "run the end-to-end tests on a Spark Connect session and its catalog, not in a local warehouse"
    parser.addoption("--connect", action="store_true", help=what)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On two cores Spark takes its time: what only widens a net that is cast already waits for `make fuzz`."""
    long, connect = config.getoption("--fuzz"), config.getoption("--connect")
    left_out = [
        item
        for item in items
        if (item.get_closest_marker("long") and not long) or (connect and not _is_for_connect(item))
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_for_connect(item: pytest.Item) -> bool:
    """Whether a test is one over any warehouse; the others open theirs themselves, and are run without Connect."""
    return "wh" in getattr(item, "fixturenames", ()) and item.get_closest_marker("local") is None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two cores; its JVM also serves Spark Connect, for the fixture below."""
    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        CONNECT_PORT: _free_port(),
        # For the same reason nothing is compiled for a few rows: a new plan would cost a second of it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Nor by the JVM's second compiler: tests are wide, and what one has made hot the next leaves cold.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    with contextlib.suppress(SetupError):
        postgres_jars()  # a session starts with it if it is there; the tests that need it will miss it otherwise
    session = local_session("deltaic-tests", cores="2", extra=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect(spark: SparkSession) -> Iterator[SparkSession]:
    """A Spark Connect client of the same Spark, with settings and temporary views of its own."""
    session = new_client(spark)
    yield session
    session.stop()


def new_client(spark: SparkSession) -> SparkSession:
    from pyspark.sql.connect.session import SparkSession as Client

    builder: Any = Client.builder
    client: SparkSession = builder.remote(f"sc://127.0.0.1:{spark.conf.get(CONNECT_PORT)}").create()
    return client


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
