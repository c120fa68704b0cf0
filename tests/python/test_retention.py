"""Retention: off unless asked for, by store time, and never without a word."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import mqstore
from mqstore import ConfigError, Message, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR_MS = 3_600_000
SMALL: dict[str, object] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 7,
    "max_index_num": 20,
}


def old_and_new(root: Path) -> None:
    """Messages 0 to 39 were stored 100 hours ago, 40 to 79 now; two groups have read some."""
    old_ms = time.time_ns() // 1_000_000 - 100 * HOUR_MS
    with mqstore.open(root, "a", config=SMALL) as store:
        old = (Message("orders", bytes(300), store_timestamp_ms=old_ms) for _ in range(40))
        store.append_many(old)
        store.append_many(Message("orders", bytes(300)) for _ in range(40))
        for name, offset in (("slow", 5), ("done", 80)):
            with store.group(name) as group:
                group.seek("orders", 0, offset)
                group.commit()


def log_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


def until(seen: Callable[[], bool], step: Callable[[], object]) -> None:
    """Calls `step` until `seen`, for five minutes at most."""
    end = time.monotonic() + 300
    while not seen():
        assert time.monotonic() < end
        step()


@pytest.mark.parametrize("lines", ["", "fileReservedTime=0\ndeleteWhen=00;01;02;03\n"])
def test_a_broker_conf_deletes_nothing_by_itself(tmp_path: Path, lines: str) -> None:
    conf = tmp_path / "broker.conf"
    sizes = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\n"
    conf.write_text(f"{sizes}maxHashSlotNum=7\nmaxIndexNum=20\ncleanResourceInterval=1\n{lines}")
    root = tmp_path / "store"
    old_and_new(root)
    for path in (root / "commitlog").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    before = log_files(root)
    with mqstore.open(root, "r+", config=conf) as store:
        assert store.config.retention == "off"
        assert store.min_physical_offset == 0
    assert log_files(root) == before
    conf.write_text(conf.read_text() + "retention=rocketmq\n")
    assert StoreConfig.from_broker_conf(conf).retention == "rocketmq"


@pytest.mark.parametrize("retention", ["off", "rocketmq"])
@pytest.mark.parametrize("limit", ["keep_hours", "keep_bytes"])
def test_limits_and_a_rule_beside_them_are_refused(retention: str, limit: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreConfig(retention=retention, **{limit: 5})  # type: ignore[arg-type]
    assert caught.value.field == limit
    assert f'retention="{retention}"' in str(caught.value)


def test_a_deletion_is_reported_while_a_program_only_appends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_and_new(tmp_path)
    config = {**SMALL, "keep_hours": 72, "clean_resource_interval": 1}
    with mqstore.open(tmp_path, "r+", config=config) as store:
        assert (store.config.keep_hours, store.config.retention) == (72, None)
        until(lambda: bool(caplog.records), lambda: store.append("orders", b"one more"))
        [record] = caplog.records
        assert (record.name, record.levelno) == ("mqstore", logging.WARNING)
        told = record.getMessage()
        start = store.min_physical_offset
        assert f"physical offsets 0 to {start}" in told
        assert "stored 100 h ago, more than keep_hours=72" in told
        first = store.queues("orders")[0].min_offset
        assert 0 < first <= 40
        assert f"not read by group slow: {first - 5} of orders, queue 0" in told
        assert "group done" not in told
        assert told in store.warnings
    assert len(caplog.records) == 1
    # A later look from outside tells how much there was.
    counted = mqstore.stats(tmp_path, by=(), config=SMALL)
    assert (counted.deleted_messages, counted.deleted_bytes) == (first, start)


@pytest.mark.parametrize("way", ["poll", "messages"])
def test_a_deletion_is_reported_while_a_program_only_reads_as_a_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    old_and_new(tmp_path)
    config = {**SMALL, "keep_hours": 72, "clean_resource_interval": 1}
    with mqstore.open(tmp_path, "r+", config=config) as store, store.group("slow") as group:
        messages = group.messages("orders")
        # Behind the files that go, so that each step finds a message.
        group.seek("orders", 0, 60)

        def step() -> None:
            if way == "poll":
                group.poll("orders", max_messages=1)
            else:
                next(messages)
                group.seek("orders", 0, 60)

        until(lambda: bool(caplog.records), step)
        assert "not read by group slow" in caplog.records[0].getMessage()


OPEN_GROUP = """
import sys, mqstore
with mqstore.open(sys.argv[1]) as reader, reader.group("open") as group:
    held = group.poll("orders", max_messages=1)
    print(len(held), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["poll", "process", "other process"])
def test_an_open_group_that_has_committed_nothing_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    config = {**SMALL, "keep_bytes": 8192, "clean_resource_interval": 1, "delivery": True}
    with mqstore.open(tmp_path, "a", config=config) as store:
        store.append_many(Message("orders", bytes(300)) for _ in range(3))
        store.wait_dispatched()
        group = store.group("here")
        name, stop, begun = "here", threading.Event(), threading.Event()

        def handle(_: mqstore.StoredMessage) -> None:
            begun.set()
            stop.wait()

        thread = threading.Thread(target=group.process, args=("orders", handle))
        command = [sys.executable, "-c", OPEN_GROUP, str(tmp_path)]
        with contextlib.ExitStack() as ending:
            if way == "poll":
                assert group.poll("orders", max_messages=1)
            elif way == "process":
                thread.start()
                ending.callback(thread.join)
                ending.callback(stop.set)
                ending.callback(store.close)
                assert begun.wait(60)
            else:
                name = "open"
                pipe = subprocess.PIPE
                other = ending.enter_context(
                    subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
                )
                assert other.stdout is not None
                assert other.stdout.readline() == "1\n"
            until(lambda: bool(caplog.records), lambda: store.append("orders", bytes(300)))
            told = caplog.records[0].getMessage()
            first = store.queues("orders")[0].min_offset
            assert f"not read by group {name}: {first} of orders, queue 0" in told


def test_close_tells_what_no_other_call_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_and_new(tmp_path)
    config = {**SMALL, "keep_bytes": 8192, "clean_resource_interval": 1}
    store = mqstore.open(tmp_path, "r+", config=config)
    first = (tmp_path / "commitlog" / log_files(tmp_path)[0]).exists
    until(lambda: not first(), lambda: None)
    assert caplog.records == []
    store.close()
    assert "at least keep_bytes=8192" in caplog.records[0].getMessage()
    assert not (tmp_path / "mqstore.deleted").exists()
    with mqstore.open(tmp_path, "r") as store:
        assert store.warnings == []


def test_a_process_that_ends_without_a_call_leaves_what_it_deleted_to_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_and_new(tmp_path)
    first = tmp_path / "commitlog" / log_files(tmp_path)[0]
    script = (
        "import mqstore, os, pathlib, sys, time\n"
        "path, first, config = sys.argv[1], pathlib.Path(sys.argv[2]), eval(sys.argv[3])\n"
        "store = mqstore.open(path, 'r+', config=config)\n"
        "end = time.monotonic() + 30\n"
        "while first.exists() and time.monotonic() < end: pass\n"
        "os._exit(0)\n"
    )
    config = {**SMALL, "keep_bytes": 8192, "clean_resource_interval": 1}
    subprocess.run([sys.executable, "-c", script, tmp_path, first, repr(config)], check=True)
    assert not first.exists()
    for mode in ("r", "r+"):
        with mqstore.open(tmp_path, mode, config=SMALL) as store:
            assert any("at least keep_bytes=8192" in line for line in store.warnings)
    assert "not read by group slow" in caplog.records[0].getMessage()
    with mqstore.open(tmp_path, "r") as store:
        assert store.warnings == []


def test_a_handler_that_fails_hurts_no_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(logging.Handler):
        calls = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.calls += 1
            raise ZeroDivisionError(record.getMessage())

    old_and_new(tmp_path)
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))
    broken = Broken()
    logging.getLogger("mqstore").addHandler(broken)
    try:
        config = {**SMALL, "keep_hours": 72, "clean_resource_interval": 1}
        with mqstore.open(tmp_path, "r+", config=config) as store:
            until(lambda: broken.calls > 0, lambda: store.append("orders", b"one more"))
    finally:
        logging.getLogger("mqstore").removeHandler(broken)
    assert [type(error) for error in unraisable] == [ZeroDivisionError]


def test_clean_goes_by_limits_and_names_the_groups(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_and_new(tmp_path)
    before = log_files(tmp_path)
    config = {**SMALL, "keep_hours": 72}
    would = mqstore.clean(tmp_path, config=config)
    assert log_files(tmp_path) == before
    assert (
        would.files[0].reason == "its newest message was stored 100 h ago, more than keep_hours=72"
    )
    [unread] = would.unread
    assert (unread.group, unread.topic, unread.queue_id) == ("slow", "orders", 0)
    assert caplog.records == []
    done = mqstore.clean(tmp_path, dry_run=False, config=config)
    assert done.unread == would.unread
    assert len(log_files(tmp_path)) == len(before) - sum(
        file.delete and file.path.startswith("commitlog") for file in would.files
    )
    assert "not read by group slow" in caplog.records[0].getMessage()
    with mqstore.open(tmp_path, config=SMALL) as store:
        assert store.queues("orders")[0].min_offset == 5 + unread.messages
    # Without limits RocketMQ's rules hold, which go by the files' own times.
    assert not any(file.delete for file in mqstore.clean(tmp_path, config=SMALL).files)


def test_an_append_leaves_the_reserve_and_the_first_one_after_open_fails(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=SMALL) as store:
        store.append("orders", b"there is room")
        assert store.warnings == []
    with mqstore.open(tmp_path, "r+", config={**SMALL, "disk_reserve_bytes": 2**62}) as store:
        assert "nothing can be appended" in store.warnings[0]
        with pytest.raises(mqstore.StoreIOError) as caught:
            store.append("orders", b"there is none")
        assert caught.value.errno == errno.ENOSPC
        assert str(tmp_path / "commitlog") in str(caught.value)
        free, needed = "bytes free, and", "are needed"
        assert free in str(caught.value)
        assert needed in str(caught.value)
        assert sum(1 for _ in store.scan()) == 1
    assert not (tmp_path / "abort").exists()
