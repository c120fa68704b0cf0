"""`doctor`: each broken state is named, its cure runs, and then it is gone."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.broken_states import CONF, SETTINGS, STATES, State, make_healthy
from helpers.curing import run
from helpers.files import stamps

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    make_healthy(folder / "store")
    (folder / "broker.conf").write_text(CONF)
    return folder


@pytest.fixture
def folder(healthy: Path, tmp_path: Path) -> Path:
    # A space in the path: the cures are for a shell.
    return shutil.copytree(healthy, tmp_path / "a store")


def test_a_healthy_store_has_nothing(folder: Path) -> None:
    before = stamps(folder / "store")
    assert mqstore.doctor(folder / "store", config=SETTINGS).diagnoses == ()
    assert stamps(folder / "store") == before


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.id)
def test_a_broken_state_is_named_and_cured(folder: Path, state: State) -> None:
    root, conf = folder / "store", folder / "broker.conf"
    state.damage(root)
    before = stamps(root)
    named = {diagnosis.code: diagnosis for diagnosis in mqstore.doctor(root, config=conf)}
    assert stamps(root) == before
    assert state.code in named, named
    diagnosis = named[state.code]
    assert diagnosis.evidence
    assert diagnosis.cure is not None
    outputs = {}
    for each in named.values():
        assert each.cure is not None
        outputs[each.code] = run(each.cure)
    if state.answer is not None:
        assert diagnosis.severity == "info"
        assert state.answer in outputs[state.code]
    left = mqstore.doctor(root, config=conf)
    assert [diagnosis.code for diagnosis in left if diagnosis.severity != "info"] == []
    assert mqstore.verify(root, config=conf).ok


def test_an_unknown_state_goes_by_its_finding(folder: Path) -> None:
    root = folder / "store"
    (root / "commitlog" / "notes.txt").write_text("x")
    [diagnosis] = mqstore.doctor(root, config=SETTINGS)
    assert (diagnosis.code, diagnosis.severity) == ("MQ-DOC-14", "error")
    assert diagnosis.cure is not None
    assert diagnosis.cure.startswith("mv ")
    assert "notes.txt" in diagnosis.evidence[0]


def test_o12_a_cure_names_store_and_configuration_from_the_root_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    STATES[0].damage(folder / "store")
    monkeypatch.chdir(folder)
    report = mqstore.doctor("store", config="broker.conf")
    assert report.commands
    monkeypatch.chdir(tmp_path)
    for command in report.commands:
        run(command)
    assert mqstore.doctor(folder / "store", config=folder / "broker.conf").ok


def test_a_store_in_use_is_not_called_broken(folder: Path) -> None:
    with mqstore.open(folder / "store", "r+", config=SETTINGS):
        assert mqstore.doctor(folder / "store", config=SETTINGS).diagnoses == ()


def test_progress_ends_with_the_whole(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    mqstore.doctor(
        folder / "store", config=SETTINGS, progress=lambda done, total: told.append((done, total))
    )
    assert told
    assert all(done <= total for done, total in told)
    assert told == sorted(told)


def test_a_folder_that_is_no_store_has_a_verdict(tmp_path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.doctor(tmp_path)


def test_p1_commands_name_settings_that_a_mapping_has_and_no_file(tmp_path: Path) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    config = {"mapped_file_size_commit_log": 65536, "store_path_commit_log": "log"}
    with mqstore.open(root, "a", config=config) as store:
        store.append_many(mqstore.Message("t", bytes(100)) for _ in range(600))
    damaged = root / "log" / f"{65536:020}"
    data = bytearray(damaged.read_bytes())
    data[300] ^= 1
    damaged.write_bytes(data)
    needs, salvage = mqstore.doctor(root, config=config).commands
    lines = needs.removeprefix("# FILE is a broker.conf with these lines: ").split("; ")
    assert sorted(lines) == ["mappedFileSizeCommitLog=65536", "storePathCommitLog=log"]
    assert salvage == f"mqstore salvage {root} --out {root}.salvaged --config FILE"
    conf.write_text("\n".join(lines))
    assert mqstore.doctor(root, config=conf).commands == (salvage.replace("FILE", str(conf)),)
    run(salvage.replace("FILE", str(conf)))
    with mqstore.open(f"{root}.salvaged", config={"store_path_commit_log": "commitlog"}) as store:
        assert sum(1 for _ in store.scan()) == 600  # one stands in for the damaged one


def test_p2_files_of_one_name_get_a_place_each(tmp_path: Path) -> None:
    root, logs = tmp_path / "store", ("a", "b")
    config = {"mapped_file_size_commit_log": 65536, "store_path_commit_log": ",".join(logs)}
    with mqstore.open(root, "a", config=config) as store:
        store.append_many(mqstore.Message("t", bytes(100), queue_id=n % 4) for n in range(1500))
    queues = [f"consumequeue/t/{number}/.DS_Store" for number in range(4)]
    for strays in ([f"{log}/.DS_Store" for log in logs], queues):
        for path in strays:
            (root / path).write_text(path)
        commands = mqstore.doctor(root, config=config).commands
        places = [command.split()[-1] for command in commands if command.startswith("mv ")]
        assert len(set(places)) == len(places) >= len(strays)
        for command in commands:
            if command.startswith("mv "):
                subprocess.run(command.split(), check=True)
        assert not any((root / path).exists() for path in strays)
    assert mqstore.doctor(root, config=config).ok
