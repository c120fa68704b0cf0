"""Files that are gone from a store: told from what a broker deletes, and never called healthy."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.damaged_stores import make_base
from helpers.golden import Case
from helpers.stores import TINY, message
from mqstore.files.layout import list_files, open_index_files
from mqstore.html_report import facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL_FILES = {**TINY, "mapped_file_size_commit_log": 8192}
ONE_QUEUE_FILE = {**SMALL_FILES, "mapped_file_size_consume_queue": 20_000}
HOUR_MS = 3_600_000


def named(report: mqstore.DoctorReport) -> dict[str, str]:
    return {diagnosis.code: diagnosis.severity for diagnosis in report}


def filled(root: Path, config: dict[str, object], count: int = 80) -> Path:
    now_ms = time.time_ns() // 1_000_000
    with mqstore.open(root, "a", config=config) as store:
        for number in range(count):
            age_ms = 100 * HOUR_MS if number < count // 2 else 0
            store.append_many([message(size=400, store_timestamp_ms=now_ms - age_ms)])
    return root


def test_a_store_whose_config_folder_is_gone_is_not_healthy(tmp_path: Path) -> None:
    ours = filled(tmp_path / "ours", SMALL_FILES)
    broker = make_base("broker-53", tmp_path / "broker")
    for root, config in ((ours, SMALL_FILES), (broker, broker.parent / "broker.conf")):
        shutil.rmtree(root / "config")
        report = mqstore.doctor(root, config=config)
        assert named(report)["MQ-CFG-07"] == "error"
        assert any("--what topics --apply" in command for command in report.commands)
        assert not mqstore.verify(root, config=config).ok
    # One that a program wrote without a broker never had the folder.
    case = Case("plain")
    report = mqstore.doctor(case.unpack(tmp_path / "plain"), config=case.settings)
    assert (named(report), report.commands) == ({"MQ-CFG-07": "info"}, ())
    assert "nothing tells whether there ever was one" in report[0].evidence[0]


def test_files_missing_at_the_beginning_are_told_from_retention(tmp_path: Path) -> None:
    root = filled(tmp_path / "store", SMALL_FILES)
    other = filled(tmp_path / "other", ONE_QUEUE_FILE)
    for store, config, severity in (
        (root, SMALL_FILES, "warning"),
        (other, ONE_QUEUE_FILE, "info"),
    ):
        assert "MQ-DOC-16" not in named(mqstore.doctor(store, config=config))
        first = min((store / "commitlog").iterdir())
        first.unlink()
        report = mqstore.doctor(store, config=config)
        assert named(report)["MQ-DOC-16"] == severity
        (line,) = next(one.evidence for one in report if one.code == "MQ-DOC-16")
        with mqstore.open(store, config=config) as opened:
            (queue,) = opened.queues()
        assert f"1 queues know {queue.min_offset} messages before it" in line
        assert ("nothing tells which" in line) == (severity == "info")
        assert report.commands == ()


def test_a_file_that_retention_deleted_is_no_damage(tmp_path: Path) -> None:
    for name, config in (("a", SMALL_FILES), ("b", ONE_QUEUE_FILE)):
        root = filled(tmp_path / name, config)
        mqstore.clean(root, dry_run=False, config={**config, "keep_hours": 50})
        with mqstore.open(root, config=config) as store:
            assert store.min_physical_offset > 0
        report = mqstore.doctor(root, config=config)
        assert report.ok, report
        assert report.commands == ()


@pytest.mark.parametrize(
    ("main", "backup", "starts"),
    [
        ("{damaged", None, True),
        ("{damaged", "", True),
        ("{damaged", "{damaged", False),
        (None, "{damaged", False),
        ('{"offsetTable":{}}', "{damaged", True),
    ],
)
def test_a_start_is_foreseen_where_offsets_cannot_be_read(
    tmp_path: Path, main: str | None, backup: str | None, starts: bool
) -> None:
    root = make_base("broker-53", tmp_path / "broker")
    for name, text in (("consumerOffset.json", main), ("consumerOffset.json.bak", backup)):
        (root / "config" / name).unlink(missing_ok=True)
        if text is not None:
            (root / "config" / name).write_text(text)
    report = mqstore.doctor(root, config=root.parent / "broker.conf")
    assert "MQ-OFF-05" in named(report)
    assert report.will_start == starts, report.obstacles


def test_a_report_and_info_leave_out_what_goes_while_they_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=SMALL_FILES) as store:
        store.append_many(message(keys=(f"key{number}",)) for number in range(120))
    indexes = sorted((root / "index").iterdir())
    scandir = os.scandir

    @contextlib.contextmanager
    def then_they_go(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            found = list(entries)
        if folder == root:
            shutil.rmtree(root / "consumequeue")
            (root / "checkpoint").unlink()
        yield iter(found)

    def listed(_root: str) -> list[Path]:
        (root / "index" / indexes[0].name).unlink(missing_ok=True)
        return indexes

    monkeypatch.setattr(os, "scandir", then_they_go)
    names = {group.name for group in list_files(str(root)).groups}
    assert "commitlog" in names
    assert not names & {"consumequeue", "checkpoint"}
    monkeypatch.undo()
    monkeypatch.setattr(facts, "index_files", listed)
    mqstore.report(root, tmp_path / "report.html", config=SMALL_FILES)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert indexes[-1].name in page
    assert indexes[0].name not in page
    with mqstore.open(root, "r", config=SMALL_FILES) as store:
        opened = [path for path, _ in open_index_files(store, indexes)]
        assert opened == indexes[1:]
