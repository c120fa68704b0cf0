"""Whole messages out of damaged files: every one that is undamaged, and each once."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.golden import Case, manifest
from helpers.stores import PLACE, TIME, TINY, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

SETTINGS = {**TINY, "mapped_file_size_commit_log": 16384}


def made(root: Path, seed: int, count: int = 150, settings: dict[str, Any] = SETTINGS) -> Path:
    """A store with messages of all sizes in a few queues, over several files."""
    choose = random.Random(seed)
    with mqstore.open(root, "a", config=settings) as store:
        store.append_many(
            [
                message(
                    topic=choose.choice(["T", "orders", "audit"]),
                    queue_id=choose.randrange(2),
                    body=choose.randbytes(choose.choice([0, 1, 30, 300, 2000])),
                    unique_key=f"U{number:05}",
                    keys=[f"k{number % 7}"],
                    store_timestamp_ms=TIME + number,
                    sys_flag=choose.choice([0, 0, 0, 8]),
                )
                for number in range(count)
            ]
        )
    return root


def content(found: mqstore.StoredMessage) -> tuple[Any, ...]:
    """A message's content, apart from its offsets."""
    kept = {name: value for name, value in found.properties.items() if name[:5] != "INNER"}
    kept.pop("__CRC32#", None)
    return (
        found.topic,
        found.queue_id,
        found.store_timestamp_ms,
        found.born_host,
        found.sys_flag,
        found.flag,
        found.raw_body,
        tuple(kept.items()),
    )


def contents(root: Path, **config: Any) -> Counter[tuple[Any, ...]]:
    """Every message of a store."""
    with mqstore.open(root, config=config or None) as store:
        return Counter(content(found) for found in store.scan())


def undamaged(before: bytes, after: bytes, base: int = 0) -> Counter[tuple[Any, ...]]:
    """The messages of a log file that are the same byte for byte after something befell it."""
    found: Counter[tuple[Any, ...]] = Counter()
    at = 0
    while at + 8 <= len(before):
        size, magic = struct.unpack_from(">iI", before, at)
        if magic == 0xCBD43194:
            at += size
            continue
        if magic not in (0xDAA320A7, 0xDAA320AB):
            break
        record = before[at : at + size]
        if after[at : at + size] == record:
            with contextlib.suppress(mqstore.CorruptionError):  # damaged from the start
                found[content(mqstore.decode(record))] += 1
        at += size
    return found


def damage(choose: random.Random, file: bytes, used: int) -> bytes:
    """The file with bytes overwritten, zeroed, or lost at its end."""
    bad = bytearray(file)
    for _ in range(choose.randrange(1, 5)):
        at = choose.randrange(used)
        length = min(choose.choice([1, 4, 60, 700]), len(bad) - at)
        zeros = choose.random() < 0.3
        bad[at : at + length] = bytes(length) if zeros else choose.randbytes(length)
    if choose.random() < 0.3:
        del bad[choose.randrange(used // 2, len(bad)) :]
    return bytes(bad)


def used_bytes(file: bytes) -> int:
    return max(1, len(file.rstrip(b"\0")))


def check(root: Path, wanted: Counter[tuple[Any, ...]], whole: Counter[tuple[Any, ...]]) -> None:
    """Every undamaged message is there once, and nothing that was not in a damaged place."""
    found = contents(root)
    assert not wanted - found
    # A field that no checksum covers may be another now; then the message was a damaged one.
    assert sum((found - wanted).values()) <= sum((whole - wanted).values())
    assert found.total() >= wanted.total()
    assert all(found[one] == count for one, count in wanted.items())


@pytest.mark.parametrize("seed", range(8))
def test_every_undamaged_message_comes_back_once(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    root = made(tmp_path / "store", seed)
    whole = contents(root)
    wanted: Counter[tuple[Any, ...]] = Counter()
    for path in sorted((root / "commitlog").iterdir()):
        before = path.read_bytes()
        after = damage(choose, before, used_bytes(before)) if choose.random() < 0.6 else before
        path.write_bytes(after)
        wanted += undamaged(before, after)
    report = mqstore.salvage(root, tmp_path / "out", config=SETTINGS)
    assert report.messages >= wanted.total()
    check(tmp_path / "out", wanted, whole)
    verified = mqstore.verify(tmp_path / "out", config=SETTINGS)
    # No checksum covers a store time, so one that the damage changed is kept, and told.
    wrong = {finding.code for finding in verified.findings if finding.severity != "info"}
    assert wrong <= {"MQ-LOG-14"}, verified.findings


@pytest.mark.parametrize("name", manifest()["cases"])
def test_golden_stores_are_salvaged(name: str, tmp_path: Path) -> None:
    case = Case(name)
    choose = random.Random(name)
    root = case.unpack(tmp_path)
    wanted: Counter[tuple[Any, ...]] = Counter()
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file:
            before = file.read(1 << 20)  # one case has files of the default size, mostly a hole
        after = damage(choose, before, used_bytes(before))
        path.write_bytes(after)
        wanted += undamaged(before, after)
    mqstore.salvage(root, tmp_path / "out", config=case.settings)
    found = contents(tmp_path / "out", **case.settings)
    assert not wanted - found
    assert all(found[one] == count for one, count in wanted.items())
    if found == wanted:
        verified = mqstore.verify(tmp_path / "out", config=case.settings).findings
        # RocketMQ's own messages that no queue can hold, and gaps in batch queues.
        known = {"MQ-LOG-09", "MQ-LOG-10", "MQ-CQ-09", "MQ-CQ-12"}
        assert {one.code for one in verified if one.severity != "info"} <= known, verified


def test_an_undamaged_store_comes_back_byte_for_byte(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 99)
    report = mqstore.salvage(root, tmp_path / "out", config=SETTINGS)
    assert report.in_place
    assert (report.renumbered, report.missing, report.duplicates) == ((), 0, 0)
    for path in (root / "commitlog").iterdir():
        assert (tmp_path / "out" / "commitlog" / path.name).read_bytes() == path.read_bytes()
    assert mqstore.diff(root, tmp_path / "out", config=SETTINGS).ok


def files_of(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "commitlog").iterdir())]


def in_one_file(choose: random.Random, files: list[bytes], folder: Path) -> Path:
    """The image of a disk: pieces in any order, at any byte, with other things between them."""
    pieces = [*files, choose.randbytes(5000), bytes(8192), b"\xda\xa3\x20\xa7" * 300]
    choose.shuffle(pieces)
    (folder / "disk.img").write_bytes(b"?" * choose.randrange(5000) + b"".join(pieces))
    return folder / "disk.img"


def renamed(choose: random.Random, files: list[bytes], folder: Path) -> Path:
    choose.shuffle(files)
    for number, file in enumerate(files):
        (folder / f"lost+found-{number}").write_bytes(file)
    return folder


def twice(choose: random.Random, files: list[bytes], folder: Path) -> Path:
    for number, file in enumerate(files):
        (folder / f"a{number}").write_bytes(file)
        (folder / f"b{number}").write_bytes(file[choose.randrange(2000) :])
    return folder


def joined(choose: random.Random, files: list[bytes], folder: Path) -> Path:
    (folder / "all").write_bytes(b"".join(files)[choose.randrange(300) :])
    return folder / "all"


@pytest.mark.parametrize("form", [in_one_file, renamed, twice, joined])
def test_files_in_any_form(
    form: Callable[[random.Random, list[bytes], Path], Path], tmp_path: Path
) -> None:
    root = made(tmp_path / "store", 4)
    whole = contents(root)
    (tmp_path / "found").mkdir()
    files = files_of(root)
    source = form(random.Random(4), list(files), tmp_path / "found")
    report = mqstore.salvage(source, tmp_path / "out", config=SETTINGS)
    found = contents(tmp_path / "out")
    if form is joined:
        # Its first message has lost its beginning.
        assert 1 <= (whole - found).total() <= 4
    else:
        assert found == whole
        assert report.renumbered == ()
    if form is twice:
        assert report.duplicates > whole.total() / 2
    assert report.conflict_count == 0
    assert mqstore.verify(tmp_path / "out", config=SETTINGS).ok


def test_looking_writes_nothing_and_finds_the_same(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 5)
    before = sorted(tmp_path.rglob("*"))
    looked = mqstore.salvage(root)
    assert sorted(tmp_path.rglob("*")) == before
    assert (looked.out, looked.in_place, looked.messages) == (None, None, 150)
    written = mqstore.salvage(root, tmp_path / "out")
    assert (written.messages, written.files) == (looked.messages, looked.files)


def damaged_queue(root: Path) -> None:
    """A store with a group, whose fourth to sixth message of ``T`` are damaged."""
    with mqstore.open(root, "a", config=SETTINGS) as store:
        for number in range(20):
            store.append("T", b"body %d" % number)
            store.append("U", b"other %d" % number)
        group = store.group("g")
        assert len(group.poll("T", max_messages=12)) == 12
        assert len(group.poll("U", max_messages=5)) == 5
        group.commit()
        group.close()
        lost = [found for found in store.scan() if found.topic == "T"][3:6]
    [log] = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        for found in lost:
            file.seek(found.physical_offset + 90)
            file.write(b"?")


def test_offsets_stay_as_they_are_with_stand_ins_for_what_is_lost(tmp_path: Path) -> None:
    root = tmp_path / "store"
    damaged_queue(root)
    report = mqstore.salvage(root, tmp_path / "out", config=SETTINGS)
    assert (report.renumbered, report.missing, report.stand_ins) == ((), 3, 3)
    with mqstore.open(tmp_path / "out") as store:
        assert {at.topic: at.queue_offset for at in store.groups()["g"]} == {"T": 12, "U": 5}
        assert store.read("T", 0, 12).messages[0].body == b"body 12"
        assert store.read("U", 0, 5).messages[0].body == b"other 5"
        stand_ins = store.read("T", 0, 3).messages[:3]
        assert [found.queue_offset for found in stand_ins] == [3, 4, 5]
        assert all(found.properties == {"MQSTORE_LEFT_OUT": "true"} for found in stand_ins)
    assert mqstore.verify(tmp_path / "out").ok


def test_a_gap_too_wide_for_stand_ins_is_closed_up(tmp_path: Path) -> None:
    root = tmp_path / "found"
    root.mkdir()
    places = [("T", 0, 0), ("T", 500, 100_000), ("U", 900, 0), ("U", 1400, 2)]
    host = PLACE["store_host"]
    records = [
        mqstore.encode(
            message(topic=topic), physical_offset=at, queue_offset=number, store_host=host
        )
        for topic, at, number in places
    ]
    (root / "pieces").write_bytes(b"".join(records))
    report = mqstore.salvage(root, tmp_path / "out", config=SETTINGS)
    assert (report.renumbered, report.stand_ins) == ((("T", 0),), 1)
    with mqstore.open(tmp_path / "out") as store:
        ends = {queue.topic: queue.max_offset for queue in store.queues()}
    assert ends == {"T": 2, "U": 3}


def test_sizes_index_owner_and_mode_are_those_of_the_source(tmp_path: Path) -> None:
    # The index is proven by its files where it has RocketMQ's ratio.
    settings = SETTINGS | {"max_hash_slot_num": 10, "max_index_num": 40}
    root = made(tmp_path / "store", 7, settings=settings)
    (root / "config/mqstore.json").unlink()  # as a broker leaves it
    (root / "config/topics.json").chmod(0o640)
    for path in (root / "commitlog").iterdir():
        path.chmod(0o660)
    (root / "commitlog").chmod(0o750)
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, 1234, 2345)
    last = max((root / "commitlog").iterdir())
    os.truncate(last, 5000)
    mqstore.salvage(root, tmp_path / "out")
    with mqstore.open(tmp_path / "out") as store:
        for name, size in settings.items():
            assert getattr(store.config, name) == size, name
    assert {path.stat().st_size for path in (tmp_path / "out/commitlog").iterdir()} == {16384}
    modes = {"config/topics.json": 0o640, "commitlog": 0o750, f"commitlog/{0:020}": 0o660}
    for name, mode in modes.items():
        assert (tmp_path / "out" / name).stat().st_mode & 0o777 == mode, name
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in root.rglob("*")}
    assert {
        (path.stat().st_uid, path.stat().st_gid) for path in (tmp_path / "out").rglob("*")
    } == owners


def test_the_size_of_log_files_is_told_by_their_names(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 8)
    (root / "config/mqstore.json").unlink()
    for path in (root / "commitlog").iterdir():
        os.truncate(path, 5000)
    mqstore.salvage(root, tmp_path / "out")
    with mqstore.open(tmp_path / "out") as store:
        assert store.config.mapped_file_size_commit_log == 16384


def test_two_stores_in_one_folder_keep_both(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with mqstore.open(tmp_path / name, "a", config=SETTINGS) as store:
            for number in range(5):
                store.append("T", f"{name} {number}".encode())
    (tmp_path / "found").mkdir()
    for name in ("one", "two"):
        [log] = (tmp_path / name / "commitlog").iterdir()
        log.rename(tmp_path / "found" / name)
    report = mqstore.salvage(tmp_path / "found", tmp_path / "out")
    assert report.conflict_count == 5
    assert report.conflicts[0].physical_offset == 0
    assert report.conflicts[0].first_path.endswith("one")
    assert report.renumbered == (("T", 0),)
    with mqstore.open(tmp_path / "out") as store:
        bodies = {found.body for found in store.read("T", 0, 0, max_messages=99).messages}
    assert bodies == {f"{name} {number}".encode() for name in ("one", "two") for number in range(5)}


def hostile(claim: int, count: int) -> Iterable[bytes]:
    """Heads of records, each of which claims the same length and has a body that just fits."""
    for number in range(count):
        body = claim - 91
        yield struct.pack(">iIiiiqqi", claim, 0xDAA320A7, 1, 0, 0, number, number, 0) + struct.pack(
            ">q8xq8xiqi", 1, 1, 0, 0, body
        )


@pytest.mark.parametrize("claim", [4096, 1 << 20, 60 << 20])
def test_a_file_of_false_heads_takes_no_longer_than_a_few_readings(
    claim: int, tmp_path: Path
) -> None:
    source = tmp_path / "hostile"
    # As far as lengths go each of them could be whole, where a topic and properties follow.
    with source.open("wb") as file:
        for head in hostile(claim, 40_000):
            file.write(head)
        file.write(b"\x01" * (claim + 1000))
        with mqstore.open(tmp_path / "store", "a") as store:
            store.append("T", b"behind it all")
            [real] = store.scan()
        file.write(real.record)
    report = mqstore.salvage(source)
    assert report.messages == 1


def test_a_file_that_cannot_be_salvaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError, match="no such path"):
        mqstore.salvage(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(mqstore.NotAStoreError, match="no file to read"):
        mqstore.salvage(tmp_path / "empty")
    root = made(tmp_path / "store", 1, count=3)
    with pytest.raises(mqstore.ConfigError, match="out: expected a folder outside of the source"):
        mqstore.salvage(root, root / "out")
    with pytest.raises(mqstore.StoreIOError, match="there already"):
        mqstore.salvage(root, tmp_path / "empty" / "..")
    (tmp_path / "noise").write_bytes(random.Random(1).randbytes(100_000))
    report = mqstore.salvage(tmp_path / "noise", tmp_path / "out")
    assert (report.messages, report.files[0].other_ranges) == (0, 1)


def test_a_link_given_as_the_source_is_followed(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 1, count=3)
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "file").symlink_to(root / f"commitlog/{0:020}")
    report = mqstore.salvage(tmp_path / "link", tmp_path / "out")
    assert (report.source, report.messages) == (str(tmp_path / "link"), 3)
    assert contents(tmp_path / "out") == contents(root)
    assert mqstore.salvage(tmp_path / "file").messages == 3
    for out in (root / "out", tmp_path / "link/out"):
        with pytest.raises(mqstore.ConfigError, match="outside of the source"):
            mqstore.salvage(tmp_path / "link", out)
    (tmp_path / "device").symlink_to("/dev/null")
    with pytest.raises(mqstore.NotAStoreError, match="a device"):
        mqstore.salvage(tmp_path / "device")


def test_o10_a_part_of_a_store_in_use_is_told(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 1, count=3)
    (tmp_path / "link").symlink_to(root / "commitlog")
    parts = (root, root / "commitlog", root / f"commitlog/{0:020}", tmp_path / "link")
    with mqstore.open(root, "r+"):
        assert all(mqstore.salvage(part).in_use for part in parts)
    assert not any(mqstore.salvage(part).in_use for part in parts)


def test_progress_can_end_it(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 2)

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mqstore.salvage(root, tmp_path / "out", progress=stop)
    told: list[tuple[int, int]] = []
    mqstore.salvage(root, tmp_path / "out", progress=lambda *at: told.append(at))
    assert told[-1][0] == told[-1][1] > 0
    assert told == sorted(told)
