"""A work queue with retries: python examples/work_queue.py FOLDER ADDRESS...

Puts a letter for each address into the queue, and sends them. A letter that cannot be sent is
tried again, and becomes a dead letter after three attempts. Kill it and start it again: no letter
is lost.
"""

from __future__ import annotations

import sys

import mqstore


def send(message: mqstore.StoredMessage) -> None:
    """Sends one letter; an exception brings it again."""
    address = message.body.decode()
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    if address.startswith("busy") and message.reconsume_times == 0:
        raise ConnectionError("the post office is busy")
    print(f"sent to {address} at attempt {message.reconsume_times + 1}")


def main(folder: str, addresses: list[str]) -> None:
    with (
        mqstore.open(folder, "a") as store,
        store.group("senders") as group,
    ):
        store.append_many([("letters", address.encode()) for address in addresses])
        done = group.process("letters", send, max_attempts=3, backoff=lambda _: 1, idle_s=3)
        print(f"{done.handled} sent, {done.retried} tried again, {done.dead} given up")
        for letter in store.topic(group.dead_letter_topic):
            print(f"dead letter: {letter.body.decode()}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
