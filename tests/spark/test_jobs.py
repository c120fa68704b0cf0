"""A store's heavy work on the cluster comes out as on one machine."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
import mqstore.spark
from helpers.stores import TINY, message
from mqstore.spark import rebuilding, verifying

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession


def make(root: Path, numbers: range) -> Path:
    with mqstore.open(root, "a", config=TINY) as store:
        store.append_many(
            [
                message(f"T{n % 5}", queue_id=n % 3, body=b"%d" % n, keys=(f"k{n}", "all"))
                for n in numbers
            ]
        )
    return root


def files(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        # The name of an index file is the time of its making.
        "index" if path.parent.name == "index" else str(path.relative_to(folder)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in found
    }


def test_rebuild_makes_the_bytes_that_one_machine_makes(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = make(tmp_path / "store", range(90))
    before = files(root)
    alone = mqstore.rebuild(root, out=tmp_path / "one", config=TINY)
    report = mqstore.spark.rebuild(spark, root, tmp_path / "many", config=TINY)
    same_bytes(tmp_path / "one", tmp_path / "many")
    assert report.index_files > 2
    assert files(root) == before
    assert report == dataclasses.replace(alone, out=str(tmp_path / "many"))
    with pytest.raises(mqstore.ConfigError, match="is not empty"):
        mqstore.spark.rebuild(spark, root, tmp_path / "many", config=TINY)
    with pytest.raises(mqstore.ConfigError, match="what is consumequeue"):
        mqstore.spark.rebuild(spark, root, tmp_path / "x", ["queues"])


def test_verify_merges_the_reports_of_all_stores(spark: SparkSession, tmp_path: Path) -> None:
    roots = [make(tmp_path / f"store-{name}", range(40)) for name in "abc"]
    damaged = min((roots[1] / "commitlog").iterdir())
    bytes_of = bytearray(damaged.read_bytes())
    bytes_of[100] ^= 0xFF
    damaged.write_bytes(bytes_of)
    report = mqstore.spark.verify(spark, f"{tmp_path}/store-*", config=TINY)
    alone = [mqstore.verify(root, config=TINY) for root in roots]
    assert [one.ok for one in alone] == [True, False, True]
    assert not report.ok
    assert [finding.code for finding in report.findings] == [f.code for f in alone[1].findings]
    assert all(Path(finding.path).is_relative_to(roots[1]) for finding in report.findings)
    for name, count in report.counts.items():
        assert count == sum(one.counts.get(name, 0) for one in alone)
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.spark.verify(spark, tmp_path / "nowhere")


def test_jobs_find_the_settings_that_a_store_was_made_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = make(tmp_path / "store", range(90))
    # TINY's slots and entries are neither RocketMQ's nor one to four.
    assert mqstore.spark.verify(spark, root).ok
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "consumequeue")
    mqstore.rebuild(root, out=tmp_path / "one", config=TINY)
    mqstore.spark.rebuild(spark, root, tmp_path / "many")
    same_bytes(tmp_path / "one", tmp_path / "many")


# --- without a JVM -------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Twelve slots, as far as a job sees a cluster: what its tasks get and give is pickled."""

    def each(_: object, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(i))))) for i in items]

    for module in (rebuilding, verifying):
        monkeypatch.setattr(module, "each", each)
    return SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=12))


def damage(root: Path, rng: random.Random) -> None:
    """Some bytes of some files are changed, and now and then a file is cut short or goes."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    for path in rng.sample(files, 4):
        held = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 3)):
            held[rng.randrange(len(held))] ^= rng.randint(1, 255)
        path.write_bytes(held)
    gone = rng.choice([path for path in files if path.parent.name != "config"])
    if rng.random() < 0.3:
        gone.unlink()
    elif rng.random() < 0.3:
        with gone.open("r+b") as file:
            file.truncate(rng.randrange(gone.stat().st_size))


@pytest.mark.parametrize("seed", range(25))
def test_a_divided_check_finds_what_a_whole_one_finds(
    tmp_path: Path, cluster: Any, seed: int
) -> None:
    rng = random.Random(seed)
    root = make(tmp_path / "store", range(120))
    if seed:
        damage(root, rng)
    if rng.random() < 0.4:
        (root / "abort").touch()
    for level in ("full", "quick"):
        alone = mqstore.verify(root, level=level, config=TINY)
        report = mqstore.spark.verify(cluster, root, level=level, config=TINY)
        paths = [str(root / finding.path) for finding in alone.findings]
        wanted = [
            dataclasses.replace(finding, path=path)
            for finding, path in zip(alone.findings, paths, strict=True)
        ]
        assert report == dataclasses.replace(alone, findings=tuple(wanted))


@pytest.mark.parametrize("seed", range(15))
def test_a_divided_rebuild_makes_what_a_whole_one_makes(
    tmp_path: Path, cluster: Any, seed: int
) -> None:
    rng = random.Random(seed)
    root = make(tmp_path / "store", range(rng.choice([0, 1, 50, 120])))
    log = sorted((root / "commitlog").iterdir())
    for path in rng.sample(log, min(len(log), seed % 4)):
        held = bytearray(path.read_bytes())
        held[rng.randrange(len(held))] ^= 0xFF
        path.write_bytes(held)
    if seed == 7:
        # Queues whose messages are all gone keep their place.
        log[0].unlink()
    if seed == 8:
        shutil.rmtree(root / "consumequeue")
    alone = mqstore.rebuild(root, out=tmp_path / "one", config=TINY)
    report = mqstore.spark.rebuild(cluster, root, tmp_path / "many", config=TINY)
    assert report == dataclasses.replace(alone, out=str(tmp_path / "many"))
    same_bytes(tmp_path / "one", tmp_path / "many")


def same_bytes(one: Path, many: Path) -> None:
    assert files(many) == files(one)
    indexes = [sorted((side / "index").iterdir()) for side in (one, many)]
    assert [path.read_bytes() for path in indexes[0]] == [path.read_bytes() for path in indexes[1]]


def test_files_of_the_log_are_cut_at_any_byte(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "mapped_file_size_commit_log": 20 << 20,
        "mapped_file_size_consume_queue": 20_000,
        "max_hash_slot_num": 500,
        "max_index_num": 2000,
    }
    rng = random.Random(5)
    # A record as long as a stretch that is read at once, and a hole behind it.
    sizes = [rng.randrange(9000) for _ in range(3000)]
    sizes[700] = 4_000_000
    with mqstore.open(tmp_path / "store", "a", config=config) as store:
        results = store.append_many(
            [
                message(f"T{n % 5}", queue_id=n % 3, body=rng.randbytes(size), keys=(f"k{n}", "a"))
                for n, size in enumerate(sizes)
            ]
        )
    first = tmp_path / "store" / "commitlog" / f"{0:020}"
    with first.open("r+b") as file:
        file.seek(results[800].physical_offset + 4)
        file.write(bytes(50))
    alone = mqstore.rebuild(tmp_path / "store", out=tmp_path / "one")
    assert len(alone.damaged) == 1
    monkeypatch.setattr(rebuilding, "_RANGE_BYTES", 3_000_000)
    report = mqstore.spark.rebuild(cluster, tmp_path / "store", tmp_path / "many")
    assert report == dataclasses.replace(alone, out=str(tmp_path / "many"))
    same_bytes(tmp_path / "one", tmp_path / "many")
