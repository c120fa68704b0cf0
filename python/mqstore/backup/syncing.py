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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import mqstore
from mqstore._settings import FOLDERS
from mqstore.backup.redacting import RedactedFile, zeros_of
from mqstore.backup.small_files import (
    QUEUES,
    left_out_names,
    offsets_in_database,
    small_files,
    within,
)
from mqstore.backup.snapshot import (
    BATCH,
    File,
    Loaded,
    Range,
    Snapshot,
    can_keep,
    check_ranges,
    days,
    document_name,
    ids,
    kept_bytes,
    load,
    log_files,
    log_name,
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
    SourceFile,
    cut_entries,
    cut_header,
    folders_below,
    name_of,
)
from mqstore.backup.target import digest_of, existing, json_bytes, object_name, packed, target_of
from mqstore.backup.upkeep import first_difference, is_kept
from mqstore.backup.writing import SMALL, ObjectWriter
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    MessageNotFoundError,
    StoreError,
    checked,
    wrong_setting,
)
from mqstore.files.layout import log_folders, log_paths, numbered
from mqstore.files.pace import Pace
from mqstore.results import _Report
from mqstore.store import check_outside, has_scheme, is_backup, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mqstore.backup.target import Target
    from mqstore.config import ConfigLike


_Copy: TypeAlias = "Callable[[str, SourceFile, File | None, Path], File]"
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


@checked
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
        ConfigError: The path is a backup, or the target lies inside of the store, has the backup of
            another store, or other files; or the store's log does not reach the backup's, as that
            of an empty store; `compress` is unknown, or `redact` is not that of the backup.
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
        raise wrong_setting("path", "a folder of this machine", f"the URL {path!s}")
    if is_backup(path):
        advice = "nothing was copied: copy its folder as it is, or `mqstore restore` it"
        raise wrong_setting("path", "a store", f"the backup {path!s}", advice)
    check_outside("target", target, path)
    if compress not in {None, "zstd"}:
        raise wrong_setting("compress", "zstd", repr(compress))
    if redact not in {None, "bodies"}:
        raise wrong_setting("redact", "bodies", repr(redact))
    if bytes_per_s is not None and bytes_per_s <= 0:
        raise wrong_setting("bytes_per_s", "more than 0", bytes_per_s)
    pace = Pace(None, bytes_per_s)
    packed(b"", compress)  # a package that is missing is named before anything is written
    to, began_s = target_of(target, storage_options), time.monotonic()
    for _ in range(5):
        objects = ObjectWriter(to, began_s, verify=verify, compress=compress)
        with contextlib.ExitStack() as opened:
            given = verify, redact, new_timeline, pace, opened
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
    _base: Loaded = field(init=False)
    _live: mqstore.Store | None = None
    _log_paths: Mapping[int, Path] = field(default_factory=dict)
    _damaged: list[str] = field(default_factory=list)
    _skipped: list[str] = field(default_factory=list)
    _unsure: list[tuple[Path, int, int, int]] = field(default_factory=list)
    _clock_ms: int = 0
    _now_ms: int = 0
    _begin: int = 0
    _end: int = 0
    _flushed: int = 0
    _fork: int | None = None
    _newest: str = ""
    _lost: set[str] = field(default_factory=set)

    def run(self) -> SyncReport | None:
        """Copies, and writes the snapshot if something is new.

        Returns ``None`` if what it needs was deleted meanwhile: in the backup by `prune`, or in the
        store by its retention.
        """
        # Each step before the next: what is copied first leads only to what is copied later.
        small = dict(small_files(self._root, self._skipped, redact=self._redact))
        with mqstore.open(self._root, config=self._config) as store:
            self._clock_ms = time.time_ns() // 1_000_000
            self._end, self._flushed = store.max_physical_offset, store.flushed_offset
            try:
                store._check_end()  # noqa: SLF001
            except CorruptionError as error:
                self._skipped.append(f"messages behind {self._end}: {error.message}")
            kinds = {(q.topic, str(q.queue_id)): q.kind for q in store.queues()}
            settings = self._settings_of(store)
            small |= offsets_in_database(self._root, store)
            small |= within(small, store)
        if self._redact:
            self._live = self._opened.enter_context(mqstore.open(self._root, config=self._config))
        compress, target = self._objects.compress, self._target
        existing(target, make=True, compress=compress, redact=self._redact)
        known_days = days(target)
        self._base = base = self._load_base(known_days)
        is_first = not base.snapshot.id
        before = {*ids(target)} if is_first else set()
        self._now_ms = max(self._clock_ms, time_ms_of(self._newest) + 1 if self._newest else 0)
        self._log_paths = log_paths(log_folders(self._root, self._config))
        self._begin = min(self._log_paths, default=self._end)
        try:
            files = self._log()
        except FileNotFoundError:
            return None
        files |= self._queues(kinds)
        files |= self._index(settings.get("max_hash_slot_num", 0))
        files |= {name: self._whole(name, content) for name, content in small.items()}
        self._objects.flush(everything=True)
        files = {name: self._finished(name, file) for name, file in files.items()}
        self._objects.flush(everything=True)
        self._skipped += [f"{name!a}: no name of a store" for name in files if not can_keep(name)]
        files = {name: file for name, file in files.items() if can_keep(name)}
        skipped = {*self._skipped, *zeros_of(base.snapshot, files)}
        left_out = (*left_out_names(self._root, redact=self._redact), *sorted(skipped))
        files = shown(files, known_days[0]) if known_days else files
        now = files, self._end, json.loads(json_bytes(settings))
        is_same = (base.files, base.snapshot.end_offset, base.settings) == now
        if is_same and not is_first and base.snapshot.id == self._newest:
            return self._report(base.snapshot, is_new=False, left_out=left_out)
        timeline = base.snapshot.timeline if self._fork is None else secrets.token_hex(4)
        snapshot = Snapshot(
            "", datetime.fromtimestamp(self._now_ms / 1000, UTC), timeline, self._begin, self._end,
            self._flushed, self._fork, sum(map(kept_bytes, files.values())),
            self._objects.new_bytes, left_out,
            os.path.abspath(self._root), self._redact,  # noqa: PTH100 - no link is followed
        )  # fmt: skip
        given = base.base, base.state, base.objects, self._clock_ms
        new = Loaded(snapshot, files, settings, *given)
        changed = sum(base.files.get(name) != file for name, file in files.items())
        needed = [] if is_first else [document_name(base.snapshot.id)]
        if not self._objects.is_whole(needed):
            return None
        self._check_log()
        snapshot = replace(snapshot, id=write(target, new, changed, compress))
        # Another store may have begun the backup meanwhile.
        is_alone = not is_first or {*ids(target)} - before == {snapshot.id}
        if not is_alone or not self._objects.is_whole([*needed, object_name(new.base)]):
            target.remove([document_name(snapshot.id)])
            return None
        if self._verify:
            load(target, snapshot.id)
        return self._report(snapshot, is_new=True, left_out=left_out)

    def _load_base(self, known_days: Sequence[str]) -> Loaded:
        """The newest snapshot that can be read; one without an id and files if there is none."""
        for name in newest_first(self._target, known_days):
            self._newest = self._newest or name
            try:
                loaded = load(self._target, name)
            except CorruptionError as error:
                self._damaged.append(error.message)
                continue
            except MessageNotFoundError:
                continue  # pruned meanwhile
            if self._verify:
                self._lost = lost(self._target, loaded.files)
            return loaded
        epoch = datetime.fromtimestamp(0, UTC)
        none = Snapshot("", epoch, secrets.token_hex(4), 0, 0, 0, None, 0, 0, (), "")
        return Loaded(none, {})

    def _check_log(self) -> None:
        """Refuses a log that was cut while it was copied: it would be of two logs."""
        with mqstore.open(self._root, config=self._config) as store:
            is_cut = store.max_physical_offset < self._end
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
        kept = {name: value for name, value in given.items() if name not in FOLDERS}
        if any((self._root / "index").glob("[0-9]*")):
            names = ("max_hash_slot_num", "max_index_num")
            kept |= {name: getattr(store.config, name) for name in names}
        return kept

    def _open(self, path: Path) -> SourceFile:
        if self._live is not None and self._log_paths.get(int(path.name)) == path:
            return RedactedFile(path, self._pace, self._live, self._skipped)
        return SourceFile(path, self._pace)

    def _whole(self, name: str, content: bytes) -> File:
        """Keeps a file whose content is replaced as a whole."""
        known = self._base.files.get(name)
        ranges = (Range(0, len(content), digest_of(content), 0),) if content else ()
        if ranges and (name in self._lost or known is None or known.ranges != ranges):
            self._objects.new_bytes += len(content)
            self._objects.add(content)
            self._objects.flush()
        return File(len(content), len(content), ranges=ranges)

    def _kept(self, name: str, path: Path, before: File | None, copy: _Copy, last: Path) -> File:
        """A closed file as it is kept already, or another as it is copied; the last may grow."""
        with self._open(path) as file:
            if before is not None and before.manifest and path != last:
                # `_before` has compared one that changed; a redacted one takes long to read.
                is_same = self._live is not None or file.crc(before.end) == before.crc
                if is_same and file.length == before.length:
                    return before
            return copy(name, file, before, last)

    def _before(self, name: str, path: Path) -> File | None:
        """The known file, unless it is to be copied again: one that was gone or changed."""
        known = self._base.files.get(name)
        if known is None or known.gone_ms or name in self._lost:
            return None
        # A clock that was ahead then says nothing of times since.
        since_ms = self._base.clock_ms if self._base.clock_ms <= self._clock_ms else 0
        is_same = not known.manifest or path.stat().st_ctime * 1000 < since_ms
        with contextlib.suppress(CorruptionError):  # copied again, as if it had changed
            if not is_same:
                is_same = is_kept(self._target, known, path, self._open, by_digest=True)
        return known if is_same else None

    def _grown(self, file: SourceFile, known: File | None) -> tuple[tuple[Range, ...], int]:
        """The known ranges of a file that only grows, and their end; none if it has other bytes."""
        if known is None or not _is_grown(file, known):
            return (), 0
        ranges = ranges_of(self._target, known)
        if len(ranges) > _MOST_RANGES and not known.manifest:
            while ranges and ranges[-1].size < SMALL:
                ranges = ranges[:-1]
        return ranges, _end_of(ranges)

    def _gone(self, file: File) -> File:
        return replace(file, gone_ms=file.gone_ms or self._now_ms)

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

    def _log(self) -> dict[str, File]:
        """Copies the log."""
        known, paths = log_files(self._base.files), self._log_paths
        self._fork = self._fork_of(known)
        if self._fork is not None:
            known = self._before_fork(known, self._fork)
        files = {log_name(at): self._gone(file) for at, file in known.items() if at < self._begin}
        last = max(paths, default=0)
        for at, kept in known.items() if self._fork is None else ():
            is_lost = at not in paths or paths[at].stat().st_size < kept.length
            if self._begin <= at < last and is_lost:
                name = log_name(at)
                files[name] = kept
                self._skipped.append(f"{name}: missing or cut in the store, kept as it was before")
        for at, path in paths.items():
            name = log_name(at)
            if (at < self._end or at == self._begin) and name not in files:
                before = self._before(name, path) and known.get(at)
                files[name] = self._kept(name, path, before, self._log_file, paths[last])
        return files

    def _log_file(self, name: str, file: SourceFile, before: File | None, last: Path) -> File:
        at = int(name[10:])
        ranges, written = self._grown(file, before)
        for place, content in file.pieces(written, min(file.length, self._end - at)):
            self._objects.keep(name, place, content)
            written = place + len(content)
            if at + written > self._flushed:
                self._unsure.append((file.path, place, len(content), zlib.crc32(content)))
        manifest = "-" if file.path != last and at + file.length <= self._end else ""
        return File(file.length, written, file.crc(written), ranges, manifest)

    def _fork_of(self, known: Mapping[int, File]) -> int | None:
        """Where the log differs from the one that is kept; ``None`` where it goes on from it."""
        paths, begin, end = self._log_paths, self._begin, self._end
        last, was = max(known, default=0), self._base.snapshot.end_offset
        if self._base.snapshot.begin_offset == was:
            return None
        if not known or begin >= was or begin == end:
            if self._new_timeline:
                return begin
            wanted, there = f"the backup's log, which ends at {was}", f"one from {begin} to {end}"
            advice = "mount the right store, or begin a new timeline with --new-timeline"
            advice = f"nothing was copied: {advice} (new_timeline=True)"
            raise wrong_setting("path", wanted, there, advice)
        if last in paths and end >= was:
            with self._open(paths[last]) as file:
                if _is_grown(file, known[last]):
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
                differs = first_difference(self._target, known[number], file, known[number].end)
            at = number + (known[number].end if differs is None else differs)
            if differs is not None:
                break
        at = min(at, end)
        if at < begin + _LEAST_SAME:
            text = f"{self._target.url} has the backup of another store, whose log begins otherwise"
            raise ConfigError(f"target: {text}; nothing was copied: take an empty target", "target")
        return at

    def _before_fork(self, known: Mapping[int, File], fork: int) -> dict[int, File]:
        """The known ranges of the log before a fork."""
        kept: dict[int, File] = {}
        for at, file in known.items() if fork > self._begin else ():
            if at + file.length > fork > at:
                several = [one for one in ranges_of(self._target, file) if at + one.end <= fork]
                end = _end_of(several)
                with self._open(self._log_paths[at]) as source:
                    kept[at] = File(file.length, end, source.crc(end), tuple(several))
            elif at < fork:
                kept[at] = file
        return kept

    def _numbered(self, paths: Sequence[Path], copy: _Copy) -> dict[str, File]:
        """Copies files of a queue or of the index; after a fork they have other entries."""
        files = {}
        for path in paths:
            name = name_of(path.relative_to(self._root))
            with contextlib.suppress(FileNotFoundError):  # expired meanwhile
                before = self._before(name, path) if self._fork is None else None
                files[name] = self._kept(name, path, before, copy, paths[-1])
        return files

    def _queues(self, kinds: Mapping[tuple[str, str], str]) -> dict[str, File]:
        """Copies the queues."""
        files: dict[str, File] = {}
        for kind, size in QUEUES.items():
            for folder in folders_below(self._root / kind, 2):
                topic, queue = name_of(folder).split("/")[-2:]
                is_batch = kind == "consumequeue" and kinds.get((topic, queue)) == "BatchCQ"
                paths = numbered(folder, 20)
                copy = partial(self._queue_file, int(BATCH) if is_batch else size)
                copied = self._numbered(paths, copy)
                above = f"{kind}/{topic}/{queue}/"
                first = min(copied, default=above + "~") if paths else above
                # Files in front of those that the store has.
                files |= copied | {
                    name: self._gone(file)
                    for name, file in self._base.files.items()
                    if name.startswith(above) and name < first
                }
        return files

    def _queue_file(
        self, width: int, name: str, file: SourceFile, before: File | None, last: Path
    ) -> File:
        ranges, begin = self._grown(file, before)
        at = begin - begin % width
        content = file.written(at, has_data=at > 0)
        if width > 1:
            # An interrupted copy may end within an entry, which then is none.
            whole = content[: max(0, file.length - at) // width * width]
            content = cut_entries(whole, width, self._end)
        written = max(begin, at + len(content))
        self._objects.keep(name, begin, content[begin - at :])
        manifest = "-" if file.path != last and written + width > file.length else ""
        header = BATCH if width == int(BATCH) else ""
        return File(file.length, written, file.crc(written), ranges, manifest, header)

    def _index(self, slots: int) -> dict[str, File]:
        """Copies entries of the index, and slots of files that are full."""
        copy = partial(self._index_file, HEADER_BYTES + 4 * slots)
        files = self._numbered(numbered(self._root / "index", 17) if slots else (), copy)
        for name, kept in self._base.files.items():
            if name.startswith("index/") and name not in files and kept.header:
                last = int.from_bytes(bytes.fromhex(kept.header)[24:32], "big")
                if last < self._begin:
                    files[name] = self._gone(kept)
        return files

    def _index_file(
        self, table: int, name: str, file: SourceFile, before: File | None, last: Path
    ) -> File:
        def entries(first: int, last: int) -> bytes:
            return file.read(table + ENTRY_BYTES * first, table + ENTRY_BYTES * last)

        header = file.read(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0")
        cut = cut_header(header, entries, self._end)
        count = int.from_bytes(cut[36:], "big", signed=True)
        written = min(table + ENTRY_BYTES * count, file.length) if count > 1 else 0
        ranges, at = self._grown(file, before if before and before.end <= written else None)
        # It may have been full before: a recovery deletes files behind the last.
        ranges, at = tuple(one for one in ranges if one.begin >= table), max(at, table)
        for place in range(at, written, PIECE):
            self._objects.keep(name, place, file.read(place, min(place + PIECE, written)))
        is_closed = file.path != last and cut == header and written > table
        if is_closed:
            for place, content in file.pieces(HEADER_BYTES, table):
                self._objects.keep(name, place, content)
        manifest = "-" if is_closed else ""
        return File(file.length, written, file.crc(written), ranges, manifest, cut.hex())


def _is_grown(file: SourceFile, known: File) -> bool:
    """Whether a file has the last bytes that are kept of it."""
    return file.length == known.length and file.crc(known.end) == known.crc


def _end_of(ranges: Sequence[Range]) -> int:
    return ranges[-1].end if ranges else 0
