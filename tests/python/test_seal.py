"""The seal of a store on file systems whose change times do not move with maps."""

import mmap
import tempfile
from pathlib import Path

import pytest

import mqstore
from helpers.stores import TINY


def kind_of(folder: Path) -> str:
    """The type of the file system that holds a folder, as Linux names it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    there = [fields for fields in mounts if folder.is_relative_to(fields[1])]
    return max(there, key=lambda fields: len(fields[1]))[2]


@pytest.fixture(params=["tmpfs", "disk"])
def folder(request, tmp_path):
    if request.param == "disk":
        yield tmp_path
        return
    shared = Path("/dev/shm")
    if not shared.is_dir() or kind_of(shared) != "tmpfs":
        pytest.skip("[no-tmpfs] mount a tmpfs at /dev/shm; other systems than Linux have none")
    with tempfile.TemporaryDirectory(dir=shared) as made:
        yield Path(made)


def test_a_change_through_a_map_behind_the_seal_is_noticed(folder):
    path = folder / "store"
    with mqstore.open(path, "a", config=TINY | {"flush_disk_type": "SYNC_FLUSH"}) as store:
        places = [store.append("T", b"body").physical_offset for _ in range(20)]
    # A second opening has nothing to repair; where a seal can be believed there is one.
    with mqstore.open(path, "r+", config=TINY):
        pass
    is_sealed = (path / "mqstore.seal").exists()
    assert is_sealed == (kind_of(folder) != "tmpfs")
    with (
        (path / "commitlog" / f"{0:020}").open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as changed,
    ):
        changed[places[3] + 91] ^= 1
    with pytest.raises(mqstore.CorruptionError):
        mqstore.open(path, "r+", config=TINY)
