"""asyncio: the same names, and cancelled calls that lose nothing."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

import mqstore
import mqstore.aio
from helpers.stores import TINY
from mqstore.groups.processing import Processed

if TYPE_CHECKING:
    from pathlib import Path

ROOMY: dict[str, Any] = {
    **TINY,
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
}
RETRIES: dict[str, Any] = {**ROOMY, "delivery": True, "message_delay_level": "0s 0s 0s"}


def test_the_names_of_a_store_are_awaitable(tmp_path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(tmp_path, "a", config=ROOMY) as store:
            first = await store.append("orders", b"one", keys="k")
            await store.append_many([mqstore.Message("orders", b"two", queue_id=1)])
            await store.flush()
            assert (await store.get(first.physical_offset)).body == b"one"
            assert [found.body for found in await store.query("orders", "k")] == [b"one"]
            assert [found.body async for found in store.scan()] == [b"one", b"two"]
            assert [found.body async for found in store.topic("orders")] == [b"one", b"two"]
            orders = store.topic("orders")
            assert [found.body for found in await orders.latest(1)] == [b"two"]
            assert [found.body async for found in orders.since(first.store_timestamp_ms)] == [
                b"one",
                b"two",
            ]
            behind = orders.from_offset(first.physical_offset + 1)
            assert [found.body async for found in behind] == [b"two"]
            assert (orders.name, await store.topics()) == ("orders", ["orders"])
            assert not await store.wait(store.max_physical_offset, timeout_s=0.001)
            assert (store.mode, store.path) == ("a", str(tmp_path))
            assert (store.io, store.index_usable) == (None, True)
            assert (await store.versions())["writes"] == "5.3"
            assert [queue.queue_id for queue in await orders.queues()] == [0, 1]
            with pytest.raises(mqstore.InvalidMessageError):
                await store.append("a b", b"")
        with pytest.raises((mqstore.StoreClosedError, RuntimeError)):
            await store.topics()

    asyncio.run(main())


def test_asyncio_has_the_names_of_each_class() -> None:
    for plain, other in (
        (mqstore.Store, mqstore.aio.AsyncStore),
        (mqstore.topic.Topic, mqstore.aio.AsyncTopic),
        (mqstore.ConsumerGroup, mqstore.aio.AsyncConsumerGroup),
    ):
        assert {name for name in dir(plain) if name[0] != "_"} - {*dir(other)} <= {
            *("give_back", "skip")  # what is given out is awaited, or iterated
        }


def test_store_and_group_open_with_and_without_await(tmp_path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(tmp_path, "a", config=ROOMY) as store:
            await store.append("orders", b"one")
            async with store.group("g") as group:
                assert [found.body for found in await group.poll("orders")] == [b"one"]
            async with await store.group("h") as group:
                assert group.name == "h"
        async with await mqstore.aio.open(tmp_path) as store:
            assert store.mode == "r"
        with pytest.raises(mqstore.NotAStoreError):
            async with mqstore.aio.open(tmp_path / "none"):
                pass

    asyncio.run(main())


def test_opening_is_a_coroutine_that_can_be_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        store = await asyncio.create_task(mqstore.aio.open(tmp_path, "a", config=ROOMY))
        waiting = asyncio.create_task(mqstore.aio.open(tmp_path, "r+", timeout=math.inf))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(mqstore.StoreLockedError):
            await mqstore.aio.open(tmp_path, "r+", timeout=0.01)
        await store.close()
        async with mqstore.aio.open(tmp_path, "r+", timeout=math.inf) as again:
            assert again.mode == "r+"

    asyncio.run(main())


def test_a_group_waits_for_a_message_without_a_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            await mqstore.aio.open(tmp_path, "a", config=ROOMY) as store,
            await store.group("g") as group,
        ):
            # More tasks wait than the store has threads.
            waiting = [asyncio.create_task(group.poll("T", timeout_s=60)) for _ in range(30)]
            for number in range(30):
                await store.append("T", b"%d" % number)
                if number == 0:
                    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    assert done
            for task in waiting:
                task.cancel()
            took = await asyncio.gather(*waiting, return_exceptions=True)
            found = [m.body for part in took if isinstance(part, list) for m in part]
            found += [m.body for m in await group.poll("T", max_messages=99)]
            assert sorted(map(int, found)) == list(range(30))
            await group.commit()
            assert [at.lag for at in await group.lag()] == [0]

    asyncio.run(main())


def test_messages_are_iterated_and_acknowledged(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        async with (
            await mqstore.aio.open(tmp_path, "a", config=ROOMY) as store,
            await store.group("g") as group,
        ):
            await store.append_many([mqstore.Message("T", b"%d" % n) for n in range(5)])
            found = []
            async for message in group.messages("T"):
                found.append(message.body)
                assert await group.ack(message)
                if len(found) == 3:
                    break
            return found

    assert asyncio.run(main()) == [b"0", b"1", b"2"]
    with mqstore.open(tmp_path) as store:
        assert [at.queue_offset for at in store.groups()["g"]] == [3]


def test_cancelled_appends_and_polls_lose_nothing_beside_threads(tmp_path: Path) -> None:
    """Tasks are cancelled at every point while threads append; each message comes once."""
    count, tasks = 300, 4

    async def main() -> list[int]:
        found: list[int] = []
        async with (
            await mqstore.aio.open(tmp_path, "a", config=ROOMY) as store,
            await store.group("g") as group,
        ):

            async def take() -> None:
                found.extend(int(m.body) for m in await group.poll("T", max_messages=3))

            def append() -> None:
                for number in range(count):
                    store._inner.append("T", b"%d" % number, queue_id=number % 3)

            thread = threading.Thread(target=append)
            thread.start()
            cancelled = 0
            for number in range(count):
                late = asyncio.create_task(store.append("T", b"%d" % (count + number)))
                taking = [asyncio.create_task(take()) for _ in range(tasks)]
                await asyncio.sleep(0.001 * (number % 3))
                for task in (late, taking[number % tasks]):
                    cancelled += task.cancel()
                await asyncio.gather(late, *taking, return_exceptions=True)
            thread.join()
            while await group.poll("T", max_messages=0) == []:
                before = len(found)
                await take()
                if len(found) == before:
                    break
            await group.commit()
            assert cancelled > 0
            stored = [int(m.body) async for m in store.topic("T")]
            assert set(range(count)) <= set(stored)
            assert sorted(found) == sorted(stored)
        return found

    found = asyncio.run(main())
    assert len(found) == len(set(found))


def test_process_awaits_its_handler_and_retries(tmp_path: Path) -> None:
    seen: list[tuple[bytes, int]] = []

    async def handle(message: mqstore.StoredMessage) -> None:
        await asyncio.sleep(0)
        seen.append((message.body, message.reconsume_times))
        if message.body == b"1" and not message.reconsume_times:
            raise RuntimeError("the first attempt fails")

    async def main() -> None:
        async with (
            await mqstore.aio.open(tmp_path, "a", config=RETRIES) as store,
            await store.group("g") as group,
        ):
            for number in range(3):
                await store.append("T", b"%d" % number)
            working = asyncio.create_task(group.process("T", handle, concurrency=2))
            while (b"1", 1) not in seen:
                await asyncio.sleep(0.01)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert sum(at.lag for at in await group.lag()) == 0

    asyncio.run(main())
    assert sorted(seen) == [(b"0", 0), (b"1", 0), (b"1", 1), (b"2", 0)]


@pytest.mark.parametrize("options", [{}, {"stop": None}])
def test_a_call_that_is_cancelled_twice_ends(tmp_path: Path, options: dict[str, Any]) -> None:
    async def main() -> list[mqstore.StoredMessage]:
        config = {"delivery": True}
        async with await mqstore.aio.open(tmp_path, "a", config=config) as store:
            await store.append("t", b"1")
            group = await store.group("g")
            began, may_end = asyncio.Event(), asyncio.Event()

            async def handle(_: mqstore.StoredMessage) -> None:
                began.set()
                await may_end.wait()

            task = asyncio.create_task(group.process("t", handle, **options))
            await began.wait()
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await group.poll("t")

    assert asyncio.run(asyncio.wait_for(main(), 60)) == []


def test_the_end_of_the_loop_fails_no_message(tmp_path: Path) -> None:
    async def main() -> None:
        store = await mqstore.aio.open(tmp_path, "a", config={"delivery": True})
        await store.append("t", b"1")
        group = await store.group("g")
        began = asyncio.Event()

        async def handle(_: mqstore.StoredMessage) -> None:
            began.set()
            await asyncio.Event().wait()

        tasks.append(asyncio.create_task(group.process("t", handle, max_attempts=1)))
        await began.wait()

    tasks: list[asyncio.Task[object]] = []
    asyncio.run(main())
    with mqstore.open(tmp_path, "r") as reader:
        assert reader.queues("%DLQ%g") == []
        assert [at.queue_offset for at in reader.groups()["g"]] == [0]


def test_a_handler_that_cancels_itself_has_failed(tmp_path: Path) -> None:
    async def main() -> object:
        async with await mqstore.aio.open(tmp_path, "a", config={"delivery": True}) as store:
            await store.append("t", b"1")
            group = await store.group("g")

            async def handle(_: mqstore.StoredMessage) -> None:
                raise asyncio.CancelledError

            return await group.process("t", handle, max_attempts=1, idle_s=0)

    assert asyncio.run(asyncio.wait_for(main(), 60)) == Processed(dead=1)


def test_a_closed_store_says_so_and_ends_iterations(tmp_path: Path) -> None:
    async def main() -> None:
        store = await mqstore.aio.open(tmp_path, "a", config=ROOMY)
        group = await store.group("g")
        waiting = [asyncio.create_task(group.poll("T", timeout_s=60)) for _ in range(3)]

        async def iterate() -> list[bytes]:
            return [message.body async for message in group.messages("T")]

        iterating = asyncio.create_task(iterate())
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        await group.close()
        for call in (store.append("T", b""), store.group("h"), store.refresh(), *waiting):
            with pytest.raises(mqstore.StoreClosedError):
                await call
        assert await iterating == []

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [-1, float("nan"), "3"])
def test_a_timeout_that_is_none_is_refused(tmp_path: Path, timeout: Any) -> None:
    async def main() -> None:
        async with (
            await mqstore.aio.open(tmp_path, "a", config=ROOMY) as store,
            await store.group("g") as group,
        ):
            for call in (store.wait(0, timeout_s=timeout), group.poll("T", timeout_s=timeout)):
                with pytest.raises((TypeError, ValueError), match=r"^timeout_s: expected"):
                    await call

    asyncio.run(main())
