"""Changes of a pipeline's configuration: refused, or taken over from the next batch on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from mqstore.errors import ConfigError
from mqstore.spark.purpose import changed, check_purpose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqstore.spark.batch_journal import Entry
    from mqstore.spark.ingest import PipelineConfig
    from mqstore.spark.purpose import Purpose

_SAFE = frozenset(
    f"option {name}" for name in ("topics", "topicPattern", "queues", "tags", "keys", "include")
)
_LATER = (
    "or run the pipeline once with --migrate (migrate=True): then the change counts from the next "
    "batch on, and rows that are there stay as they are"
)


def check_books(last: Entry, purpose: Purpose, settings: PipelineConfig) -> None:
    """Refuses a configuration with another purpose than that of the tables.

    Args:
        last: The last entry of the books.
        purpose: The purpose of the configuration.
        settings: The configuration.

    Raises:
        ConfigError: Something differs; the text says whether ``--migrate`` takes it over.
    """
    unsafe = _unsafe(last, purpose, settings)
    then = "or name a new table with a new checkpoint" if unsafe else _LATER
    check_purpose(last.of, purpose, f"the pipeline to {settings.path}", then)


def migrated(last: Entry, purpose: Purpose, settings: PipelineConfig, spark: SparkSession) -> Entry:
    """An entry behind the last one from which on the configuration's purpose counts.

    Args:
        last: The last entry of the books.
        purpose: The purpose of the configuration.
        settings: The configuration.
        spark: The session.

    Raises:
        ConfigError: A change that is not safe, or a batch that has to run without it first.
    """
    if last.of is None or not changed(last.of, purpose):
        return last
    if _unsafe(last, purpose, settings):
        check_books(last, purpose, settings)
    planned, done = (_batches(spark, f"{settings.checkpoint}/{one}") for one in _LOGS)
    if planned - done:
        raise ConfigError(
            f"--migrate: batch {max(planned)} of {settings.checkpoint} is not done; nothing was "
            "written. Run the pipeline once without the change, then with it and --migrate",
            "migrate",
        )
    earlier = last.earlier if last.start == last.end else last.of
    return dataclasses.replace(last, start=last.end, of=purpose, earlier=earlier)


_LOGS = ("offsets", "commits")


def _unsafe(last: Entry, purpose: Purpose, settings: PipelineConfig) -> bool:
    files = settings.format == "parquet" and not settings.is_table
    safe = _SAFE | ({"[sink] columns", "[sink] path"} if files else frozenset())
    return any(name not in safe for name in changed(last.of or {}, purpose))


def _batches(spark: SparkSession, folder: str) -> set[int]:
    """Numbers of the files in a log of Spark's checkpoint."""
    try:
        files = spark.read.format("binaryFile").load(folder).select("path").collect()
    except AnalysisException:
        return set()
    names = [row["path"].rpartition("/")[2] for row in files]
    return {int(name) for name in names if name.isdecimal()}
