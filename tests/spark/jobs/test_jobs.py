"""A store's heavy work on the cluster comes out as on one machine."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore
import mqstore.spark
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make(root: Path, numbers: range) -> Path:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [
                message(f"T{n % 5}", queue_id=n % 3, body=b"%d" % n, keys=(f"k{n}", "all"))
                for n in numbers
            ]
        )
    return root


def files(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        # The name of an index file is the time of its making.
        "index" if path.parent.name == "index" else str(path.relative_to(folder)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in found
    }


def test_rebuild_makes_the_bytes_that_one_machine_makes(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = make(tmp_path / "store", range(90))
    before = files(root)
    alone = mqstore.rebuild(root, out=tmp_path / "one", config=TINY)
    report = mqstore.spark.rebuild(spark, root, tmp_path / "many", config=TINY)
    same_bytes(tmp_path / "one", tmp_path / "many")
    assert report.index_files > 2
    assert files(root) == before
    assert report == dataclasses.replace(alone, out=str(tmp_path / "many"))
    with pytest.raises(mqstore.ConfigError, match="is not empty; queues and index are made"):
        mqstore.spark.rebuild(spark, root, tmp_path / "many", config=TINY)
    with pytest.raises(mqstore.ConfigError, match="what: expected consumequeue"):
        mqstore.spark.rebuild(spark, root, tmp_path / "x", ["queues"])


def test_verify_merges_the_reports_of_all_stores(spark: SparkSession, tmp_path: Path) -> None:
    roots = [make(tmp_path / f"store-{name}", range(40)) for name in "abc"]
    damaged = min((roots[1] / "commitlog").iterdir())
    bytes_of = bytearray(damaged.read_bytes())
    bytes_of[100] ^= 0xFF
    damaged.write_bytes(bytes_of)
    report = mqstore.spark.verify(spark, f"{tmp_path}/store-*", config=TINY)
    alone = [mqstore.verify(root, config=TINY) for root in roots]
    assert [one.ok for one in alone] == [True, False, True]
    assert not report.ok
    assert [finding.code for finding in report.findings] == [f.code for f in alone[1].findings]
    assert all(Path(finding.path).is_relative_to(roots[1]) for finding in report.findings)
    for name, count in report.counts.items():
        assert count == sum(one.counts.get(name, 0) for one in alone)
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.spark.verify(spark, tmp_path / "nowhere")


def test_jobs_find_the_settings_that_a_store_was_made_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = make(tmp_path / "store", range(90))
    # TINY's slots and entries are neither RocketMQ's nor one to four.
    assert mqstore.spark.verify(spark, root).ok
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "consumequeue")
    mqstore.rebuild(root, out=tmp_path / "one", config=TINY)
    mqstore.spark.rebuild(spark, root, tmp_path / "many")
    same_bytes(tmp_path / "one", tmp_path / "many")


def same_bytes(one: Path, many: Path) -> None:
    assert files(many) == files(one)
    indexes = [sorted((side / "index").iterdir()) for side in (one, many)]
    assert [path.read_bytes() for path in indexes[0]] == [path.read_bytes() for path in indexes[1]]
