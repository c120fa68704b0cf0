"""RocketMQ under its own user, behind repairs that root made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.java import SMALL as SETTINGS
from helpers.java import RocketMQ
from helpers.stores import crashed_copy
from helpers.users import GID, UID, give, open_folder

if TYPE_CHECKING:
    from pathlib import Path


def repaired(root: Path) -> None:
    """A crashed store of RocketMQ's user, without queues and index, that root repairs."""
    with mqstore.open(root.with_name("live"), "a", config=SETTINGS) as store:
        for number in range(300):
            store.append("orders", b"x" * 200, queue_id=number % 4, keys=f"k{number}")
        crashed_copy(store, root)
    for name in ("consumequeue", "index"):
        (root / name).rename(root.with_name(name))
    give(root, UID, GID, 0o750)
    mqstore.recover(root, dry_run=False, config=SETTINGS)
    mqstore.rebuild(root, dry_run=False, config=SETTINGS)
    with mqstore.open(root, "r+", config=SETTINGS) as store, store.group("g") as group:
        store.append("more", b"of root")
        group.seek("orders", 0, 5)


@pytest.mark.usefixtures("_java")
def test_broker_of_another_user_serves_a_store_that_root_repaired() -> None:
    with open_folder() as folder:
        root = folder / "store"
        repaired(root)
        broker = RocketMQ(folder / "rocketmq", user=(UID, GID))
        try:
            broker.start_broker(root, {"storeConfig": SETTINGS})
            broker.produce([{"topic": "orders", "queueId": 1, "bodyText": "of the broker"}] * 500)
            assert len(broker.consume(["orders"], "new", count=800)) == 800
            assert len(broker.consume(["orders"], "g", count=795)) == 795
            broker.stop_broker()
        finally:
            broker.kill()
        assert {path.stat().st_uid for path in root.rglob("*")} == {UID}
        assert mqstore.verify(root, config=SETTINGS).ok
