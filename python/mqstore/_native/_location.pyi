from typing import Self, final

from mqstore._native._types import _Path
from mqstore.files.remote import _Objects

@final
class _RemoteStorage:
    """The objects below a URL, as listed last; readers of one URL share listing and blocks.

    Args:
        url: The root.
        objects: The objects below it, as `mqstore.files.remote` gives them.

    Raises:
        NotAStoreError: No object lies below the URL.
        StoreIOError: The objects cannot be listed.
    """

    def __new__(cls, url: _Path, objects: _Objects, /) -> Self: ...
    def renew(self, least_age_s: float, /) -> None:
        """Lists again, if the listing at hand is as old."""

    def is_folder(self, path: _Path, /) -> bool | None:
        """Whether a path is a folder; ``None`` if nothing is there."""

    def names(self, path: _Path, /) -> list[str]:
        """Names in a folder, sorted."""

    def stat(self, path: _Path, /) -> tuple[int, int]:
        """Length in bytes and time of the last change, Unix milliseconds, of a file."""

    def read(self, path: _Path, /) -> bytes:
        """Content of a file."""
