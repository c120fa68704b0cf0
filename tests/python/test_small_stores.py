"""How much disk a small store takes, and the settings with which a broker opens it."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import mqstore
from mqstore import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def sizes(root: Path) -> tuple[int, int]:
    """Bytes on disk, and apparent bytes."""
    stats = [path.stat() for path in root.rglob("*")]
    return sum(one.st_blocks for one in stats) * 512, sum(one.st_size for one in stats)


def bodies(root: Path) -> list[bytes]:
    with mqstore.open(root) as store:
        return [message.body for message in store.scan()]


def test_a_store_of_one_message_takes_under_2_mib_once_it_is_closed(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a") as store:
        store.append("orders", b"0", keys="k0")
    on_disk, apparent = sizes(tmp_path)
    assert on_disk < 2 * MIB
    # With RocketMQ's sizes, for a broker with default settings.
    assert apparent > 1024 * MIB
    for number in range(1, 4):
        # What was given back is taken again where it is needed.
        with mqstore.open(tmp_path, "r+") as store:
            assert store.recovery.mode == "clean"
            store.append("orders", b"%d" % number, keys=f"k{number}")
            assert [m.body for m in store.query("orders", "k0")] == [b"0"]
        assert sizes(tmp_path)[0] < 2 * MIB
    assert bodies(tmp_path) == [b"0", b"1", b"2", b"3"]
    with mqstore.open(tmp_path) as store:
        for number in range(4):
            assert [m.body for m in store.query("orders", f"k{number}")] == [b"%d" % number]
    assert mqstore.verify(tmp_path).ok


WRITER = """
import sys, mqstore
store = mqstore.open(sys.argv[1], "a")
count = int(sys.argv[2])
store.append_many([mqstore.Message("orders", bytes(100), keys=f"k{n}") for n in range(count)])
store.flush()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("count", [1, 50_000])
def test_disk_while_open_after_a_kill_and_after_a_close(tmp_path: Path, count: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        while_open, _ = sizes(tmp_path)
        writer.kill()
    killed, _ = sizes(tmp_path)
    with mqstore.open(tmp_path, "r+") as store:
        written = store.max_physical_offset
        assert store.recovery is not None
        assert store.recovery.mode == "crash"
    closed, _ = sizes(tmp_path)
    ahead = 25 * MIB if count == 1 else 25 * MIB + 256 * MIB + 2 * written
    assert 20 * MIB < while_open <= ahead
    # Threads of the writer may have taken more until the signal came.
    assert 20 * MIB < killed <= ahead
    assert closed < (2 * MIB if count == 1 else 25 * MIB + 2 * written)


def test_a_store_that_is_only_opened_takes_no_space_once_it_is_closed(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a") as store:
        store.append("orders", b"0", keys="k0")
    with mqstore.open(tmp_path, "r+") as store:
        store.flush()
        assert [m.body for m in store.query("orders", "k0")] == [b"0"]
    assert sizes(tmp_path)[0] < 2 * MIB


def test_the_preset_for_small_stores_is_small_and_stays_so(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=StoreConfig.embedded()) as store:
        store.append_many(
            [{"topic": "orders", "body": b"x" * 100, "keys": f"k{n}"} for n in range(100)]
        )
        assert sizes(root)[1] < 64 * MIB
    assert sizes(root)[1] < 64 * MIB
    with mqstore.open(root, "r+") as store:
        assert store.config.mapped_file_size_commit_log == 16 * MIB
        store.append("orders", b"more")
    assert len(bodies(root)) == 101


def test_the_preset_takes_further_settings() -> None:
    config = StoreConfig.embedded(flush_disk_type="SYNC_FLUSH", max_index_num=5000)
    assert (config.flush_disk_type, config.max_index_num) == ("SYNC_FLUSH", 5000)
    assert config.mapped_file_size_commit_log == StoreConfig.embedded().mapped_file_size_commit_log
    with pytest.raises(TypeError, match="near it: flush_disk_type"):
        StoreConfig.embedded(flush_disk_typ="SYNC_FLUSH")


@pytest.mark.parametrize(
    ("setting", "span", "number"),
    [
        ("flush_interval_commit_log", timedelta(seconds=2), 2000),
        ("keep_hours", timedelta(days=2), 48),
        ("sync_flush_timeout", timedelta(milliseconds=70), 70),
    ],
)
def test_a_timedelta_is_taken_in_the_unit_of_the_setting(
    setting: str, span: timedelta, number: int
) -> None:
    for config in (
        StoreConfig(**{setting: span}),  # type: ignore[arg-type] # one of them
        StoreConfig.from_mapping({setting: span}),
    ):
        assert getattr(config, setting) == number
        assert config.given() == {setting: number}


@pytest.mark.parametrize(
    ("setting", "span", "expected"),
    [
        ("keep_hours", timedelta(minutes=5), "whole hours"),
        ("flush_interval_commit_log", timedelta(microseconds=5), "whole milliseconds"),
        ("flush_interval_commit_log", timedelta(0), "1 to 86400000"),
        ("max_index_num", timedelta(1), "a whole number, got"),
    ],
)
def test_a_timedelta_that_is_no_such_number_is_refused(
    setting: str, span: timedelta, expected: str
) -> None:
    with pytest.raises(mqstore.ConfigError, match=f"{setting}: expected {expected}"):
        StoreConfig.from_mapping({setting: span})


def test_a_mistyped_setting_names_the_near_ones_in_each_form() -> None:
    for error, give in (
        (TypeError, lambda: StoreConfig(flush_intervall_commit_log=5)),  # type: ignore[call-arg]
        (mqstore.ConfigError, lambda: StoreConfig.from_mapping({"flush_intervall_commit_log": 5})),
    ):
        with pytest.raises(error, match="no such setting; near it: flush_interval_commit_log"):
            give()


def test_a_topic_with_a_dot_is_refused_with_the_way_to_have_it(tmp_path: Path) -> None:
    with (
        mqstore.open(tmp_path / "a", "a", config=StoreConfig.embedded()) as store,
        pytest.raises(mqstore.InvalidMessageError, match="validate_topic_names=False"),
    ):
        store.append("app.orders", b"x")
    config = StoreConfig(validate_topic_names=False)
    with mqstore.open(tmp_path / "b", "a", config=config) as store:
        store.append("app.orders", b"x")
        with pytest.raises(mqstore.InvalidMessageError, match="expected a name for a folder"):
            store.append("app/orders", b"x")
    assert bodies(tmp_path / "b") == [b"x"]
