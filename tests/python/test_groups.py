"""Consumer groups: what is polled, where the place is kept, who may have it."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY, message
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        for queue_id, body in [(0, b"a0"), (0, b"a1"), (3, b"b0"), (0, b"a2")]:
            store.append("orders", body, queue_id=queue_id, tags=body[:1].decode())
        yield store


def bodies(messages: list[mqstore.StoredMessage]) -> list[bytes]:
    return [found.body for found in messages]


def test_queues_take_turns_and_nothing_comes_twice(store: mqstore.Store) -> None:
    group = store.group("g")
    assert group.name == "g"
    assert bodies(group.poll("orders", max_messages=2)) == [b"a0", b"a1"]
    assert bodies(group.poll("orders", max_messages=1)) == [b"b0"]
    assert bodies(group.poll("orders")) == [b"a2"]
    assert group.poll("orders") == group.poll("unknown") == []
    assert group.lag() == [
        mqstore.GroupOffset("orders", 0, 3, 3, 0),
        mqstore.GroupOffset("orders", 3, 1, 1, 0),
    ]
    store.append("orders", b"a3")
    assert group.lag()[0] == mqstore.GroupOffset("orders", 0, 3, 4, 1)


def test_tags_pass_over_what_does_not_match(store: mqstore.Store) -> None:
    group = store.group("g")
    assert bodies(group.poll("orders", tags="b")) == [b"b0"]
    assert sum(offset.lag for offset in group.lag()) == 0


def test_a_commit_is_in_the_brokers_file(store: mqstore.Store) -> None:
    group = store.group("g")
    group.poll("orders", max_messages=2)
    assert store.groups() == {"g": [mqstore.GroupOffset("orders", 0, 0, 3, 3)]}
    group.commit()
    group.commit()
    text = mqstore.read_config_json(f"{store.path}/config/consumerOffset.json")
    assert json.loads(text)["offsetTable"] == {"orders@g": {"0": 2}}
    assert store.groups() == {"g": [mqstore.GroupOffset("orders", 0, 2, 3, 1)]}


def test_messages_that_were_not_committed_come_again(store: mqstore.Store) -> None:
    with store.group("g") as group:
        group.poll("orders", max_messages=1)
        group.commit()
        group.poll("orders")
    with store.group("g") as group:
        assert sorted(bodies(group.poll("orders"))) == [b"a1", b"a2", b"b0"]


def test_seek(store: mqstore.Store) -> None:
    group = store.group("g")
    group.poll("orders")
    group.seek("orders", 0, 2)
    assert bodies(group.poll("orders")) == [b"a2"]
    for place in ((-1, 0), (0, -1)):
        with pytest.raises(mqstore.InvalidMessageError, match="expected 0 or more"):
            group.seek("orders", *place)
    for place in ((2**31, 0), (-(2**70), 0), (0, 2**70)):
        with pytest.raises(mqstore.InvalidMessageError, match=r"expected (at most|0 or more)"):
            group.seek("orders", *place)


def test_one_live_group_of_a_name(store: mqstore.Store) -> None:
    group = store.group("g")
    with pytest.raises(mqstore.StoreLockedError):
        store.group("g")
    store.group("h").close()
    group.close()
    group.close()
    with pytest.raises(mqstore.StoreClosedError):
        group.poll("orders")
    store.group("g")
    del group
    with pytest.raises(mqstore.InvalidMessageError):
        store.group("no name")


COMMIT = """
import sys, mqstore
with mqstore.open(sys.argv[1]) as reader, reader.group(sys.argv[2]) as group:
    for _ in range(int(sys.argv[3])):
        group.seek("orders", 0, 0)
        group.commit()
        assert len(group.poll("orders", max_messages=2)) == 2
        group.commit()
"""


def commit_elsewhere(path: Path, name: str, times: int = 1) -> subprocess.Popen[str]:
    """Another process, which polls two messages and commits, over and over."""
    command = [sys.executable, "-c", COMMIT, str(path), name, str(times)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_other_processes_commit_beside_the_writer(tmp_path: Path, store: mqstore.Store) -> None:
    store.wait_dispatched()
    others = [commit_elsewhere(tmp_path, name, 20) for name in ("a", "b")]
    own = store.group("own")
    while any(other.poll() is None for other in others):
        own.seek("orders", 0, 0)
        own.commit()
    assert [other.communicate()[1] for other in others] == ["", ""]
    offsets = {name: at[0].queue_offset for name, at in store.groups().items()}
    assert offsets == {"a": 2, "b": 2, "own": 0}


def test_beside_a_broker_a_commit_is_refused(tmp_path: Path, store: mqstore.Store) -> None:
    store.close()
    with (tmp_path / "lock").open("r+b") as lock:
        # As RocketMQ does.
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
        error = commit_elsewhere(tmp_path, "g").communicate()[1]
    assert "UnsupportedError" in error
    assert "nothing was committed: commit through the broker, or stop it first" in error
    assert commit_elsewhere(tmp_path, "g").communicate()[1] == ""
    with mqstore.open(tmp_path) as reader:
        assert reader.groups()["g"][0].queue_offset == 2


def test_an_offset_beyond_the_log_is_told(tmp_path: Path, store: mqstore.Store) -> None:
    store.close()
    path = tmp_path / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"offsetTable":{"orders@g":{0:8}}}')
    with mqstore.open(tmp_path, "r+", config=TINY) as again:
        (warning,) = again.warnings
        assert "beyond the queue's end 3: set back to there" in warning
        again.append("orders", b"a3")
        assert bodies(again.group("g").poll("orders")) == [b"a3", b"b0"]


def test_messages_waits_and_ends_with_the_store(store: mqstore.Store) -> None:
    group = store.group("g")
    found: list[bytes] = []
    enough = threading.Event()

    def take() -> None:
        for taken in group.messages("orders", tags="a || late"):
            found.append(taken.body)
            if taken.body == b"late":
                enough.set()

    thread = threading.Thread(target=take)
    thread.start()
    store.append("orders", b"late", tags="late")
    assert enough.wait(30)
    store.close()
    thread.join(30)
    assert not thread.is_alive()
    assert found == [b"a0", b"a1", b"a2", b"late"]


def test_the_place_is_behind_what_the_iterator_gave(store: mqstore.Store) -> None:
    group = store.group("g")
    messages = group.messages("orders")
    assert next(messages).body == b"a0"
    assert next(messages).body == b"a1"
    group.commit()
    assert store.groups()["g"][0].queue_offset == 2


def test_an_iterator_goes_where_the_group_was_moved(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many(message(body=b"%d" % n) for n in range(6))
        group = store.group("g")
        messages = group.messages("T")
        assert [next(messages).body for _ in range(2)] == [b"0", b"1"]
        group.seek("T", 0, 0)
        assert next(messages).body == b"0"
        assert bodies(group.poll("T", max_messages=2)) == [b"1", b"2"]
        assert next(messages).body == b"3"
        group.seek("T", 0, 5)
        assert next(messages).body == b"5"
        assert [at.queue_offset for at in group.lag()] == [6]


def test_poll_waits_for_the_first_message(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store:
        group = store.group("g")
        writer = threading.Timer(0.05, lambda: store.append_many([message(body=b"late")]))
        writer.start()
        assert bodies(group.poll("T", timeout_s=30)) == [b"late"]
        writer.join()
        assert group.poll("T", timeout_s=0.01) == []
        assert group.poll("T", max_messages=0, timeout_s=30) == []


def test_with_light_queues_a_broker_has_another_file(tmp_path: Path) -> None:
    """RocketMQ's ``LmqConsumerOffsetManager`` keeps all groups in a file of its own."""
    light = {**TINY, "enable_lmq": True}
    other, own = (
        tmp_path / "config" / name for name in ("consumerOffset.json", "lmqConsumerOffset.json")
    )

    def take(config: dict[str, object]) -> list[bytes]:
        with mqstore.open(tmp_path, "a", config=config) as store, store.group("g") as group:
            taken = group.poll("T", max_messages=1)
            group.commit()
            return bodies(taken)

    with mqstore.open(tmp_path, "a", config=TINY) as store:
        store.append_many([message(body=body) for body in (b"0", b"1", b"2", b"3")])
    assert take(TINY) == [b"0"]
    before = other.read_bytes()
    # The first with this setting goes on from the other file, and leaves it as it is.
    assert (take(light), take(light)) == ([b"1"], [b"2"])
    assert other.read_bytes() == before
    assert json.loads(mqstore.read_config_json(own))["offsetTable"] == {"T@g": {"0": 3}}
    # Without the setting the file changed last counts, and stays chosen.
    with mqstore.open(tmp_path, config=TINY) as store:
        assert store.groups() == {"g": [mqstore.GroupOffset("T", 0, 3, 4, 1)]}
    assert take(TINY) == [b"3"]
    assert other.read_bytes() == before
    other.unlink()
    with mqstore.open(tmp_path, config=TINY) as store:
        assert store.groups() == {"g": [mqstore.GroupOffset("T", 0, 4, 4, 0)]}


def test_a_light_group_has_its_offset_in_a_table_of_its_own(tmp_path: Path) -> None:
    light = {**TINY, "enable_lmq": True, "enable_multi_dispatch": True}
    own = tmp_path / "config" / "lmqConsumerOffset.json"
    with mqstore.open(tmp_path, "a", config=light) as store:
        for body in (b"0", b"1", b"2"):
            store.append("T", body, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    own.parent.mkdir(exist_ok=True)
    own.write_text('{"offsetTable":{"T@g":{0:1}},"lmqOffsetTable":{"%LMQ%a@%LMQ%me":1}}')
    with mqstore.open(tmp_path, "r+", config=TINY) as store, store.group("%LMQ%me") as group:
        assert store.groups()["%LMQ%me"] == [mqstore.GroupOffset("%LMQ%a", 0, 1, 3, 2)]
        assert bodies(group.poll("%LMQ%a", max_messages=1)) == [b"1"]
        group.commit()
    table = json.loads(mqstore.read_config_json(own))
    assert table["lmqOffsetTable"] == {"%LMQ%a@%LMQ%me": 2}
    assert table["offsetTable"] == {"T@g": {"0": 1}}


@pytest.mark.parametrize("damage", ["gone", "empty", "unreadable"])
def test_a_backup_counts_where_the_offsets_cannot_be_read(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    with mqstore.open(tmp_path, "a", config=TINY) as store, store.group("g") as group:
        store.append_many([message(body=body) for body in (b"0", b"1", b"2")])
        for _ in range(2):
            group.poll("T", max_messages=1)
            group.commit()
        assert store.warnings == []
    kept = path.with_name("consumerOffset.json.bak").read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "unreadable": b"{"}[damage])
    with mqstore.open(tmp_path, "r+", config=TINY) as store, store.group("g") as group:
        assert store.groups() == {"g": [mqstore.GroupOffset("T", 0, 1, 3, 2)]}
        (warning,) = store.warnings
        assert "consumerOffset.json.bak" in warning
        assert bodies(group.poll("T", max_messages=1)) == [b"1"]
        if damage == "unreadable":
            # A broker would delete it; here nothing that may hold offsets is replaced.
            with pytest.raises(mqstore.CorruptionError):
                group.commit()
            assert path.read_bytes() == b"{"
        else:
            group.commit()
            assert store.warnings == []
    assert path.with_name("consumerOffset.json.bak").read_bytes() == kept


def test_offsets_that_cannot_be_read_keep_no_queue(store: mqstore.Store) -> None:
    group = store.group("g")
    (first,) = group.poll("orders", max_messages=1)
    assert group.ack(first)
    group.commit()
    offsets = Path(store.path, "config", "consumerOffset.json")
    good = offsets.read_bytes()
    offsets.with_suffix(".json.bak").unlink()
    offsets.write_bytes(b"{x")
    for _ in range(2):
        with pytest.raises(mqstore.CorruptionError):
            group.poll("orders")
    offsets.write_bytes(good)
    assert sorted(bodies(group.poll("orders"))) == [b"a1", b"a2", b"b0"]


def test_a_commit_that_failed_moves_no_other_consumer_back(tmp_path: Path) -> None:
    config = mqstore.StoreConfig(**TINY, delivery=True)
    with mqstore.open(tmp_path, "a", config=config) as store, mqstore.open(tmp_path) as reader:
        for queue_id in (0, 0, 0, 1):
            store.append("orders", b"", queue_id=queue_id)
        hinders = tmp_path / "config" / "consumerOffset.json.tmp"
        hinders.mkdir()
        one, other = store.group("g"), reader.group("g")
        with pytest.raises(mqstore.StoreIOError):
            one.process("orders", bool, max_messages=1, idle_s=0)
        hinders.rmdir()
        assert other.process("orders", bool, idle_s=0).handled == 0
        store.append("orders", b"", queue_id=1)
        assert one.process("orders", bool, idle_s=0).handled == 1
        places = {at.queue_id: at.queue_offset for at in store.groups()["g"]}
        assert places == {0: 3, 1: 2}


def test_a_reader_is_told_that_its_store_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    mqstore.open(root, "a", config=TINY).close()
    with mqstore.open(root) as reader, reader.group("g") as group:
        root.rename(tmp_path / "elsewhere")
        for call in (
            reader.refresh,
            lambda: group.poll("orders"),
            lambda: reader.wait(0, timeout_s=9),
        ):
            with pytest.raises(mqstore.StoreIOError, match="the store is gone"):
                call()


@pytest.mark.parametrize("timeout", [-1, float("nan"), -0.5])
def test_a_timeout_below_0_is_refused(store: mqstore.Store, timeout: float) -> None:
    with pytest.raises(ValueError, match=r"^timeout_s: expected 0 s or more, got"):
        store.wait(0, timeout_s=timeout)
    with pytest.raises(ValueError, match=r"^timeout_s: expected 0 s or more, got"):
        store.group("g").poll("orders", timeout_s=timeout)


def test_late_messages_come_once_though_their_commit_fails(
    tmp_path: Path, store: mqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    group = store.group("g")
    first, *_ = group.poll("orders", visibility_s=1)
    assert group.ack(first)
    hinders = tmp_path / "config" / "consumerOffset.json.tmp"
    hinders.mkdir(parents=True)
    wait_until(lambda: "group g" in caplog.text)
    hinders.rmdir()
    assert sorted(bodies(group.poll("orders"))) == [b"a1", b"a2", b"b0"]
    assert group.poll("orders") == []


SHARING = """
import os, sys, mqstore
path, log = sys.argv[1:]
log = os.open(log, os.O_WRONLY | os.O_APPEND)
with mqstore.open(path, "r") as store, store.group("g") as group:
    print(flush=True)
    group.process("orders", lambda message: os.write(log, message.body + b"\\n"), max_messages=8)
"""


def test_processes_beside_a_writer_handle_each_message_once_and_in_order(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    log.touch()
    command = [sys.executable, "-c", SHARING, str(root), str(log)]
    config = {
        **TINY,
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 20_000,
    }
    with mqstore.open(root, "a", config=config) as store:
        appended = [store.append("orders", b"%d" % number, queue_id=number) for number in range(5)]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
        try:
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()
            # They read while it appends: each sees more than the others for a moment.
            end_s = time.monotonic() + 120
            while len(appended) < 5000:
                while len(appended) - log.read_bytes().count(b"\n") > 60:
                    assert time.monotonic() < end_s, "nobody handles them"
                    threading.Event().wait(0.001)
                number = len(appended)
                appended.append(store.append("orders", b"%d" % number, queue_id=number % 5))
            wait_until(lambda: sum(at.lag for at in store.groups()["g"]) == 0)
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    handled = [int(line) for line in log.read_bytes().split()]
    for queue_id in range(5):
        of_queue = [number for number in handled if number % 5 == queue_id]
        assert of_queue == list(range(queue_id, 5000, 5))


def test_a_table_that_stays_the_same_is_read_once(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config=TINY) as store, store.group("g") as group:
        store.append("t", b"")
        path = tmp_path / "config/consumerOffset.json"
        path.parent.mkdir(exist_ok=True)
        others = {f"t{number}@g": {"0": 1} for number in range(2000)}
        path.write_text(json.dumps({"offsetTable": others}))

        def read() -> int:
            def count() -> int:
                return int(Path("/proc/self/io").read_text().split()[1])

            before = count()
            group.lag()
            return count() - before

        assert read() > 30_000
        # A file that was just written may change again at the same time.
        wait_until(lambda: read() < 1000)
