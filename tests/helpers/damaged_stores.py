"""Damaged stores: real ones of RocketMQ 5.3.3 and 5.5.0, closed and crashed."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import mqstore
from helpers.golden import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Name, golden case and whether it is closed first.
BASES = {
    "crashed-53": ("abort-intact", False),
    "crashed-55": ("abort-intact-55", False),
    "closed-53": ("abort-intact", True),
    "closed-55": ("abort-intact-55", True),
    "broker-53": ("broker", False),
    "broker-55": ("broker-55", False),
    "batch-53": ("batch", False),
    "batch-55": ("batch-55", False),
    "light-53": ("lmq", False),
    "light-55": ("lmq-55", False),
    "rocksdb-55": ("rocksdb-55", False),
    "rocksdb-double-55": ("rocksdb-double-55", False),
}
LOGS = ("crashed-53", "crashed-55", "closed-53", "closed-55")
BROKERS = ("broker-53", "broker-55")
CLOSED = ("closed-53", "closed-55")
CRASHED = ("crashed-53", "crashed-55")


def make_base(name: str, folder: Path) -> Path:
    """Unpacks a base; RocketMQ's own files only."""
    golden, closed = BASES[name]
    case = Case(golden)
    root = case.unpack(folder)
    (folder / "broker.conf").write_text(
        "".join(f"{key}={value}\n" for key, value in case.settings.items())
    )
    if closed:
        mqstore.recover(root, dry_run=False, config=folder / "broker.conf")
        for own in ("mqstore.mark", "mqstore.seal", "config/mqstore.json"):
            (root / own).unlink(missing_ok=True)
        shutil.rmtree(root / "quarantine", ignore_errors=True)
    return root


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def filled(root: Path) -> list[Path]:
    """The files of the log that hold messages."""
    return [path for path in log_files(root) if any(path.read_bytes())]


def records(path: Path) -> list[tuple[int, int]]:
    """Position and size of each record of a log file."""
    data, at, found = path.read_bytes(), 0, []
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in {0xDAA320A7, 0xDAA320AB} or size <= 0:
            break
        found.append((at, size))
        at += size
    return found


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int) -> None:
    patch(path, at, bytes([path.read_bytes()[at] ^ 0x55]))


def last_file_gone(root: Path) -> None:
    for path in log_files(root)[len(filled(root)) - 1 :]:
        path.unlink()


def last_files_gone(root: Path) -> None:
    for path in log_files(root)[len(filled(root)) - 2 :]:
        path.unlink()


def last_file_gone_with_an_old_checkpoint(root: Path) -> None:
    last_file_gone(root)
    patch(root / "checkpoint", 0, bytes(48))


def last_file_gone_without_queues(root: Path) -> None:
    last_file_gone(root)
    shutil.rmtree(root / "consumequeue")


def spare(root: Path) -> Path:
    """The next file of the log, made ahead and without data."""
    last = filled(root)[-1]
    path = last.with_name(f"{int(last.name) + last.stat().st_size:020}")
    path.write_bytes(bytes(last.stat().st_size))
    return path


def last_file_gone_beside_a_spare(root: Path) -> None:
    spare(root)
    filled(root)[-1].unlink()


def last_file_gone_beside_an_empty_spare(root: Path) -> None:
    os.truncate(spare(root), 0)
    filled(root)[-1].unlink()


def last_file_emptied_beside_a_spare(root: Path) -> None:
    spare(root)
    os.truncate(filled(root)[-1], 0)


def last_file_zeroed(root: Path) -> None:
    last = filled(root)[-1]
    last.write_bytes(bytes(last.stat().st_size))


def all_files_gone(root: Path) -> None:
    for path in log_files(root):
        path.unlink()


def disk_not_mounted(root: Path) -> None:
    for path in list(root.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (root / "commitlog").mkdir()


def body_damaged(root: Path) -> None:
    path = filled(root)[1]
    at, size = records(path)[2]
    flip(path, at + 88 + (size - 88) // 8)


def length_damaged(root: Path) -> None:
    path = filled(root)[0]
    patch(path, records(path)[3][0], struct.pack(">i", 0x7FFF0000))


def magic_damaged_near_the_end(root: Path) -> None:
    path = filled(root)[-2]
    found = records(path)
    patch(path, found[len(found) // 2][0] + 4, b"\0\0\0\0")


def zeros_inside(root: Path) -> None:
    path = filled(root)[2]
    found = records(path)
    begin, end = found[1][0], found[3][0]
    patch(path, begin, bytes(end - begin))


def last_record_torn(root: Path) -> None:
    path = filled(root)[-1]
    at, size = records(path)[-1]
    patch(path, at + size // 2, bytes(size - size // 2))


def two_files_swapped(root: Path) -> None:
    first, second = filled(root)[1:3]
    aside = first.with_name("x")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def three_files_in_a_ring(root: Path) -> None:
    first, second, third = filled(root)[1:4]
    aside = first.with_name("x")
    first.rename(aside)
    second.rename(first)
    third.rename(second)
    aside.rename(third)


def file_renamed(root: Path) -> None:
    path = filled(root)[2]
    path.rename(path.with_name(path.name + ".bak"))


def last_file_renamed(root: Path) -> None:
    path = filled(root)[-1]
    path.rename(path.with_name("copy of it"))


def foreign_file(root: Path) -> None:
    """A file of another place in a log, under the next free name."""
    last = log_files(root)[-1]
    other = bytearray(filled(root)[1].read_bytes())
    name = f"{int(last.name) + len(other):020}"
    (root / "commitlog" / name).write_bytes(other)


def backup_in_the_log(root: Path) -> None:
    path = filled(root)[1]
    shutil.copy(path, path.with_name(path.name + ".bak"))


def notes_in_the_log(root: Path) -> None:
    (root / "commitlog" / "notes.txt").write_text("do not touch\n")


def last_file_cut_short(root: Path) -> None:
    for path in log_files(root)[len(filled(root)) :]:
        path.unlink()
    os.truncate(filled(root)[-1], 7)


def middle_file_cut_short(root: Path) -> None:
    os.truncate(filled(root)[2], 1000)


def middle_file_gone(root: Path) -> None:
    filled(root)[2].unlink()


def number_changed(root: Path) -> None:
    path = filled(root)[1]
    at = records(path)[1][0] + 20
    (number,) = struct.unpack_from(">q", path.read_bytes(), at)
    patch(path, at, struct.pack(">q", number + 1))


def index_time_from_the_future(root: Path) -> None:
    patch(root / "checkpoint", 16, struct.pack(">q", 2**62))


def checkpoint_gone(root: Path) -> None:
    (root / "checkpoint").unlink()


def index_gone(root: Path) -> None:
    shutil.rmtree(root / "index")


def index_zeroed(root: Path) -> None:
    for path in (root / "index").iterdir():
        patch(path, 0, bytes(40))


def queues(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").glob("*/*") if path.name.isdecimal())


def queue_gone(root: Path) -> None:
    shutil.rmtree(queues(root)[0].parent)


def all_queues_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def queue_entry_changed(root: Path) -> None:
    path = min(queues(root)[0].iterdir())
    flip(path, 20 + 7)


def queue_file_cut_short(root: Path) -> None:
    os.truncate(max(queues(root)[0].iterdir()), 30)


def config(root: Path, name: str) -> Path:
    return root / "config" / name


def remove(root: Path, *names: str) -> None:
    for name in names:
        config(root, name).unlink(missing_ok=True)


def topics_gone(root: Path) -> None:
    remove(root, "topics.json", "topics.json.bak")


def topics_gone_but_for_the_backup(root: Path) -> None:
    shutil.copy(config(root, "topics.json"), config(root, "topics.json.bak"))
    remove(root, "topics.json")


def offsets_gone(root: Path) -> None:
    remove(root, "consumerOffset.json", "consumerOffset.json.bak")


def offsets_empty(root: Path) -> None:
    remove(root, "consumerOffset.json.bak")
    config(root, "consumerOffset.json").write_bytes(b"")


def offsets_without_a_group(root: Path) -> None:
    remove(root, "consumerOffset.json.bak")
    config(root, "consumerOffset.json").write_text('{"offsetTable":{}}')


def offsets_are_nonsense(root: Path) -> None:
    remove(root, "consumerOffset.json.bak")
    config(root, "consumerOffset.json").write_text("{damaged")


def offsets_gone_but_for_the_backup(root: Path) -> None:
    shutil.copy(config(root, "consumerOffset.json"), config(root, "consumerOffset.json.bak"))
    remove(root, "consumerOffset.json")


def set_offset(root: Path, offset: int) -> None:
    queue = next(
        queue for queue in queues(root) if not queue.parent.name.startswith(("%", "RMQ", "SCH"))
    )
    table = {"offsetTable": {f"{queue.parent.name}@tried": {queue.name: offset}}}
    remove(root, "consumerOffset.json.bak")
    config(root, "consumerOffset.json").write_text(json.dumps(table))


def negative_offset(root: Path) -> None:
    set_offset(root, -3)


def offset_beyond(root: Path) -> None:
    set_offset(root, 1_000_000)


def wrong_file_restored(root: Path) -> None:
    """A file that was put back from the wrong copy."""
    second, third = filled(root)[1:3]
    third.write_bytes(second.read_bytes())


def log_file_too_long(root: Path) -> None:
    path = filled(root)[1]
    path.write_bytes(path.read_bytes() + bytes(4096))


def stray_file_in_a_queue(root: Path) -> None:
    (queues(root)[0] / "notes").write_text("do not touch")


def queue_is_a_file(root: Path) -> None:
    queue = queues(root)[0]
    shutil.rmtree(queue)
    queue.write_text("no folder")


def body_damaged_beside_a_quarantine(root: Path) -> None:
    path = filled(root)[0]
    at, size = records(path)[0]
    kept = root / "quarantine" / "20260101000000000-0"
    kept.mkdir(parents=True)
    record = path.read_bytes()[at : at + size]
    (kept / f"commitlog-{int(path.name) + at:020}").write_bytes(record)
    body_damaged(root)


@dataclass(frozen=True)
class Damage:
    """A way to break a store, and the verdict that is expected."""

    do: Callable[[Path], None]
    codes: frozenset[str]
    bases: tuple[str, ...] = LOGS
    starts: bool = True
    lost: bool = False
    """Whether messages are lost that queues or index know."""
    curable: bool = True
    """Whether the commands leave nothing wrong."""
    commands: frozenset[str] = field(default_factory=frozenset)
    """Beginnings of commands that must be among those printed."""
    never: frozenset[str] = frozenset({"--drop-beyond"})
    """Words that no printed command may hold."""
    sound: bool = False
    """Whether the codes are only worth knowing."""
    by_hand: str = ""
    """The command of the finding's page, where none is printed."""


def damage(do: Callable[[Path], None], *codes: str, **more: object) -> Damage:
    for name in ("commands", "never"):
        if name in more:
            more[name] = frozenset(more[name])  # type: ignore[call-overload]
    return Damage(do, frozenset(codes), **more)  # type: ignore[arg-type]


RECOVER = "mqstore recover "
SALVAGE = "mqstore salvage "
REBUILD = "mqstore rebuild "
KEEPS = ("--drop-beyond", RECOVER)
END = {"lost": True, "curable": False, "never": (RECOVER, REBUILD)}
INSIDE = {"lost": True, "commands": (SALVAGE,), "never": KEEPS}
INSIDE_BESIDE = {"lost": True, "commands": (SALVAGE, "cp -a "), "never": ("--drop-beyond",)}
MOVED = {"commands": ("mv ",), "never": (RECOVER, REBUILD, SALVAGE)}

DAMAGES = [
    damage(last_file_gone, "MQ-DOC-13", **END),
    damage(last_files_gone, "MQ-DOC-13", **END),
    damage(last_file_gone_with_an_old_checkpoint, "MQ-DOC-13", **END),
    damage(last_file_gone_without_queues, "MQ-DOC-13", **END),
    damage(last_file_gone_beside_a_spare, "MQ-DOC-13", **END),
    damage(last_file_gone_beside_an_empty_spare, "MQ-DOC-13", **END),
    damage(last_file_emptied_beside_a_spare, "MQ-DOC-13", starts=False, **END),
    damage(last_file_zeroed, "MQ-DOC-13", **END),
    damage(all_files_gone, "MQ-DOC-13", **END),
    damage(disk_not_mounted, "MQ-LOG-17", curable=False, bases=("closed-53", "closed-55")),
    damage(body_damaged, "MQ-LOG-02", **INSIDE),
    # In what was never flushed it is MQ-LOG-08.
    damage(length_damaged, **INSIDE),
    damage(magic_damaged_near_the_end, **INSIDE),
    damage(zeros_inside, **INSIDE),
    damage(two_files_swapped, "MQ-DOC-14", **MOVED),
    damage(three_files_in_a_ring, "MQ-DOC-14", **MOVED),
    damage(file_renamed, "MQ-DOC-14", starts=False, **MOVED),
    damage(last_file_renamed, "MQ-DOC-14", starts=False, **MOVED),
    damage(foreign_file, "MQ-DOC-14", **MOVED),
    damage(backup_in_the_log, "MQ-DOC-14", starts=False, **MOVED),
    damage(notes_in_the_log, "MQ-DOC-14", starts=False, **MOVED),
    damage(last_file_cut_short, "MQ-FS-01", starts=False, **INSIDE),
    damage(middle_file_cut_short, "MQ-FS-01", starts=False, **INSIDE),
    damage(middle_file_gone, "MQ-FS-02", **INSIDE),
    damage(last_record_torn, lost=True),
    damage(number_changed, "MQ-CQ-17", curable=False),
    damage(index_time_from_the_future, "MQ-CK-01", commands=(RECOVER,)),
    damage(checkpoint_gone),
    damage(index_gone),
    damage(index_zeroed),
    damage(queue_gone, "MQ-DOC-01"),
    damage(all_queues_gone, "MQ-DOC-01"),
    damage(queue_entry_changed),
    damage(queue_file_cut_short, starts=False),
    damage(wrong_file_restored, "MQ-DOC-14", lost=True, **MOVED),
    damage(log_file_too_long, "MQ-FS-01", starts=False, commands=(SALVAGE,), never=KEEPS),
    damage(stray_file_in_a_queue, "MQ-FS-03", starts=False, commands=("mv ",)),
    damage(queue_is_a_file, "MQ-FS-03", "MQ-DOC-01", commands=("mv ", REBUILD)),
    damage(body_damaged_beside_a_quarantine, "MQ-LOG-02", "MQ-DOC-15", **INSIDE_BESIDE),
    # Their batch queues need the table.
    damage(topics_gone, "MQ-CFG-07", bases=BROKERS, starts=False, commands=(REBUILD,)),
    damage(topics_gone_but_for_the_backup, "MQ-CFG-02", bases=BROKERS, commands=("cp ",)),
    damage(offsets_gone, "MQ-OFF-05", bases=BROKERS, commands=("mqstore groups ",)),
    damage(offsets_empty, "MQ-OFF-05", bases=BROKERS, commands=("mqstore groups ",)),
    damage(offsets_without_a_group, "MQ-OFF-05", bases=BROKERS, commands=("mqstore groups ",)),
    damage(offsets_are_nonsense, "MQ-OFF-05", bases=BROKERS, commands=("mqstore groups ",)),
    damage(offsets_gone_but_for_the_backup, "MQ-CFG-02", bases=BROKERS, commands=("cp ",)),
    damage(negative_offset, "MQ-OFF-04", bases=BROKERS, commands=("mqstore groups ",)),
    damage(offset_beyond, "MQ-OFF-01", bases=BROKERS, commands=(RECOVER,)),
]
STATES = [(base, each) for each in DAMAGES for base in each.bases]
# One base of each damage, in turn.
SOME = [(each.bases[at % len(each.bases)], each) for at, each in enumerate(DAMAGES)]

Identity = tuple[object, ...]
MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")


def identity(message: mqstore.StoredMessage) -> Identity:
    return (
        message.topic,
        message.queue_id,
        message.born_timestamp_ms,
        message.unique_key,
        message.raw_body,
    )


def readable(root: Path) -> Counter[Identity]:
    """Every whole message that the files of the log hold, whatever their names."""
    return whole_messages(log_files(root))


def whole_messages(paths: Iterable[Path]) -> Counter[Identity]:
    found = {}
    for path in paths:
        data = path.read_bytes() if path.is_file() else b""
        at = 0
        while (magic := MAGIC.search(data, at)) is not None:
            begin, at = magic.start() - 4, magic.start() + 1
            size = int.from_bytes(data[max(begin, 0) : begin + 4], "big", signed=True)
            if begin < 0 or size < 50:
                continue
            try:
                message = mqstore.decode(data[begin : begin + size])
            except (mqstore.StoreError, ValueError):
                continue
            found[message.physical_offset, identity(message)] = identity(message)
            at = begin + size
    return Counter(found.values())


def run(command: str, folder: Path) -> int:
    """Runs a printed command as it stands, in a shell."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert "Traceback" not in done.stderr, done.stderr
    # Both tell what is still wrong by their exit code.
    told = 1 if command.startswith(("mqstore salvage ", "mqstore doctor ")) else 0
    assert done.returncode in {0, told}, done
    return done.returncode


def cure(root: Path, conf: Path) -> mqstore.DoctorReport:
    """Runs the printed commands in order, until none is printed; what is said at the end.

    A store is looked at again after files were moved, as the last of those commands does.
    """
    for _ in range(3):
        report = mqstore.doctor(root, config=conf)
        if not report.commands:
            return report
        for command in report.commands:
            run(command, root.parent)
    return mqstore.doctor(root, config=conf)


def check_whole(root: Path, conf: Path, before: Counter[Identity]) -> None:
    """Nothing is lost, queues lead to all messages, keys are found, and appends go on."""
    with mqstore.open(root, config=conf) as store:
        scanned = Counter(identity(message) for message in store.scan())
        assert before <= scanned, before - scanned
        queued: Counter[Identity] = Counter()
        for queue in store.queues():
            count = max(queue.max_offset - queue.min_offset, 1)
            read = store.read(queue.topic, queue.queue_id, queue.min_offset, max_messages=count)
            numbers = [message.queue_offset for message in read.messages]
            # In a light queue a message has the number of its own queue.
            is_light = queue.topic.startswith("%LMQ%")
            assert is_light or numbers == sorted(set(numbers)), (queue, numbers)
            queued.update(identity(message) for message in read.messages)
        wanted = Counter(
            identity(message)
            for message in store.scan()
            if message.transaction in {"none", "commit"} and message.queue_id < 2**31 - 1
        )
        assert wanted <= queued, wanted - queued
        keyed = [message for message in store.scan() if message.keys][::17]
        for message in keyed:
            found = store.query(message.topic, message.keys[0], max_messages=1000)
            assert identity(message) in [identity(one) for one in found]
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    # A light queue takes no message of its own.
    taking = (queue for queue in ends if not queue[0].startswith("%LMQ%"))
    topic, queue_id = next(taking, ("T0", 0))
    with mqstore.open(root, "r+", config=conf) as store:
        store.append(topic, b"goes on", queue_id=queue_id, keys="goes-on")
        end = ends.get((topic, queue_id), 0)
        (message,) = store.read(topic, queue_id, end).messages
        assert (message.body, message.queue_offset) == (b"goes on", end)


def epoch_lines(*epochs: tuple[int, int]) -> str:
    """``epochFileCheckpoint`` as RocketMQ writes it: count, checksum, a line an epoch."""
    lines = "".join(f"{epoch}-{offset}\n" for epoch, offset in epochs)
    return f"{len(epochs)}\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"
