"""A store's own heavy work on a cluster: checking stores, and making queues and index again.

Each task calls the same function that one machine calls, so that what comes out is the same. A task
sees the store under the path that the driver has.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

import mqstore
from mqstore.errors import ConfigError, MessageNotFoundError
from mqstore.results import VerifyReport
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.plan import find_stores
from mqstore.spark.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from mqstore.config import ConfigLike
    from mqstore.upkeep_results import RebuildReport

__all__ = ["rebuild", "verify"]


def verify(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    level: Literal["quick", "full"] = "full",
    threads: int = 1,
    config: ConfigLike = None,
) -> VerifyReport:
    """Checks many stores at once, a task for each.

    Args:
        spark: The session.
        paths: Directories of stores or globs of them, one or several.
        level: As for ``mqstore.verify``.
        threads: Threads of a task, for few large stores; ``spark.task.cpus`` should be the same.
        config: As for ``mqstore.open``.

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
    stores = [one.path for one in find_stores(ReadOptions.parse(as_texts(paths, {})))]

    def check(path: str) -> VerifyReport:
        return mqstore.verify(path, level=level, threads=threads, config=config)

    reports: list[VerifyReport] = _each(spark, check, stores)
    counts: dict[str, int] = {}
    for report in reports:
        for name, count in report.counts.items():
            counts[name] = counts.get(name, 0) + count
    findings = tuple(
        dataclasses.replace(finding, path=str(Path(report.path) / finding.path))
        for report in sorted(reports, key=lambda one: one.path)
        for finding in report.findings
    )
    ok = all(report.ok for report in reports)
    return VerifyReport(", ".join(stores), level, ok, findings, counts)


def rebuild(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    what: Iterable[str] = ("consumequeue", "index"),
    *,
    config: ConfigLike = None,
) -> list[RebuildReport]:
    """Makes queues and index again: a task for each group of topics, one for the index.

    The store is only read. What is made is byte for byte what ``mqstore.rebuild`` makes.

    Args:
        spark: The session.
        path: The store.
        out: A directory that is empty or not there, which every worker reaches under this name.
        what: ``"consumequeue"``, ``"index"`` or both.
        config: As for ``mqstore.open``.

    Returns:
        What each task did.

    Raises:
        ConfigError: Something else in `what`, or an `out` that is not empty.
        NotAStoreError: `path` is no store.
        pyspark.errors.PythonException: A task failed; `out` is left empty.

    Examples:
        >>> rebuild(spark, "/data/a/store", "/data/a/rebuilt")  # doctest: +SKIP
    """
    wanted = {what} if isinstance(what, str) else set(what)
    unknown = wanted - {"consumequeue", "index"}
    if unknown or not wanted:
        raise ConfigError(f"what is consumequeue, index or both, not {sorted(unknown)}", "what")
    store = find_stores(ReadOptions.parse(as_texts(path, {})))[0].path
    target = Path(out).absolute()
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise ConfigError(f"{target} is not empty; queues and index are made in a new place", "out")
    works: list[tuple[str, list[str]]] = []
    if "index" in wanted:
        works.append(("index", []))
    if "consumequeue" in wanted:
        works += [("consumequeue", group) for group in _groups(spark, store)]
    staging = Staging(str(target), config)

    def make(work: tuple[int, tuple[str, list[str]]]) -> tuple[str, RebuildReport] | None:
        number, (kind, topics) = work
        place = staging.root / f"{number}.{os.urandom(8).hex()}"
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            report = mqstore.rebuild(
                store, what=[kind], topics=topics or None, out=place, threads=1, config=config
            )
        except MessageNotFoundError:
            # A folder of queues that never had a message.
            return None
        return str(place), report

    try:
        results = _each(spark, make, list(enumerate(works)))
        made: list[tuple[str, RebuildReport]] = [one for one in results if one is not None]
        for place, _ in made:
            _merge(Path(place), target)
    finally:
        shutil.rmtree(staging.root, ignore_errors=True)
    return [report for _, report in made]


def _groups(spark: SparkSession, store: str) -> list[list[str]]:
    """The topics of a log, light queues too, in as many groups as there are slots."""
    from mqstore.spark import read

    frame = read(spark, store, columns=["topic", "properties"])
    light = F.explode_outer(F.split(F.col("properties")["INNER_MULTI_DISPATCH"], ","))
    rows = frame.select("topic", light.alias("light")).distinct().collect()
    topics = {row["topic"] for row in rows}
    topics |= {row["light"] for row in rows if (row["light"] or "").startswith("%LMQ%")}
    slots = spark.sparkContext.defaultParallelism
    groups: list[list[str]] = [[] for _ in range(min(slots, len(topics)))]
    for topic in sorted(topics):
        groups[zlib.crc32(topic.encode()) % len(groups)].append(topic)
    # Queues whose messages are all gone keep their place.
    queues = Path(store) / "consumequeue"
    old = {one.name for one in queues.iterdir() if one.is_dir()} if queues.is_dir() else set()
    return [group for group in groups if group] + [[topic] for topic in sorted(old - topics)]


def _merge(made: Path, target: Path) -> None:
    """Moves what a task made to where it belongs."""
    for folder in made.iterdir():
        if not folder.is_dir():
            folder.rename(target / folder.name)
            continue
        (target / folder.name).mkdir(exist_ok=True)
        for one in folder.iterdir():
            one.rename(target / folder.name / one.name)


def _each(spark: SparkSession, work: Callable[..., object], items: Sequence[object]) -> list[Any]:
    """What a function gives for each of some items, a task each."""

    def run(given: pa.Array) -> pa.Array:
        return pa.array([pickle.dumps(work(pickle.loads(one.as_py()))) for one in given])  # noqa: S301 - our own

    run.__annotations__ = {"given": pa.Array, "return": pa.Array}
    # Spark's stub wants the kind of function that it finds out from the hints.
    udf = arrow_udf(run, BinaryType())  # type: ignore[call-overload]
    rows = [(number, pickle.dumps(item)) for number, item in enumerate(items)]
    frame = spark.createDataFrame(rows, "number int, item binary")
    # A number a partition: rows of one hash would share a task.
    spread = frame.repartitionByRange(len(items), "number")
    done = spread.select(udf("item").alias("result")).collect()
    return [pickle.loads(row["result"]) for row in done]  # noqa: S301 - our own
