"""Books of a pipeline: which rows its last batch had, kept apart from Spark's checkpoint.

An entry is written before the batch's rows. So a pipeline that has lost its checkpoint repeats the
last batch, with its number and its rows, and goes on behind it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from mqstore.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqstore.spark.progress import Marks
    from mqstore.spark.purpose import Purpose


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
            try:
                lines = [row["value"] for row in spark.read.text(self.folder).collect()]
            except AnalysisException:
                return None
        try:
            entries = [Entry(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.folder}: not of a pipeline: {error}", "books") from None
        return max(entries, key=lambda entry: entry.number, default=None)

    def write(self, spark: SparkSession, entry: Entry) -> None:
        """Writes an entry; the one before it stays until the next one."""
        row = spark.createDataFrame([(json.dumps(asdict(entry)),)], "value string")
        row.coalesce(1).write.mode("overwrite").text(f"{self.folder}/slot={entry.number % 2}")
