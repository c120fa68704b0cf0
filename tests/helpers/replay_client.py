"""A client of a cluster that keeps in memory what a replay sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mqstore._native import _Requests
from mqstore.replaying.sender import Failed, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import mqstore


class Client:
    """Takes the part of the Java process: messages of `fails` fail, one waits until `idle`."""

    fails: ClassVar[dict[bytes, tuple[int, str]]] = {}
    got: ClassVar[list[bytes]] = []
    slow: ClassVar[bytes] = b""
    idle: ClassVar[Callable[[Client], object]]
    most_body: ClassVar[int] = 1 << 20

    def __init__(self, *_args: object, **_options: object) -> None:
        self.waiting: list[Sent | Failed] = []
        self.late: list[Sent | Failed] = []

        self.requests = _Requests([], "b", 1, keeps_queue=True, most_body=self.most_body)

    def send(self, number: int, place: int, message: mqstore.StoredMessage, *rest: Any) -> int:
        if not (size := self.requests.add(number, place, message, *rest)):
            return 0
        self.requests.take(all=True)
        body = message.body
        if body in self.fails:
            code, text = self.fails[body]
            self.waiting.append(Failed(number, "MQBrokerException", text, code, 8))
        else:
            self.got.append(body)
            to = self.late if body == self.slow else self.waiting
            to.append(Sent((number,), "SEND_OK"))
        return size

    def answers(self, _timeout_s: float) -> Iterator[Sent | Failed]:
        if self.late and not self.waiting:
            self.idle()
        while self.waiting:
            yield self.waiting.pop(0)

    def end(self) -> Iterator[Sent | Failed]:
        yield from self.waiting

    def topic(self, _name: str) -> tuple[int, tuple[str, ...], str]:
        return 4, (), ""

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
