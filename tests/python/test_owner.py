"""Owner, group and mode of files that are made in another user's store."""

from __future__ import annotations

import os
import shutil
import stat
import time
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.stores import TINY, crashed_copy, message
from helpers.users import GID, UID, give, open_folder, run_as, run_without_chown
from mqstore import _native
from mqstore.rocksdb.reading import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STRANGER = 4000
FOLDER, FILE = 0o770, 0o660


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach, unlike ``tmp_path``."""
    with open_folder() as folder:
        yield folder


def fill(root: Path, *, crashed: bool = False) -> Path:
    """A store with two topics, a group and old messages, of root."""
    old = int(time.time() * 1000) - 100 * 3_600_000
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            message("orders", 200, keys=f"k{number}", store_timestamp_ms=old)
            for number in range(150)
        )
        with store.group("g") as group:
            group.seek("orders", 0, 3)
            group.commit()
        if not crashed:
            return root
        copy = crashed_copy(store, root.with_name("crashed"))
    shutil.rmtree(root)
    copy.rename(root)
    last = max((root / "commitlog").iterdir())
    bytes_ = last.read_bytes()
    # Bytes of a torn record behind the log's end, which recovery keeps in quarantine.
    end = len(bytes_.rstrip(b"\0")) + 40
    last.write_bytes(bytes_[:end] + b"torn" * 5 + bytes_[end + 20 :])
    return root


def append(root: Path) -> None:
    with mqstore.open(root, "r+", config=TINY) as store:
        for number in range(40):
            store.append("new", b"y" * 60, keys=f"n{number}", queue_id=1)


def age_files(root: Path) -> None:
    for path in root.rglob("0*"):
        os.utime(path, (time.time() - 864_000,) * 2)


def clean(root: Path) -> None:
    age_files(root)
    report = mqstore.clean(root, dry_run=False, config=TINY | {"file_reserved_time": 1})
    assert report.freed_bytes


def rebuild(root: Path) -> None:
    mqstore.rebuild(root, dry_run=False, config=TINY)


def rebuild_topics(root: Path) -> None:
    (root / "config/topics.json").unlink(missing_ok=True)
    mqstore.rebuild(root, what="topics", dry_run=False, config=TINY)


def recover(root: Path) -> None:
    mqstore.recover(root, dry_run=False, config=TINY)


def commit(root: Path) -> None:
    shutil.rmtree(root / "config")
    with mqstore.open(root, "r+", config=TINY) as store, store.group("h") as group:
        for place in (1, 2):
            group.seek("orders", 0, place)
            group.commit()


def fail(root: Path) -> None:
    with mqstore.open(root, "r", config=TINY) as store, store.group("g") as group:
        for message in group.poll("orders", max_messages=1):
            assert group.nack(message)
    assert list((root / "mqstore.failed").iterdir())


def convert(root: Path) -> None:
    if not is_installed():
        pytest.skip("[no-rocksdict] install rocksdict")
    mqstore.convert(root, queues="rocksdb", index="rocksdb", dry_run=False, config=TINY)


def convert_back(root: Path) -> None:
    convert(root)
    mqstore.convert(root, queues="file", index="file", dry_run=False, config=TINY)


CALLS = [append, clean, rebuild, rebuild_topics, recover, commit, fail, convert, convert_back]
CASES = [(call, FOLDER) for call in CALLS]
CASES += [(call, mode) for call in (append, rebuild) for mode in (0o755, 0o2775)]


def wrong(root: Path, folder_mode: int) -> list[str]:
    """Paths below a store that have not owner, group and mode of their folder."""
    found = []
    for path in root.rglob("*"):
        now, above = path.lstat(), path.parent.lstat()
        if (now.st_uid, now.st_gid) != (above.st_uid, above.st_gid):
            found.append(f"{path}: {now.st_uid}:{now.st_gid}")
        mode = folder_mode if path.is_dir() else folder_mode & 0o666
        kept = path.relative_to(root).parts[0] == "quarantine"
        if stat.S_IMODE(now.st_mode) != mode and not kept:
            found.append(f"{path}: mode {stat.S_IMODE(now.st_mode):o}")
        if kept and len(path.relative_to(root).parts) == 1:
            assert stat.S_IMODE(now.st_mode) == 0o700
    return found


@pytest.mark.parametrize(("call", "mode"), CASES)
def test_owner_of_what_root_makes_is_that_of_its_folder(
    place: Path, call: Callable[[Path], None], mode: int
) -> None:
    root = fill(place / "store", crashed=call is recover)
    give(root, UID, GID, mode)
    call(root)
    if call is recover:
        assert list((root / "quarantine").iterdir())
    assert wrong(root, mode) == []
    assert (root.lstat().st_uid, stat.S_IMODE(root.lstat().st_mode)) == (UID, mode)
    if call is not convert:
        code, text = run_as(
            UID,
            GID,
            f"""
with mqstore.open({str(root)!r}, "r+", config={TINY!r}) as store:
    print(store.append("orders", b"z").physical_offset, store.warnings)
""",
            place,
        )
        assert (code, text.split()[-1]) == (0, "[]"), text


def test_owner_of_folders_that_threads_make_at_once_is_that_of_their_folder(place: Path) -> None:
    root = place / "store"
    with mqstore.open(root, "a", config=TINY) as store:
        for number in range(40):
            store.append("orders", bytes(100), queue_id=number % 2)
    give(root, UID, GID, FOLDER)
    for _ in range(20):
        mqstore.rebuild(root, what="consumequeue", topics=["orders"], dry_run=False, config=TINY)
        assert wrong(root, FOLDER) == []


def test_owner_of_what_a_command_makes_is_that_of_its_folder(place: Path) -> None:
    root = fill(place / "store")
    give(root, UID, GID, FOLDER)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).unlink(missing_ok=True)
    words = ("groups", str(root), "--reset-to", "earliest", "-g", "g", "--apply")
    code, text = run_as(0, 0, f"command(*{words!r})", place)
    assert code == 0, text
    assert wrong(root, FOLDER) == []
    assert (root / "config/consumerOffset.json").stat().st_uid == UID


def test_owner_and_mode_of_a_replaced_file_stay(place: Path) -> None:
    root = fill(place / "store")
    give(root, UID, GID, FOLDER)
    offsets = root / "config/consumerOffset.json"
    backup = offsets.with_name(offsets.name + ".bak")
    backup.unlink(missing_ok=True)
    os.chown(offsets, UID + 5, GID + 5)
    offsets.chmod(0o600)
    with mqstore.open(root, "r+", config=TINY) as store, store.group("g") as group:
        group.seek("orders", 0, 7)
        group.commit()
    for path in (offsets, backup):
        now = path.stat()
        found = (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode))
        assert found == (UID + 5, GID + 5, 0o600), path


def test_owner_of_a_new_root_is_its_maker(place: Path) -> None:
    place.chmod(0o1777)
    root = place / "store"
    code, text = run_as(
        STRANGER,
        STRANGER,
        f"""
with mqstore.open({str(root)!r}, "a", config={TINY!r}) as store:
    store.append("orders", b"z")
    print(store.warnings)
""",
        place,
    )
    assert (code, text) == (0, "[]\n"), text
    now = root.stat()
    assert (now.st_uid, stat.S_IMODE(now.st_mode)) == (STRANGER, 0o750)
    assert wrong(root, 0o750) == []


def seen(root: Path) -> list[tuple[object, ...]]:
    paths = sorted((root, *root.rglob("*")))
    stats = [(path, path.lstat()) for path in paths]
    return [
        (str(path), now.st_ino, now.st_size, now.st_mtime_ns, now.st_uid, now.st_gid, now.st_mode)
        for path, now in stats
    ]


COMMANDS = [
    ("rebuild", "--apply"),
    ("rebuild", "--what", "topics", "--apply"),
    ("recover", "--apply"),
    ("recover", "--quarantine", "--apply"),
    ("clean", "--keep-hours", "1", "--apply"),
    ("groups", "-g", "g", "--reset-to", "earliest", "--apply"),
    ("convert", "--queues", "rocksdb", "--apply"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_owner_that_cannot_be_given_stops_a_command_before_it_changes_anything(
    place: Path, words: tuple[str, ...]
) -> None:
    root = fill(place / "store", crashed=words[0] == "recover")
    (root / "config/topics.json").unlink(missing_ok=True)
    give(root, UID, GID, FOLDER)
    before = seen(root)
    code, text = run_as(STRANGER, GID, f"command(*{(words[0], str(root), *words[1:])!r})", place)
    assert code != 0
    assert f"sudo chown -R {STRANGER}:{GID} {root}" in text, text
    assert f"sudo -u '#{UID}'" in text
    assert seen(root) == before


def test_owner_that_cannot_be_given_is_a_warning_where_the_group_can_write(place: Path) -> None:
    root = fill(place / "store")
    give(root, UID, GID, FOLDER)
    code, text = run_as(
        STRANGER,
        GID,
        f"""
with mqstore.open({str(root)!r}, "r+", config={TINY!r}) as store:
    store.append("new", b"z")
    print(*store.warnings, sep="\\n")
""",
        place,
    )
    assert code == 0, text
    assert text.count("\n") == 1, text
    assert f"sudo chown -R {UID}:{GID} {root}" in text
    queue = next((root / "consumequeue/new").rglob("0*0"))
    now = queue.stat()
    assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (STRANGER, GID, FILE)
    code, text = run_as(
        UID,
        GID,
        f"""
with mqstore.open({str(root)!r}, "r+", config={TINY!r}) as store:
    print(store.append("new", b"z").physical_offset)
""",
        place,
    )
    assert code == 0, text


def test_owner_is_nobodys_in_a_setgid_folder_that_its_group_shares(place: Path) -> None:
    root = fill(place / "store")
    give(root, 0, GID, 0o2775)
    code, text = run_as(
        STRANGER,
        GID,
        f"""
with mqstore.open({str(root)!r}, "r+", config={TINY!r}) as store:
    store.append("new", b"z")
    print(store.warnings)
command("rebuild", {str(root)!r}, "--apply", "--json")
""",
        place,
    )
    assert code == 0, text
    assert text.startswith("[]\n"), text
    assert {path.stat().st_gid for path in root.rglob("*")} == {GID}


def test_owner_that_root_may_not_give_is_refused(place: Path) -> None:
    root = fill(place / "store")
    give(root, UID, GID, 0o755)
    before = seen(root)
    code, text = run_without_chown(f"mqstore.open({str(root)!r}, 'r+', config={TINY!r})", place)
    assert code != 0
    assert f"sudo -u '#{UID}'" in text, text
    assert "nothing was changed" in text
    assert seen(root) == before


@pytest.mark.parametrize(
    "planted", ["consumequeue/new", "quarantine", "rebuild", "config", "index", "lock", "abort.bak"]
)
def test_owner_of_a_planted_links_target_stays(place: Path, planted: str) -> None:
    root = fill(place / "store", crashed=planted == "quarantine")
    (root / "index" / "x").unlink(missing_ok=True)
    give(root, UID, GID, FOLDER)
    victim = place / "victim"
    is_file = planted in ("lock", "abort.bak")
    if is_file:
        victim.write_bytes(b"secret")
    else:
        victim.mkdir(mode=0o755)
    link = root / planted
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    os.lchown(link, UID, GID)
    before = (victim.stat().st_uid, victim.stat().st_mode, victim.stat().st_mtime_ns)
    for call in (append, rebuild, lambda root: mqstore.recover(root, dry_run=False, config=TINY)):
        try:
            call(root)
        except mqstore.StoreError:
            continue
    assert (victim.stat().st_uid, victim.stat().st_mode, victim.stat().st_mtime_ns) == before
    assert is_file or not list(victim.iterdir())


@pytest.mark.parametrize("owner", [0, UID])
def test_owner_of_a_link_decides_whether_it_is_followed(place: Path, owner: int) -> None:
    """A link that comes between the checks of a call and its files."""
    (victim := place / "victim").mkdir(mode=0o755)
    (link := place / "link").symlink_to(victim)
    os.lchown(link, owner, owner)
    calls: list[Callable[[], None]] = [
        lambda: _native._replace_file(link / "b", b"x"),
        lambda: _native._copy_folder(place / "made", link / "c"),
    ]
    (place / "made").mkdir()
    for call in calls:
        if owner == 0:
            call()
        else:
            with pytest.raises(mqstore.StoreIOError, match="a link of uid 3000 leads to"):
                call()
    assert len(list(victim.iterdir())) == (2 if owner == 0 else 0)
