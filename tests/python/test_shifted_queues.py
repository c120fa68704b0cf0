"""Queues whose records leave out a number: RocketMQ appends at the next free place."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.damaged_stores import log_files, patch
from helpers.shifted import CONFIG, LIGHT, LMQ, light, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SHIFTED = [0, 1, 2, 4, 5, 6]
SMALL = {**CONFIG, "mapped_file_size_commit_log": 4096}


def queue_files(root: Path) -> dict[str, bytes]:
    below = root / "consumequeue"
    return {
        str(path.relative_to(below)): path.read_bytes().rstrip(b"\0")
        for path in sorted(below.rglob("*"))
        if path.is_file()
    }


def bodies(store: mqstore.Store, topic: str = "T", at: int = 0) -> list[bytes]:
    """Message by message, and in one read: both must agree."""
    read = [message.body for message in store.read(topic, 0, at, max_messages=100).messages]
    single = []
    while (one := store.read(topic, 0, at, max_messages=1)).messages:
        single += [message.body for message in one.messages]
        at = one.next_queue_offset
    assert single == read
    return read


def answers(root: Path, config: object) -> dict[str, tuple[int, int, list[bytes]]]:
    with mqstore.open(root, config=config) as store:
        bounds = [(queue.topic, queue.min_offset, queue.max_offset) for queue in store.queues()]
        return {topic: (at, end, bodies(store, topic, at)) for topic, at, end in bounds}


def retained(root: Path, numbers: Sequence[int]) -> None:
    """A shifted queue whose first log file is gone."""
    plain(root, numbers, config=SMALL)
    log_files(root)[0].unlink()
    mqstore.rebuild(root, what="consumequeue", config=SMALL)


def found(root: Path, **config: object) -> list[tuple[str, str, str]]:
    report = mqstore.verify(root, config=config or CONFIG)
    return [(one.code, one.severity, one.found) for one in report.findings]


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("crashed", [False, True])
def test_p11_a_shifted_queue_is_read_as_rocketmq_reads_it(
    tmp_path: Path, mode: str, crashed: bool
) -> None:
    plain(tmp_path, SHIFTED)
    if crashed:
        (tmp_path / "abort").touch()
        patch(tmp_path / "checkpoint", 0, bytes(48))
    before = queue_files(tmp_path)
    with mqstore.open(tmp_path, mode, config=CONFIG) as store:
        assert bodies(store) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        (queue,) = store.queues()
        assert (queue.min_offset, queue.max_offset) == (0, 6)
        if mode == "r+":
            assert store.recovery is not None
            assert set(store.recovery.rebuilt) <= {"index"}
            assert store.append("T", b"6").queue_offset == 6
            assert bodies(store)[-2:] == [b"5", b"6"]
    if mode == "r":
        assert queue_files(tmp_path) == before
    # The numbers of the log are those of the queue again; both messages with number 6 count.
    with mqstore.open(tmp_path, "r", config=CONFIG) as store:
        assert bodies(store)[:6] == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", range(1, 6))
def test_p11_entries_that_a_crash_lost_come_back_in_the_same_places(
    tmp_path: Path, lost: int, crashed: bool
) -> None:
    plain(tmp_path, SHIFTED)
    before = queue_files(tmp_path)
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020}"
    patch(file, (6 - lost) * 20, bytes(lost * 20))
    if crashed:
        (tmp_path / "abort").touch()
        patch(tmp_path / "checkpoint", 0, bytes(48))
    with mqstore.open(tmp_path, "r", config=CONFIG) as store:
        assert bodies(store) == [b"%d" % n for n in range(6)]
    with mqstore.open(tmp_path, "r+", config=CONFIG) as store:
        assert bodies(store) == [b"%d" % n for n in range(6)]
    assert queue_files(tmp_path) == before


@pytest.mark.parametrize("keep", [True, False], ids=["queues", "no-queues"])
@pytest.mark.parametrize(
    "numbers",
    [SHIFTED, [0, 2, 5, 6, 9], [0, 1, 3, 4, 4, 5], [3, 4, 6, 7]],
    ids=lambda numbers: "-".join(map(str, numbers)),
)
def test_p11_a_rebuild_appends_where_the_log_is_whole(
    tmp_path: Path, numbers: Sequence[int], keep: bool
) -> None:
    plain(tmp_path, numbers)
    first = numbers[0]
    if first:
        # A log whose older files were deleted.
        shutil.rmtree(tmp_path / "consumequeue")
        mqstore.rebuild(tmp_path, what="consumequeue", config=CONFIG)
    before = queue_files(tmp_path)
    if not keep:
        shutil.rmtree(tmp_path / "consumequeue")
    report = mqstore.rebuild(tmp_path, what="consumequeue", config=CONFIG)
    (queue,) = report.queues
    assert (queue.min_offset, queue.max_offset) == (first, first + len(numbers))
    assert queue_files(tmp_path) == before
    again = mqstore.rebuild(tmp_path, what="consumequeue", config=CONFIG)
    assert again.queues[0].was == (first, first + len(numbers))
    with mqstore.open(tmp_path, "r+", config=CONFIG) as store:
        assert store.recovery is not None
        assert store.recovery.rebuilt == ()


@pytest.mark.parametrize("number", [-1, -5, -(2**63)])
def test_p11_a_negative_first_number_moves_no_other_message(tmp_path: Path, number: int) -> None:
    plain(tmp_path, [number, 1, 2, 3, 4, 5])
    shutil.rmtree(tmp_path / "consumequeue")
    report = mqstore.rebuild(tmp_path, what="consumequeue", config=CONFIG)
    (queue,) = report.queues
    assert (queue.min_offset, queue.max_offset) == (1, 6)
    with mqstore.open(tmp_path, config=CONFIG) as store:
        read = store.read("T", 0, 1, max_messages=100).messages
    assert [(one.queue_offset, one.body) for one in read] == [(n, b"%d" % n) for n in range(1, 6)]


@pytest.mark.parametrize("damaged", range(1, 6))
def test_p11_a_damaged_entry_of_a_shifted_queue_hides_no_message(
    tmp_path: Path, damaged: int
) -> None:
    plain(tmp_path, SHIFTED)
    entries = tmp_path / "consumequeue/T/0/00000000000000000000"
    patch(entries, damaged * 20, b"\x7f" * 20)
    with mqstore.open(tmp_path, config=CONFIG) as store:
        for first in range(6):
            bodies, at = [], first
            while (one := store.read("T", 0, at, max_messages=1)).messages:
                bodies += [message.body for message in one.messages]
                at = one.next_queue_offset
            assert bodies == [b"%d" % n for n in range(first, 6)]


def test_p11_verify_has_one_finding_for_a_shift(tmp_path: Path) -> None:
    plain(tmp_path, SHIFTED)
    assert found(tmp_path) == [
        ("MQ-CQ-17", "warning", "3 messages from entry 3 on, shifted by 1"),
    ]
    mqstore.rebuild(tmp_path, config=CONFIG)
    assert [code for code, *_ in found(tmp_path)] == ["MQ-CQ-17"]
    # An entry that leads to another message is no shift.
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020}"
    entries = file.read_bytes()
    patch(file, 20, entries[40:60])
    assert {code for code, *_ in found(tmp_path)} == {"MQ-CQ-03", "MQ-CQ-06", "MQ-CQ-17"}


def test_p11_a_message_that_lost_its_entry_is_no_shift(tmp_path: Path) -> None:
    """An entry was taken out of the file, the rest moved up: number 3 is in the log."""
    plain(tmp_path, range(7))
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020}"
    entries = file.read_bytes()
    patch(file, 60, entries[80:140] + bytes(20))
    with mqstore.open(tmp_path, "r", config=CONFIG) as store:
        assert b"3" in bodies(store)
    assert "error" in {severity for _, severity, _ in found(tmp_path)}
    mqstore.rebuild(tmp_path, config=CONFIG)
    assert queue_files(tmp_path)[f"T/0/{0:020}"] == entries.rstrip(b"\0")


@pytest.mark.parametrize("kept", ["none", "filler", "shift"])
def test_p11_behind_damage_the_own_number_counts_unless_entries_know_better(
    tmp_path: Path, kept: str
) -> None:
    """The record of entry 3 is damaged, and its number is missing from then on."""
    numbers = [0, 1, 2, 3, 5, 6] if kept == "shift" else range(6)
    places = plain(tmp_path, numbers)
    patch(log_files(tmp_path)[0], places[3] + 4, bytes(8))
    if kept != "shift":
        shutil.rmtree(tmp_path / "consumequeue")
    if kept == "filler":
        mqstore.rebuild(tmp_path, config=CONFIG)
    before = queue_files(tmp_path) if kept != "none" else None
    report = mqstore.rebuild(tmp_path, config=CONFIG)
    assert (report.queues[0].min_offset, report.queues[0].max_offset) == (0, 6)
    entries = queue_files(tmp_path)[f"T/0/{0:020}"]
    assert int.from_bytes(entries[60:68]) == 0
    assert int.from_bytes(entries[80:88]) == places[4]
    if kept == "filler":
        assert queue_files(tmp_path) == before


def test_p11_no_group_is_moved(tmp_path: Path) -> None:
    plain(tmp_path, SHIFTED)
    with mqstore.open(tmp_path, "r+", config=CONFIG) as store, store.group("g") as group:
        for message in group.poll("T", max_messages=5):
            group.ack(message)
        group.commit()
    table = (tmp_path / "config" / "consumerOffset.json").read_bytes()
    mqstore.rebuild(tmp_path, config=CONFIG)
    assert (tmp_path / "config" / "consumerOffset.json").read_bytes() == table
    with mqstore.open(tmp_path, "r+", config=CONFIG) as store, store.group("g") as group:
        assert [message.body for message in group.poll("T")] == [b"5"]


@pytest.mark.parametrize(
    ("make", "numbers", "config"),
    [
        (plain, SHIFTED, CONFIG),
        (retained, [*range(10), *range(11, 61)], SMALL),
        (plain, [0, 1, 10**15, 3, 4], CONFIG),
        (light, [0, 1, 3, 4], LIGHT),
    ],
    ids=["p11", "retained", "far", "p12"],
)
def test_p11_p12_places_and_ends_stay_in_rocksdb_and_back(
    tmp_path: Path, make: Callable[..., object], numbers: list[int], config: Any
) -> None:
    pytest.importorskip("rocksdict")
    make(tmp_path, numbers)
    expected, told = answers(tmp_path, config), found(tmp_path, **config)
    before = queue_files(tmp_path)
    for forgets in (False, True):
        report = mqstore.convert(tmp_path, queues="rocksdb", dry_run=False, config=config)
        assert report.findings == ()
        if forgets:
            # A broker leaves none.
            (tmp_path / "config/mqstore.json").unlink(missing_ok=True)
        assert answers(tmp_path, config) == expected
        assert found(tmp_path, **config) == []
        assert mqstore.doctor(tmp_path, config=config).commands == ()
    report = mqstore.convert(tmp_path, queues="file", dry_run=False, config=config)
    assert report.findings == ()
    assert answers(tmp_path, config) == expected
    assert queue_files(tmp_path) == before
    assert found(tmp_path, **config) == told


def test_p12_a_light_queue_with_a_gap_is_healthy(tmp_path: Path) -> None:
    light(tmp_path, [0, 1, 3, 4])
    before = queue_files(tmp_path)
    assert found(tmp_path, **LIGHT) == []
    assert [one.code for one in mqstore.doctor(tmp_path, config=LIGHT)] == []
    mqstore.rebuild(tmp_path, config=LIGHT)
    assert queue_files(tmp_path) == before
    for mode in ("r", "r+"):
        with mqstore.open(tmp_path, mode, config=LIGHT) as store:
            assert bodies(store, LMQ) == [b"0", b"1", b"2", b"3"]
