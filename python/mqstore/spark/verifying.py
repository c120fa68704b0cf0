"""Checking stores on a cluster: queues, index and the files of the log in tasks of their own.

First the tasks read shares of the queues and index files by themselves; then others walk the files
of the log and hold each message against what was seen; at last one task for each store puts the
parts together. What comes out is what ``mqstore.verify`` finds, since each task calls the same
code. A task sees a store under the path that the driver has.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mqstore._native import _verify_join, _verify_log, _verify_structures
from mqstore.results import Finding, VerifyReport
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.stores import find_stores, log_files
from mqstore.spark.tasks import TASKS_PER_SLOT, each, slots
from mqstore.store import _settings

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from mqstore.config import ConfigLike

__all__ = ["verify"]

_FILES_PER_SHARE = 8
"""For so many files of a log, one more task reads queues and index: they are far smaller."""
_INT64_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class _Share:
    """One task's part of a check.

    Attributes:
        store: The store.
        begin: Its share's number, or the first physical offset.
        end: How many shares there are, or one past the last.
    """

    store: str
    begin: int
    end: int


def verify(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    level: Literal["quick", "full"] = "full",
    threads: int = 1,
    config: ConfigLike = None,
) -> VerifyReport:
    """Checks many stores at once, the files of their logs in tasks of their own.

    Args:
        spark: The session.
        paths: Directories of stores or globs of them, one or several.
        level: As for ``mqstore.verify``.
        threads: Threads of a task; ``spark.task.cpus`` should be the same.
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
    settings = _settings(config)
    stores = [one.path for one in find_stores(ReadOptions.parse(as_texts(paths, {})))]
    bases = {store: [base for base, _ in log_files(store, config)] for store in stores}
    at_a_time = slots(spark)

    def read(share: _Share) -> bytes:
        return _verify_structures(
            share.store,
            part=share.begin,
            parts=share.end,
            level=level,
            threads=threads,
            settings=settings,
        )

    shares = []
    for store in stores:
        count = max(1, min(TASKS_PER_SLOT * at_a_time, len(bases[store]) // _FILES_PER_SHARE))
        shares += [_Share(store, number, count) for number in range(count)]
    structures: dict[str, list[bytes]] = {store: [] for store in stores}
    for share, told in zip(shares, each(spark, read, shares), strict=True):
        structures[share.store].append(told)

    def walk(share: _Share) -> bytes:
        return _verify_log(
            share.store,
            structures=structures[share.store],
            begin=share.begin,
            end=share.end,
            level=level,
            threads=threads,
            settings=settings,
        )

    most = -(-sum(map(len, bases.values())) // (TASKS_PER_SLOT * at_a_time))
    files = [share for store in stores for share in _shares(store, bases[store], max(1, most))]
    walks: dict[str, list[bytes]] = {store: [] for store in stores}
    for share, told in zip(files, each(spark, walk, files), strict=True):
        walks[share.store].append(told)

    def join(parts: tuple[str, list[bytes]]) -> VerifyReport:
        store, walked = parts
        rows, counts = _verify_join(
            store,
            structures=structures[store],
            walks=walked,
            level=level,
            threads=threads,
            settings=settings,
        )
        findings = tuple(Finding(*row) for row in rows)
        ok = all(finding.severity == "info" for finding in findings)
        return VerifyReport(store, level, ok, findings, counts)

    return _together(stores, level, each(spark, join, list(walks.items())))


def _shares(store: str, bases: list[int], most: int) -> list[_Share]:
    """The files of a log, at most so many together; none is left out at either end."""
    cuts = [0, *bases[most::most], _INT64_MAX]
    return [_Share(store, begin, end) for begin, end in itertools.pairwise(cuts)]


def _together(
    stores: list[str], level: Literal["quick", "full"], reports: list[VerifyReport]
) -> VerifyReport:
    """One report of all stores."""
    counts: dict[str, int] = {}
    for report in reports:
        for name, count in report.counts.items():
            counts[name] = counts.get(name, 0) + count
    findings = tuple(
        dataclasses.replace(finding, path=str(Path(report.path) / finding.path))
        for report in sorted(reports, key=lambda one: one.path)
        for finding in report.findings
    )
    return VerifyReport(
        ", ".join(stores), level, all(report.ok for report in reports), findings, counts
    )
