"""A process that closed its standard streams prints into no file of a store."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

PRINTS = """
import os, sys
os.closerange(0, 3)
import mqstore
with mqstore.open(sys.argv[1], "a", config={"flush_disk_type": "SYNC_FLUSH"}) as store:
    for number in range(10):
        store.append("orders", b"%d" % number)
    for descriptor in range(3):
        try:
            os.write(descriptor, b"a line of the program" * 10)
        except OSError:
            pass
"""


def test_a_process_without_standard_streams_prints_into_no_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS, str(tmp_path)], check=False)
    assert done.returncode == 0
    with mqstore.open(tmp_path) as store:
        assert [message.body for message in store.topic("orders")] == [b"%d" % n for n in range(10)]
    assert mqstore.verify(tmp_path).ok
