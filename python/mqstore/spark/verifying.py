"""Checks stores on a cluster: one task a store, each with the code of ``mqstore.verify``.

A task opens a store under the path that the driver has.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Literal

import mqstore
from mqstore.results import VerifyReport
from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.stores import find_stores
from mqstore.spark.tasks import each
from mqstore.store import below

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from mqstore.config import ConfigLike


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
    given: dict[str, object] = {}
    given |= {name: rest.pop(name) for name in ("at", "snapshot") if name in rest}
    given |= {"storageOptions": json.dumps(rest)} if rest else {}
    options = ReadOptions.parse(as_texts(paths, given))

    def check(store: str) -> VerifyReport:
        return mqstore.verify(options.root(store), level=level, threads=threads, config=config)

    stores = [one.path for one in find_stores(options)]
    reports = each(spark, check, stores)
    counts: dict[str, int] = {}
    for report in reports:
        for name, count in report.counts.items():
            counts[name] = counts.get(name, 0) + count
    findings = tuple(
        dataclasses.replace(finding, path=str(below(options.root(report.path), finding.path)))
        for report in sorted(reports, key=lambda one: one.path)
        for finding in report.findings
    )
    return VerifyReport(
        ", ".join(stores), level, all(report.ok for report in reports), findings, counts
    )
