"""Row P1: a log in two folders, and a file of one name in both."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import SMALL

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 1500


def two_folders(tmp_path: Path) -> tuple[Path, dict[str, object], list[Path]]:
    store = tmp_path / "store"
    config = {**SMALL, "store_path_commit_log": "a,b"}
    with mqstore.open(store, "a", config=config) as opened:
        for number in range(MESSAGES):
            opened.append("t", bytes(100), keys=f"k{number}")
    files = sorted([*(store / "a").iterdir(), *(store / "b").iterdir()], key=lambda at: at.name)
    assert len(files) >= 4
    return store, config, files


def other(path: Path) -> Path:
    return path.parent.parent / ("b" if path.parent.name == "a" else "a") / path.name


def make_zeros(file: Path) -> None:
    with other(file).open("wb") as made:
        made.truncate(file.stat().st_size)


def make_equal(file: Path) -> None:
    shutil.copy(file, other(file))


def make_older(file: Path) -> None:
    """As it was when half of it was written."""
    half = file.stat().st_size // 2
    other(file).write_bytes(file.read_bytes()[:half] + bytes(half))


@pytest.mark.parametrize("which", [1, -1], ids=["middle", "last"])
@pytest.mark.parametrize("make", [make_zeros, make_equal, make_older])
def test_p1_a_file_that_is_there_twice_is_read_once(tmp_path: Path, make, which: int) -> None:
    store, config, files = two_folders(tmp_path)
    file = files[which]
    make(file)
    for mode in ("r", "r+"):
        with mqstore.open(store, mode, config=config) as opened:
            assert sum(1 for _ in opened.scan()) == MESSAGES
            assert len(opened.read("t", 0, 0, max_messages=2 * MESSAGES).messages) == MESSAGES
            told = [line for line in opened.warnings if str(file) in line]
            assert len(told) == 1
            assert str(other(file)) in told[0]
    report = mqstore.doctor(store, config=config)
    (told,) = (one for one in report if one.severity != "info")
    assert told.code == "MQ-FS-10"
    (evidence,) = told.evidence
    assert str(file) in evidence or str(file.relative_to(store)) in evidence
    assert str(other(file)) in evidence or str(other(file).relative_to(store)) in evidence
    (command,) = report.commands
    assert command.startswith("mv ")
    subprocess.run(shlex.split(command), check=True)
    assert mqstore.doctor(store, config=config).ok
    with mqstore.open(store, "r+", config=config) as opened:
        assert sum(1 for _ in opened.scan()) == MESSAGES


def test_p1_a_file_with_other_bytes_is_an_error_that_names_both(tmp_path: Path) -> None:
    store, config, files = two_folders(tmp_path)
    file = files[1]
    data = bytearray(file.read_bytes())
    data[200] ^= 0x55
    other(file).write_bytes(data)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    for mode in ("r", "r+", "a"):
        with pytest.raises(mqstore.CorruptionError) as error:
            mqstore.open(store, mode, config=config)
        assert str(file) in str(error.value)
        assert str(other(file)) in str(error.value)
    with pytest.raises(mqstore.CorruptionError):
        mqstore.rebuild(store, config=config)
    forecast = mqstore.preflight(store, to="5.3", config=config)
    assert not forecast.ok
    report = mqstore.doctor(store, config=config)
    told = next(one for one in report if one.code == "MQ-FS-10")
    assert "byte 200" in told.evidence[0]
    assert not any(command.startswith("mv ") and "/a/" in command for command in report.commands)
    assert not mqstore.verify(store, config=config).ok
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_p1_the_file_that_lacks_bytes_in_two_parts_is_compared_to_its_end(tmp_path: Path) -> None:
    store, config, files = two_folders(tmp_path)
    file = files[1]
    data = bytearray(file.read_bytes())
    # One lacks the beginning, the other the end: neither has all.
    other(file).write_bytes(bytes(4096) + data[4096:])
    file.write_bytes(data[:-4096] + bytes(4096))
    with pytest.raises(mqstore.CorruptionError, match="other bytes"):
        mqstore.open(store, config=config)


@pytest.mark.parametrize("byte", [0, 1])
def test_p1_a_zero_of_one_that_the_other_has_not_is_an_error(tmp_path: Path, byte: int) -> None:
    store, config, files = two_folders(tmp_path)
    file = files[1]
    data = bytearray(file.read_bytes())
    body = data.index(bytes(100))
    data[body + 50] = 0x20
    pair = [file.read_bytes(), bytes(data)]
    file.write_bytes(pair[byte])
    other(file).write_bytes(pair[1 - byte])
    with pytest.raises(mqstore.CorruptionError, match=f"from byte {body + 50} on"):
        mqstore.open(store, config=config)
    # The last record's body, with nothing behind it.
    data = bytearray(pair[0][: body + 100]) + bytes(len(pair[0]) - body - 100)
    file.write_bytes(data)
    data[body + 50] = 0x20
    other(file).write_bytes(data)
    with pytest.raises(mqstore.CorruptionError, match=f"from byte {body + 50} on"):
        mqstore.open(store, config=config)
