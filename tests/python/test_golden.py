"""Stores that RocketMQ wrote: read and asked by us, and written again by us, byte for byte."""

from __future__ import annotations

import base64
import shutil
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.answers import ask, is_same
from helpers.files import digest, digests, index_files, stamps, used_log_files
from helpers.golden import (
    ANSWERS,
    CHECKS,
    READING,
    ROOT,
    WRITING,
    Case,
    case_names,
    expected_message_row,
    keys_of,
    make_batch_topics,
    manifest,
    message_row,
    summary,
    summary_of_row,
)
from helpers.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Row = dict[str, Any]
NEVER = 2**63 - 1


def cases(check: str, *, clean: bool | None = None) -> pytest.MarkDecorator:
    names = [
        name
        for name in case_names(check)
        if clean is None or (manifest()["cases"][name]["state"] == "clean") == clean
    ]
    return pytest.mark.parametrize("case", [Case(name) for name in names], ids=names)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Case], Path]]:
    """The store of a case as RocketMQ left it, shared by all checks that only read it."""
    stores: dict[Case, tuple[Path, dict[str, tuple[int, ...]]]] = {}

    def unpack(case: Case) -> Path:
        if case not in stores:
            root = case.unpack(tmp_path_factory.mktemp(case.name))
            stores[case] = (root, stamps(root))
        return stores[case][0]

    yield unpack
    changed = [str(root) for root, before in stores.values() if stamps(root) != before]
    assert changed == [], "reading changed something"


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Case], tuple[Path, list[Row]]]:
    """The script of a case written by us, and what each put answered."""
    done: dict[Case, tuple[Path, list[Row]]] = {}

    def write(case: Case) -> tuple[Path, list[Row]]:
        if case not in done:
            root = tmp_path_factory.mktemp(case.name) / "store"
            done[case] = (root, write_script(case, root))
        return done[case]

    return write


def write_script(case: Case, root: Path) -> list[Row]:
    validate = case.entry.get("validate_topic_names", True)
    rows = []
    make_batch_topics(root, case.entry.get("batch_topics", []))
    more = {"validate_topic_names": validate, "rocketmq_version": case.release}
    with case.open(root, "a", **more) as store:
        for number, (line, messages) in enumerate(case.script()):
            try:
                results = store.append_many(messages)
            except mqstore.InvalidMessageError as error:
                rows.append({"i": number, "status": error.status})
                continue
            rows.append(
                {
                    "i": number,
                    "status": "PUT_OK",
                    "appendStatus": "PUT_OK",
                    "wroteOffset": results[0].physical_offset,
                    "wroteBytes": sum(result.store_size for result in results),
                    "msgId": ",".join(result.message_id for result in results),
                    "logicsOffset": results[0].queue_offset,
                    "msgNum": len(line.get("batch", results)),
                    "storeTimestamp": results[0].store_timestamp_ms,
                }
            )
    return rows


# --- the manifest -----------------------------------------------------------------------------


def test_manifest_names_every_case() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert folders == {*manifest()["cases"], "indexfile"}
    files = {path.name.partition(".")[0] for path in (ROOT / "indexfile").glob("*.index")}
    assert files == set(manifest()["index_files"])


@pytest.mark.parametrize("name", manifest()["cases"])
def test_manifest_agrees_with_the_case(name: str) -> None:
    case = Case(name)
    left_out: dict[str, str] = case.entry.get("left_out", {})
    assert set(left_out) <= set(CHECKS)
    assert all(left_out.values())
    boolean = {"true": True, "false": False}
    given = {n: boolean.get(v, v) for n, v in case.params["storeConfig"].items()}
    assert case.entry["settings"] == given


def test_each_check_has_a_clean_case() -> None:
    assert all(case_names(check, state="clean") for check in (*READING, *ANSWERS, *WRITING))


# --- reading ----------------------------------------------------------------------------------


@cases("messages", clean=True)
def test_messages(case: Case, unpacked: Callable[[Case], Path]) -> None:
    with case.open(unpacked(case)) as store:
        found = [message_row(message) for message in store.scan()]
        span = (store.min_physical_offset, store.max_physical_offset)
    assert found == [expected_message_row(row) for row in case.expected("message")]
    (whole,) = case.expected("store")
    assert span == (whole["minPhyOffset"], whole["maxPhyOffset"])


@cases("messages", clean=True)
def test_messages_and_blanks_fill_the_log(case: Case, unpacked: Callable[[Case], Path]) -> None:
    (whole,) = case.expected("store")
    log = mqstore.CommitLog(unpacked(case) / "commitlog")
    size = log.file_size
    assert size == whole["mappedFileSizeCommitLog"]
    end, blanks = whole["minPhyOffset"], []
    for message in log:
        if message.physical_offset != end:
            blanks.append({"phyOffset": end, "size": message.physical_offset - end})
            assert message.physical_offset % size == 0
        end = message.physical_offset + message.store_size
    assert blanks == case.expected("blank")
    assert end == whole["maxPhyOffset"]


@cases("messages", clean=False)
def test_messages_at_least(case: Case, unpacked: Callable[[Case], Path]) -> None:
    with case.open(unpacked(case)) as store:
        found = [message_row(message) for message in store.scan(on_error="skip")]
    by_offset = {row["phyOffset"]: row for row in found}
    expected = [expected_message_row(row) for row in case.expected("message")]
    assert [by_offset.get(row["phyOffset"]) for row in expected] == expected
    put = {row["wroteOffset"] for row in case.rows("results") if "wroteOffset" in row}
    assert set(by_offset) <= put


@cases("messages")
def test_topics(case: Case, unpacked: Callable[[Case], Path]) -> None:
    with case.open(unpacked(case)) as store:
        found = store.topics()
    rows = [*case.expected("message"), *case.expected("queue")]
    assert found == sorted({row["topic"] for row in rows})


@cases("queues", clean=True)
def test_queues(case: Case, unpacked: Callable[[Case], Path]) -> None:
    with case.open(unpacked(case)) as store:
        queues = store.queues()
        found = [
            {
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "cqType": queue.kind,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
            }
            for queue in queues
        ]
    expected = case.expected("queue")
    for row in expected:
        row.pop("maxPhysicOffset")
    assert found == sorted(expected, key=lambda row: (row["topic"], row["queueId"]))
    at = {row["phyOffset"]: row["storeTimestamp"] for row in case.expected("message")}
    entries = case.expected("cq")
    for queue in queues:
        times = [
            at[row["phyOffset"]]
            for row in entries
            if (row["topic"], row["queueId"]) == (queue.topic, queue.queue_id)
        ]
        assert queue.first_store_timestamp_ms == times[0]
        assert queue.last_store_timestamp_ms == times[-1]


@cases("queues", clean=False)
def test_queues_at_least(case: Case, unpacked: Callable[[Case], Path]) -> None:
    right = Reference(case.expected("message"), case.expected("queue"))
    with case.open(unpacked(case)) as store:
        found = {(queue.topic, queue.queue_id): queue for queue in store.queues()}
    for row in case.expected("queue"):
        queue, expected = (
            found[row["topic"], row["queueId"]],
            right.queue(row["topic"], row["queueId"]),
        )
        assert queue.min_offset == expected.min_offset
        assert queue.max_offset >= expected.max_offset


@cases("entries", clean=True)
def test_entries(case: Case, unpacked: Callable[[Case], Path]) -> None:
    root = unpacked(case)
    for row in case.expected("queue"):
        topic, queue_id = row["topic"], row["queueId"]
        of_batches = row["cqType"] == "BatchCQ"
        kind = "batchconsumequeue" if of_batches else "consumequeue"
        queue = mqstore.ConsumeQueue(root / kind / topic / str(queue_id))
        assert (queue.topic, queue.queue_id, queue.kind) == (topic, queue_id, row["cqType"])
        if not of_batches:
            # For a batch queue RocketMQ tells where the last record starts.
            assert queue.max_physical_offset == row["maxPhysicOffset"]
        found = [
            {
                "topic": topic,
                "queueId": queue_id,
                "offset": entry.queue_offset,
                "phyOffset": entry.physical_offset,
                "size": entry.store_size,
                **tags_code_of(entry, root / "consumequeue_ext" / topic / str(queue_id)),
                **({"batchNum": entry.message_count} if of_batches else {}),
            }
            for entry in queue.entries(start=row["minOffset"])
        ]
        mine = [r for r in case.expected("cq") if (r["topic"], r["queueId"]) == (topic, queue_id)]
        assert found == mine


def tags_code_of(entry: mqstore.QueueEntry, folder: Path) -> Row:
    """The code itself, or what the queue's extension holds at the address that it is."""
    if entry.tags_code > -(2**31) - 1:
        return {"tagsCode": entry.tags_code}
    address = entry.tags_code + 2**63
    files = sorted(folder.iterdir())
    size = files[0].stat().st_size
    unit = files[address // size].read_bytes()[address % size :]
    length, code, time, bits = struct.unpack_from(">hqqh", unit)
    return {
        "tagsCode": code,
        "ext": {
            "size": length,
            "tagsCode": code,
            "msgStoreTime": time,
            "bitMap": base64.b64encode(unit[20 : 20 + bits]).decode() if bits else None,
        },
    }


@cases("entries", clean=True)
def test_tags_codes(case: Case, unpacked: Callable[[Case], Path]) -> None:
    for row in case.expected("message"):
        if row["topic"] != "SCHEDULE_TOPIC_XXXX":
            assert mqstore.tags_code(row["tags"]) == row["tagsCode"]


@cases("index_names")
def test_index_headers_span_their_messages(case: Case, unpacked: Callable[[Case], Path]) -> None:
    times = {row["storeTimestamp"] for row in case.rows("script") if "storeTimestamp" in row}
    times |= {row["storeTimestamp"] for row in case.expected("message")}
    for path in index_files(unpacked(case)):
        with open_index(case, path) as index:
            header = index.header
            assert len(index) == header.index_count - 1
            if len(index) == 0:
                # The first record makes the file, whether or not it has a key.
                assert header == mqstore.IndexHeader(0, 0, 0, 0, 0, 1)
                continue
            newest = index.entry(len(index))
        assert header.begin_timestamp_ms in times
        assert header.end_timestamp_ms in times
        assert newest.physical_offset == header.end_physical_offset


def open_index(case: Case, path: Path) -> mqstore.IndexFile:
    slots = case.settings.get("maxHashSlotNum", 5_000_000)
    entries = case.settings.get("maxIndexNum", 20_000_000)
    return mqstore.IndexFile(path, slots=slots, entries=entries)


@cases("messages", clean=True)
def test_verify_finds_nothing(case: Case, unpacked: Callable[[Case], Path]) -> None:
    report = mqstore.verify(unpacked(case), config=case.settings)
    wrong = [finding for finding in report.findings if finding.severity != "info"]
    assert wrong == []
    assert report.ok
    assert report.counts["messages"] == len(case.expected("message"))


# --- answers ----------------------------------------------------------------------------------


@cases("cq", clean=True)
def test_answers_by_queue(case: Case, unpacked: Callable[[Case], Path]) -> None:
    with case.open(unpacked(case), emulate_transfer_limits=True) as store:
        three = ((query, ask(store, query), answer) for query, answer in case.queries("cq"))
        assert [one for one in three if not is_same(*one)] == []


@cases("cq", clean=False)
def test_answers_by_queue_are_right(case: Case, unpacked: Callable[[Case], Path]) -> None:
    """Compares messages that RocketMQ's recovery lost or moved with the log."""
    check_answers_by_queue(case, unpacked(case))


def check_answers_by_queue(case: Case, root: Path) -> None:
    right = Reference(case.expected("message"), case.expected("queue"))
    with case.open(root) as store:
        for query, answer in case.queries("cq"):
            result = store.read(
                query["topic"],
                query["queueId"],
                query["from"],
                max_messages=query["max"],
                tags=query["tags"],
            )
            queue = right.queue(query["topic"], query["queueId"])
            status, after, rows = queue.read(query["from"], query["max"], query["tags"])
            found = [summary(message) for message in result.messages]
            if result.max_queue_offset == queue.max_offset:
                assert (result.status, result.next_queue_offset) == (status, after), query
                assert found == [summary_of_row(row) for row in rows], query
            else:
                # Behind the damage that ended RocketMQ's log.
                assert case.entry["state"] == "damaged"
                assert found[: len(rows)] == [summary_of_row(row) for row in rows], query
            given = {row["phyOffset"] for row in answer["messages"]}
            assert given <= {row["phyOffset"] for row in queue.messages}, query


@cases("time", clean=True)
def test_answers_by_time(case: Case, unpacked: Callable[[Case], Path]) -> None:
    of_batches = case.entry.get("batch_topics", [])
    wrong: Counter[str] = Counter()
    with case.open(unpacked(case)) as store:
        for query, answer in case.queries("time"):
            found = ask(store, query)
            expected = answer
            if query["topic"] in of_batches:
                expected = {"offset": right_time_of_batches(case, query)}
                wrong[query["boundary"]] += answer != expected
            assert found == expected, query
    assert dict(+wrong) == case.entry.get("wrong_times", {})


def right_time_of_batches(case: Case, query: Row) -> int:
    """The first offset of the batch that a search by time should name."""
    at = {row["phyOffset"]: row["storeTimestamp"] for row in case.expected("message")}
    batches = [
        (at[row["phyOffset"]], row["offset"])
        for row in case.expected("cq")
        if (row["topic"], row["queueId"]) == (query["topic"], query["queueId"])
    ]
    if query["boundary"] == "lower":
        # Behind the last one RocketMQ gives its base, and not its end.
        later = (offset for time, offset in batches if time >= query["timestamp"])
        return next(later, batches[-1][1])
    earlier = [offset for time, offset in batches if time <= query["timestamp"]]
    return earlier[-1] if earlier else batches[0][1]


@cases("time", clean=False)
def test_answers_by_time_are_right(case: Case, unpacked: Callable[[Case], Path]) -> None:
    check_answers_by_time(case, unpacked(case))


def check_answers_by_time(case: Case, root: Path) -> None:
    right = Reference(case.expected("message"), case.expected("queue"))
    with case.open(root) as store:
        for query, _ in case.queries("time"):
            queue = right.queue(query["topic"], query["queueId"])
            assert queue.is_in_order()
            found = store.offset_at(
                query["topic"],
                query["queueId"],
                query["timestamp"],
                boundary=query["boundary"],
            )
            expected = queue.offset_at(query["timestamp"], query["boundary"])
            if case.entry["state"] == "damaged" and expected >= queue.max_offset - 1:
                assert found >= expected, query
            else:
                assert found == expected, query


@pytest.mark.parametrize("op", ["key", "uniq"])
@cases("key", clean=True)
def test_answers_by_key(case: Case, op: str, unpacked: Callable[[Case], Path]) -> None:
    """``exact=False`` is RocketMQ's answer, other keys of equal hash and all."""
    with case.open(unpacked(case)) as store:
        three = ((query, ask(store, query), answer) for query, answer in case.queries(op))
        assert [one for one in three if not is_same(*one)] == []


@pytest.mark.parametrize("op", ["key", "uniq"])
@cases("key")
def test_answers_by_key_are_right(case: Case, op: str, unpacked: Callable[[Case], Path]) -> None:
    """``exact=True`` is what the log says, whatever the index has lost."""
    check_answers_by_key(case, op, unpacked(case))


def check_answers_by_key(case: Case, op: str, root: Path) -> None:
    right = Reference(case.expected("message"))
    with case.open(root) as store:
        for query, answer in case.queries(op):
            result = store.query(
                query["topic"],
                query["key"],
                begin_ms=query.get("begin"),
                end_ms=query.get("end"),
                max_messages=query["max"],
            )
            found = [summary(message) for message in result]
            begin, end = query.get("begin", 0), query.get("end", NEVER)
            expected = right.query(query["topic"], query["key"], query["max"], begin, end)
            if case.entry["state"] == "damaged":
                last = right.messages[-1]["phyOffset"]
                found = [row for row in found if row["phyOffset"] <= last]
                expected = expected[: len(found)] if result.truncated else expected
            assert found == [summary_of_row(row) for row in expected], query
            true = [
                summary_of_row(row)
                for row in reversed(answer["messages"])
                if row["topic"] == query["topic"] and query["key"] in keys_of(row)
            ]
            inside = [row for row in true if begin <= row["storeTimestamp"] <= end]
            more = [row for row in found if row not in inside]
            assert not inside or len(found) - len(more) == len({str(row) for row in inside}), query


@cases("phy")
def test_answers_by_offset(case: Case, unpacked: Callable[[Case], Path]) -> None:
    with case.open(unpacked(case)) as store:
        for query, answer in case.queries("phy"):
            if answer["found"]:
                message = store.get(query["phyOffset"])
                assert summary(message) == summary_of_row(answer["message"]), query
                assert store.get_by_id(message.message_id) == message
            elif case.entry["state"] == "clean":
                with pytest.raises((mqstore.OffsetOutOfRangeError, mqstore.MessageNotFoundError)):
                    store.get(query["phyOffset"])


# --- opening for writing what was left uncleanly, or touched -----------------------------------


@cases("messages", clean=False)
def test_recovery(case: Case, tmp_path: Path) -> None:
    root = case.unpack(tmp_path)
    expected = [expected_message_row(row) for row in case.expected("message")]
    before = {name: stamp for name, stamp in stamps(root).items() if "/" in name}
    if case.entry["state"] == "damaged":
        with pytest.raises(mqstore.CorruptionError) as refused:
            case.open(root, "r+")
        # Those behind the damage had been flushed: nobody may throw them away in silence.
        behind = len(case.rows("script")) - len(expected) - 1
        assert f"{behind} whole messages lie beyond" in str(refused.value)
        assert refused.value.kind == "body-crc"
        assert refused.value.path == str(root / case.entry["touched"][0])
        assert {name: stamps(root)[name] for name in before} == before
        return
    if case.entry["state"] == "truncated":
        # The checkpoint has the time of a flushed message that went with the file.
        with pytest.raises(mqstore.CorruptionError, match="put the missing files back"):
            case.open(root, "r+")
        assert {name: stamps(root)[name] for name in before} == before
        report = mqstore.recover(root, dry_run=False, drop_beyond=True, config=case.settings)
        assert (report.mode, report.applied) == ("crash", True)
    with case.open(root, "r+") as store:
        assert store.recovery is not None
        if case.entry["state"] != "truncated":
            assert store.recovery.mode == ("crash" if "abort" in case.name else "clean")
        assert [message_row(message) for message in store.scan()] == expected
    assert not (root / "abort").exists()
    assert mqstore.verify(root, config=case.settings).ok
    check_answers_by_queue(case, root)
    check_answers_by_time(case, root)
    check_answers_by_key(case, "key", root)
    check_answers_by_key(case, "uniq", root)
    with case.open(root) as store:
        # The index holds every key again, not only those behind the checkpoint.
        for message in store.scan():
            for key in message.keys:
                found = store.query(message.topic, key, exact=False, max_messages=64)
                assert message in found or len(found) == 64


# --- writing again ----------------------------------------------------------------------------


@cases("put")
def test_puts(case: Case, written: Callable[[Case], tuple[Path, list[Row]]]) -> None:
    _, rows = written(case)
    assert rows == [row for row in case.rows("results") if row.get("type") != "end"]


@cases("commitlog")
def test_commit_log_bytes(
    case: Case,
    written: Callable[[Case], tuple[Path, list[Row]]],
    unpacked: Callable[[Case], Path],
) -> None:
    touched = case.entry.get("touched", ())
    ours, _ = written(case)
    assert used_log_files(ours, without=touched) == used_log_files(unpacked(case), without=touched)


@cases("consumequeue")
def test_queue_bytes(
    case: Case,
    written: Callable[[Case], tuple[Path, list[Row]]],
    unpacked: Callable[[Case], Path],
) -> None:
    touched = case.entry.get("touched", ())
    ours, _ = written(case)
    theirs = unpacked(case)
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        found = digests(ours, folder, without=touched)
        assert found == digests(theirs, folder, without=touched)


@cases("index")
def test_index_bytes(
    case: Case,
    written: Callable[[Case], tuple[Path, list[Row]]],
    unpacked: Callable[[Case], Path],
) -> None:
    ours, _ = written(case)
    found = [digest(path) for path in index_files(ours)]
    assert found == [digest(path) for path in index_files(unpacked(case))]


@cases("put", clean=True)
def test_verify_finds_nothing_in_ours(
    case: Case, written: Callable[[Case], tuple[Path, list[Row]]]
) -> None:
    ours, _ = written(case)
    report = mqstore.verify(ours, config=case.settings)
    assert [finding for finding in report.findings if finding.severity != "info"] == []


# --- made again from the log ------------------------------------------------------------------


@cases("consumequeue", clean=True)
def test_rebuild_bytes(case: Case, unpacked: Callable[[Case], Path], tmp_path: Path) -> None:
    """Without queues and index: the log alone gives RocketMQ's own bytes."""
    theirs = unpacked(case)
    alone = tmp_path / "alone"
    for kept in ("commitlog", "config"):
        if (theirs / kept).is_dir():
            shutil.copytree(theirs / kept, alone / kept)
    make_batch_topics(alone, case.entry.get("batch_topics", []))
    validate = case.entry.get("validate_topic_names", True)
    settings = {
        **case.settings,
        "validate_topic_names": validate,
        "rocketmq_version": case.release,
    }
    report = mqstore.rebuild(alone, config=settings)
    assert (report.damaged, report.refused, report.left_out) == ((), 0, 0)
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        assert digests(alone, folder) == digests(theirs, folder)
    if "index" not in case.entry.get("left_out", {}):
        found = [digest(path) for path in index_files(alone)]
        assert found == [digest(path) for path in index_files(theirs)]
    # The table of topics is the test's own and names those of batches only.
    findings = mqstore.verify(alone, config=settings).findings
    assert {of.code for of in findings if of.severity != "info"} <= {"MQ-CFG-04"}
