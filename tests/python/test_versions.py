"""Stores of RocketMQ 5.3, 5.4 and 5.5: healthy, kept as they are, written as that release does."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.files import index_files, stamps
from helpers.golden import Case, manifest

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = ("5.3", "5.4", "5.5")
LATER = [name for name, case in manifest()["cases"].items() if "rocketmq" in case]
HEALTHY = [name for name in LATER if manifest()["cases"][name]["state"] == "clean"]
ENTRY = struct.Struct(">iqii")
TIME = 1_700_000_000_500
SMALL = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def entries_of(root: Path, slots: int) -> list[tuple[int, ...]]:
    """Hash, place, seconds and previous entry of each index entry."""
    found = []
    for path in index_files(root):
        raw = path.read_bytes()
        count = struct.unpack_from(">i", raw, 36)[0]
        first = 40 + 4 * slots
        found += [ENTRY.unpack_from(raw, first + 20 * number) for number in range(1, count)]
    return found


def logics_offset(root: Path) -> int:
    """Bytes 40 to 47 of the checkpoint."""
    (offset,) = struct.unpack_from(">q", (root / "checkpoint").read_bytes(), 40)
    return int(offset)


def set_logics_offset(root: Path, value: int) -> None:
    with (root / "checkpoint").open("r+b") as file:
        file.seek(40)
        file.write(struct.pack(">q", value))


def last_record(root: Path, settings: object = None) -> int:
    with mqstore.open(root, config=settings) as store:  # type: ignore[arg-type]
        return [message.physical_offset for message in store.scan()][-1]


def put(root: Path, release: str | None, numbers: range, **more: object) -> None:
    """Messages of topic T, each with a key ``kN`` and a tag, in two queues."""
    settings = {**SMALL, **more}
    if release is not None:
        settings["rocketmq_version"] = release
    with mqstore.open(root, "a", config=settings) as store:
        store.append_many(
            mqstore.Message(
                "T",
                b"body",
                queue_id=number % 2,
                tags=f"t{number % 3}",
                keys=f"k{number}",
                store_timestamp_ms=TIME + 1000 * number,
                store_host="10.9.8.7:10911",
            )
            for number in numbers
        )


# --- healthy is healthy -----------------------------------------------------------------------


@pytest.mark.parametrize("name", HEALTHY)
def test_vr01_and_vr02_a_healthy_store_has_no_finding_and_no_cure(
    name: str, tmp_path: Path
) -> None:
    case = Case(name)
    root = case.unpack(tmp_path)
    before = stamps(root)
    report = mqstore.verify(root, config=case.settings)
    assert [str(found) for found in report.findings if found.severity != "info"] == []
    assert report.ok
    # Some of these were written without a broker, so without a table of topics.
    expected = {"MQ-OFF-01", "MQ-FS-08", "MQ-CFG-07"}
    assert {found.code for found in report.findings} <= expected
    diagnoses = mqstore.doctor(root, config=case.settings)
    assert [one for one in diagnoses if one.severity != "info"] == []
    assert stamps(root) == before


def test_vr15_folders_of_later_releases_are_no_queue_topic_or_damage(tmp_path: Path) -> None:
    root = Case("plain-55").unpack(tmp_path)
    for folder in ("config/topics", "kvStore", "consumequeue_rocksdb"):
        shutil.copytree(root / "rocksdbstore", root / folder)
    (root / "timerwheel.0").write_bytes(bytes(64))
    before = stamps(root)
    assert mqstore.verify(root, config=SMALL | {"max_hash_slot_num": 500, "max_index_num": 2000}).ok
    with mqstore.open(root, "r+") as store:
        assert store.topics() == ["TopicTest"]
    mqstore.rebuild(root)
    kept = {name for name in before if not name.startswith("index/")}
    assert kept <= set(stamps(root))


# --- opening for write never makes a store poorer ---------------------------------------------


@pytest.mark.parametrize("name", ["plain-54", "plain-55"])
def test_vr03_old_entries_stay_and_new_messages_have_tag_entries(name: str, tmp_path: Path) -> None:
    case = Case(name)
    root = case.unpack(tmp_path)
    before = entries_of(root, 500)
    with case.open(root, "r+") as store:
        assert store.config.rocketmq_version == ("5.4" if name == "plain-54" else "5.5")
        rows = [store.append("TopicTest", b"new", tags="TagA") for _ in range(10)]
        old = [m.physical_offset for m in store.scan(tags="TagA")]
        found = store.query("TopicTest", tags="TagA", max_messages=1000)
        assert [m.physical_offset for m in reversed(found)] == old
        assert old[-10:] == [row.physical_offset for row in rows]
    after = entries_of(root, 500)
    assert after[: len(before)] == before
    assert [entry[1] for entry in after[len(before) :]] == old[-10:]
    assert mqstore.verify(root, config=case.settings).ok


def test_vr04_a_crash_costs_no_index_entry(tmp_path: Path) -> None:
    case = Case("abort-intact-55")
    root = case.unpack(tmp_path)
    before = entries_of(root, 500)
    assert len(before) > 200
    case.open(root, "r+").close()
    assert entries_of(root, 500) == before


def test_an_entry_of_no_known_kind_is_kept(tmp_path: Path) -> None:
    """A later release may put more than we know of."""
    put(tmp_path, "5.3", range(20))
    with mqstore.open(tmp_path) as store:
        place = [message.physical_offset for message in store.scan()][-1]
    (path,) = index_files(tmp_path)
    with mqstore.IndexFile(path, "r+", slots=100, entries=400) as index:
        assert index.put("T#Z#new", place, TIME + 19_000)
    before = entries_of(tmp_path, 100)
    put(tmp_path, None, range(20, 22))
    assert entries_of(tmp_path, 100)[: len(before)] == before


def test_vr09_the_checkpoint_keeps_up_with_the_queues(tmp_path: Path) -> None:
    put(tmp_path, "5.5", range(10))
    with (tmp_path / "checkpoint").open("r+b") as file:
        file.seek(100)
        file.write(b"kept")
    put(tmp_path, None, range(10, 12))
    assert logics_offset(tmp_path) == last_record(tmp_path)
    raw = (tmp_path / "checkpoint").read_bytes()
    assert (len(raw), raw[100:104]) == (4096, b"kept")


@pytest.mark.parametrize("release", ["5.3", "5.4"])
def test_earlier_releases_leave_bytes_40_to_47_as_they_are(release: str, tmp_path: Path) -> None:
    put(tmp_path, release, range(10))
    assert logics_offset(tmp_path) == 0


@pytest.mark.parametrize("length", [40, 24, 0, None])
def test_vr10_what_a_checkpoint_lacks_is_zero(length: int | None, tmp_path: Path) -> None:
    put(tmp_path, "5.5", range(10))
    path = tmp_path / "checkpoint"
    raw = path.read_bytes()
    path.unlink()
    if length is not None:
        path.write_bytes(raw[:length])
    assert mqstore.verify(tmp_path).ok
    put(tmp_path, None, range(10, 11))
    assert logics_offset(tmp_path) == last_record(tmp_path)


@pytest.mark.parametrize("value", [-1, 2**40])
def test_vr10_a_place_that_cannot_be_is_told_and_put_right(value: int, tmp_path: Path) -> None:
    put(tmp_path, "5.5", range(10))
    set_logics_offset(tmp_path, value)
    report = mqstore.verify(tmp_path)
    assert [(f.code, f.offset) for f in report.findings if f.severity != "info"] == [
        ("MQ-CK-04", 40)
    ]
    put(tmp_path, None, range(10, 11))
    assert logics_offset(tmp_path) == last_record(tmp_path)
    assert mqstore.verify(tmp_path).ok


def test_vr11_a_cut_log_takes_the_place_back(tmp_path: Path) -> None:
    put(tmp_path, "5.5", range(20))
    with mqstore.open(tmp_path) as store:
        places = [message.physical_offset for message in store.scan()]
    assert logics_offset(tmp_path) == places[-1]
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(places[15])
        file.write(bytes(60_000 - places[15]))
    (tmp_path / "abort").write_text("1")
    mqstore.recover(tmp_path, dry_run=False, drop_beyond=True)
    assert last_record(tmp_path) == places[14]
    assert logics_offset(tmp_path) <= places[14]


@pytest.mark.parametrize("crashed", [True, False])
def test_vr12_and_vr13_queues_that_are_gone_are_made_from_the_first_file_on(
    tmp_path: Path, *, crashed: bool
) -> None:
    put(tmp_path, "5.5", range(100), mapped_file_size_commit_log=1024)
    assert len(list((tmp_path / "commitlog").iterdir())) > 12
    shutil.rmtree(tmp_path / "consumequeue")
    if crashed:
        (tmp_path / "abort").write_text("1")
    with mqstore.open(tmp_path, "r+") as store:
        queues = [(queue.min_offset, queue.max_offset) for queue in store.queues("T")]
    assert queues == [(0, 50), (0, 50)]


# --- the version ------------------------------------------------------------------------------


def test_a_new_store_is_of_5_3_and_remembers_what_it_was_made_for(tmp_path: Path) -> None:
    for release in (None, *RELEASES):
        root = tmp_path / str(release)
        put(root, release, range(3))
        expected = release or "5.3"
        remembered = json.loads((root / "config/mqstore.json").read_text())["settings"]
        assert remembered["rocketmq_version"] == expected
        with mqstore.open(root, "r+") as store:
            assert store.config.rocketmq_version == expected


def test_an_older_release_than_the_store_shows_is_refused(tmp_path: Path) -> None:
    root = Case("plain-55").unpack(tmp_path)
    before = stamps(root)
    with pytest.raises(mqstore.ConfigError, match=r'rocketmq_version: expected .* got "5\.3"'):
        mqstore.open(root, "r+", config={"rocketmq_version": "5.3"})
    assert {name: at for name, at in stamps(root).items() if "/" in name} == {
        name: at for name, at in before.items() if "/" in name
    }
    mqstore.open(root, "r+", config={"rocketmq_version": "5.5"}).close()
    with mqstore.open(root, "r+") as store:
        assert store.config.rocketmq_version == "5.5"


@pytest.mark.parametrize(
    ("name", "can_be", "paths"),
    [
        ("plain", ["5.3"], ["index/"]),
        ("plain-54", ["5.4", "5.5"], ["rocksdbstore", "index/"]),
        ("plain-55", ["5.5"], ["rocksdbstore", "rocksdbstore/OPTIONS-000011", "index/"]),
    ],
)
def test_the_marks_tell_which_releases_wrote_a_store(
    name: str, can_be: list[str], paths: list[str], tmp_path: Path
) -> None:
    case = Case(name)
    with case.open(case.unpack(tmp_path)) as store:
        found = store.versions()
    assert found["can_be"] == can_be
    assert found["writes"] is None
    marks = [mark["path"] for mark in found["marks"] if mark["path"] != "checkpoint"]
    assert [path if "index/" not in path else "index/" for path in marks] == paths
    assert all(mark["since"] <= mark["until"] and mark["what"] for mark in found["marks"])


# --- written as that release writes -----------------------------------------------------------


def put_script(root: Path, release: str) -> None:
    """The worked example of the format's description: every kind of key and tag."""
    batch = b"TAGS\x01OUTER\x02" if release == "5.3" else b""
    prepared, commit, rollback = 4, 8, 12
    messages: list[dict[str, Any]] = [
        {"body": 5, "unique_key": "U1", "keys": ["k1", "k2"], "tags": "TagA"},
        {"body": 6, "tags": "TagB"},
        {"body": 5, "keys": "k1", "queue_id": 1},
        {"body": 7},
        {"body": 4, "unique_key": "UP", "tags": "TagP", "sys_flag": prepared},
        {"body": 4, "unique_key": "UP", "tags": "TagC", "sys_flag": commit},
        {"body": 4, "unique_key": "UP", "tags": "TagC", "sys_flag": rollback},
        {
            "body": 5,
            "properties": b"TAGS\x01A || B\x02KEYS\x01k9  k9 k10\x02UNIQ_KEY\x01k9\x02",
        },
        {"body": 2, "properties": b"TAGS\x01BT1\x02KEYS\x01bk1\x02" + batch},
        {"body": 2, "properties": b"TAGS\x01BT2\x02" + batch},
    ]
    with mqstore.open(root, "a", config={**SMALL, "rocketmq_version": release}) as store:
        for number, message in enumerate(messages):
            body = b"x" * message.pop("body")
            store.append_many(
                [
                    mqstore.Message(
                        "T",
                        body,
                        store_timestamp_ms=TIME + 1000 * min(number, 8),
                        store_host="10.9.8.7:10911",
                        **message,
                    )
                ]
            )


@pytest.mark.parametrize("release", RELEASES)
def test_vr05_and_vr06_each_release_has_its_own_bytes(release: str, tmp_path: Path) -> None:
    put_script(tmp_path, release)
    (path,) = index_files(tmp_path)
    with mqstore.IndexFile(path, slots=100, entries=400) as index:
        header = index.header
    with mqstore.open(tmp_path) as store:
        end = store.max_physical_offset
    found = (end, header.index_count, header.hash_slot_count, header.end_physical_offset)
    if release == "5.3":
        assert found == (1170, 12, 7, 933)
    else:
        assert found == (1148, 19, 14, 1045)
        entries = entries_of(tmp_path, 100)
        assert entries[:4] == [
            (2_538_763, 0, 0, 0),
            (2_539_445, 0, 0, 0),
            (2_539_446, 0, 0, 0),
            (490_158_619, 0, 0, 0),
        ]
        assert entries[4] == (490_158_618, 130, 1, 0)
    assert logics_offset(tmp_path) == (1045 if release == "5.5" else 0)


# --- query by tags ----------------------------------------------------------------------------


def test_vr07_the_whole_text_of_the_tags_is_asked_for(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={**SMALL, "rocketmq_version": "5.5"}) as store:
        store.append("T", b"x", properties={"TAGS": "A || B"})
        for exact in (True, False):
            assert len(store.query("T", tags="A", exact=exact)) == 0
            assert len(store.query("T", tags="A || B", exact=exact)) == 1
    assert [entry[0] for entry in entries_of(tmp_path, 100)] == [mqstore.key_hash("T#T#A || B")]


def test_vr08_a_key_with_the_text_of_a_tag_entry_is_told_apart(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", config={**SMALL, "rocketmq_version": "5.5"}) as store:
        keyed = store.append("T", b"x", keys="T#TagB").physical_offset
        tagged = store.append("T", b"x", tags="TagB").physical_offset
        assert [m.physical_offset for m in store.query("T", "T#TagB")] == [keyed]
        assert [m.physical_offset for m in store.query("T", tags="TagB")] == [tagged]
        raw = store.query("T", "T#TagB", exact=False)
        assert {m.physical_offset for m in raw} == {keyed, tagged}


def test_a_query_takes_either_a_key_or_tags(tmp_path: Path) -> None:
    put(tmp_path, None, range(1))
    with mqstore.open(tmp_path) as store:
        with pytest.raises(TypeError, match="key, tags: expected one of them"):
            store.query("T")
        with pytest.raises(TypeError, match="key, tags: expected one of them"):
            store.query("T", "a", tags="b")


@pytest.mark.parametrize("releases", [("5.3", "5.5"), ("5.3",), ("5.4",)])
def test_vr14_tags_are_found_in_stretches_without_their_entries_too(
    releases: tuple[str, ...], tmp_path: Path
) -> None:
    for turn, release in enumerate(releases):
        put(tmp_path, release, range(20 * turn, 20 * turn + 20))
    total = 20 * len(releases)
    report = mqstore.verify(tmp_path)
    assert report.ok
    with mqstore.open(tmp_path) as store:
        for number in range(total):
            assert len(store.query("T", f"k{number}")) == 1
        found = store.query("T", tags="t1", max_messages=100)
        assert found.complete
        assert [m.keys for m in found] == [(f"k{n}",) for n in reversed(range(total)) if n % 3 == 1]
        within = store.query("T", tags="t1", begin_ms=TIME + 3000, end_ms=TIME + 7000)
        assert [m.keys for m in within] == [("k7",), ("k4",)]
        last = [message.physical_offset for message in store.scan()][19]
    stretches = [f for f in report.findings if f.code == "MQ-IX-12"]
    if len(releases) == 2:
        assert [f.severity for f in stretches] == ["info"]
        assert f"none of 20 messages at physical offsets 0 to {last}" in stretches[0].found
    else:
        assert stretches == []


def test_a_query_by_tags_finds_messages_without_keys_of_an_older_release(tmp_path: Path) -> None:
    """Only messages with keys show whether RocketMQ 5.3 wrote an index file."""
    with mqstore.open(tmp_path, "a", config={**SMALL, "rocketmq_version": "5.3"}) as store:
        store.append("T", b"", keys="first")
        store.append_many(mqstore.Message("T", b"", tags="A") for _ in range(30))
        store.append("T", b"", keys="last")
    with mqstore.open(tmp_path, "r+", config={**SMALL, "rocketmq_version": "5.5"}) as store:
        store.append_many(mqstore.Message("T", b"", tags="A", keys="z") for _ in range(10))
    with mqstore.open(tmp_path) as store:
        found = store.query("T", tags="A", max_messages=100)
        assert (len(found), found.complete) == (40, True)


def test_a_rebuild_keeps_the_entries_for_tags(tmp_path: Path) -> None:
    put(tmp_path, "5.4", range(20))
    before = len(entries_of(tmp_path, 100))
    with pytest.raises(mqstore.ConfigError, match=r'got "5\.3"'):
        mqstore.rebuild(tmp_path, what=["index"], config={"rocketmq_version": "5.3"})
    # Remembered by somebody who wrote before the index had them.
    remembered = tmp_path / "config/mqstore.json"
    text = remembered.read_text(encoding="utf-8")
    assert '"5.4"' in text
    remembered.write_text(text.replace('"5.4"', '"5.3"'), encoding="utf-8")
    mqstore.rebuild(tmp_path, what=["index"])
    assert len(entries_of(tmp_path, 100)) == before == 40


def test_a_release_that_only_the_index_shows_is_remembered(tmp_path: Path) -> None:
    put(tmp_path, "5.4", range(20))
    remembered = tmp_path / "config/mqstore.json"
    remembered.unlink()
    mqstore.open(tmp_path, "r+", config=SMALL).close()
    assert '"5.4"' in remembered.read_text(encoding="utf-8")
    for path in index_files(tmp_path):
        path.unlink()
    (tmp_path / "abort").touch()
    mqstore.open(tmp_path, "r+", config=SMALL).close()
    assert len(entries_of(tmp_path, 100)) == 40


def test_no_negative_place_in_the_checkpoint_is_a_mark(tmp_path: Path) -> None:
    put(tmp_path, "5.3", range(5))
    set_logics_offset(tmp_path, -1)
    with mqstore.open(tmp_path) as store:
        assert "5.3" in store.versions()["can_be"]
    mqstore.open(tmp_path, "r+", config={**SMALL, "rocketmq_version": "5.3"}).close()


@pytest.mark.parametrize("damage", ["noise", "cut"])
def test_an_index_that_cannot_be_read_does_not_lose_its_tags(tmp_path: Path, damage: str) -> None:
    """Only the index shows 5.4, and nothing remembers it."""
    put(tmp_path, "5.4", range(30))
    (tmp_path / "config/mqstore.json").unlink()
    for path in index_files(tmp_path):
        length = path.stat().st_size
        content = {"noise": b"\xff" * length, "cut": path.read_bytes()[:90]}
        path.write_bytes(content[damage])
    with mqstore.open(tmp_path, "r+", config=SMALL) as store:
        assert store.config.rocketmq_version == "5.4"
    texts = [mqstore.key_hash(f"T#T#t{number}") for number in range(3)]
    found = {entry[0] for entry in entries_of(tmp_path, SMALL["max_hash_slot_num"])}
    assert found.issuperset(texts)
