"""A store's heavy work on the cluster comes out as on one machine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stores import TINY, message

import mqstore
import mqstore.spark

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
    mqstore.rebuild(root, out=tmp_path / "one", config=TINY)
    reports = mqstore.spark.rebuild(spark, root, tmp_path / "many", config=TINY)
    assert files(tmp_path / "many") == files(tmp_path / "one")
    one, many = (sorted((tmp_path / side / "index").iterdir()) for side in ("one", "many"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in many]
    assert len(one) > 2
    assert files(root) == before
    assert {report.messages for report in reports} == {90}
    with pytest.raises(mqstore.ConfigError, match="is not empty"):
        mqstore.spark.rebuild(spark, root, tmp_path / "many", config=TINY)
    with pytest.raises(mqstore.ConfigError, match="what is consumequeue"):
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
