"""An event-sourced account: python examples/account.py FOLDER.

Events are the truth: balances are computed from them when the program starts, and at any time in
the past.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import mqstore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOPIC = "account-events"
SETTINGS = mqstore.StoreConfig.embedded(flush_disk_type="SYNC_FLUSH")


class Bank:
    """Accounts by their events; one process writes, any number may read."""

    def __init__(self, store: mqstore.Store) -> None:
        self.store = store
        self.balances = balances(store.topic(TOPIC))

    def deposit(self, account: str, cents: int) -> None:
        """Puts money in."""
        self._happened("deposited", account, cents)

    def withdraw(self, account: str, cents: int) -> None:
        """Takes money out.

        Raises:
            ValueError: The account has less.
        """
        if self.balances[account] < cents:
            raise ValueError(f"{account} has {self.balances[account]} cents, not {cents}")
        self._happened("withdrawn", account, -cents)

    def history(self, account: str) -> list[mqstore.StoredMessage]:
        """The events of one account, oldest first, found by their key."""
        return list(reversed(self.store.query(TOPIC, account, max_messages=1000)))

    def balances_at(self, when: datetime) -> Counter[str]:
        """Balances of all accounts at a time."""
        return balances(self.store.scan(topics=[TOPIC], end_ms=when))

    def _happened(self, kind: str, account: str, cents: int) -> None:
        # All events of an account lie in one queue, so they are in order for consumers too.
        body = json.dumps({"account": account, "cents": cents}).encode()
        self.store.append(TOPIC, body, queue_id=None, keys=account, tags=kind)
        self.balances[account] += cents


def balances(events: Iterable[mqstore.StoredMessage]) -> Counter[str]:
    """Adds events up."""
    sums: Counter[str] = Counter()
    for account, cents in map(changed, events):
        sums[account] += cents
    return sums


def changed(event: mqstore.StoredMessage) -> tuple[str, int]:
    """The account of an event, and by how much it changed."""
    found = json.loads(event.body)
    return found["account"], found["cents"]


def statement(bank: Bank, account: str) -> Iterator[str]:
    """The lines of an account's statement."""
    for event in bank.history(account):
        at = datetime.fromtimestamp(event.store_timestamp_ms / 1000, UTC)
        yield f"{at:%Y-%m-%d %H:%M} {event.tags} {changed(event)[1]:+d}"


def main(folder: str) -> None:
    with mqstore.open(folder, "a", config=SETTINGS) as store:
        bank = Bank(store)
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        bank.deposit("ann", 500)
        bank.deposit("bob", 200)
        bank.withdraw("ann", 150)
        try:
            bank.withdraw("bob", 1_000_000)
        except ValueError as error:
            print(f"refused: {error}")
        for line in statement(bank, "ann"):
            print(line)
        print(f"ann has {bank.balances['ann']}, had {bank.balances_at(before)['ann']} before")


if __name__ == "__main__":
    main(sys.argv[1])
