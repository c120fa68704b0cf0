"""Store times stay near the clock, whatever a caller or a flipped bit gives."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY, message

if TYPE_CHECKING:
    from pathlib import Path

FAR = 2**63 - 1
HOUR = 3_600_000


def now() -> int:
    return int(time.time() * 1000)


def stored(store: mqstore.Store) -> list[int]:
    return [found.store_timestamp_ms for found in store.scan()]


def codes(root: Path) -> list[str]:
    return [finding.code for finding in mqstore.verify(root, config=TINY).findings]


def put(store: mqstore.Store, *, keys: str = "k", **fields: int) -> mqstore.AppendResult:
    if fields:
        (result,) = store.append_many([message(keys=keys, **fields)])
        return result
    return store.append("T", b"", keys=keys)


@pytest.mark.parametrize("given", [FAR, None], ids=["far", "three-days"])
def test_a_time_that_a_caller_gives_moves_no_later_message(
    tmp_path: Path, given: int | None
) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        put(store)
        put(store, store_timestamp_ms=given or now() + 72 * HOUR)
        put(store)
        assert abs(stored(store)[2] - now()) < HOUR
    for _ in range(2):
        with mqstore.open(tmp_path, "r+", config=TINY) as store:
            put(store)
            assert abs(stored(store)[-1] - now()) < HOUR


def test_a_far_time_is_a_warning_at_open_and_a_finding_that_no_rebuild_hides(
    tmp_path: Path,
) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for number in range(12):
            put(store, keys=f"k{number}")
        at = put(store).physical_offset
        for number in range(12, 20):
            put(store, keys=f"k{number}")
    assert codes(tmp_path) == []
    log = tmp_path / "commitlog" / f"{at // 4096 * 4096:020}"
    with log.open("r+b") as file:
        # The highest bit but one of the store time; no checksum covers it.
        file.seek(at % 4096 + 56)
        file.write(b"\x40")
    for _ in range(2):
        assert "MQ-LOG-14" in codes(tmp_path)
        mqstore.rebuild(tmp_path, config=TINY, dry_run=False)
    assert codes(tmp_path) == ["MQ-LOG-14"]
    with mqstore.open(tmp_path, "r+", config=TINY) as store:
        assert any(f"offset {at} " in warning and "ahead" in warning for warning in store.warnings)
        put(store)
        assert abs(stored(store)[-1] - now()) < HOUR
    assert codes(tmp_path) == ["MQ-LOG-14"]


@pytest.mark.parametrize("other", [-3 * HOUR, 3 * HOUR], ids=["before", "behind"])
def test_a_time_outside_of_its_neighbours_is_a_finding(tmp_path: Path, other: int) -> None:
    start = now() - 1000 * HOUR
    times = [start + n * 1000 for n in range(60)]
    times[30] += other
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        places = [put(store, store_timestamp_ms=time).physical_offset for time in times]
        for number, wanted in enumerate(times):
            if number != 30:
                assert store.offset_at("T", 0, wanted) == number
                assert store.offset_at("T", 0, wanted, boundary="upper") == number
    (finding,) = mqstore.verify(tmp_path, config=TINY).findings
    assert (finding.code, finding.severity) == ("MQ-LOG-14", "warning")
    assert finding.offset == places[30] % 4096
    moment = datetime.fromtimestamp(times[30] / 1000, UTC)
    assert finding.found == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_steps_that_go_on_are_no_finding(tmp_path: Path) -> None:
    start = now() - 1000 * HOUR
    # A store that rested for two days, and a clock that was set back by a day.
    times = [start, start + 1000, start + 48 * HOUR, start + 48 * HOUR, start + 24 * HOUR]
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for given in [*times, times[-1] + 1]:
            put(store, store_timestamp_ms=given)
    assert codes(tmp_path) == []


def test_times_of_1970_are_one_finding_a_file_and_delete_nothing(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for number in range(100):
            given = 5_000 + number if number < 20 else now()
            at = put(store, store_timestamp_ms=given).physical_offset
            if at < 4096:
                in_first = number
    first, *others = mqstore.verify(tmp_path, config=TINY).findings
    assert (first.code, first.severity, first.offset) == ("MQ-LOG-14", "warning", 0)
    wrong = min(in_first + 1, 20)
    assert first.found.startswith(f"1970-01-01T00:00:05.000Z; {wrong} messages, up to physical")
    assert {finding.code for finding in others} <= {"MQ-LOG-14"}
    with mqstore.open(tmp_path, "r+", config={**TINY, "keep_hours": 1}) as store:
        assert len(stored(store)) == 100
    assert not any(
        file.delete for file in mqstore.clean(tmp_path, config={**TINY, "keep_hours": 1}).files
    )


def test_a_file_of_a_clock_that_was_set_back_is_told(tmp_path: Path) -> None:
    start = now() - 1000 * HOUR
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for number in range(200):
            put(store, store_timestamp_ms=start + number - (48 * HOUR if number > 100 else 0))
    findings = mqstore.verify(tmp_path, config=TINY).findings
    assert findings
    assert {(finding.code, finding.severity) for finding in findings} == {("MQ-LOG-14", "info")}
    assert all("at the latest in this file" in finding.found for finding in findings)


def test_the_checkpoint_takes_no_time_from_the_future(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        # More than an index file holds.
        for number in range(60):
            put(store, keys=f"k{number}", store_timestamp_ms=FAR - 60 + number)
        put(store)
    checkpoint = mqstore.Checkpoint(tmp_path / "checkpoint")
    assert 0 < checkpoint.physic_msg_timestamp_ms <= now()
    assert 0 < checkpoint.logics_msg_timestamp_ms <= now()
    assert 0 <= checkpoint.index_msg_timestamp_ms <= now()


def test_a_negative_store_time_is_refused(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        with pytest.raises(mqstore.InvalidMessageError, match="store_timestamp_ms: expected 0"):
            put(store, store_timestamp_ms=-1)
        assert stored(store) == []


@pytest.mark.parametrize("name", ["70001231235959999", "99981231235959999", "99999999999999999"])
def test_an_index_file_named_in_the_far_future_stops_no_writer(tmp_path: Path, name: str) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for number in range(30):
            put(store, keys=f"k{number}")
    (index,) = (tmp_path / "index").iterdir()
    index.rename(index.with_name(name))
    for begin in (30, 120):
        with mqstore.open(tmp_path, "r+", config=TINY) as store:
            for number in range(begin, begin + 90):
                put(store, keys=f"k{number}")
            for number in range(begin + 90):
                assert len(store.query("T", f"k{number}")) == 1
    assert codes(tmp_path) == []
