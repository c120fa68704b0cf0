"""Export of a store as files for other programs, and import: a new store from such files."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import mqstore
from mqstore._names import listed
from mqstore._native import import_messages
from mqstore._settings import OWN_FILE
from mqstore.errors import (
    ConfigError,
    CorruptionError,
    InvalidMessageError,
    StoreIOError,
    checked,
)
from mqstore.exchange import formats
from mqstore.exchange.matching import Choice, check_choice
from mqstore.files.durable import sync
from mqstore.results import _Report
from mqstore.store import below, check_outside, connect, local, root_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Literal

    from mqstore import Store
    from mqstore.config import ConfigLike
    from mqstore.exchange.formats import Format

# As for the files of a store, below ``config`` and above.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ExportReport(_Report):
    """Result of ``mqstore.export_store``.

    Attributes:
        path: The store.
        target: The folder that was written.
        format: ``"jsonl"``, ``"parquet"`` or ``"arrow"``.
        messages: How many messages are in it.
        bytes: How many bytes their records have in the store.
        complete: Whether it holds every message of the store, so that an import gives each its
            place again.
        skipped_ranges: Damaged ranges of the log that were skipped or reported.
        skipped_bytes: Their bytes.
        config_files: The files of the store's ``config`` folder that came along.
    """

    path: str
    target: str
    format: str
    messages: int
    bytes: int
    complete: bool
    skipped_ranges: int = 0
    skipped_bytes: int = 0
    config_files: tuple[str, ...] = ()


@checked
def export_store(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: Format = "jsonl",  # noqa: A002 - the public name
    topics: Iterable[str] | None = None,
    tags: str | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    on_error: Literal["raise", "skip", "report"] = "raise",
    allow_empty: bool = False,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Writes a store's messages to files for other programs, and its configuration with them.

    The new folder holds ``messages.jsonl``, ``messages.parquet`` or ``messages.arrow``, the JSON
    files of the store's ``config`` (topics, groups, consumer offsets), and ``export.json``, which
    says what it is. Every field that is stored is in it, byte for byte, so ``import_store``
    gives the same messages; where nothing was left out, the same commit log too.

    Args:
        path: The store. It is read only, and may be in use by a broker.
        target: The folder to make; nothing, or an empty folder, may be there now.
        format: ``"jsonl"``, ``"parquet"`` or ``"arrow"``; the last two need ``mqstore[parquet]``.
        topics: Only these topics; ``None`` is all, those of the broker too.
        tags: A tag expression, such as ``"paid || refunded"``.
        begin_ms: First store time that counts, Unix milliseconds.
        end_ms: Last store time that counts.
        on_error: What to do at damage: ``"raise"`` it, ``"skip"`` to the next whole message, or
            ``"report"`` it too: ``damage.jsonl`` gets a line for each damaged range. A body that
            cannot be decompressed is none, since bodies are exported as they are stored.
        allow_empty: Go on where a topic or the filters match nothing.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        NotAStoreError: No such folder, or no store in it.
        ConfigError: No such format, pyarrow is missing, or `target` lies inside of the store.
        MessageNotFoundError: A topic or the filters match nothing; nothing was written.
        ValueError: Something else in `on_error`.
        CorruptionError: Damage, with ``on_error="raise"``; else it is counted.
        StoreIOError: Something is at `target` already, or the system refused something.
    """
    path = connect(path, storage_options)
    if format not in formats.FORMATS:
        text = f"format: expected jsonl, parquet or arrow, found {format!r}"
        raise ConfigError(text, "format")
    formats.need_pyarrow(format)
    local(target, "mqstore.export_store")
    check_outside("target", target, path)
    names = listed(topics)
    choice = Choice(topics=names and sorted(names), tags=tags, begin_ms=begin_ms, end_ms=end_ms)
    advance = progress or (lambda _done, _total: None)
    with mqstore.open(path, "r", config=config) as store:
        if not allow_empty:
            check_choice(store, choice)
        with new_folder(Path(target)) as folder:
            manifest, ranges, skipped = _write(
                store, folder, format, choice.filters, on_error, advance
            )
            files = _copy_config(below(root_of(store)), folder / "config")
            manifest.write(folder)
    return ExportReport(
        path=str(path),
        target=str(target),
        format=format,
        messages=manifest.messages,
        bytes=manifest.bytes,
        complete=manifest.complete,
        skipped_ranges=ranges,
        skipped_bytes=skipped,
        config_files=files,
    )


def _write(
    store: Store,
    folder: Path,
    format: Format,  # noqa: A002
    filters: dict[str, Any],
    on_error: Literal["raise", "skip", "report"],
    advance: Callable[[int, int], object],
) -> tuple[formats.Manifest, int, int]:
    misses_end = False
    try:
        store._check_end(filters.get("topics"))  # noqa: SLF001
    except CorruptionError:
        if on_error == "raise":
            raise
        misses_end = True
    total = store.max_physical_offset - store.min_physical_offset
    scan = store.scan_arrow(
        columns=formats.columns_of(format),
        # Damage that is passed over is counted.
        on_error="report" if on_error == "skip" else on_error,
        # Bodies are exported as they are stored.
        decompress=False,
        batch_rows=formats.BATCH_ROWS,
        **filters,
    )
    messages = written = ranges = lost = 0
    with ExitStack() as stack:
        pieces = stack.enter_context(formats.writer(format, folder / f"messages.{format}", scan))
        # There is no such file unless damage is reported.
        is_reported = on_error == "report"
        report = stack.enter_context((folder / "damage.jsonl").open("xb")) if is_reported else None
        for count, size, damages in pieces:
            messages, written, ranges = messages + count, written + size, ranges + len(damages)
            for damage in damages:
                lost += damage.length
                if report is not None:
                    row = {name: getattr(damage, name) for name in damage.__match_args__}
                    report.write(msgspec.json.encode(row) + b"\n")
            advance(min(written + lost, total), total)
    advance(total, total)
    is_cut = store._leaves_out_last or store._losses  # noqa: SLF001
    manifest = formats.Manifest(
        mqstore_export=1,
        format=format,
        messages=messages,
        bytes=written,
        complete=not (filters or misses_end or ranges or is_cut),
        filters=filters,
        min_physical_offset=store.min_physical_offset,
        max_physical_offset=store.max_physical_offset,
        settings=formats.exported_settings(store.config),
        written_by=mqstore.__version__,
    )
    return manifest, ranges, lost


def _copy_config(source: Path, target: Path) -> tuple[str, ...]:
    """The broker's JSON files, byte for byte; its own copies of them (``.bak``) stay behind."""
    target.mkdir()
    config = source / "config"
    names = sorted(
        found.name
        for found in (config.iterdir() if config.is_dir() else ())
        if found.suffix == ".json"
        and found.name != OWN_FILE
        and found.is_file()
        and not found.is_symlink()
    )
    for name in names:
        (target / name).write_bytes((config / name).read_bytes())
    return tuple(names)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which is renamed to `target` in the end and gone after an error.

    Raises:
        StoreIOError: Something is at `target` already, or the system refuses something.
    """
    if target.is_symlink() or (
        target.exists() and (not target.is_dir() or next(target.iterdir(), None) is not None)
    ):
        text = f"create {target}: something is there already; give the name of a new folder"
        raise StoreIOError(text, errno.EEXIST, str(target), "create")
    above = target.absolute().parent
    staging: Path | None = None
    try:
        above.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=above))
        yield staging
        for path in [*staging.rglob("*"), staging]:
            sync(path)
        staging.chmod(0o750)
        staging.rename(target)
        sync(above)
    except StoreIOError:
        raise
    except OSError as error:
        shown = error.filename or target
        text = f"write {shown}: {error.strerror or error}"
        raise StoreIOError(text, error.errno, str(target), "write") from error
    finally:
        if staging is not None and staging.exists():
            shutil.rmtree(staging, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class ImportReport(_Report):
    """Result of ``mqstore.import_store``.

    Attributes:
        source: What was read.
        path: The new store.
        messages: How many messages it has of the source.
        bytes: How many bytes their records have.
        stand_ins: Messages without a body and with the property ``MQSTORE_LEFT_OUT``, which stand
            in for queue offsets that the source leaves out.
        renumbered: Whether queue offsets were given anew; the consumer offsets went along.
        in_place: Whether every record lies at the physical offset that the source names.
        config_files: The files that came along into ``config``.
    """

    source: str
    path: str
    messages: int
    bytes: int
    stand_ins: int = 0
    renumbered: bool = False
    in_place: bool = False
    config_files: tuple[str, ...] = ()


@checked
def import_store(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    config: ConfigLike = None,
) -> ImportReport:
    """Makes a store of an export, or of one file of messages.

    Of a complete export every message gets its queue offset again, and where nothing was edited its
    physical offset too: the commit log is the same. Of any other the messages are numbered from 0
    on in each queue, and the consumer offsets that came along are moved with them.

    A row that ``append`` would refuse ends the import, and so does a store time after the year 9999
    or a queue offset that is not above those before it in its queue: nothing is left at `path`. The
    limit of ``max_message_size`` is not applied, since a broker may have had a higher one.

    Args:
        source: The folder that ``export_store`` made; or a file ``.jsonl``, ``.parquet`` or
            ``.arrow`` with such rows. A row needs ``topic`` and ``body`` and may leave out the
            rest: it gets the next queue offset, and the present time.
        path: The store to make; nothing, or an empty folder, may be there now.
        config: As for ``mqstore.open``; what the export says goes before the defaults.

    Raises:
        StoreIOError: No such source, something is at `path` already, or the system refused
            something.
        CorruptionError: The source is no export, or cannot be read.
        InvalidMessageError: A row is refused; the text names its line or row.
        ConfigError: A setting or a number in ``export.json`` that cannot be, a link, pipe or folder
            in the place of a file, a file of another format, or pyarrow is missing.
    """
    local(path, "mqstore.import_store")
    folder = Path(source)
    if not folder.exists():
        text = f"open {folder}: no such file or folder"
        raise StoreIOError(text, errno.ENOENT, str(folder), "open")
    files: list[tuple[str, bytes]] = []
    settings: dict[str, bool | int | str] = {}
    base_offset, renumber = 0, True
    if folder.is_dir():
        if not (folder / formats.NAME).exists():
            raise _wrong_source(f"{folder} is no export: there is no {formats.NAME} in it")
        manifest = formats.Manifest.parse(folder / formats.NAME, _read(folder / formats.NAME))
        kind, messages = manifest.format, folder / f"messages.{manifest.format}"
        if os.path.lexists(messages):
            _check_kind(messages, messages.lstat().st_mode)
        settings = dict(manifest.settings)
        renumber = not manifest.complete
        if manifest.complete:
            base_offset = manifest.min_physical_offset
        files = _config_files(folder / "config")
    else:
        known = [one for one in formats.FORMATS if folder.suffix == f".{one}"]
        if not known:
            text = f"{folder} is neither a folder nor a file .jsonl, .parquet or .arrow"
            raise _wrong_source(text)
        kind, messages = known[0], folder
        _check_kind(folder, folder.stat().st_mode)
        renumber = False
    formats.need_pyarrow(kind)
    settings |= settings_of(config)
    try:
        count, size, stand_ins, in_place = import_messages(
            path,
            formats.read_messages(kind, messages),
            place=formats.place_of(kind, messages),
            settings=settings,
            files=files,
            base_offset=base_offset,
            renumber=renumber,
        )
    except InvalidMessageError as error:
        text = f"{error}; no store was made at {path}"
        raise InvalidMessageError(text, error.field, str(error.status), error.limit) from None
    return ImportReport(
        source=str(source),
        path=str(path),
        messages=count,
        bytes=size,
        stand_ins=stand_ins,
        renumbered=renumber,
        in_place=in_place,
        config_files=tuple(name for name, _ in files),
    )


def _config_files(folder: Path) -> list[tuple[str, bytes]]:
    """The broker's JSON files of an export; its copies of them (``.bak``) stay behind."""
    if not os.path.lexists(folder):
        return []
    if not stat.S_ISDIR(folder.lstat().st_mode):
        text = f"{folder} is no folder, and links are not followed; nothing was written"
        raise _wrong_source(text)
    names = (found for found in sorted(folder.iterdir()) if found.suffix == ".json")
    return [(found.name, _read(found)) for found in names if found.name != OWN_FILE]


def _read(path: Path) -> bytes:
    """A regular file, whole: no link is followed, and a pipe is not waited for."""
    _check_kind(path, path.lstat().st_mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        _check_kind(path, os.fstat(descriptor).st_mode)
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise _wrong_source(f"{path} has more than {_MOST_BYTES} bytes; nothing was written")
    return data


def _check_kind(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _wrong_source(
            f"{path} is no regular file, and links are not followed; nothing was written: put the "
            "file itself there"
        )


def _wrong_source(text: str) -> ConfigError:
    return ConfigError(f"source: {text}", "source")
