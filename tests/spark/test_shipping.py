"""The package reaches workers that do not have it, as docs/spark.md shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

import mqstore
from helpers import environment
from helpers.stores import TINY, message

# What Spark's workers need of their own, and what mqstore needs beside itself.
INSTALLED = ("pyspark", "py4j", "pyarrow", "msgspec", "click", "javaproperties")

PROGRAM = """
import sys
import mqstore.spark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

root, archive = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[1,1,512]").config(map={
    "spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.task.maxFailures": "1", "spark.executorEnv.PYTHONPATH": "shipped",
})
spark = builder.getOrCreate()
frame = mqstore.spark.read(spark, root, engine="arrow", columns=["body"])
try:
    frame.collect()
except PySparkException as error:
    line = next(line for line in str(error).splitlines() if "has no mqstore" in line)
    print(line.strip())
spark.stop()
spark = builder.config("spark.archives", archive + "#shipped").getOrCreate()
print(mqstore.spark.read(spark, root, engine="arrow", columns=["body"]).count(), "rows")
spark.stop()
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python of its own with Spark and pyarrow, and without mqstore."""
    venv.create(tmp_path / "worker", symlinks=True)
    (packages,) = (tmp_path / "worker" / "lib").glob("python*/site-packages")
    for name in INSTALLED:
        spec = find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        origin = Path(spec.origin)
        of = origin.parent if origin.name == "__init__.py" else origin
        (packages / of.name).symlink_to(of)
        for libs in of.parent.glob(f"{name}.libs"):
            (packages / libs.name).symlink_to(libs)
    return tmp_path / "worker" / "bin" / "python"


def test_a_worker_without_the_package_gets_it_as_an_archive(tmp_path: Path, bare: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("[java] Spark needs a JDK 17 (Debian: apt install openjdk-17-jdk-headless)")
    root = tmp_path / "store-a"
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(20)])
    # A wheel is an archive of the package under another name.
    package = Path(mqstore.__file__).parent
    shutil.copytree(package, tmp_path / "wheel" / "mqstore", ignore=shutil.ignore_patterns("*.pyc"))
    archive = shutil.make_archive(str(tmp_path / "mqstore"), "zip", tmp_path / "wheel")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    # The executors of this cluster have the driver's environment.
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", root, archive],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=env | {"PYSPARK_PYTHON": str(bare), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told, rows = done.stdout.splitlines()[-2:]
    assert f", {bare} (Python " in told
    assert f"the driver has mqstore {mqstore.__version__} with Python" in told
    assert rows == "20 rows"
