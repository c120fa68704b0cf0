"""One Spark session for the whole run, classic or Connect, and stores to read with it.

``MQSTORE_SPARK_REMOTE`` makes it a Spark Connect session; ``local`` starts a server for the run,
and ``sc://HOST:PORT`` is one that sees this machine's files and has this package.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from helpers import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


REMOTE = os.environ.get("MQSTORE_SPARK_REMOTE", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Passes over sockets and files that Spark's own client leaves open before 4.2."""
    import pyspark

    if pyspark.__version__.startswith("4.1."):
        for item in items:
            for what in (":ResourceWarning", ":pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{what}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores, nothing of which is seen outside of this machine."""
    from pyspark.sql import SparkSession

    home = os.environ.get("JAVA_HOME")
    if (shutil.which("java") if home is None else shutil.which("java", path=f"{home}/bin")) is None:
        pytest.skip("[java] Spark needs a JDK 17 (Debian: apt install openjdk-17-jdk-headless)")
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.log.level": "ERROR",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers find the package of this environment, wherever it is installed from.
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        builder = SparkSession.builder.appName("mqstore tests")
        if REMOTE == "local":
            builder = builder.remote("local[2]").config(map=settings | _server(patch))
        elif REMOTE:
            builder = builder.remote(REMOTE).config("spark.sql.session.timeZone", "UTC")
        else:
            builder = builder.master("local[2]").config(map=settings)
        session = builder.getOrCreate()
        assert (".connect." in type(session).__module__) == bool(REMOTE)
        yield session
        session.stop()


def _server(patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings of a Connect server at a free port, which its client is told."""
    from pyspark.sql.connect.client import core

    if not hasattr(core, "DefaultChannelBuilder"):
        raise pytest.UsageError("MQSTORE_SPARK_REMOTE=local needs Spark 4; give sc://HOST:PORT")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    patch.setenv("MQSTORE_SPARK_REMOTE", f"sc://localhost:{port}")
    patch.setattr(core.DefaultChannelBuilder, "default_port", staticmethod(lambda: port))
    return {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
