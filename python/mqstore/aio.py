"""The store for asyncio: the names of ``mqstore``, awaitable.

>>> import asyncio, tempfile, mqstore.aio
>>> async def main() -> list[bytes]:
...     async with mqstore.aio.open(tempfile.mkdtemp(), "a") as store:
...         await store.append("orders", b"paid")
...         async with store.group("billing") as group:
...             messages = await group.poll("orders")
...             await group.commit()
...             return [message.body for message in messages]
>>> asyncio.run(main())
[b'paid']

Each call runs on a thread of the store's own, so the event loop is never blocked. A call that is
cancelled in between is finished first: an append is stored, and the messages of a ``poll`` are
given back to the group.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import operator
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar

import mqstore
from mqstore.errors import StoreClosedError, StoreLockedError
from mqstore.groups.delays import seconds_or_ever
from mqstore.groups.group import ConsumerGroup
from mqstore.groups.processing import Interrupted, check_handler
from mqstore.store import PAUSE_S, until
from mqstore.topic import Topic

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
    from datetime import datetime

    from mqstore._native import QueueInfo, StoredMessage
    from mqstore.config import ConfigLike, StoreConfig
    from mqstore.files.remote import IoCounts
    from mqstore.groups.delays import Seconds
    from mqstore.groups.in_flight import OnLoss
    from mqstore.groups.processing import Processed
    from mqstore.results import RecoveryReport

__all__ = ["AsyncConsumerGroup", "AsyncStore", "AsyncTopic", "Opening", "open"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound="AsyncStore | AsyncConsumerGroup", covariant=True)
_AT_ONCE = 64
_THREADS = 8
_LONGEST_PAUSE_S = 0.01
# Another process may have released a queue, though the log did not grow.
_CHECK_S = 0.5


async def _ended(future: asyncio.Future[Any]) -> None:
    """Waits for a call on a thread, however often the waiting task is cancelled."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])


class _Threaded:
    """An object whose calls run on a pool of threads."""

    def __init__(self, inner: Any, pool: ThreadPoolExecutor) -> None:  # noqa: ANN401
        self._inner = inner
        self._pool = pool

    def __repr__(self) -> str:
        return f"<Async{repr(self._inner)[1:]}"

    async def _run(self, call: Callable[[], _T], undo: Callable[[_T], object] | None = None) -> _T:
        """Runs a call to its end; if it is cancelled, undoes its outcome."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError as error:  # the pool is shut: see `AsyncStore.close`
            raise StoreClosedError("the store is closed") from error
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await _ended(future)
            if undo is not None and not future.cancelled() and future.exception() is None:
                undo(future.result())
            raise

    async def _each(self, make: Callable[[], Iterator[_T]]) -> AsyncIterator[_T]:
        """Items of an iterator, a number of them from each visit to a thread."""
        items = await self._run(make)

        def some() -> list[_T]:
            return [item for _, item in zip(range(_AT_ONCE), items, strict=False)]

        while found := await self._run(some):
            for item in found:
                yield item


def _awaitable(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """A method that runs the one of the same name on a thread."""

    @functools.wraps(method)
    async def call(self: _Threaded, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._run(functools.partial(method, self._inner, *args, **kwargs))

    return call


def _property(of: type, name: str) -> Any:  # noqa: ANN401 - of any property
    """The property of the same name of the object whose calls run on threads."""
    return property(operator.attrgetter(f"_inner.{name}"), doc=getattr(of, name).__doc__)


class AsyncStore(_Threaded):
    """A store for asyncio, made by ``open``; see ``mqstore.Store`` for the methods.

    ``scan`` and topics are iterated with ``async for``.
    """

    _inner: mqstore.Store

    append = _awaitable(mqstore.Store.append)
    append_many = _awaitable(mqstore.Store.append_many)
    append_batch = _awaitable(mqstore.Store.append_batch)
    append_arrow = _awaitable(mqstore.Store.append_arrow)
    flush = _awaitable(mqstore.Store.flush)
    wait_dispatched = _awaitable(mqstore.Store.wait_dispatched)
    get = _awaitable(mqstore.Store.get)
    get_by_id = _awaitable(mqstore.Store.get_by_id)
    read = _awaitable(mqstore.Store.read)
    offset_at = _awaitable(mqstore.Store.offset_at)
    query = _awaitable(mqstore.Store.query)
    topics = _awaitable(mqstore.Store.topics)
    queues = _awaitable(mqstore.Store.queues)
    groups = _awaitable(mqstore.Store.groups)
    refresh = _awaitable(mqstore.Store.refresh)
    scan_arrow = _awaitable(mqstore.Store.scan_arrow)
    versions = _awaitable(mqstore.Store.versions)

    path: Final[str] = _property(mqstore.Store, "path")
    mode: Final[Literal["r", "r+", "a"]] = _property(mqstore.Store, "mode")
    config: Final[StoreConfig] = _property(mqstore.Store, "config")
    warnings: Final[list[str]] = _property(mqstore.Store, "warnings")
    recovery: Final[RecoveryReport | None] = _property(mqstore.Store, "recovery")
    min_physical_offset: Final[int] = _property(mqstore.Store, "min_physical_offset")
    max_physical_offset: Final[int] = _property(mqstore.Store, "max_physical_offset")
    flushed_offset: Final[int] = _property(mqstore.Store, "flushed_offset")
    dispatched_offset: Final[int] = _property(mqstore.Store, "dispatched_offset")
    index_usable: Final[bool] = _property(mqstore.Store, "index_usable")
    io: Final[IoCounts | None] = _property(mqstore.Store, "io")

    async def wait(self, physical_offset: int, *, timeout_s: Seconds) -> bool:
        """Waits until the log goes beyond a physical offset; ``False`` after the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_or_ever(timeout_s, "timeout_s")
        look = functools.partial(self._inner.wait, physical_offset, timeout_s=0)
        pause = 0.001
        # No thread is held, however many tasks wait.
        while not await self._run(look):
            left = deadline - loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return True

    def scan(self, **filters: Any) -> AsyncIterator[StoredMessage]:  # noqa: ANN401
        """Iterates over the messages of the log; see ``mqstore.Store.scan``."""
        return self._each(lambda: iter(self._inner.scan(**filters)))

    def topic(self, name: str) -> AsyncTopic:
        """One topic as a whole; see ``mqstore.Store.topic``."""
        return AsyncTopic(self._inner.topic(name), self._pool)

    def group(
        self, name: str, /, *, begin: Literal["earliest", "latest"] | datetime | int = "earliest"
    ) -> Opening[AsyncConsumerGroup]:
        """A consumer group of this store; see ``mqstore.Store.group``."""

        async def opened() -> AsyncConsumerGroup:
            group = await self._run(
                functools.partial(self._inner.group, name, begin=begin), lambda group: group.close()
            )
            return AsyncConsumerGroup(group, self)

        return Opening(opened())

    async def close(self) -> None:
        """Closes the store after the calls that run; a second call does nothing."""
        with contextlib.suppress(StoreClosedError):
            try:
                await self._run(self._inner.close)
            finally:
                self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTopic(_Threaded):
    """One topic for asyncio; see ``mqstore.topic.Topic`` for the methods."""

    _inner: Topic

    latest = _awaitable(Topic.latest)

    name: Final[str] = _property(Topic, "name")

    async def queues(self) -> list[QueueInfo]:
        """The topic's queues, ascending; each has the bounds of its messages."""
        return await self._run(lambda: self._inner.queues)

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        return self._each(lambda: iter(self._inner))

    def since(
        self, when: datetime | int, *, tags: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Iterates over the messages stored at a time or later."""
        return self._each(lambda: self._inner.since(when, tags=tags))

    def from_offset(
        self, physical_offset: int, *, tags: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Iterates over the messages at a physical offset or behind it."""
        return self._each(lambda: self._inner.from_offset(physical_offset, tags=tags))


class AsyncConsumerGroup(_Threaded):
    """A consumer group for asyncio; see ``mqstore.ConsumerGroup`` for the methods."""

    _inner: ConsumerGroup

    def __init__(self, group: ConsumerGroup, store: AsyncStore) -> None:
        super().__init__(group, store._pool)  # noqa: SLF001 - of this module
        self._store = store

    ack = _awaitable(ConsumerGroup.ack)
    nack = _awaitable(ConsumerGroup.nack)
    commit = _awaitable(ConsumerGroup.commit)
    seek = _awaitable(ConsumerGroup.seek)
    lag = _awaitable(ConsumerGroup.lag)

    name: Final[str] = _property(ConsumerGroup, "name")
    retry_topic: Final[str] = _property(ConsumerGroup, "retry_topic")
    dead_letter_topic: Final[str] = _property(ConsumerGroup, "dead_letter_topic")

    async def close(self) -> None:
        """Closes the group; see ``mqstore.ConsumerGroup.close``."""
        with contextlib.suppress(StoreClosedError):
            await self._run(self._inner.close)

    async def poll(
        self,
        topic: str,
        *,
        max_messages: int = 32,
        tags: str | None = None,
        timeout_s: Seconds = 0,
        visibility_s: Seconds | None = None,
        on_loss: OnLoss = "warn",
    ) -> list[StoredMessage]:
        """Returns the next messages of a topic; see ``mqstore.ConsumerGroup.poll``.

        If it is cancelled, its messages are given back to the group.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_or_ever(timeout_s, "timeout_s")
        poll = functools.partial(
            self._inner.poll,
            topic,
            max_messages=max_messages,
            tags=tags,
            visibility_s=visibility_s,
            on_loss=on_loss,
        )
        while True:
            end = self._store._inner._readable_end  # noqa: SLF001 - a part of the store
            found = await self._run(poll, lambda got: self._inner.give_back(got, tags=tags))
            left = deadline - loop.time()
            if found or left <= 0 or max_messages == 0:
                return found
            await self._store.wait(end, timeout_s=min(left, _CHECK_S))

    async def messages(
        self, topic: str, *, tags: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Iterates over the messages of a topic; see ``mqstore.ConsumerGroup.messages``."""
        try:
            while True:
                found = await self.poll(topic, max_messages=1, tags=tags, timeout_s=_CHECK_S)
                for message in found:
                    yield message
                    self._inner.skip(message)
        except StoreClosedError:
            return

    async def process(
        self,
        topic: str,
        handler: Callable[[StoredMessage], object],
        **options: Any,  # noqa: ANN401 - those of `ConsumerGroup.process`
    ) -> Processed:
        """Awaits `handler` for each message; see ``mqstore.ConsumerGroup.process``.

        If it is cancelled, the messages in hand are finished, and the others stay for the next
        call.

        Args:
            topic: Name of the topic.
            handler: A coroutine function, or one that does not block; called with one message. As
                many run at a time as ``concurrency`` says.
            options: As for ``mqstore.ConsumerGroup.process``.
        """
        check_handler(handler, is_awaited=True)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        stop = options.get("stop")
        if stop is None:
            stop = options["stop"] = threading.Event()

        async def handled(message: StoredMessage) -> object:
            result = handler(message)
            return await result if inspect.isawaitable(result) else result

        def handle(message: StoredMessage) -> object:
            try:
                return asyncio.run_coroutine_threadsafe(handled(message), loop).result()
            except concurrent.futures.CancelledError:
                if task is None or not task.cancelling():
                    raise  # the handler's own failure
                # The loop ends, and the message did not fail. No other may begin.
                stop.set()
                raise Interrupted from None

        with ThreadPoolExecutor(1, "mqstore-process") as thread:
            work = functools.partial(self._inner.process, topic, handle, **options)
            future = loop.run_in_executor(thread, work)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                stop.set()
                await _ended(future)
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Opening(Coroutine[Any, Any, _C]):
    """A store or group that ``await`` or ``async with`` opens."""

    def __init__(self, opened: Coroutine[Any, Any, _C]) -> None:
        self._opening = opened
        self._opened: _C

    def __await__(self) -> Generator[Any, Any, _C]:
        return self._opening.__await__()

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 - of a coroutine
        """Goes on, as an event loop does."""
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - of a coroutine
        """Raises an exception where it waits, as an event loop does."""
        return self._opening.throw(*error)

    def close(self) -> None:
        """Ends it unopened."""
        self._opening.close()

    async def __aenter__(self) -> _C:
        self._opened = await self._opening
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        await self._opened.close()


def open(  # noqa: A001 - `mqstore.aio.open`, as `mqstore.open`
    path: str | os.PathLike[str],
    mode: Literal["r", "r+", "a"] = "r",
    *,
    config: ConfigLike = None,
    timeout: Seconds | None = None,
    storage: object = None,
    storage_options: Mapping[str, Any] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    at: datetime | int | None = None,
    snapshot: str | None = None,
) -> Opening[AsyncStore]:
    """Opens a store; see ``mqstore.open``.

    Returns:
        The store once it is awaited; also an asynchronous context manager.
    """
    given = {name: value for name, value in dict(locals()).items() if name != "timeout"}

    async def opened() -> AsyncStore:
        pool = ThreadPoolExecutor(_THREADS, "mqstore-aio")
        opening = _Threaded(None, pool)
        call = functools.partial(mqstore.store.open, **given)
        left = until(timeout)
        try:
            while True:
                try:
                    store = await opening._run(call, lambda store: store.close())  # noqa: SLF001
                    return AsyncStore(store, pool)
                except StoreLockedError:
                    if left() <= 0:
                        raise
                # No thread is held, so that a cancelled wait ends at once.
                await asyncio.sleep(min(PAUSE_S, left()))
        except BaseException:
            pool.shutdown(wait=False)
            raise

    return Opening(opened())
