"""Small disks of our own: made in a file, mounted, cut off from power, and always cleaned up."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
MIB = 1 << 20

# The file systems' own shutdown call, and its way of throwing away the journal as well.
SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2

SIZES = {"ext4": 64 * MIB, "xfs": 300 * MIB}
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


def run(*command: str | Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def can_mount(kind: str) -> str | None:
    """Why no disk of this kind can be mounted here, ``None`` if one can."""
    if os.geteuid() != 0:
        return "[no-root] mounting a disk of one's own needs root"
    if not all(map(shutil.which, (MAKE[kind][0], "losetup", "mount"))):
        return f"[no-{kind}] install {MAKE[kind][0]}"
    with Path("/proc/filesystems").open() as known:
        if kind not in known.read().split() and shutil.which("modprobe") is None:
            return f"[no-{kind}] the kernel has no {kind}"
    try:
        with disk(kind):
            return None
    except AssertionError as error:
        return f"[no-{kind}] {error}"


class Disk:
    """A mounted disk."""

    def __init__(self, image: Path, folder: Path, *, by_page: bool) -> None:
        self.image = image
        self.folder = folder
        self.by_page = by_page
        self.loop = ""
        self.mounted = False

    def mount(self) -> None:
        """Mounts it; a journal left by a power cut is replayed."""
        self.loop = run("losetup", "--find", "--show", self.image).strip()
        if self.by_page:
            queue = Path("/sys/block", Path(self.loop).name, "queue")
            (queue / "max_sectors_kb").write_text(str(PAGE >> 10))
        run("mount", self.loop, self.folder)
        self.mounted = True

    def unmount(self) -> None:
        """Unmounts it, however often it is asked to."""
        # Asking the folder itself is an error once the power is cut.
        if self.mounted:
            run("umount", self.folder)
            self.mounted = False
        if self.loop:
            run("losetup", "--detach", self.loop)
            self.loop = ""

    def cut_power(self) -> None:
        """Everything that is not on the disk at this moment is gone."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(folder)


@contextmanager
def disk(
    kind: str, *, size: int = 0, backing: Path | None = None, by_page: bool = False
) -> Iterator[Disk]:
    """A new disk, mounted; ``backing`` is the folder of the file that holds it.

    ``by_page``, for ext4, has the disk written page by page: of a larger write Linux's loop device
    may keep the beginning and call it done.
    """
    with tempfile.TemporaryDirectory(prefix="mqstore-disk-") as home:
        image = (backing or Path(home)) / "disk.img"
        with image.open("wb") as file:
            file.truncate(size or SIZES[kind])
        run(*MAKE[kind], *(("-b", str(PAGE)) if by_page else ()), image)
        folder = Path(home) / "mounted"
        folder.mkdir()
        made = Disk(image, folder, by_page=by_page)
        try:
            made.mount()
            yield made
        finally:
            made.unmount()
            image.unlink()


@contextmanager
def memory_disk(size: int) -> Iterator[Path]:
    """A folder in memory that holds so many bytes."""
    with tempfile.TemporaryDirectory(prefix="mqstore-memory-") as home:
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", home)
        try:
            yield Path(home)
        finally:
            run("umount", home)


def need_disk(kind: str) -> None:
    """Skips the test, counted, where no such disk can be mounted."""
    if missing := can_mount(kind):
        pytest.skip(missing)


def need_strace() -> None:
    """Skips the test, counted, where no call can be made to fail."""
    if shutil.which("strace") is None:
        pytest.skip("[no-strace] install strace")
    done = subprocess.run(
        ["strace", "-f", "-e", "inject=chroot:error=EIO", "true"], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("[no-strace] strace may not trace here")
