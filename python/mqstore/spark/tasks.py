"""Work of ours as tasks of Spark's: stores checked, one task a store, and rebuilt.

A task opens a store, and writes below a folder, under the paths that the driver has.
"""

from __future__ import annotations

import dataclasses
import pickle
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

import mqstore
from mqstore.errors import ConfigError, NotAStoreError, wrong_setting
from mqstore.files.durable import sync
from mqstore.results import VerifyReport
from mqstore.spark.mapping import map_parts
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.staging import Staging
from mqstore.spark.stores import find_stores
from mqstore.spark.worker_check import Shipped
from mqstore.store import below, is_backup

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from mqstore.care.upkeep import RebuildReport
    from mqstore.config import ConfigLike

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(
    spark: SparkSession, work: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Runs a function on each item, a task each; results in order.

    What the function holds on to travels once to each executor, an item only to its task. A task
    may run twice, so that the function must be one that can.
    """
    if not items:
        return []
    schema = StructType([StructField("result", BinaryType())])
    done = map_parts(spark, _Work(work), list(enumerate(items)), schema).collect()
    results: dict[int, _Result] = dict(pickle.loads(row["result"]) for row in done)  # noqa: S301 - our own
    return [results[number] for number in range(len(items))]


@dataclass(frozen=True)
class _Work(Shipped):
    work: Callable[[Any], object]

    def read(self, part: tuple[int, object]) -> Iterator[pa.RecordBatch]:
        number, item = part
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps((number, self.work(item)))]})


def verify(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    level: Literal["quick", "full"] = "full",
    threads: int = 1,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Checks many stores at once, one task a store.

    Args:
        spark: The session.
        paths: Directories of stores or globs of them, one or several.
        level: As for ``mqstore.verify``.
        threads: Threads of a task; ``spark.task.cpus`` should be the same.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``, for paths that are URLs.

    Returns:
        One report of all: the findings by store, path and offset, their paths absolute; counts
        added up.

    Raises:
        NotAStoreError: A path that is no store, or a glob that no store matches.
        pyspark.errors.PythonException: A store cannot be read; the text names it.

    Examples:
        >>> verify(spark, "/data/*/store").ok  # doctest: +SKIP
        True
    """
    rest = dict(storage_options or {})
    given = {name: rest.pop(name, None) for name in ("at", "snapshot")}
    options = ReadOptions.parse(as_texts(paths, {**given, "storageOptions": rest or None}))

    def check(store: str) -> VerifyReport:
        return mqstore.verify(options.root(store), level=level, threads=threads, config=config)

    stores = [one.path for one in find_stores(options)]
    reports = each(spark, check, stores)
    counts: Counter[str] = Counter()
    for report in reports:
        counts.update(report.counts)
    findings = tuple(
        dataclasses.replace(finding, path=str(below(options.root(report.path), finding.path)))
        for report in sorted(reports, key=lambda one: one.path)
        for finding in report.findings
    )
    is_ok = all(report.ok for report in reports)
    return VerifyReport(", ".join(stores), level, is_ok, findings, dict(counts))


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
        raise wrong_setting("what", "consumequeue, index or both", sorted(unknown))
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
