"""How the command is run, and what is written for it to read."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SETTINGS = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 7,
    "max_index_num": 40,
    "message_index_enable": True,
}
BEGIN_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Ran:
    """How a run of the command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def jsonl(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def command_line() -> list[str]:
    """The command beside this interpreter."""
    script = Path(sys.executable).with_name("mqstore")
    return [str(script)] if script.exists() else [sys.executable, "-m", "mqstore"]


def environment(**more: str) -> dict[str, str]:
    """This process's environment with nothing in it that changes what is printed."""
    kept = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}
    }
    return kept | {"TZ": "UTC", "PYTHONIOENCODING": "utf-8"} | more


def read_terminal(parent: int) -> bytes:
    """Reads a terminal until the last process has closed it, and closes it."""
    parts = []
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:  # Linux says so when the last one has closed it
            break
        if not part:
            break
        parts.append(part)
    os.close(parent)
    return b"".join(parts)


def on_terminal(arguments: list[str], **more: str) -> tuple[int, bytes, bytes]:
    """Runs the command with standard output and error on terminals: code, output, errors."""
    pairs = [pty.openpty(), pty.openpty()]
    process = subprocess.Popen(
        [*command_line(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=pairs[0][1],
        stderr=pairs[1][1],
        env=environment(TERM="xterm", **more),
    )
    for _, child in pairs:
        os.close(child)
    texts = [read_terminal(parent) for parent, _ in pairs]
    return process.wait(timeout=60), *texts


def messages() -> list[mqstore.Message]:
    """Forty messages of two topics, a second apart; every fourth is of ``audit``."""
    return [
        mqstore.Message(
            "audit" if n % 4 == 3 else "orders",
            f'{{"number": {n}}}'.encode(),
            queue_id=0 if n % 4 == 3 else n % 2,
            tags=("created", "paid", "refunded")[n % 3],
            keys=[f"order-{n // 2}", "all"],
            unique_key=f"U{n:03}",
            properties={"source": f"s{n % 5}"},
            born_timestamp_ms=BEGIN_MS + 1000 * n - 5,
            born_host="10.1.2.3:4567",
            store_timestamp_ms=BEGIN_MS + 1000 * n,
            store_host="10.9.8.7:10911",
        )
        for n in range(40)
    ]


@contextlib.contextmanager
def holding(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has a store's lock until its input ends."""
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "sys.stdout.write('held'); sys.stdout.flush(); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.read(4) == b"held"
        yield holder


def children(pid: int) -> list[int]:
    """The processes that a process started from its first thread."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
