"""RocketMQ 5.4 and 5.5 open stores that were written for them, or by several releases."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.comparing import assert_same_bytes, dump_as_ours, dump_ours, write_ours
from helpers.files import copy_store, index_files
from helpers.java import RocketMQ, release_of
from helpers.scripts import FLAVOURS, PARAMS, PLAIN, Flavour, Script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = PARAMS["storeConfig"]
# The newest always, the one between on request.
VERSIONS = ("5.4.0", "5.5.0") if os.environ.get("MQSTORE_ROCKETMQ_MATRIX") else ("5.5.0",)
each_version = pytest.mark.parametrize("version", VERSIONS)


def spans(rows: list[dict[str, object]]) -> dict[tuple[object, object], tuple[object, object]]:
    """The bounds of each queue of a dump."""
    return {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in rows
        if row["type"] == "queue"
    }


def spans_of(root: Path) -> dict[tuple[object, object], tuple[object, object]]:
    with mqstore.open(root, config=SETTINGS) as store:
        return {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in store.queues()}


@each_version
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)
def test_same_script_same_bytes_and_that_version_opens_ours(
    running: Callable[[str], RocketMQ], version: str, flavour: Flavour, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    script = Script(7, flavour).add(150)
    write_ours(ours, script, flavour=flavour, release=release_of(version))
    running(version).write(theirs, flavour.params, script)
    assert_same_bytes(ours, theirs)
    opened = copy_store(ours, tmp_path / "opened")
    dump = running(version).dump(opened, flavour.params)
    assert dump_as_ours(dump)["messages"] == dump_ours(ours)["messages"]
    assert_same_bytes(opened, ours)
    assert mqstore.verify(theirs, config=flavour.params["storeConfig"]).ok


@each_version
@pytest.mark.parametrize("accelerated", [True, False])
def test_a_store_of_ours_that_crashed_is_opened(
    running: Callable[[str], RocketMQ], version: str, tmp_path: Path, *, accelerated: bool
) -> None:
    """With accelerated recovery 5.5 begins at the place in the checkpoint, and wants one there."""
    root = tmp_path / "store"
    write_ours(root, Script(11).add(120), release=release_of(version))
    expected = spans_of(root)
    (root / "abort").write_text("1")
    settings = {**SETTINGS, "enableAcceleratedRecovery": str(accelerated).lower()}
    dump = running(version).dump(root, {**PARAMS, "storeConfig": settings})
    assert spans(dump) == expected
    assert sum(row["type"] == "message" for row in dump) == 120


@each_version
def test_vr13_queues_that_we_completed_keep_their_first_message(
    running: Callable[[str], RocketMQ], version: str, tmp_path: Path
) -> None:
    """A start of 5.4 or later looks at ten files of the log at most."""
    root = tmp_path / "store"
    write_ours(root, Script(13).add(700), release=release_of(version))
    assert len(list((root / "commitlog").iterdir())) > 12
    expected = spans_of(root)
    shutil.rmtree(root / "consumequeue")
    mqstore.open(root, "r+", config=SETTINGS).close()
    assert spans_of(root) == expected
    dump = running(version).dump(root, PARAMS)
    assert spans(dump) == expected
    assert {first for first, _ in spans(dump).values()} == {0}


def test_vr14_a_store_that_several_versions_wrote(
    running: Callable[[str], RocketMQ], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    script = Script(17, PLAIN)
    for version in ("5.3.3", "5.5.0", "5.3.3"):
        running(version).write(root, PARAMS, script.add(40))
    report = mqstore.verify(root, config=SETTINGS)
    assert report.ok
    assert [found.severity for found in report.findings if found.code == "MQ-IX-12"]
    with mqstore.open(root, config=SETTINGS) as store:
        assert store.versions()["can_be"] == ["5.3", "5.5"]
        for message in store.scan():
            if message.transaction == "rollback":
                continue
            if message.tags:
                found = store.query(message.topic, tags=message.tags, max_messages=200)
                assert message.physical_offset in {one.physical_offset for one in found}
            for key in message.keys:
                found = store.query(message.topic, key, max_messages=200)
                assert message.physical_offset in {one.physical_offset for one in found}
    before = [path.read_bytes() for path in index_files(root)]
    mqstore.open(root, "r+", config=SETTINGS).close()
    assert [path.read_bytes() for path in index_files(root)] == before


@each_version
@pytest.mark.parametrize("crashed", [True, False])
def test_preflight_says_what_a_start_does(
    running: Callable[[str], RocketMQ], version: str, tmp_path: Path, *, crashed: bool
) -> None:
    """The first message of each queue that a start leaves within reach."""
    root = tmp_path / "store"
    write_ours(root, Script(19).add(700), release=release_of(version))
    shutil.rmtree(root / "consumequeue")
    if crashed:
        (root / "abort").write_text("1")
    expected = spans_of(root)
    report = mqstore.preflight(root, to=release_of(version), config=SETTINGS)
    assert report.starts
    assert not report.ok
    found = spans(running(version).dump(copy_store(root, tmp_path / "opened"), PARAMS))
    gone = sum(
        found[queue][0] if queue in found else last  # type: ignore[misc]
        for queue, (_, last) in expected.items()
    )
    assert report.lost == gone
    mqstore.recover(root, dry_run=False, config=SETTINGS)
    assert mqstore.preflight(root, to=release_of(version), config=SETTINGS).ok
    assert spans(running(version).dump(root, PARAMS)) == expected
