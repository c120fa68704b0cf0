"""Damages that come together or hit parts of a store that few have; beside `damaged_stores`."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING

from helpers.damaged_stores import (
    BROKERS,
    Damage,
    config,
    damage,
    filled,
    log_files,
    patch,
    remove,
    topics_gone,
)

if TYPE_CHECKING:
    from pathlib import Path

LOGS = ("closed-53", "crashed-55")


def log_in_a_folder_of_the_log(root: Path) -> None:
    """As after a copy with one level too many."""
    files = log_files(root)
    inner = root / "commitlog" / "commitlog"
    inner.mkdir()
    for path in files:
        path.rename(inner / path.name)


def log_in_the_root(root: Path) -> None:
    for path in log_files(root):
        path.rename(root / path.name)


def _compressed(path: Path) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def first_file_compressed(root: Path) -> None:
    _compressed(filled(root)[0])


def middle_file_compressed(root: Path) -> None:
    _compressed(filled(root)[2])


def folder_named_as_the_next_file(root: Path) -> None:
    last = log_files(root)[-1]
    last.with_name(f"{int(last.name) + last.stat().st_size:020}").mkdir()


def three_notes_in_the_log(root: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (root / "commitlog" / name).write_text("do not touch\n")


def quarantine_is_a_file(root: Path) -> None:
    (root / "quarantine").write_text("x")


def index_is_a_file(root: Path) -> None:
    shutil.rmtree(root / "index")
    (root / "index").write_text("")


def checkpoint_is_a_folder(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()


def strange_folders_of_queues(root: Path) -> None:
    queue = next((root / "consumequeue").glob("*/0"))
    for name in ("007", "x1"):
        shutil.copytree(queue, queue.with_name(name))


def queues_of_another_store(root: Path) -> None:
    """A queue folder of a topic that the log has no message of, with files of another size."""
    folder = root / "consumequeue" / "elsewhere" / "0"
    folder.mkdir(parents=True)
    entry = (10**9).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8)
    (folder / f"{0:020}").write_bytes(entry * 3 + bytes(20_000 - 60))


def light_queues_gone(root: Path) -> None:
    for folder in (root / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(folder)


def batch_queues_gone(root: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue")


def batch_queues_and_topics_gone(root: Path) -> None:
    batch_queues_gone(root)
    topics_gone(root)


def config_gone(root: Path) -> None:
    shutil.rmtree(root / "config")


def offsets_of_another_cluster(root: Path) -> None:
    remove(root, "consumerOffset.json.bak")
    table = {"offsetTable": {"elsewhere@others": {"0": 5000, "1": 5100}}}
    config(root, "consumerOffset.json").write_text(json.dumps(table))


def topics_of_another_cluster(root: Path) -> None:
    path = config(root, "topics.json")
    table = json.loads(path.read_text())
    kept = {name: one for name, one in table["topicConfigTable"].items() if "Batch" in name}
    path.write_text(json.dumps({**table, "topicConfigTable": kept}))
    remove(root, "topics.json.bak")


def tables_emptied_by_a_full_disk(root: Path) -> None:
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        path = config(root, name)
        shutil.copy(path, path.with_name(f"{name}.bak"))
        path.write_bytes(b"")


def _tables_of(root: Path) -> list[Path]:
    return sorted(
        path
        for folder in ("consumequeue", "consumequeue_rocksdb")
        for path in (root / folder).glob("*.sst")
    )


def rocksdb_table_gone(root: Path) -> None:
    _tables_of(root)[0].unlink()


def rocksdb_tables_gone(root: Path) -> None:
    for path in _tables_of(root):
        path.unlink()


def rocksdb_table_damaged(root: Path) -> None:
    path = _tables_of(root)[0]
    size = path.stat().st_size
    patch(path, size // 4, bytes(size // 12))


def _gone(root: Path, pattern: str) -> None:
    for path in _tables_of(root)[0].parent.glob(pattern):
        path.unlink()


def rocksdb_current_gone(root: Path) -> None:
    _gone(root, "CURRENT")


def rocksdb_manifest_gone(root: Path) -> None:
    _gone(root, "MANIFEST-*")


REBUILD = "mqstore rebuild "
GROUPS = "mqstore groups "
CONVERT = "mqstore convert "
ROCKSDB = {
    "bases": ("rocksdb-55", "rocksdb-double-55"),
    "starts": False,
    "commands": (CONVERT,),
    "never": ("mv ", REBUILD),
}
MOVED = {"commands": ("mv ",), "never": ("mqstore salvage ", REBUILD)}
UNPACKED = {"starts": False, "commands": ("gzip -d ",), "never": ("mv ", "mqstore salvage ")}

MORE_DAMAGES: list[Damage] = [
    damage(log_in_a_folder_of_the_log, "MQ-DOC-14", bases=LOGS, **MOVED),
    damage(log_in_the_root, "MQ-DOC-14", bases=LOGS, **MOVED),
    damage(first_file_compressed, "MQ-DOC-14", bases=LOGS, **UNPACKED),
    damage(middle_file_compressed, "MQ-DOC-14", bases=LOGS, **UNPACKED),
    damage(folder_named_as_the_next_file, "MQ-FS-03", bases=LOGS, **MOVED),
    damage(three_notes_in_the_log, "MQ-DOC-14", bases=LOGS, starts=False, **MOVED),
    damage(quarantine_is_a_file, "MQ-FS-04", bases=("crashed-53", "closed-55"), **MOVED),
    damage(index_is_a_file, "MQ-FS-04", bases=("closed-53",), commands=("mv ",)),
    damage(
        index_is_a_file,
        "MQ-FS-04",
        bases=("crashed-53", "crashed-55"),
        starts=False,
        commands=("mv ",),
    ),
    damage(checkpoint_is_a_folder, "MQ-FS-04", bases=LOGS, starts=False, **MOVED),
    damage(strange_folders_of_queues, "MQ-FS-03", bases=LOGS, **MOVED),
    damage(queues_of_another_store, "MQ-DOC-05", bases=LOGS, starts=False, commands=(REBUILD,)),
    damage(light_queues_gone, "MQ-DOC-01", bases=("light-53", "light-55"), commands=(REBUILD,)),
    damage(batch_queues_gone, "MQ-CFG-07", bases=("batch-53", "batch-55"), commands=(REBUILD,)),
    damage(batch_queues_gone, "MQ-DOC-01", bases=BROKERS, commands=(REBUILD,)),
    damage(batch_queues_and_topics_gone, "MQ-CFG-07", bases=BROKERS, commands=(REBUILD,)),
    damage(
        config_gone,
        *("MQ-CFG-07", "MQ-OFF-05"),
        bases=BROKERS,
        starts=False,
        commands=(REBUILD, GROUPS),
    ),
    damage(offsets_of_another_cluster, "MQ-OFF-05", bases=BROKERS, commands=(GROUPS,)),
    damage(topics_of_another_cluster, "MQ-CFG-04", bases=BROKERS, commands=(REBUILD,)),
    damage(tables_emptied_by_a_full_disk, "MQ-CFG-02", bases=BROKERS, commands=("cp ",)),
    damage(rocksdb_table_gone, "MQ-RDB-01", **ROCKSDB),
    damage(rocksdb_tables_gone, "MQ-RDB-01", **ROCKSDB),
    damage(rocksdb_table_damaged, "MQ-RDB-01", **ROCKSDB),
    damage(rocksdb_current_gone, "MQ-RDB-01", **ROCKSDB),
    damage(rocksdb_manifest_gone, "MQ-RDB-01", **ROCKSDB),
]
MORE_STATES = [(base, each) for each in MORE_DAMAGES for base in each.bases]
# One base of each damage, in turn.
MORE_SOME = [(each.bases[at % len(each.bases)], each) for at, each in enumerate(MORE_DAMAGES)]
