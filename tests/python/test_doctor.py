"""`doctor`: each broken state is named, its cure runs, and then it is gone."""

from __future__ import annotations

import shutil
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
