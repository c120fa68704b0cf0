"""Objects that a sync writes."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING

from mqstore.backup.snapshot import Range
from mqstore.backup.source import PIECE
from mqstore.backup.target import digest_of, object_name, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqstore.backup.target import Target


SMALL = 1 << 20
"""Shorter ranges share an object."""
_MOST_PENDING = 4 * PIECE
_LEASE_S = 3600


class ObjectWriter:
    """Writes content that a snapshot will need, for a sync that began at a monotonic time.

    Attributes:
        ranges: Kept ranges of files, by path.
        new_bytes: Bytes that were kept.
        written_bytes: Bytes of objects that were missing.
    """

    def __init__(
        self, target: Target, began_s: float, *, verify: bool, compress: str | None
    ) -> None:
        self._target = target
        self.compress = compress
        self._began_s = began_s
        self._verify = verify
        self._lease = f"syncs/{uuid.uuid4().hex}"
        self._lease_at_s = began_s + _LEASE_S
        self._pending: dict[str, bytes] = {}
        self._pack: list[tuple[str, int, bytes]] = []
        self._pending_bytes = self._pack_bytes = 0
        self._names: list[str] = []
        self.ranges: dict[str, list[Range]] = defaultdict(list)
        self.new_bytes = self.written_bytes = 0

    def keep(self, name: str, at: int, content: bytes) -> None:
        """Keeps bytes of a file, in pieces: each in an object of its own, or beside others."""
        self.new_bytes += len(content)
        for begin in range(0, len(content), PIECE):
            piece, place = content[begin : begin + PIECE], at + begin
            if len(piece) >= SMALL:
                self.ranges[name].append(Range(place, len(piece), self.add(piece), 0))
            else:
                self._pack.append((name, place, piece))
                self._pack_bytes += len(piece)
            self.flush()

    def add(self, content: bytes) -> str:
        """Adds an object; returns its digest."""
        digest = digest_of(content)
        self._pending[digest] = content
        self._pending_bytes += len(content)
        return digest

    def flush(self, *, everything: bool = False) -> None:
        """Writes objects once they are many."""
        if self._pack and (everything or self._pack_bytes > PIECE - SMALL):
            digest = self.add(b"".join(content for *_, content in self._pack))
            place = 0
            for name, at, content in self._pack:
                self.ranges[name].append(Range(at, len(content), digest, place))
                place += len(content)
            self._pack.clear()
            self._pack_bytes = 0
        if not everything and self._pending_bytes < _MOST_PENDING:
            return
        contents = {object_name(d): packed(c, self.compress) for d, c in self._pending.items()}
        times = dict(zip(contents, self._target.times(list(contents)), strict=True))
        # No snapshot may need them, and `prune` deletes such objects once they are old.
        self._target.renew({n: c for n, c in contents.items() if times[n] is not None})
        missing = {n: c for n, c in contents.items() if times[n] is None}
        written = zip(missing.values(), self._target.put(missing), strict=True)
        self.written_bytes += sum(len(content) for content, is_new in written if is_new)
        self._names += contents
        self._hold()
        if self._verify:
            self._target.objects(list(self._pending))
        self._pending.clear()
        self._pending_bytes = 0

    def _hold(self) -> None:
        """Shows `prune` each hour how long the sync has lasted: its objects stay."""
        now_s = time.monotonic()
        if now_s >= self._lease_at_s:
            self._target.put({f"{self._lease}-{int(now_s - self._began_s)}": b"1"})
            self._lease_at_s = now_s + _LEASE_S

    def is_whole(self, others: Sequence[str]) -> bool:
        """Whether all objects so far, and others by name, are there."""
        return None not in self._target.times([*self._names, *others])
