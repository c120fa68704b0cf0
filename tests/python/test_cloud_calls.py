"""Functions and commands that take a URL answer as for the local store."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
import mqstore.metrics
from helpers.buckets import asked
from mqstore.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from helpers.buckets import Bucket


def damaged(usual: Path, folder: Path) -> Path:
    """A copy with a damaged body, a lost queue and waiting messages."""
    shutil.copytree(usual, folder)
    with (folder / "commitlog" / f"{1 << 20:020}").open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    shutil.rmtree(folder / "consumequeue" / "orders" / "2")
    return folder


CALLS: dict[str, Callable[..., Any]] = {
    "verify": mqstore.verify,
    "doctor": mqstore.doctor,
    "why": partial(mqstore.why, group="billing", key="key-501", now_ms=1),
    "pending": partial(mqstore.pending, now_ms=1),
    "stats": partial(mqstore.stats, by=["topic", "tags"], on_error="skip"),
    "preflight": partial(mqstore.preflight, to="5.4"),
    "salvage": mqstore.salvage,
    "diff": lambda path: mqstore.diff(path, path),
    "sql": lambda path, **more: (
        mqstore.sql(path, "select topic, count(*) from queues group by all order by 1", **more)
    ).fetchall(),
    "metrics": lambda path, **more: [
        str(one)
        for one in mqstore.metrics.StoreCollector(path, now_ms=lambda: 1, **more).collect()
        if one.name != "rocketmq_storage_size"
    ],
}


def shown(answer: Any, root: object) -> str:
    """An answer as text, without the place of the store."""
    if isinstance(answer, mqstore.StoreStats):
        answer = list(answer), answer.skipped_ranges, answer.deleted_messages
    return str(answer).replace(str(root), "ROOT")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["usual", "damaged"])
def test_functions_answer_the_same(
    name: str, kind: str, usual: Path, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = usual if kind == "usual" else damaged(usual, tmp_path / "store")
    url = memory(folder)
    expected, found = (shown(asked(CALLS[name], path), path) for path in (str(folder), url))
    if name in ("doctor", "preflight", "salvage") and kind == "damaged":
        # Cures are those of a copy.
        expected, found = (
            re.split(r"commands=|fix|mqstore |space", text)[0] for text in (expected, found)
        )
    assert found == expected


def test_cures_are_those_of_a_copy(
    usual: Path, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    report = mqstore.doctor(memory(damaged(usual, tmp_path / "store")))
    first, *others = report.commands
    assert first.startswith("# copy all below memory://store to the folder store")
    assert "mqstore salvage store --out store.salvaged" in others
    assert not any("memory:" in command for command in others)


@pytest.mark.parametrize("name", ["copy", "export", "salvage", "report"])
@pytest.mark.parametrize("kind", ["usual", "damaged"])
def test_what_is_written_is_the_same(
    name: str, kind: str, usual: Path, memory: Callable[[Path], str], tmp_path: Path
) -> None:
    """Of a damaged store too, where a call refuses or leaves out the same."""
    folder = usual if kind == "usual" else damaged(usual, tmp_path / "store")
    found = {}
    for place, path in (("local", str(folder)), ("remote", memory(folder))):
        out = tmp_path / place
        if name == "report":
            mqstore.report(path, out.with_suffix(".html"))
            texts = re.findall(r"[\d,]+ messages", out.with_suffix(".html").read_text())
            found[place] = texts
            continue
        call = {"copy": mqstore.copy, "export": mqstore.export_store, "salvage": mqstore.salvage}
        error = asked(call[name], path, out)
        found[place] = [error if isinstance(error, type) else None]
        if name == "export":
            rows = sorted(out.rglob("*.jsonl*")) or sorted(out.rglob("*.parquet"))
            found[place] += [one.read_bytes() for one in rows]
        elif (out / "commitlog").is_dir():
            with mqstore.open(out) as store:
                found[place] += [(m.topic, m.queue_offset, m.body) for m in store.scan()]
    assert found["remote"] == found["local"]
    assert len(found["local"]) > 1 or found["local"] != [None]


def test_copies_of_a_url(usual: Path, s3: Bucket, tmp_path: Path) -> None:
    url, options = s3.put(usual, "copied"), s3.options
    copied = mqstore.copy(url, tmp_path / "copy", storage_options=options)
    assert copied.messages == 1500
    assert mqstore.diff(url, tmp_path / "copy", storage_options=options).ok
    exported = mqstore.export_store(url, tmp_path / "export", storage_options=options)
    assert (exported.messages, exported.complete) == (1500, True)
    assert (tmp_path / "export" / "config" / "consumerOffset.json").exists()
    saved = mqstore.salvage(url, tmp_path / "saved", storage_options=options)
    assert saved.messages == 1500
    mqstore.report(url, tmp_path / "page.html", storage_options=options)
    assert "object store" in (tmp_path / "page.html").read_text()
    rows = mqstore.sql([url, tmp_path / "copy"], "from messages", storage_options=options)
    assert len(rows) == 3000


READING = [
    ["info"],
    ["config"],
    ["topics"],
    ["queues"],
    ["groups"],
    ["stats", "--by", "topic"],
    ["cat", "-t", "orders", "-n", "20"],
    ["tail", "-n", "5"],
    ["get", "0"],
    ["query", "-t", "orders", "-k", "key-777"],
    ["at", "-t", "orders", "2026-01-01"],
    ["cq", "-t", "orders", "-q", "1", "-n", "3"],
    ["checkpoint"],
    ["index"],
    ["verify"],
    ["doctor"],
    ["pending"],
    ["why", "-g", "billing", "-k", "key-501"],
    ["preflight", "--to", "5.4"],
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_commands_take_urls(
    words: list[str], usual: Path, memory: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for path in (str(usual), memory(usual)):
        name, *rest = words
        code = main([name, path, *rest, "--json"])
        out, err = capsys.readouterr()
        document = json.loads(out)
        for one in document.get("files", ()) if name == "info" else ():
            one.pop("allocated_bytes", None)
        if name == "info":
            document.pop("rocksdb")
        text = shown(document, path) + shown(err, path)
        # The time of the offsets' file, and durations.
        text = re.sub(r"offsets_timestamp_ms': \d+|in \d+\.\d+ s|seconds': [\d.e-]+", "", text)
        texts.append((code, text))
    assert texts[0] == texts[1]


def test_commands_take_options(usual: Path, s3: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    url = s3.put(usual, "commanded")
    options = [f"--storage-option={name}={value}" for name, value in s3.options.items()]
    assert main(["topics", url, *options, "--verbose", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "orders" in out
    assert re.search(r"\d+ requests, .* received", err)
    assert main(["diff", url, str(usual), *options]) == 0
    assert main(["sql", url, "select count(*) from messages", *options]) == 0
    assert "1500" in capsys.readouterr().out
    assert main(["topics", url, "--storage-option", "nonsense"]) == 2
    assert main(["rebuild", url, "--what", "index", "--apply"]) == 1
    assert "is read-only, and nothing was changed" in capsys.readouterr().err
