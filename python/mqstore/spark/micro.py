"""Batches of new messages without streams: for Spark 3.5, and for jobs that run now and then.

A folder keeps the books: ``planned-N.json`` says where batch N begins and ends, and is written
before the batch; ``done-N.json`` is written after it. A batch that is not done is the next one.
Where the first call finds nothing new, batch 0 is empty: it keeps where the next one begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mqstore.errors import ConfigError, StoreError
from mqstore.files.durable import replace
from mqstore.spark.books import check_purpose
from mqstore.spark.mapping import map_parts
from mqstore.spark.options import ReadOptions, as_texts, in_zone_of
from mqstore.spark.plan import plan_name
from mqstore.spark.schema import read_schema
from mqstore.spark.stream import FROM, ID, OF, QUEUES, StreamReader, places

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from mqstore.spark.progress import Offset
    from mqstore.spark.stream import Mark

_PLANNED = re.compile(r"planned-([0-9]{8})\.json")
_KEPT = 100
_KEYS = {FROM: "start", ID: "id", OF: "of", QUEUES: "queues"}
"""Further parts of a stream's mark, by their names in a page."""


def micro_batch(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    write: Callable[[DataFrame, int], object],
    **options: object,
) -> int:
    """Brings the messages that are new since the last call to a sink, batch by batch.

    A batch that was interrupted comes again with the same number and the same rows. So each message
    is in the sink once, if the sink replaces what it has of a batch: a folder for each number, or
    ``txnVersion`` of Delta. A start (``latest``, a time) is resolved by the first call; a first
    call that finds nothing new takes number 0 for it.

    Args:
        spark: The session; Spark 3.5 or newer, classic or Connect.
        paths: Directories of stores or globs of them, one or several.
        folder: Where the books are kept: a local folder, of this job alone; created where missing.
        write: Called with a frame and the batch's number; a batch is done when it returns.
        **options: The options of a stream by their names, as Python values.

    Returns:
        How many batches were written; 0 where nothing is new.

    Raises:
        ConfigError: No such option, or books that are not of this job.
        StoreError: Another process uses the folder.
        OffsetOutOfRangeError: Messages that were to be read are gone.

    Examples:
        >>> def write(frame, number):
        ...     frame.write.mode("overwrite").parquet(f"/lake/batch={number:08}")
        >>> micro_batch(spark, "/data/*/store", "/lake/_books", write)  # doctest: +SKIP
    """
    texts = in_zone_of(spark, as_texts(paths, options))
    parsed = ReadOptions.parse(texts, streaming=True)
    schema = read_schema(parsed)
    reader = StreamReader(parsed, schema.fieldNames())
    count = 0
    with _Books.open(Path(folder)) as books:
        if (last := books.last()) is not None:
            check_purpose(last.end[OF], reader.purpose, str(books.folder), "or name a new folder")
        reader.prepareForTriggerAvailableNow()
        while True:
            batch = books.interrupted() or _next(books, reader)
            if batch is None:
                return count
            parts = reader.partitions(batch.start, batch.end)
            name = plan_name(parts, parsed)
            write(map_parts(spark, reader, parts, schema, name), batch.number)
            books.write("done", batch.number, {})
            count += 1


class _Batch(NamedTuple):
    """A batch that was planned."""

    number: int
    start: Offset
    end: Mark


def _next(books: _Books, reader: StreamReader) -> _Batch | None:
    last = books.last()
    start = reader.initialOffset() if last is None else reader.behind(last.end)
    end = reader.latestOffset(start)
    # A start is resolved once: the first call writes it, even if there is nothing to read yet.
    if places(end) == start and last is not None:
        return None
    number = 0 if last is None else last.number + 1
    page = {"start": start, "end": places(end), "id": end[ID], "queues": reader.queues}
    books.write("planned", number, {**page, "of": reader.purpose})
    return None if places(end) == start else _Batch(number, start, end)


@dataclass(frozen=True)
class _Books:
    """The folder that says which batch is next."""

    folder: Path

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path) -> Iterator[_Books]:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"{folder}: another process is writing batches with it") from None
            yield cls(folder)

    def last(self) -> _Batch | None:
        """The newest batch that was planned."""
        names = [page.name for page in self.folder.iterdir()]
        numbers = [int(m[1]) for m in map(_PLANNED.fullmatch, names) if m]
        if not numbers:
            return None
        path = self._path("planned", max(numbers))
        try:
            page = json.loads(path.read_text(encoding="utf-8"))
            beside = {name: page.get(key) for name, key in _KEYS.items()}
            return _Batch(max(numbers), page["start"], {**page["end"], **beside})
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"{path}: not of a micro batch: {error}", "folder") from None

    def interrupted(self) -> _Batch | None:
        """The newest batch, if it has rows and is not done."""
        last = self.last()
        if last is None or self._path("done", last.number).exists():
            return None
        return None if last.start == places(last.end) else last

    def write(self, kind: str, number: int, content: Mapping[str, object]) -> None:
        """Writes a page, whole and durable; pages of long ago go."""
        replace(self._path(kind, number), json.dumps(content))
        self._path(kind, number - _KEPT).unlink(missing_ok=True)

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:08}.json"
