"""Stores restored from an older copy that grew past the place up to which they were read."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import mqstore
from helpers.stores import TINY, message
from mqstore.errors import ConfigError, OffsetOutOfRangeError
from mqstore.spark import micro_batch, stream
from mqstore.spark.failures import PySparkException, sentence
from mqstore.spark.ingest import pipeline
from mqstore.spark.options import ReadOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ONE_FILE: dict[str, Any] = {**TINY, "mapped_file_size_commit_log": 4 << 20}
SAYS = (
    r"broker a: \S+/a is another store than the one that was read up to (\d+): "
    r"expected (\d+) bytes with checksum ([0-9a-f]{8}) at physical offset (\d+), "
    r"found: (.+); both agree to (\d+); option failOnDataLoss=false goes on from (\d+)"
)


def fill(root: Path, numbers: range, config: dict[str, Any] = ONE_FILE) -> int:
    """Appends numbers, the first thousand as long texts: the lives differ at the log's end."""
    with mqstore.open(root, "a", config=config) as store:
        store.append_many([message(body=b"%*d" % (1500 if n < 1000 else 5, n)) for n in numbers])
        return store.max_physical_offset


class Life:
    """A store whose log was read to its end, and then another one from a copy of its first half."""

    def __init__(self, folder: Path, config: dict[str, Any] = ONE_FILE) -> None:
        self.root, self.copy, self.config = folder / "a", folder / "copy", config
        self.middle = fill(self.root, range(1000), config)
        shutil.copytree(self.root, self.copy)
        self.end = fill(self.root, range(1000, 2000), config)

    def restore(self, count: int = 1500) -> int:
        shutil.rmtree(self.root)
        shutil.copytree(self.copy, self.root)
        return fill(self.root, range(5000, 5000 + count), self.config)


def reader(root: Path, **options: str) -> Any:
    texts = {"paths": json.dumps([str(root)]), "until": "end", **options}
    return stream.make_stream_reader(ReadOptions.parse(texts, streaming=True), ["body"])


def latest(of: Any, start: Any) -> dict[str, Any]:
    limit = (start, of.getDefaultReadLimit()) if stream.HAS_LIMITS else ()
    return json.loads(json.dumps(of.latestOffset(*limit)))


def rows(of: Any, start: Any, end: Any) -> list[int]:
    batches = [batch for part in of.partitions(start, end) for batch in of.read(part)]
    return [int(body) for batch in batches for body in batch.column("body").to_pylist()]


def read_to_end(root: Path) -> dict[str, Any]:
    first = reader(root)
    end = latest(first, first.initialOffset())
    assert rows(first, {"a": 0}, end) == list(range(2000))
    return end


def goes_on(root: Path, start: Any) -> tuple[list[int], dict[str, Any]]:
    """The rows of a batch behind an offset, and its end."""
    lenient = reader(root, failOnDataLoss="false")
    if not stream.HAS_LIMITS:
        lenient.partitions(start, start)
    end = latest(lenient, start)
    return rows(lenient, start, end), end


# Any number of messages, also so many that the logs end at the same place.
@pytest.mark.parametrize("count", [1500, 1000])
def test_a_restored_store_that_grew_past_the_offset_is_an_error(tmp_path: Path, count: int) -> None:
    life = Life(tmp_path)
    end = read_to_end(life.root)
    log_end = life.restore(count)
    assert len(list((life.root / "commitlog").iterdir())) == 1
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader(life.root).partitions(end, {"a": log_end})
    place, size, crc, at, found, agree, on = re.search(SAYS, str(caught.value)).groups()
    anchor, *_ = end["/id"]["a"]
    assert anchor == [int(at), int(size), int(crc, 16)]
    assert int(place) == life.end == anchor[0] + anchor[1]
    assert f"a record of {size} bytes with checksum " in found or found == "no record begins there"
    assert crc not in found
    assert int(agree) == int(on) <= life.middle
    if stream.HAS_LIMITS:
        with pytest.raises(OffsetOutOfRangeError, match="both agree to"):
            latest(reader(life.root), end)


@pytest.mark.parametrize("count", [1500, 1000, 400])
def test_without_fail_on_data_loss_no_message_of_the_new_log_is_missing(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    end = read_to_end(life.root)
    life.restore(count)
    found, after = goes_on(life.root, end)
    assert found[-count:] == list(range(5000, 5000 + count))
    # Nothing but the last messages of both lives comes again.
    assert found[:-count] == list(range(1000 - len(found) + count, 1000))
    assert len(found) < count + 1000
    assert re.search(r"goes on from \d+: messages behind it come again", caplog.text)
    caplog.clear()
    fill(life.root, range(9000, 9010))
    assert goes_on(life.root, after)[0] == list(range(9000, 9010))
    assert not caplog.records


def test_a_batch_of_the_earlier_log_does_not_run_again_over_the_new_one(tmp_path: Path) -> None:
    life = Life(tmp_path)
    first = reader(life.root)
    end = latest(first, first.initialOffset())
    life.restore()
    with pytest.raises(OffsetOutOfRangeError, match="another store"):
        reader(life.root).partitions({"a": 0}, end)


def test_a_log_that_still_ends_before_the_offset_has_its_own_error(tmp_path: Path) -> None:
    life = Life(tmp_path)
    end = read_to_end(life.root)
    life.restore(400)
    if stream.HAS_LIMITS:
        with pytest.raises(OffsetOutOfRangeError, match="a crash cut its tail"):
            latest(reader(life.root), end)


def test_an_offset_whose_record_retention_deleted_is_good(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(200), TINY)
    first = reader(root)
    end = latest(first, first.initialOffset())
    fill(root, range(200, 300), TINY)
    for file in (root / "commitlog").iterdir():
        if int(file.name) + 4096 <= end["a"]:
            file.unlink()
    assert len(end["/id"]["a"]) > 2
    later = reader(root)
    assert rows(later, end, {"a": fill(root, range(0), TINY)}) == list(range(200, 300))


def test_a_checkpoint_of_before_goes_on_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "a"
    end = fill(root, range(100))
    (file,) = (root / "commitlog").iterdir()
    old = {"a": end, "/id": {"a": [0, zlib.crc32(file.read_bytes()[:64])]}}
    later = reader(root)
    fill(root, range(100, 120))
    after = latest(later, old) if stream.HAS_LIMITS else latest(later, None)
    assert rows(later, old, after) == list(range(100, 120))
    assert caplog.text.count("did not keep the record before its offset") == 1
    assert len(after["/id"]["a"][0]) == 3
    caplog.clear()
    assert rows(reader(root), after, after) == []
    assert not caplog.records
    # The place that it kept still counts.
    old["/id"]["a"][1] ^= 1
    with pytest.raises(OffsetOutOfRangeError, match="no record is known that both have"):
        reader(root).partitions(old, after)


@pytest.mark.parametrize("marks", [7, [[1, 2]], [[1, 2, -3]], [[0, 1, 2], "x"], [1, 2, 3], "x"])
def test_marks_of_something_else_are_refused(tmp_path: Path, marks: object) -> None:
    end = fill(tmp_path / "a", range(3))
    with pytest.raises(ConfigError, match="anchors"):
        reader(tmp_path / "a").partitions({"a": 0, "/id": {"a": marks}}, {"a": end})


def test_a_micro_batch_notices_a_restored_store(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path)
    found: list[int] = []
    failing = False

    def write(frame: DataFrame, _: int) -> None:
        if failing:
            raise KeyError
        found.extend(int(row.body) for row in frame.collect())

    def run(**options: object) -> int:
        options = {"until": "end", "columns": ["body"], **options}
        return micro_batch(spark, life.root, tmp_path / "books", write, **options)

    assert run() == 1
    life.restore()
    with pytest.raises(OffsetOutOfRangeError, match=SAYS):
        run()
    found.clear()
    assert run(failOnDataLoss=False) == 1
    assert found[-1500:] == list(range(5000, 6500))
    # A batch that was interrupted does not run again over another log.
    fill(life.root, range(7000, 7100))
    failing = True
    with pytest.raises(KeyError):
        run()
    failing = False
    life.restore(1900)
    with pytest.raises(OffsetOutOfRangeError, match="another store"):
        run()


def test_a_pipeline_notices_a_restored_store(spark: SparkSession, tmp_path: Path) -> None:
    life, lake = Life(tmp_path), tmp_path / "lake"

    def run(**options: object) -> None:
        config = {
            "source": {"paths": [str(life.root)], "until": "end", **options},
            "sink": {"path": str(lake), "partition_by": []},
            "trigger": {"available_now": True},
        }
        pipeline(spark, config).awaitTermination()

    def bodies() -> list[int]:
        return sorted(int(body) for body in ds.dataset(lake).to_table()["body"].to_pylist())

    run()
    assert bodies() == list(range(2000))
    life.restore()
    for is_lost in (False, True):
        if is_lost:
            # The books have the evidence too.
            shutil.rmtree(lake / "_checkpoint")
        with pytest.raises(PySparkException) as caught:
            run()
        assert re.search(SAYS, sentence(caught.value))
        assert bodies() == list(range(2000))
    run(failOnDataLoss=False)
    assert set(range(5000, 6500)) <= set(bodies())
