"""Incidents of operators: the verdict, the cure as `doctor` prints it, and RocketMQ on its result.

Each incident is a real broker's store that is harmed, and given to another user where root runs the
tests. ``MQSTORE_BROKEN_STORES=all`` takes every damage on every store that it fits.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.damaged_stores import (
    BASES,
    STATES,
    Damage,
    Identity,
    identity,
    make_base,
    run,
    whole_messages,
)
from helpers.golden import Case
from helpers.incidents import INCIDENTS
from helpers.java import RocketMQ, RocketMQError
from helpers.mixed_damages import MORE_STATES
from helpers.users import GID, UID
from mqstore.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALL = os.environ.get("MQSTORE_BROKEN_STORES") == "all"
WANTED = [*INCIDENTS, *STATES, *MORE_STATES] if ALL else INCIDENTS
each_incident = pytest.mark.parametrize(
    ("base", "damage"), WANTED, ids=[f"{damage.do.__name__}-{base}" for base, damage in WANTED]
)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {name: make_base(name, folder / name).parent for name in BASES}


def give(folder: Path) -> None:
    """Gives all below a folder to the broker's user; links too, and none is followed."""
    for path in folder.rglob("*"):
        if os.geteuid() == 0:
            os.chown(path, UID, GID, follow_symlinks=False)


def owners(root: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (root, *root.rglob("*"))}


def params_of(base: str, root: Path, folder: Path) -> dict[str, Any]:
    """RocketMQ's parameters for a store and its `broker.conf`, which may be a copy of `folder`."""
    params = Case(BASES[base][0]).params
    text = (root.parent / "broker.conf").read_text().replace(str(folder), str(root.parent))
    settings = dict(line.split("=", 1) for line in text.splitlines())
    batches = root / "batchconsumequeue"
    has_table = any((root / "config").glob("topics.json*"))
    known = sorted(path.name for path in batches.iterdir()) if batches.is_dir() else []
    return {
        "storeConfig": params["storeConfig"] | settings,
        "batchTopics": known if has_table else [],
    }


class Doctor:
    """Exit code of the command, and the commands that it prints, line by line."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.code = main(["doctor", str(root), "--config", str(root.parent / "broker.conf")])
        lines = capsys.readouterr().out.splitlines()
        self.commands = [found[1] for line in lines if (found := re.match(r" +\d+\. (.+)", line))]
        last = [at for at, line in enumerate(lines) if line.startswith("only if ")]
        self.last_resort = [line.strip() for at in last for line in lines[at + 1 :]]


def cured(root: Path, damage: Damage, capsys: pytest.CaptureFixture[str]) -> tuple[Doctor, bool]:
    """Runs what is printed, as it is printed, until nothing is; whether something was given up."""
    ran: set[str] = set()
    is_stuck = gave_up = False
    for _ in range(6):
        told = Doctor(root, capsys)
        commands = [one for one in told.commands if one not in ran]
        if not commands and not told.code:
            break
        if not commands and not is_stuck:
            is_stuck, gave_up = True, bool(told.last_resort)
            commands = told.last_resort or [damage.by_hand.replace("STORE", shlex.quote(str(root)))]
        for command in filter(None, commands):
            run(command, root.parent)
            ran.add("" if command.startswith("mqstore doctor ") else command)
    return Doctor(root, capsys), gave_up


def served(
    rocketmq: RocketMQ, root: Path, params: dict[str, Any]
) -> tuple[Counter[Identity], set[tuple[str, int, int]]]:
    """RocketMQ's messages, and the queues and places that its entries lead to."""
    rocketmq.hold(root, params)
    rows = rocketmq.dump(root, params)
    messages = [row for row in rows if row["type"] == "message"]
    if "storeType" in params["storeConfig"]:
        # The dump has queues in files only; one here has fewer than 32 messages.
        names = sorted({(row["topic"], row["queueId"]) for row in messages})
        asked = [{"op": "cq", "topic": t, "queueId": q, "from": 0, "max": 32} for t, q in names]
        answers = zip(names, rocketmq.query(root, params, asked), strict=True)
        entries = {
            (*name, one["phyOffset"]) for name, answer in answers for one in answer["messages"]
        }
    else:
        entries = {
            (row["topic"], row["queueId"], row["phyOffset"]) for row in rows if row["type"] == "cq"
        }
    rocketmq.release(root)
    fields = ("topic", "queueId", "bornTimestamp", "uniqKey")
    found = ((*(row[name] for name in fields), base64.b64decode(row["body"])) for row in messages)
    return Counter(found), entries


@each_incident
def test_an_incident_is_named_and_its_cure_gives_all_to_rocketmq(
    running: Callable[[str], RocketMQ],
    bases: dict[str, Path],
    base: str,
    damage: Damage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rocketmq = running("5.5.0" if base.endswith("55") else "")
    # A space in the path: the commands are for a shell.
    folder = shutil.copytree(bases[base], tmp_path / "a folder")
    root = folder / "store"
    damage.do(root)
    give(folder)
    before, owner = whole_messages(folder.rglob("*")), owners(root)
    report = mqstore.doctor(root, config=folder / "broker.conf")
    assert damage.codes <= {diagnosis.code for diagnosis in report}
    assert not damage.codes or report.ok == damage.sound
    assert (report.will_start, report.lost > 0) == (damage.starts, damage.lost), report
    tried = shutil.copytree(folder, tmp_path / "tried", symlinks=True) / "store"
    assert rocketmq.starts(tried, params_of(base, tried, folder)) == damage.starts

    left, gave_up = cured(root, damage, capsys)
    assert owners(root) == owner
    assert left.code == 0 or not damage.curable
    with mqstore.open(root, config=folder / "broker.conf") as store:
        ours = Counter(identity(message) for message in store.scan())
        queued = {
            (queue.topic, queue.queue_id, message.physical_offset)
            for queue in store.queues()
            for message in store.read(
                queue.topic, queue.queue_id, queue.min_offset, max_messages=1000
            ).messages
        }
    kept = ours | whole_messages(root.rglob("*")) if gave_up else ours
    assert before <= kept, before - kept
    theirs, entries = served(rocketmq, root, params_of(base, root, folder))
    assert theirs == ours
    assert entries == queued


@pytest.mark.parametrize("base", ["broker-53", "broker-55"] if ALL else ["broker-55"])
def test_a_broker_starts_on_lost_offsets_where_the_verdict_says_so(
    running: Callable[[str], RocketMQ], bases: dict[str, Path], base: str, tmp_path: Path
) -> None:
    rocketmq = running("5.5.0" if base.endswith("55") else "")
    damaged, none = "{damaged", '{"offsetTable":{}}'
    states = [(damaged, damaged), (None, None)]
    if ALL:
        states += [(damaged, ""), (None, damaged), (none, damaged)]
    for number, texts in enumerate(states):
        root = shutil.copytree(bases[base], tmp_path / str(number)) / "store"
        for name, text in zip(
            ("consumerOffset.json", "consumerOffset.json.bak"), texts, strict=True
        ):
            (root / "config" / name).unlink(missing_ok=True)
            if text is not None:
                (root / "config" / name).write_text(text)
        report = mqstore.doctor(root, config=root.parent / "broker.conf")
        assert "MQ-OFF-05" in {diagnosis.code for diagnosis in report}
        try:
            rocketmq.start_broker(root, Case(BASES[base][0]).params)
            rocketmq.stop_broker()
            starts = True
        except RocketMQError:
            starts = False
        assert starts == report.will_start, (texts, report.obstacles)
