"""Failed messages: retries in ``%RETRY%GROUP`` and dead letters in ``%DLQ%GROUP``, as in a broker.

They are written as ``AbstractSendMessageProcessor#consumerSendMsgBack`` does it: a retry waits in
the schedule topic for its delay. A store opened with ``"r"`` leaves a note in ``mqstore.failed``,
which the writer with ``delivery=True`` takes.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from mqstore import _native
from mqstore._native import decode
from mqstore._settings import DEFAULTS
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    FlushTimeoutError,
    InvalidMessageError,
    MessageNotFoundError,
    StoreClosedError,
    StoreError,
    StoreIOError,
    StorePoisonedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mqstore._native import Message, StoredMessage
    from mqstore.store import Store

MAX_ATTEMPTS = 16
"""RocketMQ's default (``SubscriptionGroupConfig.retryMaxTimes``)."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_T = TypeVar("_T")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FOLDER = "mqstore.failed"
_LONGEST_PROPERTIES = 2**15 - 1
_MOST_TIMES = 2**31 - 1
# Notes that wait longer are told: no writer takes them.
_LONG_S = 60
_NUMBERS = itertools.count()
_LOG = logging.getLogger("mqstore")


def levels_ms(store: Store) -> list[int]:
    """Milliseconds of each delay level, from level 1 on."""
    text = store.config.message_delay_level or str(DEFAULTS["message_delay_level"])
    return [int(level[:-1]) * _UNITS_MS[level[-1]] for level in text.split()]


def without(raw_properties: bytes, *names: bytes) -> bytes:
    """A property block without some properties."""
    pairs = [pair for pair in raw_properties.split(b"\x02") if pair]
    return b"".join(pair + b"\x02" for pair in pairs if pair.split(b"\x01", 1)[0] not in names)


class Failed(NamedTuple):
    """A message that was not consumed."""

    message: StoredMessage
    level: int
    """Delay level of the retry; 0 makes it a dead letter."""


def check_delivery(store: Store) -> None:
    """Refuses a writer that would leave retries where they are.

    Raises:
        ConfigError: ``delivery=False``, or a broker's store without ``delivery=True``.
    """
    if store.mode != "r" and not store._begin_delivery():  # noqa: SLF001 - of this package
        raise ConfigError(
            "delivery: this writer delivers no retries, and nothing was changed; open the store "
            "with StoreConfig(delivery=True)",
            "delivery",
        )


def send_back(store: Store, group: str, failed: Sequence[Failed]) -> int:
    """Makes each failed message a retry or a dead letter; durable on return.

    Returns:
        How many are dead letters.
    """
    if store.mode == "r":
        _leave_mail(store, group, failed)
        return sum(one.level == 0 for one in failed)
    check_delivery(store)
    longest = len(levels_ms(store))
    messages = left = [_sent_back(group, one, longest) for one in failed]
    while left:
        try:
            store.append_many(left)
            break
        except FlushTimeoutError as error:
            left = left[len(vars(error)["results"]) :]  # those are stored
    store.flush()
    return sum(message.topic != SCHEDULE_TOPIC for message in messages)


class _Row(msgspec.Struct):
    """A failed message in a note."""

    place: tuple[int, str, int, int]
    level: Annotated[int, msgspec.Meta(ge=0)]
    # Retention may delete the message before a writer takes the note.
    record: bytes = b""


class _Note(msgspec.Struct):
    """Failed messages of a group, as a reader leaves them."""

    group: Annotated[str, msgspec.Meta(pattern=r"\A[%|a-zA-Z0-9_-]{1,248}\Z")]
    # As they stand: each is judged by itself.
    messages: list[Any]
    version: int = 1


class Appended(NamedTuple):
    """How far ``append_but_refused`` came."""

    settled: int
    """Number of the first items, which are appended or refused."""
    refused: list[tuple[int, str]]
    """Those of them that are refused, by index, and why."""
    error: StoreError | None
    """The store's failure at the next item."""


def append_but_refused(
    store: Store, items: Sequence[_T], make: Callable[[_T], Message]
) -> Appended:
    """Appends the message made of each item but those that are refused; durable on return."""
    refused: list[tuple[int, str]] = []
    left: list[tuple[int, Message]] = []
    for index, item in enumerate(items):
        try:
            left.append((index, make(item)))
        except (InvalidMessageError, UnicodeError) as error:
            refused.append((index, str(error)))
    failure: StoreError | None = None
    while left and failure is None:
        try:
            store.append_many([message for _, message in left])
            left = []
        except FlushTimeoutError as error:
            left = left[len(vars(error)["results"]) :]  # those are stored
        except InvalidMessageError as error:
            at: int = vars(error)["index"]
            refused.append((left[at][0], str(error)))
            left = left[len(vars(error)["results"]) : at] + left[at + 1 :]
        except (StoreClosedError, StorePoisonedError):
            raise
        except StoreError as error:
            left = left[len(vars(error).get("results", ())) :]
            failure = error
    store.flush()
    settled = left[0][0] if left else len(items)
    return Appended(settled, [one for one in refused if one[0] < settled], failure)


def _sent_back(group: str, failed: Failed, longest: int) -> Message:
    message = failed.message
    # A reader may have had other levels; the longest one counts, as in a broker.
    level = min(failed.level, longest)
    known = message.properties
    added = {}
    if "RETRY_TOPIC" not in known:
        added["RETRY_TOPIC"] = message.topic
    if not known.get("ORIGIN_MESSAGE_ID", "").strip():
        added["ORIGIN_MESSAGE_ID"] = message.message_id
    topic, queue_id = f"%DLQ%{group}", 0
    if level:
        added |= {"DELAY": str(level), "REAL_TOPIC": f"%RETRY%{group}", "REAL_QID": "0"}
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    replaced = [name.encode() for name in (*added, "DELAY", "__CRC32#")]
    properties = without(message.raw_properties, *replaced)
    properties += "".join(f"{name}\x01{value}\x02" for name, value in added.items()).encode()
    if len(properties) > _LONGEST_PROPERTIES:
        _LOG.error(
            "group %s: message %s: its properties leave no room for those of a retry; it is a dead "
            "letter, as it is",
            group,
            message.message_id,
        )
        topic, queue_id = f"%DLQ%{group}", 0
        properties = without(message.raw_properties, b"DELAY", b"__CRC32#")
    return message.to_message(
        topic=topic,
        queue_id=queue_id,
        properties=properties,
        reconsume_times=min(message.reconsume_times + 1, _MOST_TIMES),
    )


def _leave_mail(store: Store, group: str, failed: Sequence[Failed]) -> None:
    folder = Path(store.path, _FOLDER)
    note = folder / f"{time.time_ns():020}-{os.getpid()}-{next(_NUMBERS)}.json"
    rows = [_Row(_place(message), level, message.record) for message, level in failed]
    try:
        _report_old_notes(folder)
        _write_note(note, _Note(group, rows))
    except OSError as error:
        with suppress(OSError):
            note.unlink(missing_ok=True)
        raise StoreIOError(
            f"write {folder}: {error.strerror}; the message stays in flight: a group needs a store "
            "that it can write to",
            error.errno,
            str(folder),
            "write",
        ) from error


def _write_note(note: Path, content: _Note) -> None:
    _native._replace_file(note, msgspec.json.encode(content))  # noqa: SLF001 - our own


def _report_old_notes(folder: Path) -> None:
    before_ns = time.time_ns() - _LONG_S * 10**9
    old = [note for note in folder.glob("*.json") if note.name[:20] < f"{before_ns:020}"]
    if old:
        _LOG.warning(
            "%s: %d notes of failed messages wait for longer than %d s: no writer with "
            "StoreConfig(delivery=True) takes them, and nothing is retried",
            folder,
            len(old),
            _LONG_S,
        )


def _place(message: StoredMessage) -> tuple[int, str, int, int]:
    return message.physical_offset, message.topic, message.queue_id, message.queue_offset


def take_mail(store: Store, errors: list[Exception]) -> int:
    """Sends back what readers left; returns how many messages.

    A note that cannot be taken holds no other; its error is added to `errors`. A crash between the
    append and the removal of a note sends its messages back again.
    """
    try:
        notes = sorted(Path(store.path, _FOLDER).iterdir())
    except FileNotFoundError:
        return 0
    except OSError as error:
        errors.append(error)
        return 0
    count = 0
    for note in notes:
        if note.suffix in {".json", ".taken"}:
            try:
                count += _take(store, note)
            except (StoreClosedError, StorePoisonedError):
                raise
            except (StoreError, OSError) as error:
                errors.append(error)
    return count


def _message(store: Store, row: _Row) -> StoredMessage:
    try:
        message = store.get(row.place[0])
        if _place(message) == row.place:
            return message
    except (LookupError, CorruptionError):
        pass  # deleted or damaged since
    if not row.record:
        raise MessageNotFoundError(f"another message or none lies at {row.place[0]}")
    message = decode(row.record)
    if _place(message) != row.place:
        raise MessageNotFoundError("its record is another message's")
    return message


def _take(store: Store, note: Path) -> int:
    failed, places = [], []
    try:
        content = msgspec.json.decode(note.read_bytes(), type=_Note)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _LOG.error("%s: no note of failed messages: %s; kept as .bad", note, error)
        note.rename(note.with_suffix(".bad"))
        return 0
    rows, group = content.messages, content.group
    for place, row in enumerate(rows):
        try:
            known = msgspec.convert(row, _Row)
            failed.append(Failed(_message(store, known), known.level))
            places.append(place)
        except (
            msgspec.ValidationError, LookupError, ValueError, ArithmeticError, CorruptionError
        ) as error:  # fmt: skip
            shown = row.get("place", row) if isinstance(row, dict) else row
            _LOG.error("%s: %s: cannot be retried: %s; kept as .bad", note, shown, error)
    # First, so that a folder that others own cannot give the same messages again and again.
    note = note.rename(note.with_suffix(".taken"))
    longest = len(levels_ms(store))
    done = append_but_refused(store, failed, lambda one: _sent_back(group, one, longest))
    for index, why in done.refused:
        shown = _place(failed[index].message)
        _LOG.error("%s: %s: cannot be retried: %s; kept as .bad", note, shown, why)
    kept = set(range(len(rows))).difference(places[: done.settled])
    kept.update(places[index] for index, _ in done.refused)
    if done.error is not None:
        content.messages = [rows[place] for place in sorted(kept)]
        _write_note(note, content)
        raise done.error
    if kept:
        note.rename(note.with_suffix(".bad"))
    else:
        note.unlink()
    return done.settled - len(done.refused)
