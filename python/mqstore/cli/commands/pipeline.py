"""``pipeline``: continuous ingest of stores into tables, with Spark."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from mqstore.cli.options import output_options
from mqstore.cli.output import Column, note, table_lines
from mqstore.errors import StoreError
from mqstore.text import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from mqstore.cli.output import Output

_COLUMNS = (
    Column("broker"),
    Column("messages", right=True),
    Column("bytes", right=True),
    Column("damaged_ranges", right=True),
    Column("lag_bytes", right=True),
)


@click.command("pipeline", short_help="Bring stores into Parquet or Delta, with Spark.")
@click.argument("file", metavar="FILE.toml", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--retire",
    metavar="BROKER",
    multiple=True,
    help="Take a broker out of the checkpoint whose store is gone for good. May be repeated.",
)
@output_options
def pipeline_command(output: Output, file: str, retire: tuple[str, ...]) -> int:
    """Bring the messages of stores into Parquet or Delta tables, and go on as they come.

    FILE.toml says which stores, where to, and how often; docs/spark.md shows one. It can be killed
    at any moment and started again: each message is in each table once. Ctrl-C ends it behind the
    batch that runs.
    """
    try:
        from mqstore.spark import pipeline
        from mqstore.spark.ingest import PipelineConfig
        from mqstore.spark.telling import PySparkException, sentence
    except ModuleNotFoundError as error:
        raise click.UsageError(
            f"this needs Spark: pip install 'mqstore[spark]' ({error.name} is not installed)"
        ) from None
    totals: dict[str, dict[str, int]] = {}

    def tell(event: Mapping[str, object]) -> None:
        brokers = event.get("brokers")
        if not isinstance(brokers, list):
            note(f"batch {event['batch']}: {event['state']}")
            return
        for row in brokers:
            _add(totals, row)
        messages = sum(row["messages"] for row in brokers)
        behind = sum(row["lag_bytes"] for row in brokers)
        note(
            f"batch {event['batch']}: done, {count_text(messages)} messages, "
            f"{size_text(behind)} behind"
        )

    config = PipelineConfig.load(file)
    spark = _session(config.spark)
    try:
        query = pipeline(spark, file, retire=retire, progress=tell)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        except PySparkException as error:
            raise StoreError(sentence(error)) from None
    finally:
        spark.stop()
    rows = list(totals.values())
    output.document({"brokers": rows}, lambda: table_lines(rows, _COLUMNS))
    return 0


def _add(totals: dict[str, dict[str, int]], row: Mapping[str, int]) -> None:
    broker = totals.setdefault(
        str(row["broker"]),
        {"broker": row["broker"], "messages": 0, "bytes": 0, "damaged_ranges": 0, "lag_bytes": 0},
    )
    for name in ("messages", "bytes", "damaged_ranges"):
        broker[name] += row[name] or 0
    broker["lag_bytes"] = row["lag_bytes"]


def _session(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # takes a second

    # Workers must find this package: they run the interpreter of the command unless told.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    usual = {
        "spark.app.name": "mqstore pipeline",
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark logs of an error is a traceback; the command says it in a sentence.
        "spark.log.level": "FATAL",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
    }
    session: SparkSession = SparkSession.builder.config(map={**usual, **settings}).getOrCreate()
    return session
