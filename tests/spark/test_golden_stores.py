"""Stores that RocketMQ wrote: every way gives the same messages, however the log is cut."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from mqstore.spark.options import ReadOptions, as_texts
from mqstore.spark.plan import plan
from mqstore.spark.reader import read_range

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*/store.tar.gz"))
PLACE = ("topic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "error")


def rows(path: Path, columns: tuple[str, ...] = PLACE, **options: object) -> list[dict]:
    """Rows that tasks read, in log order."""
    parsed = ReadOptions.parse(as_texts(path, options))
    batches = [batch for part in plan(parsed) for batch in read_range(part, parsed, columns)]
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["physical_offset"])


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.parent.name)
def test_every_way_and_every_cut_gives_the_same(archive, tmp_path) -> None:
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    (root,) = (path.parent for path in tmp_path.rglob("commitlog"))
    whole = rows(root, onError="rows", accessPath="scan")
    assert whole
    assert rows(root, onError="rows", accessPath="scan", splitBytes="1k") == whole
    for topic in sorted({row["topic"] for row in whole if row["topic"]}):
        queued = [row for row in whole if row["topic"] == topic and row["error"] is None]
        by_queue = rows(root, topics=[topic], accessPath="consumequeue", onError="skip")
        assert by_queue == queued, topic
    for tag in sorted(
        {row["tags"] for row in rows(root, (*PLACE, "tags"), onError="skip")} - {None}
    ):
        tagged = rows(root, accessPath="scan", tags=tag, onError="skip")
        for way in ("auto", "consumequeue"):
            assert rows(root, accessPath=way, tags=tag, onError="skip", splitBytes="4k") == tagged
    keyed = rows(root, (*PLACE, "keys"), onError="skip")
    for row in [row for row in keyed if row["keys"]][:3]:
        options = {"topics": [row["topic"]], "keys": row["keys"][:1], "onError": "skip"}
        scanned = rows(root, accessPath="scan", **options)
        assert rows(root, accessPath="index", **options) == scanned
        assert row["physical_offset"] in {one["physical_offset"] for one in scanned}
