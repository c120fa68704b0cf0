"""Streams that lose nothing in silence: starts in time, restarts, the last message of a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TINY, message
from mqstore.spark import stream
from mqstore.spark.options import ReadOptions
from mqstore.spark.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

START_MS = 1_700_000_000_000
COLUMNS = ["broker", "queue_offset", "body"]


def reader(root: Path, **options: str) -> Any:
    texts = {"paths": json.dumps([str(root)]), "until": "end", **options}
    return stream.make_stream_reader(ReadOptions.parse(texts, streaming=True), COLUMNS)


def latest(of: Any, start: dict[str, Any]) -> dict[str, Any]:
    """What Spark asks for before each batch, in every version of it."""
    offset = of.latestOffset(start, of.getDefaultReadLimit()) if stream.HAS_LIMITS else None
    return json.loads(json.dumps(of.latestOffset() if offset is None else offset))


def rows(of: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for part in of.partitions(start, end) for batch in of.read(part)]
    return [int(body) for batch in batches for body in batch.column("body").to_pylist()]


def fill(root: Path, numbers: range) -> None:
    """A message a second, each with its number."""
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [message(body=b"%d" % n, store_timestamp_ms=START_MS + 1000 * n) for n in numbers]
        )


def test_a_start_in_time_is_a_place_from_the_first_batch_on(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(100))
    first = reader(root, startingTimestamp=str(START_MS + 40_000))
    begin = first.initialOffset()
    end = latest(first, begin)
    assert rows(first, begin, end) == list(range(40, 100))
    fill(root, range(100, 150))
    # After an outage a relative time, such as -2h, means a later one.
    later = reader(root, startingTimestamp=str(START_MS + 120_000))
    assert rows(later, end, latest(later, end)) == list(range(100, 150))


def test_a_first_batch_that_runs_again_begins_where_it_began(tmp_path: Path) -> None:
    root = tmp_path / "a"
    fill(root, range(100))
    first = reader(root, startingTimestamp=str(START_MS + 40_000))
    end = latest(first, first.initialOffset())
    # The driver dies before the batch is committed; Spark asks for the start again.
    later = reader(root, startingTimestamp=str(START_MS + 90_000))
    begin = later.initialOffset()
    assert begin["a"] > first.initialOffset()["a"]
    assert rows(later, begin, end) == list(range(40, 100))
    fill(root, range(100, 110))
    assert rows(later, end, after := latest(later, end)) == list(range(100, 110))
    assert latest(later, after) == after


@pytest.mark.parametrize(
    ("at", "wanted"),
    [(-1, 0), (0, 0), (1, 1), (39_001, 40), (99_000, 99), (99_001, 100), (10**9, 100)],
)
def test_a_start_in_time_is_its_first_message(tmp_path: Path, at: int, wanted: int) -> None:
    root = tmp_path / "a"
    fill(root, range(100))
    begin = Progress(
        ReadOptions.parse(
            {"path": str(root), "until": "end", "startingTimestamp": str(START_MS + at)},
            streaming=True,
        )
    ).first()
    fill(root, range(100, 110))
    plain = reader(root)
    assert rows(plain, begin, latest(plain, begin)) == list(range(wanted, 110))


def test_an_end_in_time_is_not_for_a_stream(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1))
    with pytest.raises(mqstore.UnsupportedError, match="endingTimestamp"):
        reader(tmp_path / "a", endingTimestamp="-2h")
