"""``pipeline``: continuous ingest of stores into tables, with Spark."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mqstore.cli import shared
from mqstore.cli.options import flag, output_options, several
from mqstore.cli.output import Column, Lines, Output, columns, note, table_lines, to_json
from mqstore.errors import StoreError, needs
from mqstore.files.durable import new_file
from mqstore.text import count_text, escape, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

_SUMS = ("messages", "bytes", "damaged_ranges", "lag_bytes")
_COLUMNS = columns("broker", *(Column(name, right=True) for name in _SUMS))
_STORES = columns(
    "broker", "store", *(Column(name, right=True) for name in ("from", "to", "bytes"))
)


@click.command("pipeline", short_help="Bring stores into Parquet, Delta or Iceberg, with Spark.")
@click.argument("file", metavar="FILE.toml", type=click.Path(exists=True, dir_okay=False))
@several(
    "--retire",
    "BROKER",
    "Take a broker out of the checkpoint whose store is gone for good. May be repeated.",
)
@flag("--dry-run", "Show what would be read and written, and end.")
@flag("--compact", "Join the Parquet files of days that are over; end.")
@flag("--migrate", "Take over changes of topics, tags, keys and columns, from the next batch on.")
@flag("--quiet", "Write no line for each batch to standard error.")
@shared.health("Write how the pipeline is to FILE, as JSON, every 10 seconds.")
@output_options
def pipeline_command(
    output: Output,
    file: str,
    retire: tuple[str, ...],
    *,
    dry_run: bool,
    compact: bool,
    migrate: bool,
    quiet: bool,
    health: Path | None,
) -> int:
    """Bring the messages of stores into Parquet, Delta or Iceberg tables, and go on as they come.

    FILE.toml says which stores, where to, and how often; docs/spark-jobs.md shows one. It can be
    killed at any moment and started again: each message is in each table once. Ctrl-C ends it
    behind the batch that runs. With --jsonl each batch is a line.

    Examples:
        mqstore pipeline ingest.toml --dry-run
        mqstore pipeline ingest.toml --jsonl --health /run/ingest.json
    """
    with needs("spark"):
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        from mqstore.spark import pipeline
        from mqstore.spark.compacting import compact as join
        from mqstore.spark.failures import PySparkException, jvm_end, reason, sentence
        from mqstore.spark.ingest import PipelineConfig
        from mqstore.spark.session import start_session
        from mqstore.spark.target import TargetLock, free_ended
    if dry_run:
        _preview(output, file)
        return 0
    reports = _Reports(output, None if compact else health, is_quiet=quiet)
    try:
        config = PipelineConfig.load(file)
        spark = start_session({**_SETTINGS, **config.spark})
        try:
            if compact:
                count = join(spark, file)
                output.document({"joined": count}, lambda: [f"{count} folders of batches joined"])
                return 0
            query = pipeline(spark, file, retire=retire, migrate=migrate, progress=reports.add)
            _wait(query, reports)
        except Exception as error:
            free_ended(TargetLock(config.books).path)
            if reason(error) == "JVM gone" and (end := jvm_end(spark)) is not None:
                raise StoreError(f"{end}; run the pipeline again: no batch is lost") from None
            if isinstance(error, Py4JError):
                raise StoreError(sentence(error)) from None
            raise
        finally:
            with suppress(Exception):  # its JVM may be gone
                spark.stop()
    except (PySparkException, StoreError, OSError) as error:
        reports.write_health("failed", reason=reason(error), error=sentence(error))
        if isinstance(error, PySparkException):
            raise StoreError(sentence(error)) from None
        raise
    rows = list(reports.totals.values())
    if output.form != "jsonl":
        output.document({"brokers": rows}, lambda: table_lines(rows, _COLUMNS))
    return 0


_HEALTH_S = 10


def _wait(query: StreamingQuery, reports: _Reports) -> None:
    """Waits for the end of a pipeline, or ends it at Ctrl-C."""
    try:
        reports.write_health("running")
        while not query.awaitTermination(_HEALTH_S):
            reports.write_health("running")
    except KeyboardInterrupt:
        query.stop()
    reports.write_health("ended")


class _Reports:
    """Reports of a running pipeline: lines, totals, the health file."""

    def __init__(self, output: Output, health: Path | None, *, is_quiet: bool) -> None:
        self.note = (lambda _: None) if is_quiet else note
        self.output = output
        self.health = health
        self.totals: dict[str, dict[str, int]] = {}
        self.last: Mapping[str, object] | None = None

    def add(self, event: Mapping[str, object]) -> None:
        brokers = event.get("brokers")
        if not isinstance(brokers, list):
            self.note(f"batch {event['batch']}: {event['state']}")
            return
        for row in brokers:
            _add(self.totals, row)
        sums = {name: sum(row[name] for row in brokers) for name in _SUMS}
        self.note(
            f"batch {event['batch']}: done, {count_text(sums['messages'])} messages, "
            f"{size_text(sums['lag_bytes'])} behind"
        )
        self.last = {**event, **sums, "time": _now()}
        if self.output.form == "jsonl":
            self.output.line(to_json(self.last))
            self.output.flush()

    def write_health(self, state: str, **more: object) -> None:
        """Replaces the health file, so that a reader sees a whole one."""
        if self.health is None:
            return
        text = to_json({"state": state, "time": _now(), "last_batch": self.last, **more})
        with new_file(self.health, overwrite=True) as new:
            new.write_text(text + "\n", encoding="utf-8")


def _preview(output: Output, file: str) -> None:
    """Shows a dry run; a session is started only where it alone knows the target."""
    from mqstore.spark.ingest import PipelineConfig, preview
    from mqstore.spark.session import start_session
    from mqstore.spark.target import needs_session

    config = PipelineConfig.load(file)
    spark = start_session({**_SETTINGS, **config.spark}) if needs_session(config) else None
    try:
        _show(output, preview(file, spark))
    finally:
        if spark is not None:
            spark.stop()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _show(output: Output, plan: Mapping[str, Any]) -> None:
    def lines() -> Lines:
        yield from table_lines(plan["stores"], _STORES)
        yield ""
        for name, value in [("begins", plan["begins"]), *plan["tables"].items()]:
            yield f"{name:12} {escape(str(value))}"
        for name in ("format", "partition_by", "checkpoint", "trigger", "gone"):
            value = plan[name]
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            if shown:
                yield f"{name:12} {escape(shown)}"
        yield "nothing was read into tables or written"

    output.document(plan, lines)


def _add(totals: dict[str, dict[str, int]], row: Mapping[str, int]) -> None:
    begin = {"broker": row["broker"], **dict.fromkeys(_SUMS, 0)}
    broker = totals.setdefault(str(row["broker"]), begin)
    for name in ("messages", "bytes", "damaged_ranges"):
        broker[name] += row[name]
    broker["lag_bytes"] = row["lag_bytes"]


_SETTINGS = {
    "spark.app.name": "mqstore pipeline",
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark logs an error as a traceback; the command says it in a sentence.
    "spark.log.level": "FATAL",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
}
