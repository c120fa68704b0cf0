"""The installed command, run as its users run it, and stores to run it on."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile

import pytest

import mqstore
from helpers.running import GOLDEN, SETTINGS, Ran, command_line, environment, messages
from mqstore.cli import main


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


@pytest.fixture(scope="session")
def mq():
    """Runs ``mqstore`` with these arguments, and expects this exit code."""

    def run(*arguments: object, code: int | None = 0, **more: str) -> Ran:
        done = subprocess.run(
            [*command_line(), *map(str, arguments)],
            capture_output=True,
            env=environment(**more),
            timeout=60,
            check=False,
        )
        ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in ran.err, ran.err
        if code is not None:
            assert ran.code == code, ran
        return ran

    return run


@pytest.fixture(scope="session")
def conf(tmp_path_factory):
    """The broker.conf that the stores below were written with."""
    path = tmp_path_factory.mktemp("conf") / "broker.conf"
    path.write_text("maxHashSlotNum=7\nmaxIndexNum=40\n")
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
