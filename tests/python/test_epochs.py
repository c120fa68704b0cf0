"""Row P3: a log behind whose new epoch messages of an ended one lie (apache/rocketmq#10666)."""

from __future__ import annotations

import shutil
import struct
import warnings
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.damaged_stores import epoch_lines
from helpers.stores import SMALL
from mqstore._settings import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

KEPT, TAIL = 300, 40


def confirm(root: Path, offset: int) -> None:
    """Sets ``confirmPhyOffset``."""
    with (root / "checkpoint").open("r+b") as file:
        file.seek(32)
        file.write(struct.pack(">q", offset))


def append(root: Path, mode: str, count: int, what: str) -> None:
    with mqstore.open(root, mode, config=SMALL) as store:
        store.append_many((f"t{n % 3}", bytes(100), None, None, f"{what}{n}") for n in range(count))


@pytest.fixture
def slave(tmp_path: Path) -> tuple[Path, int]:
    """A slave that cut its log in memory at T: queues end there, and the old log goes on."""
    root = tmp_path / "slave"
    append(root, "a", KEPT, "kept")
    with mqstore.open(root) as store:
        begin = store.max_physical_offset
    shutil.copytree(root, tmp_path / "cut")
    append(root, "r+", TAIL, "old")
    for name in ("consumequeue", "index", "checkpoint"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        copy = shutil.copytree if path.name != "checkpoint" else shutil.copy
        copy(tmp_path / "cut" / name, path)
    for name in ("mqstore.mark", "mqstore.seal", "config/mqstore.json"):
        (root / name).unlink(missing_ok=True)
    (root / "epochFileCheckpoint").write_text(epoch_lines((1, 0), (2, begin)))
    confirm(root, begin - 1000)
    return root, begin


def keys(root: Path) -> list[str]:
    with mqstore.open(root) as store:
        return [str(message.keys) for message in store.scan()]


@pytest.mark.parametrize("abort", [False, True])
def test_p3_messages_of_an_ended_epoch_come_back_by_no_cure(
    slave: tuple[Path, int], abort: bool
) -> None:
    root, begin = slave
    if abort:
        (root / "abort").touch()
    before = sorted(path.name for path in (root / "commitlog").iterdir())
    report = mqstore.doctor(root)
    (told,) = (one for one in report if one.severity == "error")
    assert told.code == "MQ-DOC-19"
    (line,) = told.evidence
    assert f"epoch 2 begins at physical offset {begin}" in line
    assert f"confirms only what lies before {begin - 1000}" in line
    assert f"{TAIL} whole messages" in line
    assert told.cure == f"mqstore recover {root} --apply --drop-beyond"
    # A master after a power cut has the same files: the cut is no cure without a condition.
    assert (report.commands, report.last_resort) == ((), (told.cure,))
    assert not any(
        "rebuild" in (one.cure or "") for one in report if one.severity in {"error", "warning"}
    )
    notes = mqstore.preflight(root, to="5.3").notes
    assert any("ended epoch" in note.what for note in notes)

    plan = mqstore.recover(root, dry_run=True)
    assert plan.messages_beyond == TAIL
    for bring_back in (
        lambda: mqstore.open(root, "r+"),
        lambda: mqstore.recover(root, dry_run=False),
        lambda: mqstore.rebuild(root, dry_run=False),
    ):
        with pytest.raises(mqstore.CorruptionError, match="ended epoch"):
            bring_back()
    assert sorted(path.name for path in (root / "commitlog").iterdir()) == before

    done = mqstore.recover(root, dry_run=False, drop_beyond=True)
    assert done.end_physical_offset == begin
    assert len(done.quarantined_messages) == TAIL
    assert done.quarantine is not None
    assert "nothing was changed" not in str(done.cut_reason)
    assert len(keys(root)) == KEPT
    # Nothing puts them back unless someone takes the name's end away.
    after = mqstore.doctor(root)
    assert after.ok, list(after)
    assert after.commands == ()
    assert mqstore.salvage(done.quarantine).messages == TAIL
    append(root, "r+", 1, "new")


@pytest.mark.parametrize("suffix", ["", ".bak"])
def test_p3_the_file_of_epochs_is_where_the_settings_have_it(
    slave: tuple[Path, int], suffix: str
) -> None:
    root, _ = slave
    other = root.parent / "epochs" / "other"
    other.parent.mkdir()
    (root / "epochFileCheckpoint").rename(other.with_name(other.name + suffix))
    assert "MQ-DOC-19" not in {one.code for one in mqstore.doctor(root)}
    conf = root.parent / "broker.conf"
    sizes = "".join(f"\n{SETTINGS[name].conf_name}={value}" for name, value in SMALL.items())
    for line in (
        f"storePathEpochFile={other}",
        f"storePathRootDir={root}\nstorePathEpochFile={root}/in",
    ):
        conf.write_text(line + sizes)
        if "/in" in line:
            shutil.move(other.with_name(other.name + suffix), root / f"in{suffix}")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            report = mqstore.doctor(root, config=conf)
        assert [one.code for one in report if one.severity == "error"] == ["MQ-DOC-19"]
        assert report.commands == ()
        for bring_back in (
            lambda: mqstore.open(root, "r+", config=conf),
            lambda: mqstore.rebuild(root, config=conf, what=("index",)),
        ):
            with pytest.raises(mqstore.CorruptionError, match="ended epoch"):
                bring_back()
    # A copy takes the name from the store, too.
    copy = shutil.copytree(root, root.parent / "copy")
    assert "MQ-DOC-19" in {one.code for one in mqstore.doctor(copy, config=conf)}


def test_p3_an_epoch_file_that_says_nothing_changes_nothing(slave: tuple[Path, int]) -> None:
    root, begin = slave
    epochs = root / "epochFileCheckpoint"
    with mqstore.open(root) as store:
        end = store.max_physical_offset
    whole = epoch_lines((1, 0), (2, begin))
    damaged = whole.replace(f"2-{begin}", f"2-{begin + 1}")
    for text in (
        epoch_lines((1, 0)),
        epoch_lines((1, 0), (2, end)),
        epoch_lines((1, 0), (2, end + 1_000_000)),
        epoch_lines((1, 0), (2, begin + 7)),
        epoch_lines((1, 0), (2, -begin)),
        damaged,
        whole[:-9],
        "",
        "2\n",
        "99999999999999999999\n0\n",
        "\ufffd" * 9,
    ):
        epochs.write_text(text)
        assert "MQ-DOC-19" not in {one.code for one in mqstore.doctor(root)}, text
    # As RocketMQ does, the backup is read in place of a damaged file.
    epochs.with_suffix(".bak").write_text(whole)
    assert "MQ-DOC-19" in {one.code for one in mqstore.doctor(root)}
    # Releases before the checksum, and the number that stands for none.
    for text in (f"2\n1-0\n2-{begin}\n", f"2\n0\n1-0\n2-{begin}\n"):
        epochs.write_text(text)
        assert "MQ-DOC-19" in {one.code for one in mqstore.doctor(root)}, text
    epochs.unlink()
    epochs.mkdir()
    assert mqstore.doctor(root) is not None
    epochs.rmdir()
    epochs.with_suffix(".bak").unlink()
    assert "MQ-DOC-19" not in {one.code for one in mqstore.doctor(root)}
    mqstore.recover(root, dry_run=False)
    assert len(keys(root)) == KEPT + TAIL


def test_p3_confirmed_messages_and_those_in_queues_are_of_the_new_epoch(
    slave: tuple[Path, int],
) -> None:
    root, begin = slave
    confirm(root, begin + 1)
    assert "MQ-DOC-19" not in {one.code for one in mqstore.doctor(root)}
    mqstore.recover(root, dry_run=False)
    confirm(root, begin - 1000)
    assert mqstore.doctor(root).ok
    with mqstore.open(root, "r+") as store:
        assert store.max_physical_offset > begin
