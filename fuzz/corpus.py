"""Fills fuzz/corpus with what RocketMQ wrote: each file of the golden stores, for every target."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = (
    *("record", "properties", "queue", "index", "checkpoint", "configuration", "batch"),
    "directory",
)
MOST_BYTES = 1 << 16


def main() -> None:
    """Writes the corpora; what is there stays."""
    for archive in sorted((ROOT / "tests/golden").glob("*/store.tar.gz")):
        with tarfile.open(archive) as stored:
            for member in stored:
                file = stored.extractfile(member) if member.isfile() else None
                bytes_ = file.read(MOST_BYTES).rstrip(b"\0") if file else b""
                for target in TARGETS if bytes_ else ():
                    folder = ROOT / "fuzz/corpus" / target
                    folder.mkdir(parents=True, exist_ok=True)
                    name = hashlib.sha256(bytes_).hexdigest()[:16]
                    (folder / name).write_bytes(bytes_)


if __name__ == "__main__":
    main()
