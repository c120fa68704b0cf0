"""Import: a new store from an export, or from a file of messages."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore._native import import_messages
from mqstore._settings import OWN_FILE
from mqstore.errors import ConfigError, InvalidMessageError, StoreIOError
from mqstore.exchange.formats import FORMATS, NAME, Manifest, need_pyarrow, place_of, read_messages
from mqstore.results import _Report
from mqstore.store import local, settings_of

if TYPE_CHECKING:
    from mqstore.config import ConfigLike

# As for the files of a store, below ``config`` and above.
_MOST_BYTES = 64 << 20


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
        if not (folder / NAME).exists():
            text = f"source: {folder} is no export: there is no {NAME} in it"
            raise ConfigError(text, "source")
        manifest = Manifest.parse(folder / NAME, _read(folder / NAME))
        kind, messages = manifest.format, folder / f"messages.{manifest.format}"
        if os.path.lexists(messages):
            _check_kind(messages, messages.lstat().st_mode)
        settings = dict(manifest.settings)
        renumber = not manifest.complete
        if manifest.complete:
            base_offset = manifest.min_physical_offset
        files = _config_files(folder / "config")
    else:
        known = [one for one in FORMATS if folder.suffix == f".{one}"]
        if not known:
            text = f"source: {folder} is neither a folder nor a file .jsonl, .parquet or .arrow"
            raise ConfigError(text, "source")
        kind, messages = known[0], folder
        _check_kind(folder, folder.stat().st_mode)
        renumber = False
    need_pyarrow(kind)
    settings |= settings_of(config)
    try:
        count, size, stand_ins, in_place = import_messages(
            path,
            read_messages(kind, messages),
            place=place_of(kind, messages),
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
        text = f"source: {folder} is no folder, and links are not followed; nothing was written"
        raise ConfigError(text, "source")
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
        text = f"source: {path} has more than {_MOST_BYTES} bytes; nothing was written"
        raise ConfigError(text, "source")
    return data


def _check_kind(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        text = (
            f"source: {path} is no regular file, and links are not followed; nothing was written: "
            "put the file itself there"
        )
        raise ConfigError(text, "source")
