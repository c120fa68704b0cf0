"""The package reaches workers that do not have it, as docs/spark.md shows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore
import mqstore.spark
from helpers import environment
from helpers.stores import TINY, message
from mqstore.spark.failures import PySparkException, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark's workers need of their own, and what mqstore needs beside itself.
INSTALLED = ("pyspark", "py4j", "pyarrow", "msgspec", "click", "javaproperties")

PROGRAM = """
import sys
import mqstore.spark
from mqstore.spark.failures import PySparkException, sentence
from pyspark.sql import SparkSession

root, archive = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[1,1,512]").config(map={
    "spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.task.maxFailures": "1", "spark.executorEnv.PYTHONPATH": "shipped",
})
spark = builder.getOrCreate()
rows = spark.createDataFrame([("T", b"1")], "topic string, body binary")
for work in (
    lambda: mqstore.spark.read(spark, root, engine="arrow", columns=["body"]).collect(),
    lambda: mqstore.spark.read(spark, root, engine="source", columns=["body"]).collect(),
    lambda: spark.read.format("mqstore").option("columns", "body").load(root).collect(),
    lambda: rows.write.format("mqstore").mode("append").save(root + "-written"),
):
    try:
        work()
    except PySparkException as error:
        print(sentence(error))
spark.stop()
spark = builder.config("spark.archives", archive + "#shipped").getOrCreate()
for engine in ("arrow", "source"):
    print(mqstore.spark.read(spark, root, engine=engine, columns=["body"]).count(), "rows")
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
    # Python has the package where Spark plans; an executor has a `PYTHONPATH` of its own.
    env = environment() | {"PYTHONPATH": str(package.parent), "PYSPARK_PYTHON": str(bare)}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", root, archive],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=env | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *told, by_arrow, by_source = done.stdout.splitlines()
    assert len(told) == 4
    for line in told:
        assert re.match(rf"worker \S+, {bare} \(Python \S+\) has no mqstore ", line)
        assert f"the driver has mqstore {mqstore.__version__} with Python" in line
    assert by_arrow == by_source == "20 rows"


def test_a_python_that_plans_with_another_package_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, version = tmp_path / "a", mqstore.__version__
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message(body=b"%d" % n) for n in range(20)])
    frame = mqstore.spark.read(spark, root)
    config = {
        "source": {"paths": [str(root)], "until": "end"},
        "sink": {"path": str(tmp_path / "lake")},
        "trigger": {"available_now": True},
    }
    works = (
        lambda: mqstore.spark.read(spark, root, engine="source").collect(),
        lambda: mqstore.spark.write_store(frame, tmp_path / "written"),
        lambda: mqstore.spark.pipeline(spark, config).awaitTermination(),
    )
    with monkeypatch.context() as driver:
        driver.setattr(mqstore, "__version__", "0.0.1")
        for work in works:
            with pytest.raises(PySparkException) as caught:
                work()
            has = rf"worker \S+, {sys.executable} \(Python \S+\) has mqstore {version}"
            assert re.match(rf"{has}; the driver has mqstore 0\.0\.1 ", sentence(caught.value))
    for work in works:
        work()
