"""Delayed messages: RocketMQ's schedule topic, and its delivery by a writer of ours.

A delayed message waits in ``SCHEDULE_TOPIC_XXXX``, level `n` in queue `n - 1`, with its topic and
queue as properties. ``config/delayOffset.json`` holds the next entry of each level, so that a
broker (``ScheduleMessageService``) and a writer of ours go on where the other stopped.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
import weakref
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mqstore._native import Message, _load_config_json, _names_a_folder, _write_config_json
from mqstore.errors import (
    ConfigError,
    InvalidMessageError,
    StoreClosedError,
    StoreError,
    StorePoisonedError,
    damaged,
    expected,
)
from mqstore.groups.failed import SCHEDULE_TOPIC, append_but_refused, levels_ms, take_mail, without

if TYPE_CHECKING:
    from mqstore._native import AppendResult, StoredMessage
    from mqstore.store import Store

Seconds: TypeAlias = float | timedelta

_AT_ONCE = 64
_PAUSE_S = 0.1
# Longer spans count as so long: a ``timedelta`` has a limit.
_LONGEST_S = 2**40
_AFTER_ERROR_S = 1.0
# A broker removes them when a message is due; the checksum is made anew.
_ENDS_WITH_DELAY = (
    b"DELAY",
    b"TIMER_DELIVER_MS",
    b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS",
    b"__CRC32#",
)
_TOPIC = re.compile(r"(?=%RETRY%|%DLQ%)[%|\w-]{1,255}|[%|\w-]{1,127}", re.ASCII)
_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_LOG = logging.getLogger("mqstore")


def milliseconds(delay: Seconds, argument: str) -> int:
    """A time span in milliseconds.

    Raises:
        TypeError: Neither a number nor a ``timedelta``.
        ValueError: Below 0.
    """
    try:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay + 0.0
    except TypeError:
        wanted = "a timedelta or a number of seconds"
        raise TypeError(expected(argument, wanted, type(delay).__name__)) from None
    if not seconds >= 0:
        raise ValueError(expected(argument, "0 s or more", f"{seconds} s"))
    return round(min(seconds, _LONGEST_S) * 1000)


def seconds_or_ever(span: Seconds, argument: str) -> float:
    """A time span in seconds; infinity for ever."""
    return math.inf if span == math.inf else milliseconds(span, argument) / 1000


def level_for(levels: list[int], delay: Seconds, argument: str) -> int:
    """The level with the shortest delay that is not below `delay`.

    Raises:
        ValueError: No level is as long.
    """
    wanted = milliseconds(delay, argument)
    long_enough = [(ms, number) for number, ms in enumerate(levels, 1) if ms >= wanted]
    if not long_enough:
        limit = f"at most {_span(max(levels))}, the longest delay level"
        advice = "set message_delay_level for longer ones"
        raise ValueError(expected(argument, limit, _span(wanted), advice))
    return min(long_enough)[1]


def append_delayed(store: Store, delay: Seconds, given: dict[str, Any]) -> AppendResult:
    """Appends a message that is delivered after `delay`; `given` are arguments of ``append``."""
    wanted = milliseconds(delay, "delay")
    if wanted == 0:
        return store.append(given.pop("topic"), given.pop("body"), **given)
    settings = store.config
    if store.mode != "r" and not store._begin_delivery():  # noqa: SLF001 - of this package
        advice = "nothing was written; open the store with StoreConfig(delivery=True)"
        text = expected("delay", "a writer that delivers", "one that does not", advice)
        raise ConfigError(text, "delivery")
    levels = levels_ms(store)
    if wanted not in levels:
        longer = [ms for ms in levels if ms > wanted]
        known = f"one of the delay levels ({', '.join(map(_span, levels))})"
        hint = f"the next longer one is {_span(min(longer))}, and " if longer else ""
        advice = f"{hint}message_delay_level sets others"
        raise ValueError(expected("delay", known, _span(wanted), advice))
    level = levels.index(wanted) + 1
    topic, queue_id, properties = given["topic"], given["queue_id"], given["properties"]
    legal = _TOPIC.fullmatch(topic) if settings.validate_topic_names is not False else True
    if not legal or not _names_a_folder(topic.encode()):
        raise _refused("topic", "a name that a broker accepts", repr(topic[:64]))
    if queue_id < 0:
        raise _refused("queue_id", "0 or more", queue_id)
    if topic in {SCHEDULE_TOPIC, _HALF_TOPIC}:
        raise _refused("topic", "a topic whose messages can be delayed", topic)
    if given["delay_level"]:
        raise _refused("delay_level", "none beside delay", given["delay_level"])
    if isinstance(properties, bytes):
        raise _refused("properties", "a mapping beside delay", "bytes")
    given |= {
        "topic": SCHEDULE_TOPIC,
        "queue_id": level - 1,
        "delay_level": level,
        "keys": () if given["keys"] is None else given["keys"],
        "properties": {**(properties or {}), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)},
    }
    return store.append_many([Message(**given)])[0]


def _refused(field: str, wanted: str, got: object) -> InvalidMessageError:
    return InvalidMessageError(expected(field, wanted, got), field, "MESSAGE_ILLEGAL")


def _span(ms: int) -> str:
    return f"{ms} ms" if ms % 1000 else str(timedelta(milliseconds=ms))


class Delivery:
    """Delivers due messages of the schedule topic, and failed messages that readers left.

    Each step appends what is due, flushes the log, and then saves the levels' offsets: a crash in
    between delivers at most one step's messages again, at most 64 of a level.

    Args:
        store: A store opened for writing. It is not kept alive.
    """

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._path = Path(store.path, "config", "delayOffset.json")
        self._levels = levels_ms(store)
        # Messages of levels that the settings lack are delivered, too.
        waiting = {queue.queue_id + 1 for queue in store.queues(SCHEDULE_TOPIC)}
        levels = waiting.union(range(1, len(self._levels) + 1))
        self._next_due = dict.fromkeys(sorted(levels), 0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqstore-delivery", daemon=True)
        text = _load_config_json(self._path)
        try:
            self._table: dict[str, Any] = json.loads(text) if text else {}
            places = self._table.setdefault("offsetTable", {})
            self._places = {int(level): int(place) for level, place in places.items()}
            version = self._table.setdefault("dataVersion", {})
            version["counter"] = int(version.get("counter") or 0)
            version.setdefault("stateVersion", 0)
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            wanted = "an offsetTable of levels and entries, and a dataVersion with a counter"
            advice = "nothing is delivered until the file is mended or moved away"
            raise damaged(self._path, "json", wanted, error, advice) from None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its step."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        warned = ""
        pause = _PAUSE_S
        while not self._stopping.wait(pause):
            store = self._store()
            if store is None:
                return
            pause = _PAUSE_S
            try:
                self.step(store)
                warned = ""
            except StoreClosedError:
                return
            except (StoreError, OSError) as error:
                if str(error) != warned:
                    warned = str(error)
                    store._warn(f"delivery of delayed messages: {error}")  # noqa: SLF001 - its part
                if isinstance(error, StorePoisonedError):
                    return
                pause = _AFTER_ERROR_S
            except Exception as error:
                _LOG.exception("delivery of delayed messages")
                store._warn(  # noqa: SLF001 - its part
                    f"delivery of delayed messages ended until the store is opened again: {error!r}"
                )
                return
            del store

    def step(self, store: Store, now_ms: int | None = None) -> int:
        """Delivers what is due; returns how many messages were appended."""
        errors: list[Exception] = []
        count = take_mail(store, errors)
        for level in self._next_due:
            try:
                count += self._deliver(store, level, now_ms)
            except (StoreClosedError, StorePoisonedError):
                raise
            except (StoreError, OSError) as error:
                errors.append(error)  # the other levels go on
        if errors:
            raise errors[0]
        return count

    def _deliver(self, store: Store, level: int, at_ms: int | None) -> int:
        delay_ms = self._delay_ms(level)
        now_ms = _now_ms() if at_ms is None else at_ms
        # A clock that was set back does not hold messages longer than their delay.
        if now_ms < self._next_due[level] <= now_ms + delay_ms:
            return 0
        count = 0
        while not self._stopping.is_set():
            place = self._places.get(level, 0)
            read = store.read(SCHEDULE_TOPIC, level - 1, place, max_messages=_AT_ONCE)
            # After the read, else a message stored meanwhile would seem to be from the future.
            now_ms = _now_ms() if at_ms is None else at_ms
            due = []
            self._next_due[level] = 0
            for message in read.messages:
                due_ms = message.store_timestamp_ms + self._delay_ms(message.delay_level)
                if now_ms < due_ms <= now_ms + delay_ms:
                    self._next_due[level] = due_ms
                    break
                due.append(message)
            if due:
                place = due[-1].queue_offset + 1
            elif not read.messages:
                first, end = read.min_queue_offset, read.max_queue_offset
                if level in self._places and not first <= place <= end:
                    store._warn(  # noqa: SLF001 - its part
                        f"delayed messages of level {level}: {self._path} has entry {place}, the "
                        f"queue has {first} to {end}: nothing outside of it is delivered"
                    )
                place = min(max(place, first), end)
            if place == self._places.get(level, 0):
                break
            done = append_but_refused(store, due, _delivered)
            for index, why in done.refused:
                message = due[index]
                store._warn(  # noqa: SLF001 - its part
                    f"delayed message at physical offset {message.physical_offset} is not "
                    f"delivered: topic {message.real_topic} refuses it: {why}"
                )
            count += done.settled - len(done.refused)
            if done.error is not None:
                place = due[done.settled].queue_offset
            if place != self._places.get(level, 0):
                self._save(level, place)
            if done.error is not None:
                raise done.error
            if len(due) < len(read.messages) or not due:
                break
        return count

    def _delay_ms(self, level: int) -> int:
        return self._levels[min(max(level, 1), len(self._levels)) - 1]

    def _save(self, level: int, place: int) -> None:
        self._places[level] = place
        version = self._table["dataVersion"]
        version["counter"] += 1
        version["timestamp"] = _now_ms()
        self._table["offsetTable"] = {str(n): at for n, at in sorted(self._places.items())}
        _write_config_json(self._path, json.dumps(self._table))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _delivered(message: StoredMessage) -> Message:
    """A due message as its topic gets it (``ScheduleMessageService#messageTimeUp``).

    Raises:
        InvalidMessageError: No other topic waits for it.
    """
    # A message that is delivered to this topic would come again and again.
    if message.real_topic in {None, _HALF_TOPIC, SCHEDULE_TOPIC} or message.real_queue_id is None:
        raise _refused("properties", "REAL_TOPIC and REAL_QID of another topic", "none")
    properties = without(message.raw_properties, *_ENDS_WITH_DELAY)
    return message.to_message(
        topic=message.real_topic, queue_id=message.real_queue_id, properties=properties
    )
