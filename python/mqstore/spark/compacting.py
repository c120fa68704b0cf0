"""Fewer and larger Parquet files for the days of a pipeline's table that are over."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from mqstore.errors import StoreError, StoreLockedError, UnsupportedError, io_errors
from mqstore.files.durable import sync
from mqstore.spark.books import Books
from mqstore.spark.ingest import PipelineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_STAGED, _READY = "_compacting", "_compacted"
_LIST = "_replaces.json"


def compact(
    spark: SparkSession,
    config: str | os.PathLike[str] | Mapping[str, object],
    *,
    before: dt.date | None = None,
) -> int:
    """Joins the batches of days that are over, in a table of Parquet files.

    The pipeline may run meanwhile. A compaction that is killed is finished by the next one. While
    it replaces the files of a day a reader may miss some; it never sees a row twice.

    Args:
        spark: The session.
        config: As for ``pipeline``.
        before: The first day (UTC) that is left alone; today if left out.

    Returns:
        How many folders of batches were joined.

    Raises:
        UnsupportedError: The table is no folder of Parquet files on a file system of this machine.
        StoreLockedError: Another compaction of the table runs.
        StoreError: The joined files have other rows or columns than the batches, which then stay.
    """
    settings = PipelineConfig.load(config)
    if settings.format != "parquet" or settings.is_table or "://" in settings.path:
        raise UnsupportedError(
            "compaction is for Parquet files in a folder of this machine; Delta has OPTIMIZE, "
            "Iceberg CALL system.rewrite_data_files",
            "compact",
            settings.path,
        )
    table = Path(settings.path.removeprefix("file:"))
    with _alone(f"{table}_compact_lock"):
        return _compact(spark, settings, table, before or dt.datetime.now(dt.UTC).date())


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Holds a lock that the system frees with its process."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"{path}: another compaction of this table runs; try again when it has ended"
            raise StoreLockedError(text, path) from None
        yield


def _compact(spark: SparkSession, settings: PipelineConfig, table: Path, before: dt.date) -> int:
    last = Books(settings.books).last()
    newest = 0 if last is None else last.number
    joined = 0
    for folder in _leaves(table):
        _finish(folder)
        days = [part.removeprefix("date=") for part in folder.parts if part.startswith("date=")]
        if days and not days[0] < before.isoformat():
            continue
        # The newest batch may come again.
        batches = [one for one in sorted(folder.glob("batch=*")) if _number(one) < newest]
        if len(batches) > 1:
            _join(spark, folder, batches, settings.file_bytes)
            joined += len(batches)
    return joined


def _leaves(table: Path) -> list[Path]:
    """The folders of batches and of joined files, but those whose names hide them."""
    found = []

    def refuse(error: OSError) -> None:
        # A pipeline may remove a folder meanwhile.
        if not isinstance(error, FileNotFoundError) or Path(error.filename) == table:
            raise error

    for folder, names, _ in os.walk(table, onerror=refuse):
        if any(name == _READY or name.startswith("batch=") for name in names):
            found.append(Path(folder))
        names[:] = [name for name in names if not name.startswith(("_", ".", "batch="))]
    return sorted(found)


def _number(batch: Path) -> int:
    return int(batch.name.removeprefix("batch=").split("-")[-1])


def _join(spark: SparkSession, folder: Path, batches: list[Path], file_bytes: int) -> None:
    staged = folder / _STAGED
    shutil.rmtree(staged, ignore_errors=True)
    size = sum(file.stat().st_size for one in batches for file in one.glob("*.parquet"))
    try:
        # Columns may have come with ``--migrate``.
        rows = spark.read.option("mergeSchema", "true").parquet(*map(str, batches))
    except Exception as error:  # py4j's, without a class of its own
        if "CANNOT_MERGE" not in str(error):
            raise
        text = "a column has different types in batches that were to be joined; nothing was removed"
        raise StoreError(f"{folder}: {text}") from None
    files = max(1, -(-size // file_bytes))
    ordered = rows.repartitionByRange(files, "physical_offset").sortWithinPartitions(
        "physical_offset"
    )
    ordered.write.parquet(str(staged))
    held, made = _content(batches), _content([staged])
    if held != made:
        raise StoreError(
            f"{folder}: the joined files have {made[0]} rows and {len(made[1])} columns, their "
            f"batches {held[0]} and {len(held[1])}; nothing was removed"
        )
    (staged / _LIST).write_text(json.dumps([one.name for one in batches]), encoding="utf-8")
    for path in (*staged.iterdir(), staged):
        sync(path)
    staged.rename(folder / _READY)
    sync(folder)
    _finish(folder)


def _content(batches: list[Path]) -> tuple[int, set[str]]:
    """How many rows some folders have, and the names of their columns."""
    files = [pq.read_metadata(file) for one in batches for file in one.glob("*.parquet")]
    columns = {name for file in files for name in file.schema.to_arrow_schema().names}
    return sum(file.num_rows for file in files), columns


def _finish(folder: Path) -> None:
    """Puts joined files in the place of their batches, also after a kill."""
    ready = folder / _READY
    if not ready.exists():
        return
    names = json.loads((ready / _LIST).read_text(encoding="utf-8"))
    for name in names:
        # Beside a batch that stays its rows would be there twice.
        with io_errors("remove", folder / name), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / name)
    first = names[0].removeprefix("batch=").split("-")[0]
    joined = folder / f"batch={first}-{_number(folder / names[-1]):08}"
    if joined.exists():
        # Two compactions at once, before there was a lock, made both; each has the same rows.
        shutil.rmtree(ready)
    else:
        ready.rename(joined)
    sync(folder)
