"""Real stores, broken one way each: the verdict is right, and the printed commands lose nothing.

By default each way is tried on one store; ``MQSTORE_BROKEN_STORES=all`` tries it on each.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.damaged_stores import (
    BASES,
    SOME,
    STATES,
    Damage,
    check_whole,
    cure,
    make_base,
    readable,
    run,
)
from helpers.mixed_damages import MORE_SOME, MORE_STATES

if TYPE_CHECKING:
    from pathlib import Path

EVERY = [*STATES, *MORE_STATES]
WANTED = EVERY if os.environ.get("MQSTORE_BROKEN_STORES") == "all" else [*SOME, *MORE_SOME]
each_state = pytest.mark.parametrize(
    ("base", "damage"), WANTED, ids=[f"{damage.do.__name__}-{base}" for base, damage in WANTED]
)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {name: make_base(name, folder / name).parent for name in BASES}


def test_there_are_enough_of_them() -> None:
    assert len(EVERY) > 200


@each_state
def test_the_verdict_is_right_and_its_commands_lose_nothing(
    bases: dict[str, Path], base: str, damage: Damage, tmp_path: Path
) -> None:
    # A space in the path: the commands are for a shell.
    folder = shutil.copytree(bases[base], tmp_path / "a folder")
    root, conf = folder / "store", folder / "broker.conf"
    damage.do(root)
    before = readable(root)
    report = mqstore.doctor(root, config=conf)
    named = {diagnosis.code for diagnosis in report}
    assert damage.codes <= named, named
    if damage.codes:
        assert not report.ok
    assert report.will_start == damage.starts, report.obstacles
    assert (report.lost > 0) == damage.lost, report.lost
    for beginning in damage.commands:
        assert any(command.startswith(beginning) for command in report.commands), report.commands
    for word in damage.never:
        assert not any(word in command for command in report.commands), report.commands
    left = cure(root, conf)
    assert before <= readable(root), before - readable(root)
    if not damage.curable:
        # Nothing that is left is called healthy.
        assert not left.ok
        assert left.commands == ()
        for command in left.last_resort:
            run(command, folder)
        if left.last_resort:
            assert mqstore.doctor(root, config=conf).ok
            check_whole(root, conf, before)
        return
    assert left.ok, left
    assert left.will_start
    check_whole(root, conf, before)
