"""A bucket of an S3 server as the target of backups."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
from helpers.stores import log_bytes
from mqstore.backup.target import target_of

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.buckets import Bucket


def test_a_bucket_is_a_target(s3: Bucket, tmp_path: Path, usual: Path) -> None:
    target, options = f"s3://{s3.name}/backup", s3.options
    report = mqstore.sync(usual, target, storage_options=options, verify=True)
    asked_for = target_of(target, options)
    import mqstore.backup.syncing as module

    counted: list[Any] = []
    original = module.target_of
    module.target_of = lambda *given: counted.append(original(*given)) or counted[-1]  # type: ignore[assignment]
    try:
        assert not mqstore.sync(usual, target, storage_options=options).is_new
    finally:
        module.target_of = original
    assert counted[0].counts.requests <= 6
    assert asked_for.put({"mqstore-backup.json": b"x"}) == [False]
    url = s3.put(usual, "compared")
    keys = [f"key-{number}" for number in range(0, 1500, 300)]
    requests = []
    for place in (url, target):
        with mqstore.open(place, storage_options=options) as opened:
            messages = [str(found) for found in opened.scan()]
            hits = [str(found) for key in keys for found in opened.query("orders", key)]
            requests.append((opened.io.requests, messages, hits))
    (direct, *expected), (composed, *found) = requests
    assert found == expected
    assert composed <= 1.5 * direct
    assert mqstore.check_backup(target, storage_options=options).ok
    out = tmp_path / "out"
    assert mqstore.restore(target, out, storage_options=options).findings == ()
    assert log_bytes(out) == log_bytes(usual)
    mqstore.sync(usual, target, compress="zstd", storage_options=options)
    format_ = asked_for.get(["mqstore-backup.json"])[0]
    assert format_ == b'{"format":"mqstore-backup","version":2}'
    plan = mqstore.prune(target, keep=timedelta(0), storage_options=options)
    assert plan.kept == (report.snapshot,)
    assert mqstore.snapshots(target, storage_options=options)[0].id == report.snapshot


@pytest.mark.parametrize("is_url", [True, False])
def test_spark_connects_to_a_backup_once_for_each_plan(
    s3: Bucket, tmp_path: Path, usual: Path, is_url: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mqstore.spark.stores")
    from mqstore.spark import roots
    from mqstore.spark.options import ReadOptions

    path = f"s3://{s3.name}/planned" if is_url else str(tmp_path / "backup")
    options = ReadOptions.parse({"path": path})
    if is_url:
        options = dataclasses.replace(options, storage_options=s3.options)
    mqstore.sync(usual, path, storage_options=options.storage_options)
    calls: list[Any] = []
    connect = roots.connect

    def counted(*given: Any) -> Any:
        calls.append(given)
        return connect(*given)

    monkeypatch.setattr(roots, "connect", counted)
    roots.CONNECTED.clear()
    for plans in (1, 2):
        kept = roots.kept_path(options, path)
        with mqstore.open(options.root(kept)) as read:
            assert next(iter(read.scan())) is not None
        assert len(calls) == plans
