"""Purpose of a checkpoint, and books of a pipeline, which keep it.

A purpose has the options that decide which rows come, and the layout of the tables. It stands in
the checkpoint of a stream, and in the books of a pipeline or of micro batches. Another purpose
under the same checkpoint would lose rows or mix tables without a word, so it is refused.

Books say which rows the last batch of a pipeline had, apart from Spark's checkpoint. An entry is
written before the batch's rows. So a pipeline that has lost its checkpoint repeats the last batch,
with its number and its rows, and goes on behind it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from mqstore.errors import ConfigError, wrong_setting
from mqstore.spark.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from mqstore.spark.ingest import PipelineConfig
    from mqstore.spark.options import ReadOptions
    from mqstore.spark.progress import Marks, QueueStarts

Purpose = dict[str, Any]
"""``version``, ``layout`` of a pipeline, and each option that is not at its default."""
_VERSION = 1
_NEW = "begin with a new checkpoint"
_SAFE = frozenset(
    f"option {name}" for name in ("topics", "topicPattern", "queues", "tags", "keys", "include")
)
_LATER = (
    "or run the pipeline once with --migrate (migrate=True): then the change counts from the next "
    "batch on, and rows that are there stay as they are"
)
_LOGS = ("offsets", "commits")


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch.

    Attributes:
        pipeline: Id of the pipeline, for as long as its tables live.
        number: The batch's number in the tables.
        query: Id of Spark's checkpoint.
        batch: The batch's number in that checkpoint.
        start: Where it begins, by broker.
        end: Where it ends.
        marks: Records before the end, by broker; ``None`` in books that were made before these were
            kept.
        of: Purpose of the pipeline, likewise.
        earlier: The purpose that ``migrate`` changed.
        queues: Where queues of the first batch begin; ``None`` in books that were made before.
        written: How many entries were written before it, of which the books keep the newest two.
    """

    pipeline: str
    number: int
    query: str
    batch: int
    start: dict[str, int]
    end: dict[str, int]
    marks: Marks | None = None
    of: Purpose | None = None
    earlier: Purpose | None = None
    queues: QueueStarts | None = None
    written: int = 0


@dataclass(frozen=True, slots=True)
class Books:
    """The folder of the books, on any file system that Spark has.

    Attributes:
        folder: Path or URL.
    """

    folder: str

    def last(self, spark: SparkSession | None = None) -> Entry | None:
        """The newest entry.

        Args:
            spark: The session; without one a folder of this machine is read.

        Raises:
            ConfigError: The folder has something else.
        """
        if spark is None:
            pages = Path(self.folder.removeprefix("file:")).glob("slot=*/part-*")
            lines = [line for page in pages for line in page.read_text("utf-8").splitlines()]
        else:
            lines = read_lines(spark, self.folder)
        try:
            rows = [json.loads(line) for line in lines]
            # Books were sorted by the batch's number before.
            entries = [Entry(**{"written": row["number"], **row}) for row in rows]
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"{self.folder}: not of a pipeline: {error}", "books") from None
        return max(entries, key=lambda entry: entry.written, default=None)

    def write(self, spark: SparkSession, entry: Entry, last: Entry | None) -> None:
        """Writes an entry; the last one stays: Spark empties the folder before it writes."""
        entry = dataclasses.replace(entry, written=0 if last is None else last.written + 1)
        line = json.dumps(dataclasses.asdict(entry))
        write_line(spark, f"{self.folder}/slot={entry.written % 2}", line)


def read_lines(spark: SparkSession, folder: str) -> list[str]:
    """Lines in a folder, on any file system that Spark has; none if the folder is not there."""
    try:
        return [row["value"] for row in spark.read.text(folder).collect()]
    except AnalysisException:
        return []


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id that a query keeps over restarts, from its checkpoint; ``None`` without one.

    Raises:
        ConfigError: The checkpoint's metadata are not a query's.
    """
    lines = read_lines(spark, f"{checkpoint}/metadata")
    try:
        return str(json.loads(lines[0])["id"]) if lines else None
    except (ValueError, LookupError, TypeError):
        found = f"{lines[0][:200]!r} in {checkpoint}/metadata"
        raise wrong_setting("checkpoint", "the id of a query", found) from None


def write_line(spark: SparkSession, folder: str, line: str) -> None:
    """Replaces what a folder has by one line."""
    row = spark.createDataFrame([(line,)], "value string")
    row.coalesce(1).write.mode("overwrite").text(folder)


def purpose_of(options: ReadOptions, layout: Mapping[str, Any] | None = None) -> Purpose:
    """The purpose of a checkpoint that a stream makes.

    Args:
        options: Options of the stream.
        layout: Layout of a pipeline's tables; that of the option ``kept`` where left out.
    """
    if layout is None:
        layout = (options.kept or {}).get("layout")
    values = {row.name: getattr(options, row.field) for row in OPTIONS.values() if row.kept}
    defaults = {row.name: row.default for row in OPTIONS.values()}
    given = {
        # The order of names chooses no rows.
        name: sorted(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != defaults[name]
    }
    made = {"version": _VERSION, **given, **({"layout": layout} if layout else {})}
    purpose: Purpose = json.loads(json.dumps(made))
    return purpose


def changed(kept: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """Differences by name: the value before and the value now; a layout's names one by one."""
    before, after = _flat(kept), _flat(now)
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def check_purpose(
    kept: object, now: Mapping[str, Any], where: str, then: str = f"or {_NEW}"
) -> None:
    """Whether a checkpoint is for what is asked of it.

    Args:
        kept: The purpose that the checkpoint has; ``None`` was made before they were kept.
        now: The purpose now.
        where: The checkpoint, for the error.
        then: The other way out, beside the old value.

    Raises:
        ConfigError: Something differs.
    """
    if kept is None:
        return
    if not isinstance(kept, dict) or type(kept.get("version")) is not int:
        raise ConfigError(f"{where}: {str(kept)[:200]} is not of this source", "path")
    if kept["version"] > _VERSION:
        raise ConfigError(
            f"{where} was made by a newer mqstore; nothing was written. Use that one, or {_NEW}",
            "path",
        )
    for name, (before, after) in changed(kept, now).items():
        raise ConfigError(
            f"{name}: {where} was made with {_shown(before)}, and now it is {_shown(after)}; "
            f"nothing was written. Bring the old value back, {then}",
            name,
        )


def _flat(purpose: Mapping[str, Any]) -> dict[str, Any]:
    layout = purpose.get("layout")
    options = {f"option {name}": value for name, value in purpose.items() if name in OPTIONS}
    return options | ({f"[sink] {name}": value for name, value in layout.items()} if layout else {})


def _shown(value: object) -> str:
    return "none" if value is None else json.dumps(value)


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
    earlier = (last.earlier if last.start == last.end else None) or last.of
    return dataclasses.replace(last, start=last.end, of=purpose, earlier=earlier)


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
