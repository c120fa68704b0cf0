"""Export and import: the same messages, byte for byte, whatever the format."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import mqstore
from helpers.files import digests
from helpers.golden import Case, manifest
from helpers.stores import TINY, log_bytes, message, times
from mqstore._settings import OWN_FILE
from mqstore.results.documents import document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAMAGED = {"abort-crc", "abort-crc-55"}
"""Stores with damage that nothing but a cut could mend."""
FORMATS = ["jsonl", "parquet", "arrow"]
LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def readable(case: Case, folder: Path) -> Path:
    """The case's store, brought to order first where RocketMQ did not close it."""
    root = case.unpack(folder)
    case.bring_to_order(root)
    return root


def names(folder: Path) -> list[str]:
    """Contents of a folder."""
    return sorted(path.name for path in folder.iterdir())


def whole(root: Path, **config: Any) -> list[tuple[bytes, int]]:
    """Every record of a store, and where it lies."""
    with mqstore.open(root, config=config or None) as store:
        return [(found.record, found.physical_offset) for found in store.scan()]


@pytest.mark.parametrize("name", [name for name in manifest()["cases"] if name not in DAMAGED])
def test_every_golden_store_comes_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    case = Case(name)
    root = readable(case, tmp_path)
    form = FORMATS[list(manifest()["cases"]).index(name) % 3]
    exported = mqstore.export_store(root, tmp_path / "out", format=form, config=case.settings)
    report = mqstore.import_store(tmp_path / "out", tmp_path / "back")
    assert exported.complete
    assert report.in_place
    assert not report.renumbered
    assert report.messages == exported.messages
    back = tmp_path / "back"
    with case.open(root) as before, case.open(back) as after:
        assert [m.record for m in after.scan()] == [m.record for m in before.scan()]
        assert after.groups() == before.groups()
        # A blank with no message behind it does not come along.
        end = after.max_physical_offset
        assert end <= before.max_physical_offset
        if before.min_physical_offset == 0:
            assert log_bytes(back)[:end] == log_bytes(root)[:end]
    for path in (root / "config").glob("*.json"):
        # A topic that is not in its table is entered; our own file is written anew.
        if path.name not in {"topics.json", OWN_FILE}:
            assert (back / "config" / path.name).read_bytes() == path.read_bytes()
    codes = {found.code for found in mqstore.verify(root, config=case.settings).findings}
    verified = mqstore.verify(back, config=case.settings)
    assert {found.code for found in verified.findings} <= codes, verified.findings


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_last_topic_with_a_nul_byte_is_exported_or_told(tmp_path: Path, is_closed: bool) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many([message("first", body=b"one"), message("aXb", body=b"two")])
    log = root / "commitlog" / f"{0:020}"
    data = log.read_bytes()
    log.write_bytes(data.replace(b"aXb", b"a\0b"))
    if not is_closed:
        (root / "abort").touch()
    with mqstore.open(root) as store:
        topics = [found.topic for found in store.scan()]
        told = [warning for warning in store.warnings if "it is left out" in warning]
    exported = mqstore.export_store(root, tmp_path / "out")
    assert exported.messages == len(topics)
    assert exported.complete == is_closed
    if is_closed:
        assert topics == ["first", "a\0b"]
        assert told == []
    else:
        assert topics == ["first"]
        assert len(told) == 1
        assert str(log) in told[0]


@pytest.mark.parametrize("form", FORMATS)
def test_queues_and_index_come_back_too(form: str, tmp_path: Path) -> None:
    root = Case("rollover").unpack(tmp_path)
    mqstore.export_store(root, tmp_path / "out", format=form)  # type: ignore[arg-type]
    mqstore.import_store(tmp_path / "out", tmp_path / "back")
    for folder in ("commitlog", "consumequeue"):
        assert digests(tmp_path / "back", folder) == digests(root, folder)


@pytest.mark.parametrize("form", FORMATS)
def test_hc09_bytes_that_are_no_text_are_kept(form: str, tmp_path: Path) -> None:
    odd = [
        message(body=b"\xff\xfe\x00", properties=b"a\x01\xff\x02broken"),
        message(body=b"", queue_id=3, flag=-1, sys_flag=0x100),
        message(body="\u2028 snow \u2603".encode(), keys=["k1", "k2"], tags="\u96ea"),
        message(body=b"x", properties=b"a\x011\x02a\x012\x02", born_host="[2001:db8::1]:80"),
        message(body=b"y", store_timestamp_ms=LAST_MS, born_timestamp_ms=-(2**62)),
    ]
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append_many(odd)
    before = whole(tmp_path / "store")
    mqstore.export_store(tmp_path / "store", tmp_path / "out", format=form)  # type: ignore[arg-type]
    assert mqstore.import_store(tmp_path / "out", tmp_path / "back").in_place
    assert whole(tmp_path / "back") == before


@pytest.mark.parametrize("form", FORMATS)
def test_a_part_is_numbered_anew_and_the_groups_with_it(form: str, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append_many(
            [
                message(topic="T" if n % 3 else "U", body=b"%d" % n, tags=f"t{n % 2}")
                for n in range(60)
            ]
        )
        group = store.group("g")
        assert len(group.poll("T", max_messages=11)) == 11
        group.commit()
        group.close()
        taken = [m.body for m in store.read("T", 0, 0, max_messages=11).messages]
    report = mqstore.export_store(
        tmp_path / "store",
        tmp_path / "out",
        format=form,
        topics=["T"],
        tags="t1",  # type: ignore[arg-type]
    )
    assert not report.complete
    imported = mqstore.import_store(tmp_path / "out", tmp_path / "back")
    assert imported.renumbered
    with mqstore.open(tmp_path / "back") as back:
        kept = list(back.scan())
        assert [m.queue_offset for m in kept] == list(range(20))
        assert {(m.topic, m.tags) for m in kept} == {("T", "t1")}
        [at] = back.groups()["g"]
        # The group goes on with the first message that it has not had.
        assert at.queue_offset == sum(m.body in taken for m in kept)
    assert mqstore.verify(tmp_path / "back").ok


def test_a_json_row_says_all_of_a_message(tmp_path: Path) -> None:
    times(tmp_path / "store", [1_700_000_000_000])
    mqstore.export_store(tmp_path / "store", tmp_path / "out", config=TINY)
    [line] = (tmp_path / "out" / "messages.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert row["topic"] == "T"
    assert row["body"] == ""
    assert row["properties"] == {"KEYS": "k0"}
    assert row["store_timestamp_ms"] == 1_700_000_000_000
    described = json.loads((tmp_path / "out" / "export.json").read_text())
    assert described["complete"]
    assert described["settings"]["max_hash_slot_num"] == 7
    assert "topics.json" in names(tmp_path / "out" / "config")


def test_rows_written_by_hand_are_enough(tmp_path: Path) -> None:
    rows = [
        {"topic": "T", "body": "one", "tags": "a", "keys": ["k"]},
        {"topic": "T", "body_base64": "//8="},
        {"topic": "U", "body": "three", "queue_id": 2, "store_timestamp_ms": 7},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = mqstore.import_store(path, tmp_path / "store", config=TINY)
    assert report.messages == 3
    with mqstore.open(tmp_path / "store") as store:
        one, two, three = store.scan()
        assert (one.tags, one.keys, one.body) == ("a", ("k",), b"one")
        assert (two.body, two.queue_offset) == (b"\xff\xff", 1)
        assert (three.queue_id, three.store_timestamp_ms) == (2, 7)
        assert len(store.query("T", "k")) == 1


def test_rows_of_a_command_and_of_a_scan_are_enough(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append("T", b"one", tags="a", keys="k", delay_level=1)
        (message,) = store.scan()
        (tmp_path / "mine.jsonl").write_text(json.dumps(document(message)))
        write(tmp_path / "mine.parquet", store.scan_arrow(on_error="report").read_all())
    for form in ("jsonl", "parquet"):
        mqstore.import_store(tmp_path / f"mine.{form}", tmp_path / form, config=TINY)
        with mqstore.open(tmp_path / form) as store:
            assert [one.properties for one in store.scan()] == [message.properties]


def test_a_message_that_was_edited_out_leaves_a_stand_in(tmp_path: Path) -> None:
    times(tmp_path / "store", [1_700_000_000_000 + 1000 * number for number in range(4)])
    mqstore.export_store(tmp_path / "store", tmp_path / "out")
    path = tmp_path / "out" / "messages.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[3:]))
    report = mqstore.import_store(tmp_path / "out", tmp_path / "back")
    assert (report.messages, report.stand_ins, report.in_place) == (2, 2, False)
    with mqstore.open(tmp_path / "back") as store:
        found = store.read("T", 0, 0).messages
        assert [m.queue_offset for m in found] == [0, 1, 2, 3]
        assert ["MQSTORE_LEFT_OUT" in m.properties for m in found] == [False, True, True, False]
    assert mqstore.verify(tmp_path / "back").ok


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    times(tmp_path / "store", [1000])
    mqstore.export_store(tmp_path / "store", tmp_path / "out")
    for again in (
        lambda: mqstore.export_store(tmp_path / "store", tmp_path / "out"),
        lambda: mqstore.import_store(tmp_path / "out", tmp_path / "store"),
    ):
        with pytest.raises(mqstore.StoreIOError, match="there already"):
            again()
    before = names(tmp_path)
    (tmp_path / "out" / "messages.jsonl").write_text('{"topic": "T", "body": "x"}\n{"topic": 1}\n')
    with pytest.raises(mqstore.InvalidMessageError, match=r"line 2: topic: expected text, found 1"):
        mqstore.import_store(tmp_path / "out", tmp_path / "back")
    (tmp_path / "out" / "messages.jsonl").write_text('{"topic": "T", "body": "x"}\n{"to')
    with pytest.raises(mqstore.CorruptionError, match=r"messages\.jsonl: byte 28: json"):
        mqstore.import_store(tmp_path / "out", tmp_path / "back")
    assert names(tmp_path) == before


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_file_of_another_format_is_named(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine.{form}"
    path.write_bytes(b"no such thing" * 10)
    with pytest.raises(mqstore.CorruptionError, match=f"mine.{form}.*expected a"):
        mqstore.import_store(path, tmp_path / "store")


def test_sources_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(mqstore.StoreIOError, match="no such file or folder"):
        mqstore.import_store(tmp_path / "none", tmp_path / "store")
    with pytest.raises(mqstore.ConfigError, match=r"no export: there is no export\.json"):
        mqstore.import_store(tmp_path, tmp_path / "store")
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(mqstore.ConfigError, match="neither a folder nor a file"):
        mqstore.import_store(tmp_path / "a.csv", tmp_path / "store")
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.export_store(tmp_path / "none", tmp_path / "out")
    times(tmp_path / "made", [1000])
    with pytest.raises(mqstore.ConfigError, match="expected jsonl, parquet or arrow"):
        mqstore.export_store(tmp_path / "made", tmp_path / "out", format="csv")  # type: ignore[arg-type]


def test_damage_ends_an_export_or_is_passed_over(tmp_path: Path) -> None:
    times(tmp_path / "store", range(1000, 1020))
    with mqstore.open(tmp_path / "store") as store:
        third = list(store.scan())[2]
    [log] = (tmp_path / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(third.physical_offset + 4)
        file.write(b"????")
    with pytest.raises(mqstore.CorruptionError):
        mqstore.export_store(tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report = mqstore.export_store(tmp_path / "store", tmp_path / "out", on_error="skip")
    assert (report.messages, report.skipped_ranges, report.complete) == (19, 1, False)


def test_pyarrow_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    times(tmp_path / "store", [1000])
    with pytest.raises(mqstore.ConfigError, match=r"pip install 'mqstore\[parquet\]'"):
        mqstore.export_store(tmp_path / "store", tmp_path / "out", format="parquet")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a", config=TINY) as store:
        store.append_many([message(body=bytes(3000)) for _ in range(30)])
    before = names(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(mqstore.StoreIOError, match="File too large"):
            mqstore.export_store(tmp_path / "store", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert names(tmp_path) == before


@pytest.fixture
def export(tmp_path):
    """An export of a store of three messages, with a table of topics."""
    times(tmp_path / "store", [1, 2, 3])
    mqstore.export_store(tmp_path / "store", tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize("name", ["config", "config/topics.json", "export.json", "messages.jsonl"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_import_takes_regular_files_only(export, tmp_path, name, kind):
    if (name, kind) == ("config", "folder"):
        return
    path = export / name
    path.rename(tmp_path / "aside")
    match kind:
        case "link":
            path.symlink_to(tmp_path / "aside")
        case "dangling link":
            path.symlink_to(tmp_path / "none")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    # Opening a pipe to read waits for a writer.
    signal.alarm(20)
    try:
        with pytest.raises(mqstore.ConfigError) as caught:
            mqstore.import_store(export, tmp_path / "back")
    finally:
        signal.alarm(0)
    assert caught.value.field == "source"
    assert not (tmp_path / "back").exists()


def test_import_of_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "messages.jsonl")
    with pytest.raises(mqstore.ConfigError, match="no regular file"):
        mqstore.import_store(tmp_path / "messages.jsonl", tmp_path / "back")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mqstore_export": 2}, "mqstore_export"),
        ({"mqstore_export": 1.5}, "mqstore_export"),
        ({"messages": -1}, "messages"),
        ({"bytes": -1}, "bytes"),
        ({"min_physical_offset": -1}, "min_physical_offset"),
        ({"min_physical_offset": 2**63}, "min_physical_offset"),
        (
            {"min_physical_offset": 2**63 - 1, "max_physical_offset": 2**63 - 1},
            "min_physical_offset",
        ),
        ({"min_physical_offset": 1.5}, "min_physical_offset"),
        ({"max_physical_offset": 10**30}, "max_physical_offset"),
        ({"min_physical_offset": 9, "max_physical_offset": 8}, "max_physical_offset"),
        ({"settings": {"max_index_num": -1}}, "max_index_num"),
        ({"settings": {"max_index_num": 2**70}}, "max_index_num"),
        ({"settings": {"mapped_file_size_commit_log": 0}}, "mapped_file_size_commit_log"),
        ({"settings": {"no_such_setting": 1}}, "no_such_setting"),
    ],
)
def test_wrong_numbers_in_a_manifest_name_the_setting(export, tmp_path, changes, field):
    path = export / "export.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(mqstore.ConfigError, match=field) as caught:
        mqstore.import_store(export, tmp_path / "back")
    assert caught.value.field == field
    assert not (tmp_path / "back").exists()


REFUSED = [
    ({"store_timestamp_ms": -1}, "store_timestamp_ms"),
    ({"store_timestamp_ms": LAST_MS + 1}, "store_timestamp_ms"),
    ({"store_timestamp_ms": 2**63 - 1}, "store_timestamp_ms"),
    ({"store_timestamp_ms": True}, "store_timestamp_ms"),
    ({"store_timestamp": 5}, "store_timestamp"),
    ({"queue_offset": -1}, "queue_offset"),
    ({"queue_offset": 2**63 - 1}, "queue_offset"),
    ({"queue_offset": 2**60}, "queue_offset"),
    ({"queue_offset": 1.0}, "queue_offset"),
    ({"queue_offset": True}, "queue_offset"),
    ({"queue_offset": 0}, "queue_offset"),
    ({"queue_id": -1}, "queue_id"),
    ({"queue_id": "1"}, "queue_id"),
    ({"topic": "a/b"}, "topic"),
    ({"body": 5}, "body"),
    ({"key": "o-1"}, "key: a message has no such field; did you mean 'keys'?"),
    ({"tag": "paid"}, "tag: a message has no such field; did you mean 'tags'?"),
    ({"record": 5}, "record"),
    ({"record_base64": "AAAA"}, "record"),
    ({"properties": [1]}, "properties"),
    ({"properties": [["a", "b"]]}, "properties"),
    ({"properties": {"a": 1}}, "properties"),
    ({"properties": {"a": "1\x02b\x01c"}}, "properties"),
    ({"properties": {"INNER_NUM": "-3"}, "sys_flag": 128}, "properties"),
    (
        {
            "properties": {
                "INNER_MULTI_DISPATCH": "%LMQ%a",
                "INNER_MULTI_QUEUE_OFFSET": str(2**63 - 1),
            }
        },
        "properties: INNER_MULTI_QUEUE_OFFSET",
    ),
]


@pytest.mark.parametrize(("change", "field"), REFUSED, ids=str)
def test_a3_import_refuses_a_row_that_append_would_refuse(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    row = {"topic": "T", "body": "x", "queue_offset": 0, "store_timestamp_ms": 1000}
    path = tmp_path / "mine.jsonl"
    # A blank line counts as a line.
    path.write_text(json.dumps(row) + "\n\n" + json.dumps(row | {"queue_offset": 1} | change))
    with pytest.raises(mqstore.InvalidMessageError) as caught:
        mqstore.import_store(path, tmp_path / "store", config=TINY)
    assert f"mine.jsonl: line 3: {field}" in str(caught.value)
    assert f"no store was made at {tmp_path / 'store'}" in str(caught.value)
    assert names(tmp_path) == ["mine.jsonl"]


@pytest.mark.parametrize("form", FORMATS)
def test_a3_rows_that_are_there_twice_are_refused_in_every_format(
    form: str, tmp_path: Path
) -> None:
    times(tmp_path / "store", [1000, 2000, 3000])
    mqstore.export_store(tmp_path / "store", tmp_path / "out", format=form)  # type: ignore[arg-type]
    path = tmp_path / "out" / f"messages.{form}"
    if form == "jsonl":
        path.write_bytes(path.read_bytes() * 2)
    else:
        rewrite(path, lambda table: pa.concat_tables([table, table]))
    before = names(tmp_path)
    with pytest.raises(
        mqstore.InvalidMessageError, match=r"(line|row) 4: queue_offset: expected 3"
    ):
        mqstore.import_store(tmp_path / "out", tmp_path / "back")
    assert names(tmp_path) == before


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("name", "values", "field"),
    [
        ("store_timestamp", pa.array([1, 2, -1], pa.timestamp("ms")), "store_timestamp_ms"),
        ("store_timestamp", pa.array([1, 2, 10**15], pa.timestamp("s")), "store_timestamp_ms"),
        ("store_timestamp", pa.array([None, None, 3]), "store_timestamp"),
        ("queue_offset", pa.array([0, 1, 2**63 - 1]), "queue_offset"),
        ("queue_id", pa.array([None, None, 1.5]), "queue_id"),
        ("queue_id", pa.array([None, None, 10**15], pa.timestamp("s")), "queue_id"),
        ("raw_body", pa.array([None, None, 3]), "raw_body"),
        ("key", pa.array([None, None, "k"]), "key"),
    ],
)
def test_a3_columns_of_the_wrong_type_are_refused_with_the_row(
    form: str, name: str, values: pa.Array, field: str, tmp_path: Path
) -> None:
    path = tmp_path / f"mine.{form}"
    rows = {"topic": ["T"] * 3, "body": ["x"] * 3, name: values}
    write(path, pa.table(rows))
    with pytest.raises(mqstore.InvalidMessageError, match=f"row 3: {field}: "):
        mqstore.import_store(path, tmp_path / "store", config=TINY)
    assert names(tmp_path) == [path.name]


def write(path: Path, table: pa.Table) -> None:
    """A table as a file of the format that its name ends with."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
        return
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """The file with its rows changed."""
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
    else:
        with pa.ipc.open_file(path.read_bytes()) as file:
            table = file.read_all()
    write(path, change(table))
