"""The files of a store's log, read without opening the store."""

from __future__ import annotations

import bisect
import os
from typing import TYPE_CHECKING, Protocol

import mqstore
from mqstore.config import load_config
from mqstore.files.layout import numbered
from mqstore.store import below

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

    from mqstore import StoredMessage
    from mqstore.config import ConfigLike


class Place(Protocol):
    """Where a record is."""

    @property
    def physical_offset(self) -> int:
        """Its beginning."""

    @property
    def store_size(self) -> int:
        """Its length."""


def log_folders(root: str | os.PathLike[str], config: ConfigLike) -> list[Path]:
    """Returns the folders of a store's log, wherever its settings have them."""
    settings = load_config(config)
    texts = settings.store_path_commit_log, settings.read_only_commit_log_store_paths
    own, read_only = ([n for n in map(str.strip, (t or "").split(",")) if n] for t in texts)
    return [below(root, name) for name in dict.fromkeys([*(own or ["commitlog"]), *read_only])]


def log_paths(folders: Iterable[Path]) -> dict[int, Path]:
    """Returns the files of a log by the physical offset at which each begins, in order."""
    files = {int(path.name): path for folder in folders for path in numbered(folder, 20)}
    return dict(sorted(files.items()))


class LogFiles:
    """The files of a log, read by physical offset."""

    def __init__(self, folders: Iterable[Path]) -> None:
        paths = log_paths(folders)
        self._files = list(paths.values())
        self._begins = list(paths)
        self._reading: tuple[int, BinaryIO] | None = None
        self.begin = self._begins[0] if self._begins else 0
        self.end = self._begins[-1] + self._files[-1].stat().st_size if self._begins else 0

    def has(self, entry: Place) -> bool:
        """Whether an entry leads to a whole record of its size."""
        try:
            message = mqstore.decode(self._read(entry))
        except (mqstore.StoreError, ValueError):
            return False
        found = message.store_size, message.physical_offset
        return found == (entry.store_size, entry.physical_offset)

    def damaged(self, entry: Place) -> StoredMessage | None:
        """The record that an entry leads to where only its body is damaged."""
        try:
            message = mqstore.decode(self._read(entry), verify_crc=False)
        except (mqstore.StoreError, ValueError):
            return None
        return message if message.physical_offset == entry.physical_offset else None

    def _read(self, entry: Place) -> bytes:
        at = bisect.bisect_right(self._begins, entry.physical_offset) - 1
        if at < 0 or not 0 < entry.store_size < 2**31 - 1:
            return b""
        file = self._file(at)
        place = entry.physical_offset - self._begins[at]
        left = os.fstat(file.fileno()).st_size - place
        return os.pread(file.fileno(), min(entry.store_size, left), place) if left > 0 else b""

    def _file(self, at: int) -> BinaryIO:
        """The file of that number; the one before is closed, as entries mostly go upward."""
        if self._reading is not None:
            if self._reading[0] == at:
                return self._reading[1]
            self._reading[1].close()
        self._reading = at, self._files[at].open("rb")
        return self._reading[1]

    def close(self) -> None:
        """Closes the file that was read last."""
        if self._reading is not None:
            self._reading[1].close()
