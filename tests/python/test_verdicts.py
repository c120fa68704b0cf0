"""Rows O7 and O12: each folder gets a verdict, whatever it is or holds."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.curing import run
from helpers.stores import SMALL

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SMALL) as opened:
        opened.append_many(("t", bytes(100), None, None, f"k{n}") for n in range(1000))
    return root


@pytest.mark.parametrize(
    ("name", "value"), [("mappedFileSizeCommitLog", 131072), ("mappedFileSizeConsumeQueue", 4000)]
)
def test_a_size_that_contradicts_the_files_is_a_finding(
    store: Path, tmp_path: Path, name: str, value: int
) -> None:
    conf = tmp_path / "broker.conf"
    sizes = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000, name: value}
    conf.write_text("".join(f"{one}={size}\n" for one, size in sizes.items()))
    report = mqstore.doctor(store, config=conf)
    (told,) = (one for one in report if one.severity != "info")
    assert told.code == "MQ-CFG-08"
    assert f"files of {value} bytes, as {name} says" in told.evidence[0]
    assert not report.will_start
    assert report.commands == ()
    assert [one.code for one in mqstore.verify(store, config=conf).findings] == ["MQ-CFG-08"]
    forecast = mqstore.preflight(store, to="5.3", config=conf)
    assert not forecast.starts
    assert any(name in note.what for note in forecast.notes)
    with pytest.raises(mqstore.ConfigError):
        mqstore.open(store, "r+", config=conf)


def test_a_folder_that_is_no_store_is_named_for_what_it_seems_to_be(
    store: Path, tmp_path: Path
) -> None:
    def told(path: Path) -> str:
        for judge in (mqstore.doctor, mqstore.verify, lambda at: mqstore.preflight(at, to="5.5")):
            with pytest.raises(mqstore.NotAStoreError) as error:
                judge(path)
        return str(error.value)

    for below in ("commitlog", "consumequeue", "consumequeue/t/0", "index", "config"):
        assert f"it lies in the store {store}: name that" in told(store / below)
    assert f"{store} is a store: name that" in told(tmp_path)
    shutil.copytree(store / "commitlog", tmp_path / "elsewhere" / "files")
    assert "`mqstore salvage` copies" in told(tmp_path / "elsewhere" / "files")
    shutil.move(store / "commitlog", tmp_path / "log")
    assert "checkpoint, config, consumequeue, index it seems to be half a copy" in told(store)
    (tmp_path / "empty").mkdir()
    assert told(tmp_path / "empty").endswith("no folder `commitlog` in it")


def broker_store(root: Path, count: int, *, size: int = 100, topic: str = "t") -> Path:
    """A store without what only a writer of mqstore leaves."""
    with mqstore.open(root, "a", config=SMALL) as opened:
        opened.append_many(
            (f"{topic}{n % 3}", bytes(size), None, None, f"{n}") for n in range(count)
        )
    forget(root)
    return root


def forget(root: Path) -> None:
    for name in ("mqstore.mark", "mqstore.seal", "config/mqstore.json"):
        (root / name).unlink(missing_ok=True)


def wrong(report: mqstore.DoctorReport) -> dict[str, str]:
    return {one.code: "\n".join(one.evidence) for one in report if one.severity != "info"}


@pytest.mark.parametrize("abort", [True, False])
def test_o7_a_copy_of_a_running_broker_is_named_and_what_it_lacks_is_counted(
    tmp_path: Path, abort: bool
) -> None:
    source, copy = broker_store(tmp_path / "source", 300), tmp_path / "copy"
    with mqstore.open(source, "r+") as opened:
        shutil.copytree(source / "commitlog", copy / "commitlog")
        opened.append_many((f"t{n % 3}", bytes(100), None, None, f"n{n}") for n in range(100))
        opened.flush()
        for name in ("consumequeue", "index", "config"):
            shutil.copytree(source / name, copy / name)
        for name in ("checkpoint", "lock", *(["abort"] if abort else [])):
            shutil.copy(source / name, copy / name)
    forget(copy)
    report = mqstore.doctor(copy)
    assert report.lost == 100
    assert sum(queue.messages for queue in report.lost_queues) == 100
    assert list(wrong(report)) == ["MQ-DOC-17"]
    assert "queues and index know 100 messages" in wrong(report)["MQ-DOC-17"]
    assert report.commands == ()


def test_o7_keys_that_lead_behind_the_log_are_counted(tmp_path: Path) -> None:
    source = broker_store(tmp_path / "source", 300)
    shutil.copytree(source, tmp_path / "copy")
    with mqstore.open(source, "r+") as opened:
        opened.append_many((f"t{n % 3}", bytes(100), None, None, f"n{n}") for n in range(100))
    shutil.rmtree(tmp_path / "copy" / "index")
    shutil.copytree(source / "index", tmp_path / "copy" / "index")
    report = mqstore.doctor(tmp_path / "copy")
    assert report.lost == 100
    assert "MQ-DOC-17" in wrong(report)


def test_o7_a_copy_that_is_not_finished_is_named_and_its_part_stays(tmp_path: Path) -> None:
    copy = broker_store(tmp_path / "copy", 1500)
    *_, part, last = sorted((copy / "commitlog").iterdir())
    last.unlink()
    (copy / "commitlog" / f".{part.name}.Xa81kQ").write_bytes(part.read_bytes()[:30000])
    part.unlink()
    shutil.rmtree(copy / "consumequeue" / "t2")
    report = mqstore.doctor(copy)
    assert "MQ-DOC-17" in wrong(report)
    assert report.lost > 200
    assert report.commands == ()


def test_o7_files_of_another_broker_are_named(tmp_path: Path) -> None:
    # The whole of a shorter store is copied over a longer one.
    over = broker_store(tmp_path / "over", 600, size=150)
    shutil.copytree(broker_store(tmp_path / "short", 300, topic="u"), over, dirs_exist_ok=True)
    report = mqstore.doctor(over)
    assert "goes on in the next file with" in wrong(report)["MQ-DOC-18"]
    assert report.lost > 0
    assert report.commands == ()
    # Queues and index of one, the log of another.
    log = broker_store(tmp_path / "log", 900, size=150)
    queues = broker_store(tmp_path / "queues", 600)
    for name in ("consumequeue", "index"):
        shutil.rmtree(log / name)
        shutil.copytree(queues / name, log / name)
    report = mqstore.doctor(log)
    assert "of 600 queue entries lead to no message" in wrong(report)["MQ-DOC-18"]
    assert report.commands == ()


@pytest.mark.parametrize(("count", "number"), [(300, 0), (300, 1), (600, 1)])
def test_o7_a_file_of_another_log_is_named_and_what_it_replaced_is_lost(
    tmp_path: Path, count: int, number: int
) -> None:
    own = broker_store(tmp_path / "own", count, size=300)
    other = broker_store(tmp_path / "other", 900, size=120)
    with mqstore.open(own) as opened:
        expected = sum(message.physical_offset // 65536 == number for message in opened.scan())
    file = sorted((own / "commitlog").iterdir())[number]
    shutil.copy(sorted((other / "commitlog").iterdir())[number], file)
    report = mqstore.doctor(own)
    assert f"{file.name} is another log's" in wrong(report)["MQ-DOC-18"]
    assert report.lost == expected
    assert report.commands == ()
    assert not mqstore.preflight(own, to="5.3").ok


def test_o7_wrong_queues_beside_a_right_log_lose_nothing(tmp_path: Path) -> None:
    own = broker_store(tmp_path / "own", 300, size=300)
    other = broker_store(tmp_path / "other", 300, size=120)
    shutil.rmtree(own / "consumequeue" / "t0")
    shutil.copytree(other / "consumequeue" / "t0", own / "consumequeue" / "t0")
    report = mqstore.doctor(own)
    assert "MQ-DOC-18" not in wrong(report)
    assert report.lost == 0


def test_o7_a_copy_of_another_file_of_the_log_counts_at_once(tmp_path: Path) -> None:
    own = broker_store(tmp_path / "own", 600, size=300)
    with mqstore.open(own) as opened:
        expected = sum(message.physical_offset // 65536 == 1 for message in opened.scan())
    first, second, *_ = sorted((own / "commitlog").iterdir())
    shutil.copy(first, second)
    report = mqstore.doctor(own)
    assert "MQ-DOC-14" in wrong(report)
    assert report.lost == expected
    subprocess.run(report.commands[0], shell=True, check=True)
    assert mqstore.doctor(own).lost == expected


def test_o7_a_log_without_a_file_is_no_mixture(tmp_path: Path) -> None:
    store = broker_store(tmp_path / "store", 300)
    for path in (store / "commitlog").iterdir():
        path.unlink()
    assert "MQ-DOC-18" not in wrong(mqstore.doctor(store))


def test_o9_a_topic_that_may_be_deleted_has_two_cures_with_their_conditions(
    tmp_path: Path,
) -> None:
    store = broker_store(tmp_path / "store", 300)
    table = json.loads((path := store / "config" / "topics.json").read_text())
    del table["topicConfigTable"]["t1"]
    path.write_text(json.dumps(table))
    path.with_suffix(".json.bak").unlink(missing_ok=True)
    told = wrong(mqstore.doctor(store))["MQ-CFG-04"]
    in_use, _, deleted = told.partition("if it was deleted: ")
    assert "if it is in use, the cure enters it" in in_use
    other = tmp_path / "other"
    shutil.copytree(store, other)
    subprocess.run(shlex.split(deleted.strip("`")), check=True)
    assert mqstore.doctor(store).ok
    for command in mqstore.doctor(other).commands:
        run(command)
    assert mqstore.doctor(other).ok
    assert "t1" in json.loads((other / "config" / "topics.json").read_text())["topicConfigTable"]


def test_o9_an_empty_table_of_topics_is_taken_from_its_backup_and_else_made_again(
    tmp_path: Path,
) -> None:
    empty = ("", "null", "{}", '{"topicConfigTable":{}}', '{"topicConfigTable":null}')
    for number, (text, has_backup) in enumerate([("", False), *((one, True) for one in empty)]):
        store = broker_store(tmp_path / f"store-{number}", 300)
        path = store / "config" / "topics.json"
        whole, backup = path.read_text(), path.with_suffix(".json.bak")
        path.write_text(text)
        backup.unlink(missing_ok=True)
        if has_backup:
            backup.write_text(whole)
        (command,) = mqstore.doctor(store).commands
        assert command.startswith("cp " if has_backup else "mqstore rebuild ")
        if has_backup:
            subprocess.run(shlex.split(command), check=True)
            assert path.read_text() == whole
        else:
            run(command)
        assert mqstore.doctor(store).ok


def test_o9_lost_offsets_name_both_places_to_begin_at(tmp_path: Path) -> None:
    store = broker_store(tmp_path / "store", 300, topic="%RETRY%g")
    (store / "config" / "consumerOffset.json").unlink(missing_ok=True)
    (store / "config" / "subscriptionGroup.json").write_text(
        json.dumps({"subscriptionGroupTable": {"g": {"groupName": "g"}}})
    )
    report = mqstore.doctor(store)
    told = wrong(report)["MQ-OFF-05"]
    assert f"mqstore groups {store} --reset-to latest --apply" in told
    assert any("--reset-to earliest" in command for command in report.commands)
