"""A program that writes messages and tells, a line each, which were acknowledged.

Arguments: the store, its flush, the number of the first message, how many at most, the length of a
body, and after how many messages ``flush()`` is called before they are told, 0 for never. A line
``refused`` and the error's name ends it when the store takes no more.
"""

from __future__ import annotations

import sys

import mqstore

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 256 << 10,
    "mapped_file_size_consume_queue": 2_000,
    "max_hash_slot_num": 50,
    "max_index_num": 400,
}


def body(number: int, length: int) -> bytes:
    """Body of message ``number``."""
    return (b"%d:" % number) + b"x" * (length or number * 131 % 3000)


def main(root: str, flush: str, first: int, count: int, length: int, flush_every: int) -> None:
    out = sys.stdout.buffer
    try:
        store = mqstore.open(root, "a", config={**SETTINGS, "flush_disk_type": flush})
        out.write(b"open\n")
        out.flush()
        lines: list[bytes] = []
        for number in range(first, first + count):
            result = store.append(
                f"topic{number % 3}", body(number, length), queue_id=number % 2, keys=f"k{number}"
            )
            lines.append(b"%d %d\n" % (number, result.physical_offset))
            if len(lines) >= flush_every:
                if flush_every:
                    store.flush()
                out.write(b"".join(lines))
                out.flush()
                lines.clear()
    except mqstore.StoreError as error:
        out.write(b"refused %s\n" % type(error).__name__.encode())
    except OSError as error:
        out.write(b"refused %s\n" % str(error.errno).encode())
    out.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
