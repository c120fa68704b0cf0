"""Making queues and index again on a cluster.

First tasks read ranges of the log and put down, below the folder that was asked for, what queues
and index need of it; the driver decides, as one machine would, what of that belongs to the log;
then tasks fill groups of queues, and others an index file each. The bytes are those that
``mqstore.rebuild`` makes, since each task calls the same code. A task sees the store, and the
folder, under the path that the driver has.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore._durable import sync
from mqstore._native import _rebuild_index, _rebuild_queues, _rebuild_scan, _rebuild_settle
from mqstore.errors import ConfigError
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.staging import Staging
from mqstore.spark.stores import find_stores, log_files
from mqstore.spark.tasks import TASKS_PER_SLOT, each, slots
from mqstore.store import _settings
from mqstore.upkeep_results import RebuildReport, RebuiltQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from mqstore.config import ConfigLike

__all__ = ["rebuild"]

_RANGE_BYTES = 128 << 20
"""Bytes of the log that a task reads; it keeps what queues and index need of them in memory."""


def rebuild(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    what: Iterable[str] = ("consumequeue", "index"),
    *,
    config: ConfigLike = None,
) -> RebuildReport:
    """Makes queues and index again, the log read and the files made by many tasks.

    The store is only read. What is made is byte for byte what ``mqstore.rebuild`` makes. While it
    runs, `out` takes about a tenth of the log's bytes for small messages, less for large ones.

    Args:
        spark: The session.
        path: The store.
        out: A directory that is empty or not there, which every worker reaches under this name.
        what: ``"consumequeue"``, ``"index"`` or both.
        config: As for ``mqstore.open``.

    Returns:
        What ``mqstore.rebuild`` reports.

    Raises:
        ConfigError: Something else in `what`, or an `out` that is not empty.
        NotAStoreError: `path` is no store.
        pyspark.errors.PythonException: A task failed; `out` is left empty.

    Examples:
        >>> rebuild(spark, "/data/a/store", "/data/a/rebuilt").index_files  # doctest: +SKIP
        3
    """
    wanted = (what,) if isinstance(what, str) else tuple(dict.fromkeys(what))
    unknown = set(wanted) - {"consumequeue", "index"}
    if unknown or not wanted:
        raise ConfigError(f"what is consumequeue, index or both, not {sorted(unknown)}", "what")
    store = find_stores(ReadOptions.parse(as_texts(path, {})))[0].path
    target = Path(out).absolute()
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise ConfigError(f"{target} is not empty; queues and index are made in a new place", "out")
    staging = Staging(str(target)).root
    try:
        spills = staging / "spills"
        spills.mkdir(parents=True)
        report, made = _make(spark, store, staging, spills, wanted, config)
        for place in made:
            _merge(place, target)
        if "index" in wanted:
            (target / "index").mkdir(exist_ok=True)
        sync(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return report


def _make(
    spark: SparkSession,
    store: str,
    staging: Path,
    spills: Path,
    wanted: tuple[str, ...],
    config: ConfigLike,
) -> tuple[RebuildReport, list[Path]]:
    """Makes everything in folders of its tasks; what is to be moved, and what was done."""
    settings = _settings(config)
    groups = TASKS_PER_SLOT * slots(spark)
    now_ms = time.time_ns() // 1_000_000

    def scan(part: tuple[int, int]) -> bytes:
        begin, end = part
        return _rebuild_scan(
            store,
            begin=begin,
            end=end,
            groups=groups,
            # An attempt that runs again writes a file of its own.
            spill=spills / f"{begin:020}.{os.urandom(8).hex()}",
            what=wanted,
            settings=settings,
        )

    ranges = [
        (at, min(at + _RANGE_BYTES, base + size))
        for base, size in log_files(store, config)
        for at in range(base, base + size, _RANGE_BYTES)
    ]
    plan, fields = _rebuild_settle(
        store,
        scans=each(spark, scan, ranges),
        end=ranges[-1][1] if ranges else 0,
        groups=groups,
        spill=spills / "again",
        what=wanted,
        settings=settings,
    )

    def make(work: tuple[str, int]) -> tuple[str, list[RebuiltQueue], list[tuple[str, int]], int]:
        kind, number = work
        place = staging / f"{kind}-{number}.{os.urandom(8).hex()}"
        if kind == "index":
            folder = place / "index"
            folder.mkdir(parents=True)
            _rebuild_index(
                store,
                plan=plan,
                number=number,
                # Names are times, and tell the order.
                now_ms=now_ms + number,
                spills=spills,
                out=folder,
                settings=settings,
            )
            return str(place), [], [], 0
        place.mkdir(parents=True)
        rows, kept, refused = _rebuild_queues(
            store,
            plan=plan,
            group=number,
            groups=groups,
            spills=spills,
            out=place,
            settings=settings,
        )
        return str(place), [RebuiltQueue(*row) for row in rows], kept, refused

    works = [("index", number) for number in range(fields["index_files"])]
    if "consumequeue" in wanted:
        works += [("queues", group) for group in range(groups)]
    results = each(spark, make, works)
    queues = [queue for _, made, _, _ in results for queue in made]
    report = RebuildReport(
        path=store,
        what=wanted,
        applied=True,
        out=str(staging.parent),
        messages=fields["messages"],
        log_start=fields["log_start"],
        log_end=fields["log_end"],
        damaged=tuple(fields["damaged"]),
        queues=tuple(sorted(queues, key=lambda one: (one.topic.encode(), one.queue_id))),
        kept=tuple(sorted(one for _, _, kept, _ in results for one in kept)),
        index_files=fields["index_files"],
        index_keys=fields["index_keys"],
        refused=sum(refused for _, _, _, refused in results),
        left_out=fields["left_out"],
    )
    return report, [Path(place) for place, *_ in results]


def _merge(made: Path, target: Path) -> None:
    """Moves what a task made to where it belongs: index files, or the folders of queues."""
    for kind in made.iterdir():
        (target / kind.name).mkdir(exist_ok=True)
        for one in kind.iterdir():
            place = target / kind.name / one.name
            if one.is_dir():
                place.mkdir(exist_ok=True)
                for queue in one.iterdir():
                    queue.rename(place / queue.name)
                sync(place)
            else:
                one.rename(place)
        sync(target / kind.name)
