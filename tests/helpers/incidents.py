"""Incidents that operators report, each on a store of a real broker: the table of `test_incidents`.

Most damages are those of `damaged_stores` and `mixed_damages`; here are the rest, and the choice.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import zlib
from typing import TYPE_CHECKING

from helpers import damaged_stores as one
from helpers import mixed_damages as more
from helpers.damaged_stores import Damage, config, damage, filled, patch, queues, records

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = struct.Struct(">qiq")


def noise(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(path.stat().st_size))


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def add_to_conf(root: Path, line: str) -> None:
    with (root.parent / "broker.conf").open("a") as conf:
        conf.write(f"{line}\n")


def head_of_file_zeroed(root: Path) -> None:
    patch(filled(root)[1], 0, bytes(512))


def first_file_gone(root: Path) -> None:
    filled(root)[0].unlink()


def file_also_in_a_second_folder(root: Path) -> None:
    """The same name in two folders of the log, one of them made ahead and without data."""
    file = filled(root)[2]
    (second := root / "more").mkdir()
    (second / file.name).write_bytes(bytes(file.stat().st_size))
    add_to_conf(root, f"storePathCommitLog={root}/commitlog,{second}")


def closed_with_abort(root: Path) -> None:
    (root / "abort").touch()


def crashed_without_abort(root: Path) -> None:
    (root / "abort").unlink()


def checkpoint_is_noise(root: Path) -> None:
    noise(root / "checkpoint")


def checkpoint_from_the_future(root: Path) -> None:
    patch(root / "checkpoint", 0, struct.pack(">qqq", *[2**45] * 3))


def index_file_cut_short(root: Path) -> None:
    cut_in_half(min((root / "index").iterdir()))


def index_is_noise(root: Path) -> None:
    noise(min((root / "index").iterdir()))


def first_queue_file_gone(root: Path) -> None:
    min(queues(root)[0].iterdir()).unlink()


def last_queue_file_gone(root: Path) -> None:
    max(queues(root)[0].iterdir()).unlink()


def queue_file_is_noise(root: Path) -> None:
    noise(min(queues(root)[0].iterdir()))


def queue_file_shifted(root: Path) -> None:
    """Its first entry is gone, and all others lie one place too early."""
    file = min(queues(root)[0].iterdir())
    file.write_bytes(file.read_bytes()[20:] + bytes(20))


def topics_cut_short(root: Path) -> None:
    one.remove(root, "topics.json.bak")
    cut_in_half(config(root, "topics.json"))


def groups_cut_short(root: Path) -> None:
    one.remove(root, "subscriptionGroup.json.bak")
    cut_in_half(config(root, "subscriptionGroup.json"))


def delay_offsets_gone(root: Path) -> None:
    one.remove(root, "delayOffset.json", "delayOffset.json.bak")


def timer_files_gone(root: Path) -> None:
    one.remove(root, "timercheck", "timermetrics", "timermetrics.bak")


def disk_was_full(root: Path) -> None:
    """The last record is half written, and all tables are empty beside their backups."""
    one.last_record_torn(root)
    more.tables_emptied_by_a_full_disk(root)


def half_of_a_copy(root: Path) -> None:
    """The log and the queues of one topic; neither index nor checkpoint nor tables."""
    for path in sorted((root / "consumequeue").iterdir())[1:]:
        shutil.rmtree(path)
    for name in ("index", "config"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "checkpoint").unlink()


def copy_of_a_log_before_its_queues(root: Path) -> None:
    """As from a running broker: the log lacks the newest messages that the queues know."""
    *_, last, newest = filled(root)
    newest.unlink()
    begin = records(last)[9][0]
    patch(last, begin, bytes(last.stat().st_size - begin))


def copy_that_broke_off(root: Path) -> None:
    """As by rsync: the last file is there in part, under a name of its own."""
    last = filled(root)[-1]
    last.with_name(f".{last.name}.Xa81kQ").write_bytes(last.read_bytes()[:3000])
    for path in one.log_files(root):
        if path.name >= last.name:
            path.unlink()


def linked(root: Path, name: str) -> None:
    """A folder that lies on another disk."""
    (disk := root.parent / "disk").mkdir()
    shutil.move(root / name, disk / name)
    (root / name).symlink_to(f"../disk/{name}")


def queue_gone_behind_a_link(root: Path) -> None:
    one.queue_gone(root)
    linked(root, "consumequeue")


def damage_behind_a_link(root: Path) -> None:
    one.body_damaged(root)
    linked(root, "commitlog")


def disk_of_the_queues_not_mounted(root: Path) -> None:
    linked(root, "consumequeue")
    (root.parent / "disk").rename(root.parent / "other disk")


def wrong_size_in_the_settings(root: Path) -> None:
    add_to_conf(root, "mappedFileSizeCommitLog=16384")


def queues_of_another_broker(root: Path) -> None:
    """All entries lead to places that are no record's."""
    for queue in queues(root):
        for file in queue.iterdir():
            data = file.read_bytes()
            rows = [ENTRY.unpack_from(data, at) for at in range(0, len(data), ENTRY.size)]
            moved = [(at + 50 if size else 0, size, tags) for at, size, tags in rows]
            file.write_bytes(b"".join(ENTRY.pack(*row) for row in moved))


def queue_database_gone(root: Path) -> None:
    add_to_conf(root, "storeType=defaultRocksDB")
    shutil.rmtree(root / "consumequeue")


def epoch_ended(root: Path) -> None:
    """A slave that cut its log in memory alone: queues end where the new epoch begins."""
    last = filled(root)[-2]
    begin = int(last.name) + records(last)[5][0]
    for queue in queues(root):
        for file in queue.iterdir():
            data = file.read_bytes()
            rows = [ENTRY.unpack_from(data, at) for at in range(0, len(data), ENTRY.size)]
            kept = [row if row[0] < begin else (0, 0, 0) for row in rows]
            file.write_bytes(b"".join(ENTRY.pack(*row) for row in kept))
    lines = f"1-0\n2-{begin}\n"
    checksum = zlib.crc32(lines.encode()) & 0x7FFFFFFF
    (root / "epochFileCheckpoint").write_text(f"2\n{checksum}\n{lines}")
    patch(root / "checkpoint", 32, struct.pack(">q", begin - 1000))


def log_of_dledger(root: Path) -> None:
    """Records of DLedger: a head of 48 bytes before each."""
    first = filled(root)[0]
    data, size = first.read_bytes(), first.stat().st_size
    (ledger := root / "dledger-n0" / "data").mkdir(parents=True)
    found, at = bytearray(), 0
    for number, (begin, length) in enumerate(records(first)):
        if at + 48 + length + 48 > size:
            break
        head = struct.pack(">iiqqqiiii", 1, 48 + length, number, 1, at, 0, 0, 0, length)
        found += head + data[begin : begin + length]
        at += 48 + length
    (ledger / first.name).write_bytes(bytes(found) + bytes(size - at))


def topic_deleted(root: Path) -> None:
    """It is gone from the table and its queues, and its messages are still in the log."""
    path = config(root, "topics.json")
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["OrderTopic"]
    path.write_text(json.dumps(table))
    one.remove(root, "topics.json.bak")
    shutil.rmtree(root / "consumequeue" / "OrderTopic")


MOUNTED = "mv -T STORE/'../other disk' STORE/../disk"
RIGHT_SIZE = "echo mappedFileSizeCommitLog=8192 >> STORE/../broker.conf"
MOVED_ASIDE = "mv STORE/config/subscriptionGroup.json STORE/"
REBUILT = "mqstore rebuild STORE --apply"

NEW: list[tuple[str, Damage]] = [
    ("closed-53", damage(head_of_file_zeroed, "MQ-LOG-06", lost=True)),
    ("closed-55", damage(first_file_gone, "MQ-DOC-16", sound=True)),
    ("closed-53", damage(file_also_in_a_second_folder, "MQ-FS-10")),
    ("closed-53", damage(closed_with_abort, "MQ-DOC-02", "MQ-DOC-07")),
    ("crashed-55", damage(crashed_without_abort, "MQ-CFG-07", sound=True)),
    ("crashed-53", damage(checkpoint_is_noise, "MQ-CK-01", "MQ-CK-02", "MQ-CK-04")),
    ("crashed-55", damage(checkpoint_from_the_future, "MQ-CK-01")),
    ("closed-53", damage(index_file_cut_short, "MQ-DOC-03")),
    ("closed-55", damage(index_is_noise, "MQ-DOC-03")),
    ("closed-53", damage(first_queue_file_gone, "MQ-DOC-01")),
    ("crashed-53", damage(last_queue_file_gone, "MQ-DOC-01")),
    ("closed-55", damage(queue_file_is_noise, "MQ-DOC-04", "MQ-DOC-05")),
    ("closed-53", damage(queue_file_shifted, "MQ-DOC-01", "MQ-DOC-04")),
    ("broker-53", damage(topics_cut_short, "MQ-CFG-01")),
    ("broker-55", damage(groups_cut_short, "MQ-CFG-01", by_hand=MOVED_ASIDE)),
    ("broker-53", damage(delay_offsets_gone, "MQ-OFF-06", sound=True)),
    ("broker-55", damage(timer_files_gone)),
    ("broker-53", damage(disk_was_full, "MQ-CFG-02")),
    ("closed-53", damage(half_of_a_copy, "MQ-DOC-01", "MQ-DOC-03")),
    ("closed-55", damage(copy_of_a_log_before_its_queues, "MQ-DOC-17", lost=True)),
    ("closed-53", damage(copy_that_broke_off, "MQ-DOC-17", lost=True, starts=False)),
    ("closed-53", damage(queue_gone_behind_a_link, "MQ-DOC-01")),
    ("closed-53", damage(damage_behind_a_link, "MQ-LOG-02", lost=True)),
    ("closed-53", damage(disk_of_the_queues_not_mounted, "MQ-FS-04", by_hand=MOUNTED)),
    (
        "closed-53",
        damage(wrong_size_in_the_settings, "MQ-CFG-08", starts=False, by_hand=RIGHT_SIZE),
    ),
    ("closed-53", damage(queues_of_another_broker, "MQ-DOC-18", by_hand=REBUILT)),
    ("rocksdb-55", damage(queue_database_gone, "MQ-RDB-03")),
    ("closed-53", damage(epoch_ended, "MQ-DOC-19")),
    ("closed-53", damage(log_of_dledger, "MQ-DL-01", curable=False)),
    ("broker-55", damage(topic_deleted, "MQ-DOC-11", sound=True)),
]
# Chosen from the tables of their own.
CHOSEN = {
    "last_file_gone": "closed-53",
    "last_file_zeroed": "closed-55",
    "middle_file_gone": "crashed-53",
    "middle_file_cut_short": "closed-53",
    "log_file_too_long": "closed-55",
    "body_damaged": "crashed-55",
    "zeros_inside": "closed-53",
    "last_record_torn": "crashed-53",
    "two_files_swapped": "closed-55",
    "file_renamed": "crashed-53",
    "wrong_file_restored": "closed-53",
    "notes_in_the_log": "closed-55",
    "log_in_a_folder_of_the_log": "closed-53",
    "middle_file_compressed": "crashed-55",
    "checkpoint_gone": "closed-53",
    "index_gone": "closed-55",
    "all_queues_gone": "crashed-53",
    "queue_file_cut_short": "closed-53",
    "stray_file_in_a_queue": "closed-55",
    "number_changed": "closed-53",
    "light_queues_gone": "light-55",
    "batch_queues_gone": "broker-53",
    "topics_gone": "broker-55",
    "topics_gone_but_for_the_backup": "broker-53",
    "offsets_gone": "broker-55",
    "offsets_gone_but_for_the_backup": "broker-53",
    "rocksdb_table_gone": "rocksdb-55",
}
INCIDENTS = NEW + [
    (base, each)
    for base, each in [*one.STATES, *more.MORE_STATES]
    if CHOSEN.get(each.do.__name__) == base
]
