"""The function ``sync``."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
import zlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import mqstore
from mqstore.backup.offsets import OFFSET_FILES, offsets_in_database, within
from mqstore.backup.redacting import RedactedFile, zeros_of
from mqstore.backup.small_files import QUEUES, left_out_names, small_files
from mqstore.backup.snapshot import (
    BATCH,
    File,
    Loaded,
    Snapshot,
    can_keep,
    check_ranges,
    day_ms,
    days,
    document_name,
    ids,
    kept_bytes,
    load,
    log_files,
    lost,
    newest_first,
    ranges_of,
    shown,
    time_ms_of,
    write,
)
from mqstore.backup.source import (
    ENTRY_BYTES,
    HEADER_BYTES,
    PIECE,
    Pace,
    SourceFile,
    cut_entries,
    cut_header,
    folders_below,
)
from mqstore.backup.target import (
    digest_of,
    existing,
    get_objects,
    json_bytes,
    object_name,
    packed,
    target_of,
)
from mqstore.backup.upkeep import size_if_kept
from mqstore.backup.writing import SMALL, ObjectWriter
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    MessageNotFoundError,
    StoreError,
    wrong_setting,
)
from mqstore.files.layout import numbered
from mqstore.files.log_files import log_folders, log_paths
from mqstore.results import _Report
from mqstore.store import has_scheme, settings_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mqstore.backup.target import Target
    from mqstore.config import ConfigLike


_MOST_RANGES = 256
"""Ranges of a growing file, of which then the small ones are copied again as one."""
_LEAST_SAME = 64
"""Bytes at the log's begin that prove that it is the one of the backup."""


@dataclass(frozen=True, slots=True)
class SyncReport(_Report):
    """Result of ``mqstore.sync``.

    Attributes:
        path: The store.
        target: The backup.
        snapshot: Id of the snapshot that has the store now.
        is_new: Whether it was written; ``False`` where nothing had changed.
        timeline: The log that it belongs to.
        end_offset: Physical offset of its log's end.
        new_bytes: Bytes of the store that were new.
        written_bytes: Bytes written to the target, documents too.
        left_out: Files of the store that it lacks, a line for each kind, and those of the log that
            the store has lost, which stay as they were.
        damaged: Newer snapshots that cannot be read, a line for each; they were passed over.
    """

    path: str
    target: str
    snapshot: str
    is_new: bool
    timeline: str
    end_offset: int
    new_bytes: int
    written_bytes: int
    left_out: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def sync(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    config: ConfigLike = None,
    verify: bool = False,
    compress: Literal["zstd"] | None = None,
    redact: Literal["bodies"] | None = None,
    bytes_per_s: int | None = None,
    new_timeline: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> SyncReport:
    """Copies what is new of a store to a backup, and writes a snapshot of this moment.

    A broker may run: no lock is taken, and the store is only read. A sync that is killed leaves
    nothing that a reader finds; the next one goes on. Two at once do each other no harm.

    Args:
        path: The store's root folder.
        target: The backup: a folder, or a URL such as ``s3://bucket/prefix``; an empty one is
            begun.
        config: As for ``mqstore.open``; it is kept in the snapshot.
        verify: Reads back what was written, and copies again what the backup lost of files that the
            store still has.
        compress: ``"zstd"`` compresses the objects that this sync writes, and needs
            ``mqstore[parquet]`` here and where the backup is read. Older objects stay as they are,
            and an mqstore that reads no compressed ones refuses the backup from then on.
        redact: ``"bodies"`` keeps zeros in the place of each body, for a backup that others may
            read. It is fixed by the first sync, and an older mqstore refuses such a backup.
        bytes_per_s: Most bytes of the store to read in a second; ``None`` for no limit.
        new_timeline: Begins a new timeline with a log that has no byte of the backup's log, instead
            of a ``ConfigError``.
        storage_options: Options of the object store of a URL, as for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: The target has the backup of another store, or other files; or the store's log
            does not reach the backup's, as that of an empty store; `compress` is unknown,
            or `redact` is not that of the backup.
        UnsupportedError: The target cannot write an object only if it is missing, or its format is
            newer than this mqstore.
        CorruptionError: With `verify`: the target gave back something else.
        StoreError: The log was cut while it was copied; no snapshot was written.
        StoreIOError: A file or an object cannot be read or written.

    Examples:
        >>> import mqstore, tempfile
        >>> folder, backup = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> with mqstore.open(folder, "a", config={"mapped_file_size_commit_log": 65536}) as store:
        ...     _ = store.append("orders", b"one")
        >>> mqstore.sync(folder, backup).is_new, mqstore.sync(folder, backup).is_new
        (True, False)
    """
    if has_scheme(path):
        raise ValueError(f"path: expected a folder of this machine, got the URL {path!s}")
    if compress not in {None, "zstd"}:
        raise wrong_setting("compress", "zstd", repr(compress))
    if redact not in {None, "bodies"}:
        raise wrong_setting("redact", "bodies", repr(redact))
    packed(b"", compress)  # a package that is missing is named before anything is written
    to, began_s = target_of(target, storage_options), time.monotonic()
    for _ in range(5):
        objects = ObjectWriter(to, began_s, verify=verify, compress=compress)
        with contextlib.ExitStack() as opened:
            given = verify, redact, new_timeline, Pace(bytes_per_s), opened
            report = _Sync(Path(path), to, config, objects, *given).run()
        if report is not None:
            return report
    text = f"{path}, {to.url}: files of the log or objects were deleted during five syncs"
    raise StoreError(f"{text}; no snapshot was written: end `mqstore prune` there, and sync again")


@dataclass
class _Sync:
    """One sync."""

    _root: Path
    _target: Target
    _config: ConfigLike
    _objects: ObjectWriter
    _verify: bool
    _redact: str | None
    _new_timeline: bool
    _pace: Pace
    _opened: contextlib.ExitStack
    _live: mqstore.Store | None = None
    _log_files: Collection[Path] = ()
    _damaged: list[str] = field(default_factory=list)
    _skipped: list[str] = field(default_factory=list)
    _unsure: list[tuple[Path, int, int, int]] = field(default_factory=list)
    _flushed: int = 0
    _newest: str = ""
    _lost: set[str] = field(default_factory=set)
    _known: Mapping[str, File] = field(default_factory=dict)
    _base: Loaded | None = None

    def run(self) -> SyncReport | None:
        """Copies, and writes the snapshot if something is new.

        Returns ``None`` if what it needs was deleted meanwhile: in the backup by `prune`, or in the
        store by its retention.
        """
        # Each step before the next: what is copied first leads only to what is copied later.
        small = dict(small_files(self._root, self._skipped, redact=self._redact))
        with mqstore.open(self._root, config=self._config) as store:
            now_ms = time.time_ns() // 1_000_000
            end, self._flushed = store.max_physical_offset, store.flushed_offset
            queues = {(q.topic, str(q.queue_id)): q for q in store.queues()}
            settings = self._settings_of(store)
            offsets = offsets_in_database(self._root, store)
        if self._redact:
            self._live = self._opened.enter_context(mqstore.open(self._root, config=self._config))
        compress = self._objects.compress
        target = existing(self._target, make=True, compress=compress, redact=self._redact)
        known_days = days(target)
        self._base = base = self._load_base(known_days)
        before = {*ids(target)} if base is None else set()
        now_ms = max(now_ms, time_ms_of(self._newest) + 1 if self._newest else 0)
        paths = log_paths(log_folders(self._root, self._config))
        begin, self._log_files = min(paths, default=end), {*paths.values()}
        if offsets is not None:
            small["config/consumerOffset.json"] = offsets
        ends = {place: queue.max_offset for place, queue in queues.items()}
        for name in OFFSET_FILES:
            if name in small:
                small[name] = within(small[name], ends)
        try:
            files, fork = self._log(paths, begin, end, now_ms)
        except FileNotFoundError:
            return None
        batches = {place for place, queue in queues.items() if queue.kind == "BatchCQ"}
        files |= self._queues(batches, end, now_ms, keep=fork is None)
        slots = settings.get("max_hash_slot_num", 0)
        files |= self._index(slots, begin, end, now_ms, keep=fork is None)
        files |= {name: self._whole(name, content) for name, content in small.items()}
        self._objects.flush(everything=True)
        files = {name: self._finished(name, file) for name, file in files.items()}
        self._objects.flush(everything=True)
        self._skipped += [f"{name!a}: no name of a store" for name in files if not can_keep(name)]
        files = {name: file for name, file in files.items() if can_keep(name)}
        skipped = {*self._skipped, *(zeros_of(base.snapshot, files) if base else ())}
        left_out = (*left_out_names(self._root, redact=self._redact), *sorted(skipped))
        timeline = secrets.token_hex(4)
        if base is not None:
            files = shown(files, day_ms(known_days[0]))
            now = files, end, json.loads(json_bytes(settings))
            same = (base.files, base.snapshot.end_offset, base.settings) == now
            if same and base.snapshot.id == self._newest:
                return self._report(base.snapshot, is_new=False, left_out=left_out)
            if fork is None:
                timeline = base.snapshot.timeline
        snapshot = Snapshot(
            "", datetime.fromtimestamp(now_ms / 1000, UTC), timeline, begin, end, self._flushed,
            fork, sum(map(kept_bytes, files.values())), self._objects.new_bytes, left_out,
            os.path.abspath(self._root), self._redact,  # noqa: PTH100 - no link is followed
        )  # fmt: skip
        new = Loaded(snapshot, files, settings)
        if base is not None:
            new.base, new.state = base.base, base.state
        changed = sum(self._known.get(name) != file for name, file in files.items())
        needed = [] if base is None else [document_name(base.snapshot.id)]
        if not self._objects.is_whole(needed):
            return None
        self._check_log(end)
        snapshot = replace(snapshot, id=write(self._target, new, changed, compress))
        # Another store may have begun the backup meanwhile.
        is_alone = base is not None or {*ids(target)} - before == {snapshot.id}
        if not is_alone or not self._objects.is_whole([*needed, object_name(new.base)]):
            self._target.remove([document_name(snapshot.id)])
            return None
        if self._verify:
            load(self._target, snapshot.id)
        return self._report(snapshot, is_new=True, left_out=left_out)

    def _load_base(self, known_days: Sequence[str]) -> Loaded | None:
        """The newest snapshot that can be read."""
        for name in newest_first(self._target, known_days):
            self._newest = self._newest or name
            try:
                loaded = load(self._target, name)
            except CorruptionError as error:
                self._damaged.append(error.message)
                continue
            except MessageNotFoundError:
                continue  # pruned meanwhile
            self._known = loaded.files
            if self._verify:
                self._lost = lost(self._target, loaded.files)
            return loaded
        return None

    def _check_log(self, end: int) -> None:
        """Refuses a log that was cut while it was copied: it would be of two logs."""
        with mqstore.open(self._root, config=self._config) as store:
            is_cut = store.max_physical_offset < end
        for path, begin, size, crc in self._unsure:
            with contextlib.suppress(FileNotFoundError), self._open(path) as file:
                is_cut = is_cut or zlib.crc32(file.read(begin, begin + size)) != crc
        if is_cut:
            text = f"{self._root}: the log was cut while it was copied"
            raise StoreError(f"{text}; no snapshot was written: sync again")

    def _report(self, at: Snapshot, *, is_new: bool, left_out: tuple[str, ...]) -> SyncReport:
        return SyncReport(
            os.fspath(self._root), self._target.url, at.id, is_new, at.timeline, at.end_offset,
            self._objects.new_bytes, self._objects.written_bytes, left_out, tuple(self._damaged),
        )  # fmt: skip

    def _settings_of(self, store: mqstore.Store) -> dict[str, Any]:
        """Settings that the files of a snapshot do not prove."""
        given = settings_of(self._config)
        folders = ("store_path_commit_log", "read_only_commit_log_store_paths")
        kept = {name: value for name, value in given.items() if name not in folders}
        if any((self._root / "index").glob("[0-9]*")):
            names = ("max_hash_slot_num", "max_index_num")
            kept |= {name: getattr(store.config, name) for name in names}
        return kept

    def _before(self, name: str, path: Path | None = None) -> File | None:
        """The known file, unless it is to be copied again: one that was gone or changed."""
        known = self._known.get(name)
        if known is None or known.gone_ms or name in self._lost:
            return None
        if path is not None and known.manifest and self._base is not None:
            is_same = path.stat().st_ctime * 1000 < self._base.snapshot.time_ms
            with contextlib.suppress(CorruptionError):  # copied again, as if it had changed
                if not is_same:
                    size = size_if_kept(self._target, known, path, self._open, by_digest=True)
                    is_same = size is not None
            return known if is_same else None
        return known

    def _open(self, path: Path) -> SourceFile:
        if self._live is not None and path in self._log_files:
            return RedactedFile(path, self._pace, self._live, self._skipped)
        return SourceFile(path, self._pace)

    def _whole(self, name: str, content: bytes) -> File:
        """Keeps a file whose content is replaced as a whole."""
        before = self._before(name)
        digest = digest_of(content)
        ranges = ((0, len(content), digest, 0),) if content else ()
        if content and (before is None or before.ranges != ranges):
            self._objects.new_bytes += len(content)
            self._objects.add(content)
            self._objects.flush()
        return File(len(content), len(content), ranges=ranges)

    def _finished(self, name: str, file: File) -> File:
        """A file with the ranges that were added to it, in a manifest if it is closed."""
        added = self._objects.ranges.pop(name, None)
        if added:
            file = replace(file, ranges=tuple(sorted((*file.ranges, *added))))
        check_ranges(name, file.ranges, file.end)
        if file.manifest == "-":
            rows = json_bytes(file.ranges)
            file = replace(file, ranges=(), manifest=self._objects.add(rows))
        return file

    def _grown(self, file: SourceFile, known: File | None) -> File | None:
        """The known ranges of a file that only grows; ``None`` if it has other bytes now."""
        if known is None or known.end > file.length or known.length != file.length:
            return None
        if file.crc(known.end) != known.crc:
            return None
        ranges = ranges_of(self._target, known)
        if len(ranges) > _MOST_RANGES and known.manifest == "":
            while ranges and ranges[-1][1] < SMALL:
                ranges = ranges[:-1]
        return replace(known, ranges=ranges, manifest="")

    def _closed(self, path: Path, known: File | None) -> File | None:
        """A closed file that is kept already."""
        if known is None or not known.manifest:
            return None
        with self._open(path) as file:
            # `_before` has compared one that changed; a redacted one takes long to read.
            is_same = self._live is not None or file.crc(known.end) == known.crc
            return known if is_same and file.length == known.length else None

    def _log(
        self, paths: Mapping[int, Path], begin: int, end: int, now_ms: int
    ) -> tuple[dict[str, File], int | None]:
        """Copies the log; returns its files, and where it left the timeline before."""
        known = log_files(self._known)
        fork = self._fork(paths, known, begin, end)
        if fork is not None:
            known = self._before_fork(paths, known, fork)
        files = {
            f"commitlog/{at:020}": replace(file, gone_ms=file.gone_ms or now_ms)
            for at, file in known.items()
            if at < begin
        }
        last = max(paths, default=0)
        for at, kept in known.items() if fork is None else ():
            name = f"commitlog/{at:020}"
            if begin <= at < last and (at not in paths or paths[at].stat().st_size < kept.length):
                files[name] = kept
                self._skipped.append(f"{name}: missing or cut in the store, kept as it was before")
        for at, path in paths.items():
            name = f"commitlog/{at:020}"
            if (at >= end and at > begin) or name in files:
                continue
            before = self._before(name, path) and known.get(at)
            closed = self._closed(path, before) if fork is None and at != last else None
            if closed is not None:
                files[name] = closed
                continue
            with self._open(path) as file:
                is_closed = at != last and at + file.length <= end
                grown = self._grown(file, before)
                ranges = grown.ranges if grown else ()
                written = ranges[-1][0] + ranges[-1][1] if ranges else 0
                for place, content in file.pieces(written, min(file.length, end - at)):
                    self._objects.keep(name, place, content)
                    written = place + len(content)
                    if at + written > self._flushed:
                        self._unsure.append((path, place, len(content), zlib.crc32(content)))
                manifest = "-" if is_closed else ""
                files[name] = File(file.length, written, file.crc(written), ranges, manifest)
        return files, fork

    def _fork(
        self, paths: Mapping[int, Path], known: Mapping[int, File], begin: int, end: int
    ) -> int | None:
        """Where the log differs from the one that is kept; ``None`` where it goes on from it."""
        base = self._base
        if base is None or base.snapshot.begin_offset == base.snapshot.end_offset:
            return None
        last, was = max(known, default=0), base.snapshot.end_offset
        if not known or begin >= was or begin == end:
            if self._new_timeline:
                return begin
            text = f"expected the backup's log, which ends at {was}, got one from {begin} to {end}"
            raise ConfigError(
                f"path: {text}; nothing was copied: mount the right store, or begin a new timeline "
                "with --new-timeline (new_timeline=True)", "path",
            )  # fmt: skip
        if last in paths and end >= was:
            with self._open(paths[last]) as file:
                if self._grown(file, known[last]) is not None:
                    return None
        at, shared = begin, sorted(set(known) & set(paths))
        for number in reversed(shared):
            kept_end = known[number].end
            with self._open(paths[number]) as file:
                if kept_end >= _LEAST_SAME and file.crc(kept_end) == known[number].crc:
                    # Its end proves all before it.
                    at, shared = number + kept_end, [n for n in shared if n > number]
                    break
        for number in shared:
            with self._open(paths[number]) as file:
                for place, size, digest, where in ranges_of(self._target, known[number]):
                    kept = get_objects(self._target, [digest])[0][where : where + size]
                    there = file.read(place, min(place + size, max(0, end - number)))
                    if kept != there:
                        pairs = zip(kept, there, strict=False)
                        same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(there))
                        at = number + place + same
                        break
                else:
                    at = number + known[number].end
                    continue
            break
        if at < begin + _LEAST_SAME:
            text = f"{self._target.url} has the backup of another store, whose log begins otherwise"
            raise ConfigError(f"target: {text}; nothing was copied: take an empty target", "target")
        return min(at, end)

    def _before_fork(
        self, paths: Mapping[int, Path], known: Mapping[int, File], fork: int
    ) -> dict[int, File]:
        """The known ranges of the log before a fork."""
        kept: dict[int, File] = {}
        for at, file in known.items():
            if at >= fork or fork <= min(paths, default=fork):
                continue
            if at + file.length > fork:
                ranges = [r for r in ranges_of(self._target, file) if at + r[0] + r[1] <= fork]
                written = ranges[-1][0] + ranges[-1][1] if ranges else 0
                with self._open(paths[at]) as source:
                    crc = source.crc(written)
                file = File(file.length, written, crc, tuple(ranges))
            kept[at] = file
        return kept

    def _queues(
        self, batches: Collection[tuple[str, str]], end: int, now_ms: int, *, keep: bool
    ) -> dict[str, File]:
        """Copies the queues."""
        files: dict[str, File] = {}
        for kind, size in QUEUES.items():
            for folder in folders_below(self._root / kind, 2):
                topic, queue = folder.parts[-2:]
                is_batch = kind == "consumequeue" and (topic, queue) in batches
                width = 46 if is_batch else size
                above = f"{kind}/{topic}/{queue}/"
                paths = numbered(folder, 20)
                for path in paths:
                    name = above + path.name
                    try:
                        before = self._before(name, path) if keep else None
                        closed = self._closed(path, before) if path != paths[-1] else None
                        files[name] = closed or self._queue_file(
                            name, path, before, width, end, is_last=path == paths[-1]
                        )
                    except FileNotFoundError:
                        continue  # expired meanwhile
                if paths:
                    copied = (name for path in paths if (name := above + path.name) in files)
                    files |= dict(self._gone(above, min(copied, default=above + "~"), now_ms))
        return files

    def _queue_file(
        self, name: str, path: Path, before: File | None, width: int, end: int, *, is_last: bool
    ) -> File:
        with self._open(path) as file:
            grown = self._grown(file, before)
            ranges = grown.ranges if grown else ()
            begin = ranges[-1][0] + ranges[-1][1] if ranges else 0
            begin -= begin % width
            content = file.written(begin, has_data=begin > 0)
            content = content if width == 1 else cut_entries(content, width, end)
            written = begin + len(content)
            self._objects.keep(name, begin, content)
            is_full = written + width > file.length
            manifest = "-" if is_full and not is_last else ""
            header = BATCH if width == int(BATCH) else ""
            return File(file.length, written, file.crc(written), ranges, manifest, header)

    def _index(
        self, slots: int, begin: int, end: int, now_ms: int, *, keep: bool
    ) -> dict[str, File]:
        """Copies entries of the index, and slots of files that are full."""
        files: dict[str, File] = {}
        paths = numbered(self._root / "index", 17)
        table = HEADER_BYTES + 4 * slots
        for path in paths if slots else ():
            name = f"index/{path.name}"
            is_last = path == paths[-1]
            with contextlib.suppress(FileNotFoundError):  # expired meanwhile
                before = self._before(name, path) if keep else None
                closed = None if is_last else self._closed(path, before)
                files[name] = closed or self._index_file(
                    name, path, before, table, end, is_last=is_last
                )
        for name, kept in self._known.items():
            if name.startswith("index/") and name not in files and kept.header:
                last = int.from_bytes(bytes.fromhex(kept.header)[24:32], "big")
                if last < begin:
                    files[name] = replace(kept, gone_ms=kept.gone_ms or now_ms)
        return files

    def _index_file(
        self, name: str, path: Path, before: File | None, table: int, end: int, *, is_last: bool
    ) -> File:
        with self._open(path) as file:

            def entries(first: int, last: int) -> bytes:
                return file.read(table + ENTRY_BYTES * first, table + ENTRY_BYTES * last)

            header = file.read(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0")
            cut = cut_header(header, entries, end)
            count = int.from_bytes(cut[36:], "big", signed=True)
            written = min(table + ENTRY_BYTES * count, file.length) if count > 1 else 0
            grown = self._grown(file, before)
            ranges = grown.ranges if grown and grown.end <= written else ()
            # It may have been full before: a recovery deletes files behind the last.
            ranges = tuple(one for one in ranges if one[0] >= table)
            at = ranges[-1][0] + ranges[-1][1] if ranges else table
            for place in range(at, written, PIECE):
                self._objects.keep(name, place, file.read(place, min(place + PIECE, written)))
            is_closed = not is_last and cut == header
            if is_closed:
                for place, content in file.pieces(HEADER_BYTES, table):
                    self._objects.keep(name, place, content)
            manifest = "-" if is_closed else ""
            return File(file.length, written, file.crc(written), ranges, manifest, cut.hex())

    def _gone(self, above: str, first: str, now_ms: int) -> Iterator[tuple[str, File]]:
        """Files in front of a queue that the store has deleted."""
        for name, file in self._known.items():
            if name.startswith(above) and name < first:
                yield name, replace(file, gone_ms=file.gone_ms or now_ms)
