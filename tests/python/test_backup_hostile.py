"""Backups with hostile objects: cut, swapped, foreign, deep, and documents that lie."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.backups import KEYS, answers, files_of
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of several files."""
    root = tmp_path / "store"
    with mqstore.open(root, "a", config=TINY) as made:
        for number in range(150):
            made.append("T", b"body %d" % number, keys=f"k{number % KEYS}", queue_id=number % 2)
    return root


def cut(path: Path, _: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def swap(path: Path, chance: random.Random) -> None:
    other = chance.choice([p for p in files_of(path.parents[2]) if p != path])
    shutil.copy(other, path)


def foreign(path: Path, _: random.Random) -> None:
    path.write_bytes(b"\x00\xff")


def deep(path: Path, _: random.Random) -> None:
    path.write_bytes(b"[" * 200_000)


def huge(path: Path, _: random.Random) -> None:
    os.truncate(path, 1 << 40)


DAMAGES: list[Callable[[Path, random.Random], None]] = [cut, flip, swap, foreign, deep, huge]


@pytest.mark.parametrize("damage", [*DAMAGES, lambda path, _: path.unlink()])
def test_damage_is_found_and_never_gives_wrong_rows(
    tmp_path: Path, store: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    backup, chance = tmp_path / "backup", random.Random(11)
    report = mqstore.sync(store, backup)
    with mqstore.open(store) as live:
        expected = answers(live)
    begun = backup / "mqstore-backup.json"
    for path in files_of(backup):
        if path.read_bytes() == begun.read_bytes():  # the probe of the first sync, too
            continue
        whole = path.read_bytes()
        damage(path, chance)
        name = str(path.relative_to(backup))
        found = mqstore.check_backup(backup)
        # A snapshot that is gone is none.
        assert found.ok == (name.startswith("snapshots/") and not path.exists())
        assert found.ok or name in {finding.path for finding in found.findings}
        try:
            with mqstore.open(backup, snapshot=report.snapshot) as kept:
                assert answers(kept) == expected
        except mqstore.MessageNotFoundError:
            assert not path.exists()
        except mqstore.StoreError as error:
            assert path.name in str(error), error  # noqa: PT017 - not each damage is read
        path.write_bytes(whole)
    assert mqstore.check_backup(backup).ok


def test_documents_with_what_cannot_be_are_refused(tmp_path: Path, store: Path) -> None:
    """Documents that prove themselves, and lie."""
    from mqstore.backup.snapshot import document_name, load, ranges_of
    from mqstore.backup.target import digest_of, json_bytes, object_name, target_of

    backup = tmp_path / "backup"
    snapshot = mqstore.sync(store, backup).snapshot
    document = json.loads((backup / document_name(snapshot)).read_bytes())
    state = json.loads((backup / object_name(document["base"])).read_bytes())
    target = target_of(backup)

    def keep(name: str, content: bytes) -> None:
        (backup / name).parent.mkdir(exist_ok=True, parents=True)
        (backup / name).write_bytes(content)

    def written(changes: Any) -> str:
        content = json_bytes({**document, **changes})
        name = f"20300101T000000000Z-{digest_of(content)[:16]}"
        keep(document_name(name), content)
        return name

    def with_state(state: Any) -> dict[str, str]:
        content = json_bytes(state)
        keep(object_name(digest_of(content)), content)
        return {"base": digest_of(content)}

    def with_files(files: Any, objects: Any = ()) -> dict[str, str]:
        return with_state({"objects": list(objects), "files": files})

    fine, digest = [0, 9, 9, 0, "", "", 0], "0" * 64
    log = "commitlog/00000000000000000000"
    index = "index/20260101000000000"
    assert load(target, written(with_files({log: fine}))).files[log].end == 9
    assert load(target, written(with_files({log: [*fine, 0, 9, 0, 0]}, [digest]))).files[log].ranges
    facts = document["snapshot"]
    lies: list[Any] = [
        *map(with_state, ([], {}, {"objects": [], "files": []}, {**state, "files": {log: None}})),
        *(
            with_files({path: fine})
            for path in ("../x", "/etc/x", "a//b", "mqstore.restoring", "commitlog/abc")
        ),
        *(with_files({path: fine}) for path in ("config/a\nb", "config/\0", "config/..", index)),
        *(
            with_files({log: row}, [digest])
            for row in (
                [0, -1, 0, 0, "", "", 0],
                [0, 8, 9, 0, "", "", 0],
                [0, 1],
                [*fine, 5, 9, 0, 0],
                [*fine, 0, 9, 99, 0],
                [*fine, 0, 9, 0],
                [*fine, 0, 0, 0, 0],
                [*fine, 0, 9, 0, -1],
                [0, 9, 9, 0, "../../../dev/zero", "", 0],
                [0, 9, 9, 0, "", "ab", 0],
                [0, 9, 9, 0, "", 46, 0],
            )
        ),
        with_files({log: [*fine, 0, 9, 0, 0]}, ["../../../../dev/zero"]),
        {"base": "../../../../dev/zero"},
        {"objects": ["../../../../dev/zero"]},
        {"snapshot": {**facts, "end_offset": "1"}},
        {"snapshot": {**facts, "fork_offset": -1}},
        {"snapshot": {**facts, "source": 1}},
        {"settings": {"max_hash_slot_num": 1 << 40}},
    ]
    for lie in lies:
        name = written(lie)
        with pytest.raises(mqstore.CorruptionError, match=name):
            mqstore.open(backup, snapshot=name)
    for rows in ([[0, 9, "../../../../dev/zero", 0]], [[0, 9, digest, -1]], [[0, 9.5, digest, 0]]):
        manifest = with_state(rows)["base"]
        loaded = load(target, written(with_files({log: [0, 9, 9, 0, manifest, "", 0]})))
        with pytest.raises(mqstore.CorruptionError, match=object_name(manifest)):
            ranges_of(target, loaded.files[log])
    # An object that is shorter than a document says gives no zeros.
    short = with_files({log: [*fine, 0, 9, 0, 0]}, [with_state([])["base"]])
    with pytest.raises(mqstore.CorruptionError, match="expected 9 bytes, found 2 bytes"):
        list(mqstore.open(backup, snapshot=written(short)).scan(on_error="report"))
    shutil.rmtree(backup / "snapshots/20300101")
    for name in ("99999999T999999999Z-" + "0" * 16, "20300101T250000000Z-" + "0" * 16):
        keep(document_name(name), b"{}")
    assert mqstore.prune(backup, keep=timedelta(days=9)).kept[0] == snapshot


def test_an_object_that_is_no_regular_file_is_refused(tmp_path: Path, store: Path) -> None:
    backup = tmp_path / "backup"
    mqstore.sync(store, backup)
    begun = backup / "mqstore-backup.json"
    for content in (
        "[" * 200_000,
        '{"version": 1}',
        '{"format": "mqstore-backup", "version": 1e999}',
    ):
        begun.write_text(content)
        with pytest.raises(mqstore.CorruptionError, match="expected a backup's format"):
            mqstore.snapshots(backup)
    begun.unlink()
    begun.symlink_to("/dev/zero")
    with pytest.raises(mqstore.StoreIOError):
        mqstore.snapshots(backup)
    begun.unlink()
    os.mkfifo(begun)
    with pytest.raises(mqstore.StoreIOError, match="no regular file"):
        mqstore.snapshots(backup)


def test_a_target_that_overwrites_is_refused_each_time(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = importlib.import_module("mqstore.backup.target")._Folder
    with monkeypatch.context() as patch:
        put = folder._put
        patch.setattr(folder, "_put", lambda *given: put(*given) or True)
        for _ in range(2):
            with pytest.raises(mqstore.UnsupportedError, match="only if they are missing"):
                mqstore.sync(store, tmp_path / "backup")
    assert mqstore.sync(store, tmp_path / "backup").is_new
    other = shutil.copytree(store, tmp_path / "other")
    with pytest.raises(mqstore.ConfigError, match=f"{other} has '.*', and is no backup"):
        mqstore.sync(store, other)
