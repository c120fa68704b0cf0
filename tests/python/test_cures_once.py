"""The commands of ``doctor`` end well, and none is printed again for what they made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore
from helpers.random_stores import make
from helpers.shifted import CONFIG, LIGHT, LMQ, plain
from mqstore._settings import SETTINGS

NAMES = {setting.conf_name for setting in SETTINGS.values()}
COUNT = int(os.environ.get("MQSTORE_CURES", "24"))


def run(command: str) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def conf_line(name: str, value: object) -> str:
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"


@pytest.mark.parametrize("seed", range(COUNT))
def test_no_cure_is_printed_twice(tmp_path: Path, seed: int) -> None:
    root, params, told = make(seed, tmp_path)
    conf = tmp_path / "broker.conf"
    given = {name: value for name, value in params["storeConfig"].items() if name in NAMES}
    conf.write_text("".join(conf_line(*setting) for setting in given.items()), encoding="utf-8")
    commands = mqstore.doctor(root, config=conf).commands
    for command in commands:
        code, said = run(command)
        # The last step behind files in a wrong place is a report of what is left.
        assert code == 0 or (code == 1 and command.startswith("mqstore doctor ")), (told, said)
    repairs = {command for command in commands if not command.startswith("mqstore doctor ")}
    assert not repairs & set(mqstore.doctor(root, config=conf).commands), told


def settle(root: Path, config: dict[str, object], conf: Path) -> tuple[bool, tuple[str, ...]]:
    """Runs the printed commands once; whether no error is left, and what is printed then."""
    lines = [conf_line(SETTINGS[name].conf_name, value) for name, value in config.items()]
    conf.write_text("".join(lines), encoding="utf-8")
    for command in mqstore.doctor(root, config=conf).commands:
        # A rebuild says so where a message gets no entry.
        assert run(command)[0] in {0, 1}, command
    severities = {found.severity for found in mqstore.verify(root, config=conf).findings}
    return "error" not in severities, mqstore.doctor(root, config=conf).commands


@pytest.mark.parametrize("gone", [False, True], ids=["queues", "no-queues"])
@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("number", [-1, 1, 10, 10**15, 2**63 - 1])
def test_a_number_that_no_checksum_covers_has_no_cure_twice(
    tmp_path: Path, number: int, at: int, gone: bool
) -> None:
    root = tmp_path / "store"
    plain(root, [number if n == at else n for n in range(6)])
    if gone:
        shutil.rmtree(root / "consumequeue")
    assert settle(root, CONFIG, tmp_path / "broker.conf") == (True, ())


@pytest.mark.parametrize("number", [3, 10**15, 2**63 - 1])
def test_a_number_of_a_light_queue_has_no_cure_twice(tmp_path: Path, number: int) -> None:
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=CONFIG) as store:
        for n in (0, 1, number, 3):
            lists = {"INNER_MULTI_DISPATCH": LMQ, "INNER_MULTI_QUEUE_OFFSET": str(n)}
            store.append("T", b"%d" % n, properties=lists)
    assert settle(root, LIGHT, tmp_path / "broker.conf") == (True, ())


def test_no_command_is_printed_while_a_setting_contradicts_the_files(tmp_path: Path) -> None:
    sizes = {"mapped_file_size_commit_log": 65536, "mapped_file_size_consume_queue": 2000}
    with mqstore.open(tmp_path / "store", "a", config=sizes) as store:
        store.append_many([mqstore.Message("t", bytes(100)) for _ in range(300)])
    (tmp_path / "store/consumequeue/t/0").rename(tmp_path / "gone")
    conf = tmp_path / "broker.conf"
    lines = "mappedFileSizeCommitLog={}\nmappedFileSizeConsumeQueue=2000\n"
    conf.write_text(lines.format(131072), encoding="utf-8")
    report = mqstore.doctor(tmp_path / "store", config=conf)
    assert {"MQ-CFG-08", "MQ-DOC-01"} <= {found.code for found in report}
    assert report.commands == ()
    conf.write_text(lines.format(65536), encoding="utf-8")
    (command,) = mqstore.doctor(tmp_path / "store", config=conf).commands
    assert run(command)[0] == 0
    assert mqstore.doctor(tmp_path / "store", config=conf).ok
