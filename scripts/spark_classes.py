"""Writes the classes of Spark as a JVM maps them: a session with them starts in half the time.

``scripts/spark_classes.py FILE`` runs one session, whose classes go to FILE. Another JVM, or one
with another class path, ignores the file.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable -Xlog:all=off"


def work(spark: SparkSession, folder: Path) -> None:
    """Runs what most tests run: a batch, a stream, files, Python's workers."""
    rows = spark.range(100).selectExpr("id % 7 AS k", "cast(id AS string) AS v", "id")
    rows.groupBy("k").count().orderBy("k").write.parquet(str(folder / "table"))
    read = spark.read.parquet(str(folder / "table"))
    read.join(rows, "k").select(udf(str)("v").alias("v")).collect()
    stream = spark.readStream.schema(read.schema).parquet(str(folder / "table"))
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "copy")).awaitTermination(60)


def main(target: Path) -> None:
    """Runs the session, and waits for the end of its JVM, which writes the file."""
    folder = Path(tempfile.mkdtemp())
    written = target.with_name(f"{target.name}.{os.getpid()}")
    os.environ |= {
        "SPARK_SUBMIT_OPTS": f"{OPTIONS} -XX:ArchiveClassesAtExit={written}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    try:
        spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
        work(spark, folder)
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - its process is kept nowhere else
        spark.stop()
        if gateway is None:
            raise SystemExit("the session has no JVM of its own")
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(600)
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
