"""Verdicts on a store of which a user may not read everything."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import TINY, message
from helpers.users import GID, UID, give, open_folder, run_as

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_WRITABLE = [
    "checkpoint",
    "commitlog",
    "commitlog/{log}",
    "consumequeue/orders/0",
    "consumequeue/orders/0/00000000000000000000",
    "index/{index}",
    "lock",
    "timerwheel",
]
REFUSED = [
    "checkpoint",
    "commitlog",
    "commitlog/{log}",
    "config",
    "config/topics.json",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    "consumequeue/orders/0/00000000000000000000",
    "index",
    "index/{index}",
    "lock",
    "timerlog",
    "timerwheel",
]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with open_folder() as folder:
        with mqstore.open(folder / "healthy", "a", config=TINY) as store:
            store.append_many(message("orders", 200, keys=f"k{n}") for n in range(60))
        (folder / "healthy" / "timerlog").mkdir()
        (folder / "healthy" / "timerwheel").touch()
        yield folder


def run(root: Path, *words: str) -> tuple[int, Any]:
    command = ", ".join(map(repr, (words[0], str(root), *words[1:], "--json")))
    code, out = run_as(UID, GID, f"command({command})", root.parent)
    assert out.startswith("{"), out
    # A note for people may follow.
    return code, json.JSONDecoder().raw_decode(out)[0]


def refusing(place: Path, name: str, refused: str, mode: int) -> tuple[Path, Path]:
    """A store of the user, and a file or folder of it that is root's."""
    root = place / name
    shutil.copytree(place / "healthy", root)
    log, index = (min((root / name).iterdir()).name for name in ("commitlog", "index"))
    give(root, UID, GID, 0o755)
    path = root / refused.format(log=log, index=index)
    give(path, 0, 0, mode)
    return root, path


@pytest.mark.parametrize("refused", REFUSED)
def test_o5_what_a_user_cannot_read_gets_a_verdict_and_a_cure(place: Path, refused: str) -> None:
    root, path = refusing(place, f"store{REFUSED.index(refused)}", refused, 0o700)

    code, report = run(root, "doctor")
    verdict = report["verdict"]
    assert (code, verdict["will_start"], len(report["diagnoses"])) == (1, False, 1)
    (diagnosis,) = report["diagnoses"]
    assert diagnosis["code"] == "MQ-FS-05"
    assert str(path) in diagnosis["evidence"][0]
    code, forecast = run(root, "preflight", "--to", "5.5")
    assert (code, forecast["starts"]) == (1, False)
    if refused != "lock":  # which has no content
        code, checked = run(root, "verify")
        assert code == 1
        assert "MQ-FS-05" in {finding["code"] for finding in checked["findings"]}

    # Root runs the cure, and the user finds nothing wrong.
    (command,) = verdict["commands"]
    subprocess.run(command, shell=True, check=True)
    code, report = run(root, "doctor")
    assert (code, report["verdict"]["will_start"]) == (0, True), report


@pytest.mark.parametrize("refused", NOT_WRITABLE)
def test_o5_what_a_user_may_read_and_not_write_gets_a_verdict_and_a_cure(
    place: Path, refused: str
) -> None:
    root, path = refusing(place, f"readable{NOT_WRITABLE.index(refused)}", refused, 0o755)

    code, report = run(root, "doctor")
    verdict = report["verdict"]
    assert (code, verdict["will_start"]) == (1, False)
    wrong = [one["code"] for one in report["diagnoses"] if one["severity"] != "info"]
    assert wrong == ["MQ-FS-11"]
    assert str(path) in verdict["obstacles"][0]
    code, forecast = run(root, "preflight", "--to", "5.5")
    assert (code, forecast["starts"]) == (1, False)
    for command in verdict["commands"]:
        subprocess.run(command, shell=True, check=True)
    code, report = run(root, "doctor")
    assert (code, report["verdict"]["will_start"]) == (0, True), report


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_o5_who_only_looks_at_a_store_needs_no_right_to_write(place: Path, mode: int) -> None:
    root = place / f"others{mode}"
    shutil.copytree(place / "healthy", root)
    give(root, 0, 0, 0o755)
    root.chmod(mode)
    give(root / "config" / "mqstore.json", 0, 0, 0o600)
    _, report = run(root, "doctor")
    assert report["verdict"]["will_start"], report
    assert "MQ-FS-05" not in {one["code"] for one in report["diagnoses"]}
