"""RocketMQ's own client in a process of its own, which sends what it is given."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import struct
import subprocess
import tempfile
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mqstore.errors import ConfigError, StoreIOError, expected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JAR = Path(__file__).with_name("sender.jar")
ACCESS_KEY, SECRET_KEY = "MQSTORE_ACCESS_KEY", "MQSTORE_SECRET_KEY"
LANES = 48
MOST_BODY_BYTES = 32 << 20
_MOST_ANSWER_BYTES = 1 << 20
_END_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster, and the client that speaks to it: arguments of ``mqstore.replay``."""

    to: str
    rocketmq_home: str | os.PathLike[str] | None = None
    classpath: str | None = None
    credentials: str | os.PathLike[str] | None = None
    tls: bool = False
    tls_config: str | os.PathLike[str] | None = None
    timeout_s: float = 3.0
    tries: int = 8
    batch: int = 32
    ordered: bool = False

    def class_path(self) -> str:
        """The class path of the client, our part first.

        Raises:
            ConfigError: Java, the client or our part is missing; the text says how to get it.
        """
        if shutil.which("java") is None:
            advice = "install a Java runtime, version 8 or newer"
            raise ConfigError(expected("java", "a command on the path", "none", advice), "java")
        if not JAR.is_file():
            advice = "mqstore was built without a JDK; install one, then build it again"
            raise ConfigError(expected("sender.jar", f"the file {JAR}", "none", advice), "java")
        # An empty one would be the current folder.
        if self.classpath:
            return f"{JAR}{os.pathsep}{self.classpath}"
        home = self.rocketmq_home or os.environ.get("ROCKETMQ_HOME")
        advice = "name an installed RocketMQ, or its client's jars with classpath"
        if not home:
            text = expected("rocketmq_home", "a folder, or ROCKETMQ_HOME", "neither", advice)
            raise ConfigError(text, "rocketmq_home")
        if not any(Path(home, "lib").glob("rocketmq-client*.jar")):
            found = f"{home}, whose lib has none"
            text = expected(
                "rocketmq_home", "a folder with lib/rocketmq-client*.jar", found, advice
            )
            raise ConfigError(text, "rocketmq_home")
        return f"{JAR}{os.pathsep}{Path(home, 'lib', '*')}"

    def secrets(self) -> tuple[str, str]:
        """Access key and secret key, of the file or of the environment; empty without them."""
        if self.credentials is None:
            access, secret = os.environ.get(ACCESS_KEY, ""), os.environ.get(SECRET_KEY, "")
            if bool(access) != bool(secret):
                wanted, there = f"both {ACCESS_KEY} and {SECRET_KEY}", "only one of them"
                raise ConfigError(expected("credentials", wanted, there), "credentials")
            return access, secret
        found = {}
        for line in Path(self.credentials).read_text(encoding="utf-8").splitlines():
            name, separator, value = line.partition("=" if "=" in line.split(":")[0] else ":")
            if separator and not line.lstrip().startswith("#"):
                found[name.strip()] = value.strip().strip("\"'")
        try:
            return found["accessKey"], found["secretKey"]
        except KeyError as error:
            wanted, there = "accessKey and secretKey", f"{self.credentials} without {error}"
            raise ConfigError(expected("credentials", wanted, there), "credentials") from None


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages that the cluster has, by their numbers."""

    numbers: tuple[int, ...]
    status: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that it did not take, by its number."""

    number: int
    kind: str
    text: str
    code: int
    tries: int


class Sender:
    """The running client.

    Raises:
        ConfigError: It cannot be started as asked.
        StoreIOError: It does not start.
    """

    def __init__(self, target: Target, *, own_lanes: bool, dropped: Iterable[str]) -> None:
        access, secret = target.secrets()
        class_path = target.class_path()
        # The client writes a log of its own, which nobody reads; a killed run leaves it to Java.
        self._folder = tempfile.TemporaryDirectory(
            prefix="mqstore-sender-", ignore_cleanup_errors=True
        )
        logs = self._folder.name
        # Standard output is for answers alone, not for a thread dump.
        command = ["java", "-Xmx768m", "-XX:+UseSerialGC", "-XX:+DisplayVMOutputToStderr"]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in (ACCESS_KEY, SECRET_KEY)
        }
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and no text of a store
            [*command, "-cp", class_path, "mqstore.Sender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept,
            bufsize=1 << 18,
            # Ctrl-C is for this process, which lets the client end between messages.
            process_group=0,
        )
        self._errors: deque[bytes] = deque(maxlen=20)
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()
        settings = {
            "name.servers": target.to,
            "access.key": access,
            "secret.key": secret,
            "tls": str(target.tls).lower(),
            "timeout.ms": str(round(target.timeout_s * 1000)),
            "tries": str(target.tries),
            "batch": str(target.batch),
            "lanes": str(LANES),
            "own.lanes": str(own_lanes).lower(),
            "ordered": str(target.ordered).lower(),
            "drop": "\1".join(dropped),
            "property.tls.enable": str(target.tls).lower(),
            "property.rocketmq.client.logRoot": logs,
            "property.rocketmq.client.logLevel": "ERROR",
            "property.rocketmq.log.root": logs,
            "property.rocketmq.log.level": "error",
            "property.user.home": logs,
            "folder": logs,
        }
        if target.tls_config is not None:
            settings["property.tls.config.file"] = os.fspath(target.tls_config)
        try:
            self._send(b"C" + b"".join(_text(part) for pair in settings.items() for part in pair))
            self.flush()
            self._answer("R")
        except BaseException:
            self.close()
            raise

    def topic(self, name: str) -> tuple[int, tuple[str, ...], str]:
        """Queues of a topic of the target (0: not there), its groups, and why it is not known."""
        self._send(b"T" + _text(name))
        self.flush()
        body = self._answer("T")
        (_, error, groups), at = _texts(body, 3)
        return *struct.unpack_from(">i", body, at), tuple(filter(None, groups.split("\1"))), error

    def send(
        self,
        number: int,
        topic: str,
        queue_id: int,
        lane: int,
        flag: int,
        properties: bytes,
        added: bytes,
        body: bytes,
    ) -> None:
        """Hands on a message; its answer has the number."""
        head = struct.pack(">Bqiii", 77, number, queue_id, lane, flag)
        self._send(head + b"".join(map(_block, (topic.encode(), properties, added, body))))

    def answers(self, timeout_s: float | None) -> Iterator[Sent | Failed]:
        """The answers that are there, after a wait for the first of them."""
        try:
            body = self._answers.get(timeout=timeout_s)
            while True:
                yield self._parsed(self._whole(body))
                body = self._answers.get_nowait()
        except queue.Empty:
            return

    def flush(self) -> None:
        """Hands on what is held back."""
        with self._named():
            self._pipe.flush()

    def end(self) -> Iterator[Sent | Failed]:
        """Ends the client after the messages that are on their way; it drops the others."""
        self._send(b"K")
        self.flush()
        with contextlib.suppress(queue.Empty):
            while (body := self._answers.get(timeout=_END_S)) is not None:
                yield self._parsed(self._whole(body))
        self.close()

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._folder.cleanup()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - a pipe, as asked for
        return self._process.stdin

    def _send(self, body: bytes) -> None:
        with self._named():
            self._pipe.write(struct.pack(">I", len(body)))
            self._pipe.write(body)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (BrokenPipeError, ValueError):
            raise self._gone() from None

    def _gone(self) -> StoreIOError:
        # It may live on, with a broken stream.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        self._process.wait()
        self._threads[1].join(1.0)
        said = b"".join(self._errors).decode("utf-8", "replace").strip() or "it said nothing"
        text = f"java: expected a running client, found that it ended ({self._process.returncode}):"
        text = f"{text} {said[-2000:]}; start it again to go on"
        return StoreIOError(text, None, "java", "send")

    def _answer(self, kind: str) -> bytes:
        body = self._whole(self._answers.get())
        if body[:1] != kind.encode():
            raise StoreIOError(
                f"java: expected an answer {kind}, found {body[:1]!r}", None, "java", "read"
            )
        return body

    def _whole(self, body: bytes | None) -> bytes:
        if body is None:
            # For whoever asks next.
            self._answers.put(None)
            raise self._gone()
        if body[:1] == b"X":
            raise StoreIOError(
                f"java: the client failed: {_texts(body, 1)[0][0]}", None, "java", "start"
            )
        return body

    def _parsed(self, body: bytes) -> Sent | Failed:
        if body[:1] == b"S":
            (status,), at = _texts(body, 1)
            return Sent(struct.unpack_from(f">{(len(body) - at) // 8}q", body, at), status)
        (kind, text), at = _texts(body, 2)
        number, code, tries = struct.unpack_from(">qii", body, at)
        return Failed(number, kind, text, code, tries)

    def _read(self) -> None:
        out = self._process.stdout
        assert out is not None  # noqa: S101
        while len(head := out.read(4)) == 4:
            (length,) = struct.unpack(">I", head)
            body = out.read(length) if 0 < length <= _MOST_ANSWER_BYTES else b""
            if len(body) != length or not body:
                break
            self._answers.put(body)
        self._answers.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None  # noqa: S101
        while line := self._process.stderr.readline(1 << 12):
            self._errors.append(line)


def _block(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _text(text: str) -> bytes:
    return _block(text.encode())


def _texts(body: bytes, count: int) -> tuple[list[str], int]:
    """The texts behind a frame's kind, and where they end."""
    found, at = [], 1
    for _ in range(count):
        (length,) = struct.unpack_from(">I", body, at)
        found.append(body[at + 4 : at + 4 + length].decode("utf-8", "replace"))
        at += 4 + length
    return found, at
