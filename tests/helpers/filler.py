"""A program that writes messages to a disk that has room for one block more, and one more.

Arguments: the folder, which is the whole of a small disk, and a seed. It says how many messages
the store took, and how many it refused.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from pathlib import Path

import mqstore
from helpers.writer import SETTINGS

BLOCK = 1024
# Without a reserve, so that appends come as near to the end of the disk as they can.
CONFIG = {**SETTINGS, "mapped_file_size_commit_log": 4 << 20, "disk_reserve_bytes": 0}


def main(folder: Path, seed: int) -> None:
    choose = random.Random(seed)
    took = refused = 0
    ballast = os.open(folder / "ballast", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    room = os.statvfs(folder)
    os.posix_fallocate(ballast, 0, room.f_bavail * room.f_frsize - (3 << 20))
    with mqstore.open(folder / "store", "a", config=CONFIG) as store:
        while refused < 300:
            try:
                store.append("full", choose.randbytes(choose.randrange(1, 3000)))
                took += 1
                # A reader of a file has its pages in memory, large ones too.
                if took == 1:
                    (folder / "store" / "commitlog" / f"{0:020}").read_bytes()
            except OSError as error:
                expect_no_room(error)
                refused += 1
                if refused == 1:
                    fill(ballast)
                os.truncate(ballast, os.fstat(ballast).st_size - BLOCK)
                os.fsync(ballast)
        os.ftruncate(ballast, 0)
        os.fsync(ballast)
        store.append("full", b"there is room again")
    sys.stdout.write(f"{took + 1} {refused}\n")


def fill(file: int) -> None:
    """Writes to the file until the disk has no block left, not even behind what it promised."""
    for _ in range(3):
        try:
            while True:
                os.write(file, b"x" * BLOCK)
                os.fsync(file)
        except OSError as error:
            expect_no_room(error)
            os.sync()


def expect_no_room(error: OSError) -> None:
    """Any other error ends the program."""
    if error.errno != errno.ENOSPC:
        raise error


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
