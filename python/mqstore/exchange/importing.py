"""Import: a new store from an export, or from a file of messages."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore._native import import_messages
from mqstore.errors import ConfigError, StoreIOError
from mqstore.exchange.formats import need_pyarrow, read_messages
from mqstore.exchange.manifest import FORMATS, NAME, Format, Manifest
from mqstore.exchange.reports import ImportReport

if TYPE_CHECKING:
    import os

    from mqstore.config import ConfigLike

__all__ = ["import_store"]


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
        InvalidMessageError: A row is no message; the text names it.
        ConfigError: A setting that cannot be, a file of another format, or pyarrow is missing.
    """
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
        manifest = Manifest.read(folder)
        kind, messages = manifest.format, folder / manifest.messages_file
        settings = dict(manifest.settings)
        renumber = not manifest.complete
        if manifest.complete:
            base_offset = manifest.min_physical_offset
        files = [
            (found.name, found.read_bytes()) for found in sorted((folder / "config").glob("*.json"))
        ]
    else:
        kind, messages = _format_of(folder), folder
        renumber = False
    need_pyarrow(kind)
    if config is not None:
        from mqstore.config import StoreConfig, load_config

        defaults = StoreConfig().given()
        given = load_config(config).given()
        settings |= {name: value for name, value in given.items() if value != defaults.get(name)}
    count, size, stand_ins, in_place = import_messages(
        path,
        read_messages(kind, messages),
        settings=settings,
        files=files,
        base_offset=base_offset,
        renumber=renumber,
    )
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


def _format_of(path: Path) -> Format:
    for known in FORMATS:
        if path.suffix == f".{known}":
            return known
    text = f"source: {path} is neither a folder nor a file .jsonl, .parquet or .arrow"
    raise ConfigError(text, "source")
