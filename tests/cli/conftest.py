"""The installed command, run as its users run it, and stores to run it on."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import warnings
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.running import GOLDEN, SETTINGS, Ran, command_line, environment, messages
from mqstore.cli import main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@pytest.fixture(autouse=True, scope="session")
def in_utc():
    """Times are shown in UTC, whatever the zone of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MQSTORE_TZ", "UTC")
        yield


@pytest.fixture
def run(capsys):
    """Runs a command in this process, which is quick: exit code, output, errors."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def in_process(arguments: Sequence[object]) -> Ran:
    """Runs the command here: a process of its own takes ten times as long."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.resetwarnings()
        for name in ("NO_COLOR", "COLUMNS"):
            patch.delenv(name, raising=False)
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
        patch.setattr("sys.stdout", streams[0])
        patch.setattr("sys.stderr", streams[1])
        code = main(list(map(str, arguments)))
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return Ran(code, out, err)


@pytest.fixture(scope="session")
def mq():
    """Runs ``mqstore`` with these arguments, and expects this exit code.

    With variables of the environment it is a process of its own.
    """

    def run(*arguments: object, code: int | None = 0, **more: str) -> Ran:
        ran = as_process(arguments, more) if more else in_process(arguments)
        assert "Traceback" not in ran.err, ran.err
        if code is not None:
            assert ran.code == code, ran
        return ran

    return run


def as_process(arguments: Sequence[object], more: Mapping[str, str]) -> Ran:
    done = subprocess.run(
        [*command_line(), *map(str, arguments)],
        capture_output=True,
        env=environment(**more),
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="session")
def conf(tmp_path_factory):
    """The broker.conf that the stores below were written with."""
    path = tmp_path_factory.mktemp("conf") / "broker.conf"
    path.write_text(
        "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\n"
        "maxHashSlotNum=7\nmaxIndexNum=40\n"
    )
    return path


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append_many(messages())
    return path


@pytest.fixture
def store(made_once, tmp_path):
    """A closed store with the forty messages, free to be damaged."""
    path = tmp_path / "store"
    shutil.copytree(made_once, path)
    return path


@pytest.fixture(scope="session")
def rocketmq_store(tmp_path_factory):
    """A store that RocketMQ's broker wrote, and its settings in a broker.conf."""
    folder = tmp_path_factory.mktemp("broker")
    with tarfile.open(GOLDEN / "broker" / "store.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    params = json.loads((GOLDEN / "broker" / "params.json").read_text())
    lines = [f"{name}={value}" for name, value in params["storeConfig"].items()]
    (folder / "broker.conf").write_text("\n".join(lines).replace("True", "true"))
    return folder / "store", folder / "broker.conf"


@pytest.fixture(scope="session")
def rocketmq_archive():
    """A store that RocketMQ wrote, as it is shipped."""
    return GOLDEN / "plain" / "store.tar.gz"
