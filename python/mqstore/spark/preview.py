"""A dry run of a pipeline, without a session and without writing anything."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore.spark.books import Books, check_books, purpose_of
from mqstore.spark.ingest import PipelineConfig
from mqstore.spark.options import ReadOptions
from mqstore.spark.progress import Progress
from mqstore.spark.stream import ID, check_limits, places
from mqstore.spark.target import check_target

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from mqstore.spark.progress import Offset


def preview(
    config: str | os.PathLike[str] | Mapping[str, object], spark: SparkSession | None = None
) -> dict[str, Any]:
    """Tells what ``pipeline`` would read and where it would write it.

    Args:
        config: As for ``pipeline``.
        spark: A session, to check what only it knows: jars, catalogs, tables elsewhere.

    Returns:
        ``stores``: broker, directory, physical offsets ``from`` and ``to``, ``bytes`` between them;
        ``begins``: ``checkpoint``, ``books`` (the checkpoint is lost), ``beginning``, or
        ``unknown`` where the checkpoint is not in a folder of this machine; ``tables``, ``format``,
        ``partition_by``, ``options`` and ``trigger``.

    Raises:
        ConfigError, StoreLockedError: As ``pipeline``.
        NotAStoreError: A path that is no store.
    """
    settings = PipelineConfig.load(config)
    if settings.date_zone == "session":
        zone = settings.spark.get("spark.sql.session.timeZone", "UTC")
        settings = dataclasses.replace(settings, date_zone=zone)
    options = settings.options()
    parsed = ReadOptions.parse(options, streaming=True)
    check_limits(parsed)
    source = Progress(parsed)
    check_target(settings, spark)
    if (spark is not None or "://" not in settings.books) and (
        last := Books(settings.books).last(spark)
    ):
        check_books(last, purpose_of(parsed, settings.layout(parsed)), settings)
    reaches = source.reaches()
    begins, start = _begins(settings, source)
    stores = []
    for broker, reach in reaches.items():
        at = None if start is None else start.get(broker, reach.begin)
        stores.append(
            {
                "broker": broker,
                "store": reach.store.path,
                "from": at,
                "to": reach.end,
                "bytes": None if at is None else max(reach.end - at, 0),
            }
        )
    names = ("messages", "quarantine", "metrics")
    trigger = settings.interval or "at once"
    return {
        "begins": begins,
        "stores": stores,
        "gone": sorted((start or {}).keys() - reaches.keys()),
        "tables": {name: settings.place(name).name for name in names},
        "format": settings.format,
        "partition_by": list(settings.partition_by),
        "checkpoint": settings.checkpoint,
        "books": settings.books,
        "trigger": "available now" if settings.available_now else trigger,
        "options": {name: text for name, text in options.items() if name != "columns"},
    }


def _begins(settings: PipelineConfig, source: Progress) -> tuple[str, Offset | None]:
    """Where the pipeline would go on, and who says so."""
    if "://" in settings.checkpoint:
        return "unknown", None
    folder = Path(settings.checkpoint.removeprefix("file:"))
    if (folder / "metadata").exists():
        done = [int(path.name) for path in (folder / "commits").glob("[0-9]*")]
        if not done:
            return "checkpoint", source.first()
        text = (folder / "offsets" / str(max(done))).read_text(encoding="utf-8")
        mark = json.loads(text.splitlines()[-1])
        return "checkpoint", source.same_stores(places(mark), mark.get(ID, {}))
    last = Books(settings.books).last()
    if last is None:
        return "beginning", source.first()
    source.same_stores(last.end, last.marks or {})
    return "books", last.start
