"""One Spark session for the whole run, and stores to read with it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from helpers import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


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
        builder = SparkSession.builder.master("local[2]").appName("mqstore tests")
        session = builder.config(map=settings).getOrCreate()
        yield session
        session.stop()
