"""Rebuilds queues and index in a task, with the code of ``mqstore.rebuild``.

The task opens the store, and writes below the folder, under the paths that the driver has.
"""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import mqstore
from mqstore.errors import ConfigError, NotAStoreError
from mqstore.files.durable import sync
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.staging import Staging
from mqstore.spark.stores import find_stores
from mqstore.spark.tasks import each
from mqstore.store import is_backup

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from mqstore.config import ConfigLike
    from mqstore.results.upkeep import RebuildReport


def rebuild(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    what: Iterable[str] = ("consumequeue", "index"),
    *,
    config: ConfigLike = None,
) -> RebuildReport:
    """Rebuilds queues and index of a store on a worker, in one task with a thread a processor.

    The store is only read. The files are byte for byte those of ``mqstore.rebuild``.

    Args:
        spark: The session.
        path: The store.
        out: A directory that is empty or not there, which every worker reaches under this name.
        what: ``"consumequeue"``, ``"index"`` or both.
        config: As for ``mqstore.open``.

    Returns:
        The report of ``mqstore.rebuild``.

    Raises:
        ConfigError: Something else in `what`, or an `out` that is not empty.
        NotAStoreError: `path` is no store.
        pyspark.errors.PythonException: The task failed; `out` is left empty.

    Examples:
        >>> rebuild(spark, "/data/a/store", "/data/a/rebuilt").index_files  # doctest: +SKIP
        3
    """
    wanted = (what,) if isinstance(what, str) else tuple(dict.fromkeys(what))
    unknown = set(wanted) - {"consumequeue", "index"}
    if unknown or not wanted:
        raise ConfigError(
            f"what: expected consumequeue, index or both, got {sorted(unknown)}", "what"
        )
    store = find_stores(ReadOptions.parse(as_texts(path, {})))[0].path
    if is_backup(store):
        reason = "a backup; restore it to a folder, and rebuild it there"
        raise NotAStoreError(f"{store}: not a store: {reason}", store, reason)
    target = Path(out).absolute()
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise ConfigError(f"{target} is not empty; queues and index are made in a new place", "out")
    staging = Staging(str(target))

    def make(store: str) -> RebuildReport:
        # Spark may run a task twice, so each attempt has a folder of its own.
        place = staging.root / uuid.uuid4().hex
        place.mkdir(parents=True)
        return mqstore.rebuild(store, what=wanted, out=place, config=config)

    try:
        (report,) = each(spark, make, [store])
        for folder in Path(report.out or "").iterdir():
            folder.rename(target / folder.name)
        sync(target)
    finally:
        staging.discard()
    return dataclasses.replace(report, out=str(target))
