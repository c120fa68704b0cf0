"""Appends under a limit on the size of files that one kind of files exceeds, then without."""

from __future__ import annotations

import errno
import resource
import sys
from pathlib import Path

import pytest

import mqstore

KIB = 1 << 10
LIMIT = 256 * KIB
SIZES = {"commitlog": 128 * KIB, "consumequeue": 20 * 1000, "index": 100}
TOO_LARGE = {"commitlog": 512 * KIB, "consumequeue": 20 * 20_000, "index": 20_000}


def config_of(flush: str, kind: str) -> dict[str, object]:
    """The files of ``kind`` alone are above the limit."""
    sizes = {**SIZES, kind: TOO_LARGE[kind]}
    return {
        "flush_disk_type": flush,
        "mapped_file_size_commit_log": sizes["commitlog"],
        "mapped_file_size_consume_queue": sizes["consumequeue"],
        "max_hash_slot_num": 10,
        "max_index_num": sizes["index"],
    }


def append_and_flush(store: mqstore.Store, text: str) -> None:
    """A message with ``text`` as its body and its key."""
    store.append("limited", text.encode(), keys=text.replace(" ", "-"))
    store.flush()


def main(root: Path, flush: str, kind: str) -> None:
    """Appends are refused under the limit, leave no file behind, and go on without it."""
    config = config_of(flush, kind)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with mqstore.open(root, "a", config=config) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
        for _ in range(3):
            with pytest.raises(mqstore.StoreIOError) as raised:
                append_and_flush(store, "under the limit")
            assert raised.value.errno == errno.EFBIG
            assert not [path for path in root.glob(f"{kind}/**/*") if path.is_file()]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        append_and_flush(store, "again")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
