"""RocketMQ's own client in a process of its own, which sends what it is given."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore._native import _Requests
from mqstore.errors import ConfigError, StoreIOError, expected, wrong_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqstore import Message, StoredMessage

JAR = Path(__file__).with_name("sender.jar")
ACCESS_KEY, SECRET_KEY = "MQSTORE_ACCESS_KEY", "MQSTORE_SECRET_KEY"
MOST_BODY_BYTES = 32 << 20
_MOST_ANSWER_BYTES = 1 << 20
_MOST_HELD_BYTES = 256 << 10
# So long, requests that are not full wait for more while others are on their way.
_PATIENCE_S = 0.02
_END_S = 30.0
JAVA_OPTIONS = (
    *("-Xmx768m", "-XX:+UseSerialGC"),
    # The second compiler would take more from the broker beside it than it gives.
    "-XX:TieredStopAtLevel=1",
    # Standard output is for answers alone, not for a thread dump.
    "-XX:+DisplayVMOutputToStderr",
)


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
            raise wrong_setting("java", "a command on the path", "none", advice)
        if not JAR.is_file():
            advice = "mqstore was built without a JDK; install one, then build it again"
            raise ConfigError(expected("sender.jar", f"the file {JAR}", "none", advice), "java")
        # An empty one would be the current folder.
        if self.classpath:
            return f"{JAR}{os.pathsep}{self.classpath}"
        home = self.rocketmq_home or os.environ.get("ROCKETMQ_HOME") or ""
        if not home or not any(Path(home, "lib").glob("rocketmq-client*.jar")):
            wanted = "a folder, or ROCKETMQ_HOME, with lib/rocketmq-client*.jar"
            advice = "name an installed RocketMQ, or its client's jars with classpath"
            raise wrong_setting("rocketmq_home", wanted, str(home) or "neither", advice)
        return f"{JAR}{os.pathsep}{Path(home, 'lib', '*')}"

    def secrets(self) -> tuple[str, str]:
        """Access key and secret key, of the file or of the environment; empty without them."""
        if self.credentials is None:
            access, secret = os.environ.get(ACCESS_KEY, ""), os.environ.get(SECRET_KEY, "")
            if bool(access) != bool(secret):
                wanted, there = f"both {ACCESS_KEY} and {SECRET_KEY}", "only one of them"
                raise wrong_setting("credentials", wanted, there)
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
            raise wrong_setting("credentials", wanted, there) from None


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

    Args:
        target: The cluster.
        dropped: Names of properties that messages lose.
        broker: Where the messages come from.
        keeps_queue: Whether they go to their own queues, and not to any.

    Raises:
        ConfigError: It cannot be started as asked.
        StoreIOError: It does not start.
    """

    def __init__(
        self, target: Target, *, dropped: Iterable[str], broker: str = "", keeps_queue: bool = True
    ) -> None:
        access, secret = target.secrets()
        class_path = target.class_path()
        # The client writes a log of its own, which nobody reads; a killed run leaves it to Java.
        self._folder = tempfile.TemporaryDirectory(
            prefix="mqstore-sender-", ignore_cleanup_errors=True
        )
        logs = self._folder.name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        kept = {k: v for k, v in os.environ.items() if k not in (ACCESS_KEY, SECRET_KEY)}
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and no text of a store
            ["java", *JAVA_OPTIONS, "-cp", class_path, "mqstore.Sender"],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=kept,
            # Ctrl-C is for this process, which lets the client end between messages.
            process_group=0,
        )
        assert self._process.stdin is not None  # noqa: S101 - pipes, as asked for
        assert self._process.stdout is not None  # noqa: S101
        self._pipe, self._out = self._process.stdin, self._process.stdout
        with contextlib.suppress(OSError, AttributeError):  # A system may allow less.
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
            fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, 1 << 18)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._unread = bytearray()
        self._requests = _Requests([*dropped], broker, target.batch, keeps_queue, MOST_BODY_BYTES)
        self._held_bytes = 0
        settings = {
            "name.servers": target.to,
            "access.key": access,
            "secret.key": secret,
            "tls": str(target.tls).lower(),
            "timeout.ms": str(round(target.timeout_s * 1000)),
            "tries": str(target.tries),
            "ordered": str(target.ordered).lower(),
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
            self._ask(b"C" + b"".join(_text(part) for pair in settings.items() for part in pair))
        except BaseException:
            self.close()
            raise

    def topic(self, name: str) -> tuple[int, tuple[str, ...], str]:
        """Queues of a topic of the target (0: not there), its groups, and why it is not known."""
        body = self._ask(b"T" + _text(name))
        (_, error, groups), at = _texts(body, 3)
        return *struct.unpack_from(">i", body, at), tuple(filter(None, groups.split("\1"))), error

    def send(
        self,
        number: int,
        place: int,
        message: Message | StoredMessage,
        topic: str,
        queue_id: int,
        lane: int,
        added: bytes,
    ) -> int:
        """Hands on a message, and gives its bytes; its answer has the number.

        0 if its body is too large: then it was not handed on.
        """
        size = self._requests.add(number, place, message, topic, queue_id, lane, added)
        self._held_bytes += size
        if self._held_bytes > _MOST_HELD_BYTES:
            self._send()
        return size

    def answers(self, timeout_s: float) -> Iterator[Sent | Failed]:
        """The answers that are there, after a wait for the first of them."""
        self._send()
        patience_s = min(timeout_s, _PATIENCE_S)
        body = self._frame(patience_s)
        if body is None:
            self.flush()
            body = self._frame(timeout_s - patience_s)
        while body is not None:
            if not body:
                raise self._gone()
            yield _answer(body)
            body = self._frame(0)

    def flush(self) -> None:
        """Has everything sent that was handed on, in requests that may not be full."""
        self._write(self._requests.take(all=True))

    def end(self) -> Iterator[Sent | Failed]:
        """Ends the client after the messages that are on their way; it drops the others."""
        self._write(_block(b"K"))
        while (body := self._frame(_END_S)) and body[:1] != b"E":
            yield _answer(body)
        self.close()

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._said.close()
        self._out.close()
        # Its buffer is for nobody.
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._folder.cleanup()

    def _send(self) -> None:
        """Sends the requests that are full."""
        self._write(self._requests.take(all=False))

    def _write(self, data: bytes) -> None:
        self._held_bytes = 0
        try:
            self._pipe.write(data)
            self._pipe.flush()
        except (BrokenPipeError, ValueError):
            raise self._gone() from None

    def _ask(self, body: bytes) -> bytes:
        self._write(_block(body))
        if not (answer := self._frame(None)):
            raise self._gone()
        return answer

    def _frame(self, timeout_s: float | None) -> bytes | None:
        """The next answer; ``None`` if none comes in time, empty if none will come."""
        unread = self._unread
        while True:
            if len(unread) >= 4:
                (length,) = struct.unpack_from(">I", unread)
                if not 0 < length <= _MOST_ANSWER_BYTES:
                    return b""
                if len(unread) >= 4 + length:
                    break
            if not self._poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            if not (data := os.read(self._out.fileno(), 1 << 16)):
                return b""
            unread += data
        body = bytes(unread[4 : 4 + length])
        del unread[: 4 + length]
        if body[:1] == b"X":
            text = f"java: the client failed: {_texts(body, 1)[0][0]}"
            raise StoreIOError(text, None, "java", "start")
        return body

    def _gone(self) -> StoreIOError:
        # It may live on, with a broken stream.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        code = self._process.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 2000))
        said = self._said.read().decode("utf-8", "replace").strip() or "it said nothing"
        text = f"java: expected a running client, found that it ended ({code}): {said}"
        return StoreIOError(f"{text}; start it again to go on", None, "java", "send")


def _answer(body: bytes) -> Sent | Failed:
    if body[:1] == b"S":
        (status,), at = _texts(body, 1)
        return Sent(struct.unpack_from(f">{(len(body) - at) // 8}q", body, at), status)
    (kind, text), at = _texts(body, 2)
    number, code, tries = struct.unpack_from(">qii", body, at)
    return Failed(number, kind, text, code, tries)


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
