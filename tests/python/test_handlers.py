"""Handlers of ``process``: which are refused, and how their failures are told."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
import mqstore.aio
from helpers.stores import TINY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG: dict[str, Any] = {**TINY, "delivery": True, "message_delay_level": "1h 2h"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.append("jobs", b"one")
        yield store


async def awaited(message: mqstore.StoredMessage) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(
    "handler",
    [awaited, functools.partial(awaited), lambda message: awaited(message), None, "f"],
    ids=["async", "partial", "lambda", "none", "text"],
)
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_handler_that_would_not_run_is_refused_and_no_message_done(
    store: mqstore.Store, handler: Callable[..., object], concurrency: int
) -> None:
    with store.group("g") as group:
        with pytest.raises(TypeError, match=r"^handler: expected a function"):
            group.process("jobs", handler, idle_s=0, concurrency=concurrency)
        assert [message.body for message in group.poll("jobs")] == [b"one"]


def test_asyncio_takes_plain_functions_too(tmp_path: Path) -> None:
    done = []

    async def main() -> mqstore.groups.processing.Processed:
        async with await mqstore.aio.open(tmp_path / "store", "a", config=CONFIG) as store:
            await store.append("jobs", b"one")
            assert (store.warnings, store.min_physical_offset) == ([], 0)
            async with await store.group("g") as group:
                with pytest.raises(TypeError, match="handler: expected a function"):
                    await group.process("jobs", None)  # type: ignore[arg-type]
                return await group.process("jobs", done.append, idle_s=0)

    processed = asyncio.run(main())
    assert (processed.handled, processed.retried, len(done)) == (1, 0, 1)


def test_a_failure_is_logged_with_its_traceback(
    store: mqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: mqstore.StoredMessage) -> None:
        raise LookupError("no such customer")

    with store.group("g") as group:
        group.process("jobs", fail, idle_s=0)
        store.append("jobs", b"two")
        group.process("jobs", fail, idle_s=0, max_attempts=1)
    retried, dead = caplog.records
    assert (retried.levelno, dead.levelno) == (logging.WARNING, logging.WARNING)
    assert "is tried again" in retried.getMessage()
    assert "is a dead letter now" in dead.getMessage()
    assert "no such customer" in caplog.text
    assert "Traceback" in caplog.text


def test_a_backoff_beyond_the_longest_level_takes_it(store: mqstore.Store) -> None:
    def fail(message: mqstore.StoredMessage) -> None:
        raise LookupError

    with store.group("g") as group:
        assert group.process("jobs", fail, idle_s=0, backoff=lambda _: 86_400).retried == 1
    (waiting,) = store.topic("SCHEDULE_TOPIC_XXXX")
    assert waiting.delay_level == 2


def test_a_commit_that_fails_is_not_tried_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = mqstore.StoreConfig(**TINY, delivery=True)
    sent = []

    def send_back(_: object, __: str, failed: list[object]) -> int:
        sent.extend(failed)
        raise mqstore.StoreIOError("the disk is gone", None, "", "write")

    def fail(_: mqstore.StoredMessage) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("mqstore.groups.processing.send_back", send_back)
    monkeypatch.setattr("mqstore.groups.processing._COMMIT_S", 0)
    with mqstore.open(tmp_path, "a", config=config) as store, store.group("g") as group:
        store.append_many([mqstore.Message("t", b"")] * 3)
        with pytest.raises(mqstore.StoreIOError, match="the disk is gone"):
            group.process("t", fail, idle_s=0)
        assert len(sent) == 1
        assert [at.queue_offset for at in store.groups()["g"]] == [0]
