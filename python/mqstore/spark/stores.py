"""The stores that a read is about, what planning must know of each, and bounds of its offsets."""

from __future__ import annotations

import errno
import functools
import glob
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import mqstore
from mqstore import _native
from mqstore._names import broker_of, nearest, table_names
from mqstore.errors import (
    ConfigError,
    MessageNotFoundError,
    NotAStoreError,
    StoreError,
    wrong_setting,
)
from mqstore.exchange.narrowing import has_all_queues, is_whole
from mqstore.files.layout import log_folders, log_paths
from mqstore.spark.roots import kept_path
from mqstore.spark.values import EARLIEST, LATEST, topics_matching
from mqstore.store import below, has_scheme, is_backup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from mqstore.files.remote_path import RemotePath
    from mqstore.spark.options import ReadOptions
    from mqstore.spark.values import QueueOffset

_log = logging.getLogger("mqstore.spark")

INT64_MAX = 2**63 - 1
QueuePart = tuple[str, int, int, int]
"""Topic, queue, and a half-open range of queue offsets."""

_GLOB = re.compile(r"[*?\[]")
_ENTRY_BYTES = 20
# A record that is read by itself takes a page of the disk at least.
_PAGE_BYTES = 4096
_SAMPLED_ENTRIES = 64
_MOST_LOOKUPS = 1_000
_MOST_FOUND = 100_000
# `String.trim` takes these away.
_TRIMMED = "".join(map(chr, range(33)))
# Looking at a store waits for its disk most of the time.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class StoreDir:
    """A store's directory.

    Attributes:
        path: The directory, absolute.
        broker: Value of the column ``broker``.
    """

    path: str
    broker: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """One commit log file.

    Attributes:
        base_offset: Physical offset of its first byte.
        first_store_timestamp_ms: Store time of its first record, ``None`` where it was not asked
            for or cannot be read.
    """

    base_offset: int
    first_store_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue.

    Attributes:
        topic: The topic.
        queue_id: Its number there.
        min_offset: The first queue offset that is held.
        max_offset: One past the last.
        mean_bytes: Bytes of a record, as far as a few entries tell.
        tag_share: Share of the entries whose code the tags may match, by the same entries.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    mean_bytes: int = 1024
    tag_share: float = 1.0

    @property
    def entry_cost(self) -> float:
        """Bytes that are read for an entry, and for its record if the tags may match."""
        return _ENTRY_BYTES + self.tag_share * max(self.mean_bytes, _PAGE_BYTES)


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts about a store for planning.

    Attributes:
        store: Its directory.
        begin: The first physical offset.
        end: One past the last.
        dispatched: From where on the queues do not tell what is in the log.
        file_size: Bytes of a commit log file.
        files: The files, in order.
        queues: The queues that matter to the options; ``None`` where none were asked for.
        found: Where the messages with the wanted keys lie, and the bytes that these have; ``None``
            where the index was not asked or had too much to say.
        topic_names: The names of all topics; ``None`` where no name was asked for.
        complete_to: Up to where each message of the chosen queues is known to have its entry.
    """

    store: StoreDir
    begin: int
    end: int
    dispatched: int
    file_size: int
    files: tuple[LogFile, ...]
    queues: tuple[Queue, ...] | None = None
    found: tuple[tuple[int, ...], int] | None = None
    topic_names: frozenset[str] | None = None
    complete_to: int = 0


def find_stores(options: ReadOptions) -> list[StoreDir]:
    """The stores that the paths name, each once, in their order.

    A directory is a store when a ``commitlog`` lies in it; of what a glob matches, the others are
    skipped.

    Raises:
        NotAStoreError: A path that is no store, or a glob that no store matches, and
            ``missingStores`` is ``fail``, or no store is left.
        MessageNotFoundError: The same for a backup that has no snapshot yet.
    """
    found: dict[str, None] = {}
    missing: list[StoreError] = []

    def find(path: str) -> None:
        try:
            found[kept_path(options, path)] = None
        except (NotAStoreError, MessageNotFoundError) as absent:
            missing.append(absent)

    for given in options.paths:
        if has_scheme(given):
            find(given.rstrip("/"))
            continue
        path = os.path.abspath(given)  # noqa: PTH100 - links are not followed, dots are resolved
        try:
            is_store = _is_store(path, options)
        except OSError as refused:
            if refused.errno != errno.ENAMETOOLONG:
                raise
            raise wrong_setting(
                "path", "a directory", repr(f"{given[:64]}..."), "too long"
            ) from None
        if is_store:
            find(path)
            continue
        if not _GLOB.search(given):
            reason = "no folder `commitlog` in it" if Path(path).exists() else "no such path"
            missing.append(NotAStoreError(f"{given}: not a store: {reason}", given, reason))
            continue
        matches = [one for one in sorted(glob.glob(path)) if _is_store(one, options)]  # noqa: PTH207
        if not matches:
            reason = "no directory that it matches holds a `commitlog`"
            missing.append(NotAStoreError(f"{given}: no store: {reason}", given, reason))
        for match in matches:
            find(match)
    for error in missing:
        if options.missing_stores == "fail" or (options.missing_stores == "drop" and not found):
            raise error
        _log.warning("%s; missingStores=%s goes on without it", error, options.missing_stores)
    stores = [StoreDir(path, options.broker_name or broker_of(path)) for path in _once(found)]
    if options.broker_name is None:
        _warn_of_one_name(stores)
    return stores


def _once(paths: Iterable[str]) -> list[str]:
    """The paths without further names of a store: links and mounts lead to one log."""
    by_file: dict[tuple[int, int], str] = {}
    for path in paths:
        if has_scheme(path):
            by_file[0, len(by_file)] = path
            continue
        log = Path(path, "commitlog")
        status = (log if log.is_dir() else Path(path)).stat()
        first = by_file.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            text = f"{path} and {first} are one store; it is read once, as {first}"
            log_once(logging.WARNING, text)
    return list(by_file.values())


def _warn_of_one_name(stores: Sequence[StoreDir]) -> None:
    by_name: dict[str, str] = {}
    for one in stores:
        first = by_name.setdefault(one.broker, one.path)
        if first != one.path:
            text = f"column broker has {one.broker!r} for both {first} and {one.path}"
            advice = "to tell their rows apart, read each with its brokerName"
            log_once(logging.WARNING, f"{text}; {advice}")


@functools.cache
def log_once(level: int, text: str) -> None:
    """Logs once in a process: a stream finds its stores again for each batch."""
    _log.log(level, text)


def _is_store(path: str, options: ReadOptions) -> bool:
    # With a configuration the log may lie elsewhere; opening tells.
    if (Path(path) / "commitlog").is_dir() or is_backup(path):
        return True
    return options.config is not None and Path(path).is_dir()


def summarize_all(options: ReadOptions) -> list[Summary]:
    """Facts about every store for planning, in order."""
    stores = find_stores(options)
    with ThreadPoolExecutor(max(min(_THREADS, len(stores)), 1)) as threads:
        return list(threads.map(lambda one: summarize(one, options), stores))


def summarize(store_dir: StoreDir, options: ReadOptions) -> Summary:
    """Facts about a store for planning, only those that the options need."""
    reads_time = {options.starting_timestamp_ms, options.ending_timestamp_ms} != {None}
    root = options.root(store_dir.path)
    with mqstore.open(root, config=options.config) as store:
        try:
            store._check_end(options.topics)  # noqa: SLF001 - our own
        except mqstore.CorruptionError as error:
            if options.on_error == "fail":
                raise
            _log.warning("%s", error)
        files = tuple(
            LogFile(base, first_time(store, base) if reads_time else None)
            for base in log_paths(log_folders(root, store.config))
        )
        topics = _topics(store, options)
        begin, end = store.min_physical_offset, store.max_physical_offset
        # They may show damage, of which the offset below then knows.
        queues = None if topics is None else _queues(store, store_dir, topics, options)
        names = topic_names(store, options)
        # Behind a URL it costs requests.
        dispatched = begin if topics is None else min(store.dispatched_offset, end)
        complete_to = 0 if queues is None else _complete_to(store, root, queues, names, options)
        return Summary(
            store=store_dir,
            begin=begin,
            end=end,
            dispatched=dispatched,
            file_size=store.config.mapped_file_size_commit_log or 0,
            files=files,
            queues=queues,
            found=_find_in_index(store, options),
            topic_names=names,
            complete_to=min(complete_to, dispatched),
        )


def topic_names(store: mqstore.Store, options: ReadOptions) -> frozenset[str] | None:
    """The names of a store's topics, if the options name some."""
    if options.topics is None and options.topic_pattern is None:
        return None
    return frozenset(store.topics()) | table_names(store, "topics.json", "topicConfigTable")


def first_time(store: mqstore.Store, base: int) -> int | None:
    """Store time of the record at `base`; ``None`` where none can be read."""
    try:
        return store.get(base).store_timestamp_ms
    except StoreError:
        return None


def _topics(store: mqstore.Store, options: ReadOptions) -> Sequence[str] | None:
    """The topics whose queues matter; ``None`` where no queue does."""
    named = {one.topic for one in (*options.starts, *options.ending_offsets)}
    if options.topics is not None:
        chosen = set(options.topics)
    elif options.topic_pattern is not None:
        chosen = options.topics_of(store.topics())
    elif options.queues is not None:
        chosen = {topic for topic, _ in options.queues}
    elif options.access_path == "consumequeue" or (
        options.selects_tags and options.access_path == "auto" and options.on_error != "rows"
    ):
        chosen = set(store.topics())
    elif not named:
        return None
    else:
        return sorted(named)
    return sorted(chosen | named)


def _queues(
    store: mqstore.Store, store_dir: StoreDir, topics: Sequence[str], options: ReadOptions
) -> tuple[Queue, ...]:
    tags = options.tags.split("||") if options.selects_tags and options.tags else None
    codes = None if tags is None else {_native.tags_code(tag.strip(_TRIMMED)) for tag in tags}
    return tuple(
        Queue(
            info.topic,
            info.queue_id,
            info.min_offset,
            info.max_offset,
            *_sample(options.root(store_dir.path), info, codes),
        )
        for topic in topics
        for info in store.queues(topic)
    )


def _complete_to(
    store: mqstore.Store,
    root: str | RemotePath,
    queues: Sequence[Queue],
    names: frozenset[str] | None,
    options: ReadOptions,
) -> int:
    """Up to where each message of the chosen queues has its entry, as far as it is proved.

    Entries are written in the order of the log, so that a queue has all before its last one.
    """
    if is_whole(store):
        return INT64_MAX
    topics = options.topics_of(names) if options.topics is None and names else options.topics
    listed = {(queue.topic, queue.queue_id) for queue in queues}
    wanted = {(topic, one) for topic, ids in options.queues or () for one in ids}
    if not (wanted or {topic for topic, _ in listed}.issuperset(topics or ())):
        return 0
    if not (wanted <= listed if wanted else has_all_queues(store, {"topics": topics}, listed)):
        return 0
    chosen = [queue for queue in queues if not wanted or (queue.topic, queue.queue_id) in wanted]
    return min((_end_of(root, queue) for queue in chosen), default=0)


def _end_of(root: str | RemotePath, queue: Queue) -> int:
    """Where the record of a queue's last entry ends; 0 where its files do not tell."""
    folder = below(root, "consumequeue", queue.topic, str(queue.queue_id))
    span = max(queue.max_offset - _SAMPLED_ENTRIES, queue.min_offset), queue.max_offset
    try:
        entries = pa.table(_native.scan_queue(folder, *span)).to_pylist()
    except (StoreError, pa.ArrowException):
        return 0
    return max((one["physical_offset"] + one["store_size"] for one in entries[-1:]), default=0)


def _sample(
    root: str | RemotePath, info: mqstore.QueueInfo, codes: AbstractSet[int] | None
) -> tuple[int, float]:
    """Mean bytes of a queue's records and the share of its entries with one of `codes`."""
    folder = below(root, "consumequeue", info.topic, str(info.queue_id))
    begins = [info.min_offset]
    if codes is not None:
        middle = (info.min_offset + info.max_offset) // 2
        begins += [middle, max(info.max_offset - _SAMPLED_ENTRIES, 0)]
    spans = [(begin, min(begin + _SAMPLED_ENTRIES, info.max_offset)) for begin in begins]
    try:
        parts = [pa.table(_native.scan_queue(folder, *span)) for span in spans]
    except (StoreError, pa.ArrowException):
        return 1024, 1.0
    found = pa.concat_tables(parts)
    sizes = found.column("store_size").to_pylist()
    if not sizes:
        return 1024, 1.0
    mean = sum(sizes) // len(sizes)
    if codes is None:
        return mean, 1.0
    matching = sum(code in codes for code in found.column("tags_code").to_pylist())
    return mean, max(matching, 1) / len(sizes)


def _find_in_index(
    store: mqstore.Store, options: ReadOptions
) -> tuple[tuple[int, ...], int] | None:
    if options.keys is None or options.access_path not in ("auto", "index"):
        return None
    must = options.access_path == "index"
    # By no name it finds topics, too, whose queues are lost.
    topics: Sequence[str | None] = (None,) if options.topics is None else options.topics
    if not must and (not store.index_usable or len(topics) * len(options.keys) > _MOST_LOOKUPS):
        return None
    places: dict[int, int] = {}
    for topic in topics:
        for key in options.keys:
            most = 2**31 - 1 if must else _MOST_FOUND
            answer = store.query(topic, key, max_messages=most)
            if answer.truncated or not answer.complete:
                return None
            chosen = options.topics_of({one.topic for one in answer})
            places |= {one.physical_offset: one.store_size for one in answer if one.topic in chosen}
    return tuple(sorted(places)), sum(places.values())


def check_topics(
    topics: Sequence[str] | None, known: AbstractSet[str], options: ReadOptions
) -> None:
    """Warns of topics that no store has, which is an error with ``strict``.

    Args:
        topics: The topics that the caller named.
        known: The topics of all stores.
        options: The options.

    Raises:
        ConfigError: ``strict`` is on.
    """
    complaints = [
        (f"option topics: no store has topic {name!r}{nearest(name, known)}", "topics")
        for name in sorted(set(topics or ()) - known)
    ]
    pattern = options.topic_pattern
    if pattern is not None and not topics_matching(pattern, known):
        complaints.append(
            (f"option topicPattern: no topic of a store matches {pattern!r}", "topicPattern")
        )
    for text, option in complaints:
        if options.strict:
            raise ConfigError(text, option)
        _log.warning("%s; only what no queue names is read of it (strict=true refuses it)", text)


def bounds_of(store: Summary, options: ReadOptions) -> tuple[QueuePart, ...]:
    """The bounds of queue offsets that the options set in a store, words resolved."""
    known = {(queue.topic, queue.queue_id): queue for queue in store.queues or ()}
    bounds = {(topic, one): [0, INT64_MAX] for topic, ids in options.queues or () for one in ids}
    for side, (option, given) in enumerate(options.limits):
        for one in given:
            for named, queue in known.items():
                if not one.names(*named) or (options.queues is not None and named not in bounds):
                    continue
                pair = bounds.setdefault(named, [0, INT64_MAX])
                pair[side] = _resolve(store, option, queue, one, options)
    for (topic, queue_id), (begin, end) in bounds.items():
        if begin > end:
            raise ConfigError(
                f"{store.store.path}: topic {topic}, queue {queue_id}: startingOffsets ({begin}) "
                f"lies behind endingOffsets ({end})",
                "startingOffsets",
            )
    return tuple((*named, begin, end) for named, (begin, end) in bounds.items())


def _resolve(
    store: Summary, option: str, queue: Queue, given: QueueOffset, options: ReadOptions
) -> int:
    if given.timestamp_ms is not None:
        with mqstore.open(options.root(store.store.path), config=options.config) as opened:
            return opened.offset_at(queue.topic, queue.queue_id, given.timestamp_ms)
    queue_offset = given.queue_offset
    if queue_offset == EARLIEST:
        return queue.min_offset
    if queue_offset == LATEST:
        return queue.max_offset
    inside = queue.min_offset <= queue_offset <= queue.max_offset
    if not inside and options.fail_on_data_loss:
        raise ConfigError(
            f"option {option}: {store.store.path}: topic {queue.topic}, queue {queue.queue_id} "
            f"holds offsets {queue.min_offset} to {queue.max_offset}, not {queue_offset}; "
            "failOnDataLoss=false takes what is there",
            option,
        )
    return queue_offset


def check_queues_known(stores: Sequence[Summary], options: ReadOptions) -> None:
    """Refuses offsets of queues that are in no store: they are misspelt, unless none is there."""
    if not stores:
        return
    known = {(one.topic, one.queue_id) for store in stores for one in store.queues or ()}
    for option, given in options.limits:
        for one in given:
            if any(one.names(*queue) for queue in known):
                continue
            topics = sorted({topic for topic, _ in known})
            if one.topic in topics:
                ids = sorted(queue_id for topic, queue_id in known if topic == one.topic)
                there = f"; its queues are {', '.join(map(str, ids))}"
            else:
                there = nearest(one.topic, topics) or "; no store has the topic"
            queue = f", queue {one.queue_id}" if one.queue_id >= 0 else ""
            text = f"option {option}: no store has topic {one.topic}{queue}{there}"
            raise ConfigError(text, option)
