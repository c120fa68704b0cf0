"""RocketMQ in a process of its own, spoken to by JSON lines (``mqstore.differential.Main``)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parents[1] / "differential"
# Another version of RocketMQ than the pinned one, which is then built into a folder of its own.
VERSION = os.environ.get("MQSTORE_ROCKETMQ_VERSION", "")
PINNED = "5.3.3"
STORE_ONLY = {"5.5.1": "5.5.0"}
"""Releases of which the store is published and no client, with the release of the other parts."""


def release_of(version: str) -> str:
    """The release that a version is of, as the setting ``rocketmq_version`` names it."""
    return ".".join((version or PINNED).split(".")[:2])


RELEASE = release_of(VERSION)
JAVA_NEEDED = 17

Row = dict[str, Any]

SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
"""Settings of small files."""

# Short lives: the second compiler would cost more than it gives.
QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=1g", "-XX:TieredStopAtLevel=1")


def what_is_missing() -> str | None:
    """Why RocketMQ cannot be run here, ``None`` where it can."""
    for command, what in (("javac", f"a JDK {JAVA_NEEDED}"), ("mvn", "Maven")):
        if shutil.which(command) is None:
            return f"[java] {what} is not installed: no {command} on the path"
    # On macOS a `javac` is always there; without a JDK it only says so.
    found = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    version = found.stdout.split()[-1:] or [""]
    major = version[0].partition(".")[0]
    if not major.isdigit() or int(major) < JAVA_NEEDED:
        return f"[java] a JDK {JAVA_NEEDED} is not installed: javac is {version[0] or 'no JDK'}"
    return None


def build(version: str = VERSION) -> str:
    """Compiles the harness where its sources changed, and gives the class path."""
    version = "" if version == PINNED else version
    target = HERE / "target" / version
    sources = [HERE / "pom.xml", *sorted(p for p in (HERE / "src").rglob("*") if p.is_file())]
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.relative_to(HERE)}\0".encode() + source.read_bytes() + b"\0")
    target.mkdir(parents=True, exist_ok=True)
    # Another run may build at the same time.
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build(digest.hexdigest(), version)
    return f"{target / 'classes'}:{(target / 'classpath.txt').read_text().strip()}"


def _build(digest: str, version: str) -> None:
    stamp = HERE / "target" / version / "built"
    if not stamp.is_file() or stamp.read_text() != digest:
        maven = ["mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml"), "compile"]
        if version:
            others = STORE_ONLY.get(version, version)
            maven += [f"-Drocketmq.version={others}", f"-Dstore.version={version}"]
            maven += [f"-Dbuild.folder=target/{version}"]
        done = subprocess.run(
            maven,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} | os.environ,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(maven)} failed:\n{done.stdout}{done.stderr}")
        stamp.write_text(digest)


def _readable(classes: str, folder: Path) -> str:
    """A copy of a class path that other users can read."""
    folder.mkdir()
    copies = []
    for number, entry in enumerate(map(Path, classes.split(":"))):
        copy = folder / f"{number}-{entry.name}"
        copies.append(str(copy))
        if entry.is_dir():
            shutil.copytree(entry, copy)
        else:
            shutil.copyfile(entry, copy)
    return ":".join(copies)


class RocketMQError(Exception):
    """Exception of RocketMQ."""


class RocketMQ:
    """One running process; each call is a command and waits for its answer.

    Args:
        folder: For what the process writes beside stores: its log, its home.
        timeout_s: How long an answer may take; after it the process is killed.
        options: Of the virtual machine: memory and compilers.
        version: Of RocketMQ; the pinned one where it is empty.
        user: User and group of the process, which must be able to reach the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        timeout_s: float = 120,
        options: Sequence[str] = QUICK,
        version: str = VERSION,
        user: tuple[int, int] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        classes = build(version)
        identity: dict[str, Any] = {}
        if user is not None:
            classes = _readable(classes, folder / "classes")
            os.chown(folder, *user)
            identity = {"user": user[0], "group": user[1], "extra_groups": []}
        self._timeout_s = timeout_s
        self._count = 0
        self._stderr = folder / "stderr"
        options = [
            "-Duser.timezone=UTC",
            f"-Duser.home={folder}",
            f"-Dharness.log={folder / 'log'}",
            "-Drmq.logback.configurationFile=quiet.logback.xml",
            # A broker would make a certificate of its own at each start, for clients with TLS.
            "-Dtls.server.mode=disabled",
            *options,
        ]
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", classes, "mqstore.differential.Main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                cwd=folder,
                **identity,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def call(self, command: str, **arguments: Any) -> tuple[list[Row], Row]:
        """The rows of an answer, and its closing object.

        Raises:
            RocketMQError: The command failed.
        """
        self._count += 1
        self._send({"id": self._count, "command": command, **arguments})
        rows: list[Row] = []
        while True:
            answer = self._receive(command)
            if "row" in answer:
                rows.append(answer["row"])
            elif "error" in answer:
                raise RocketMQError(answer["error"])
            else:
                return rows, answer["done"]

    def _send(self, message: Row) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _receive(self, command: str) -> Row:
        try:
            line = self._lines.get(timeout=self._timeout_s)
        except queue.Empty:
            self.kill()
            raise RocketMQError(f"no answer to {command} in {self._timeout_s} s") from None
        if line is None:
            self.kill()
            tail = self._stderr.read_text(encoding="utf-8", errors="replace")[-4000:]
            raise RocketMQError(f"the process ended during {command}:\n{tail}")
        return json.loads(line)

    # The commands, by name.

    def write(self, store: Path, params: Row, script: Sequence[Row], **more: Any) -> list[Row]:
        """Puts the lines of a script; what each put answered."""
        return self._rows("write", store, params, script=list(script), paced=True, **more)

    def dump(self, store: Path, params: Row) -> list[Row]:
        """Everything that RocketMQ reads, in the shape of ``expected.jsonl``."""
        return self._rows("dump", store, params)

    def query(self, store: Path, params: Row, queries: Sequence[Row]) -> list[Row]:
        """RocketMQ's answers."""
        rows = self._rows("query", store, params, queries=list(queries))
        return [row["result"] for row in rows]

    def recover(self, store: Path, params: Row) -> list[Row]:
        """Load, start, clean stop: what was found and left, in the shape of ``recover.jsonl``.

        In controller mode the load alone.
        """
        return self._rows("recover", store, params)

    def truncate(self, store: Path, offset: int) -> None:
        """Ends the log of a held store as a slave does whose log is not its new master's."""
        self.call("truncate", store=str(store), offset=offset)

    def delete_topic(self, store: Path, topic: str) -> None:
        """Deletes a topic's queues in a held store, as the broker's command does."""
        self.call("delete-topic", store=str(store), topic=topic)

    def hold(self, store: Path, params: Row) -> None:
        """Opens a store and keeps it open; the commands above then use it as it is."""
        self.call("hold", store=str(store), params=params)

    def release(self, store: Path) -> None:
        """Closes a held store the clean way."""
        self.call("release", store=str(store))

    def starts(self, store: Path, params: Row) -> bool:
        """Whether RocketMQ opens the store; it is closed the clean way."""
        try:
            self.hold(store, params)
            self.release(store)
        except RocketMQError:
            return False
        return True

    def start_broker(self, store: Path, params: Row) -> None:
        """Starts a name server and a broker on a store, on the loopback address."""
        self.call("start-broker", store=str(store), params=params)

    def stop_broker(self) -> None:
        """Stops both the clean way."""
        self.call("stop-broker")

    def delete_expired(self) -> None:
        """Has the broker delete expired files now, all but the last one that is written to."""
        self.call("delete-expired")

    def produce(self, lines: Sequence[Row]) -> list[Row]:
        """Sends messages through a producer."""
        return self.call("produce", lines=list(lines))[0]

    def consume(self, topics: Sequence[str], group: str, **more: Any) -> list[Row]:
        """Takes all messages of topics through a consumer.

        RocketMQ's client may find its new connection closed and not try again. The tests compare
        every message with what was put in, so a second try hides no loss.
        """
        try:
            return self.call("consume", topics=list(topics), group=group, **more)[0]
        except RocketMQError as error:
            if "RemotingSendRequestException" not in str(error):
                raise
            return self.call("consume", topics=list(topics), group=group, **more)[0]

    def view(self, topic: str, **what: Any) -> list[Row]:
        """Asks the broker for a message by id, or for messages by key."""
        return self.call("view", topic=topic, **what)[0]

    def _rows(self, command: str, store: Path, params: Row, **more: Any) -> list[Row]:
        return self.call(command, store=str(store), params=params, **more)[0]

    # The end.

    def crash(self) -> None:
        """Ends the process as a kill would: nothing is closed, nothing is flushed."""
        self._send({"id": 0, "command": "crash"})
        self._process.wait(self._timeout_s)
        self._finish()

    def kill(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.wait()
        self._finish()

    def close(self) -> None:
        """Ends the process; what is held is closed first."""
        if self.is_alive:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(self._timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._finish()

    def _finish(self) -> None:
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                # A dead process takes no rest of a line.
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
