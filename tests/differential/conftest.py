"""RocketMQ for the tests that need it; skipped, with the reason, where it cannot be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from helpers.java import RocketMQ, what_is_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def _java() -> None:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def _shared(_java: None) -> Iterator[list[RocketMQ]]:
    running: list[RocketMQ] = []
    yield running
    for process in running:
        process.close()


@pytest.fixture
def rocketmq(_shared: list[RocketMQ], tmp_path_factory: pytest.TempPathFactory) -> RocketMQ:
    """The one process that most tests share."""
    if not _shared or not _shared[-1].is_alive:
        _shared.append(RocketMQ(tmp_path_factory.mktemp("rocketmq")))
    return _shared[-1]


@pytest.fixture
def start_rocketmq(_java: None, tmp_path: Path) -> Iterator[Callable[[], RocketMQ]]:
    """Starts processes of a test's own, to be killed or to hold a lock."""
    running: list[RocketMQ] = []

    def start() -> RocketMQ:
        running.append(RocketMQ(tmp_path / f"rocketmq-{len(running)}"))
        return running[-1]

    yield start
    for process in running:
        if process.is_alive:
            process.kill()


@pytest.fixture(scope="module")
def running(
    _java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RocketMQ]]:
    """One process of each version."""
    processes: dict[str, RocketMQ] = {}

    def start(version: str) -> RocketMQ:
        if version not in processes or not processes[version].is_alive:
            folder = tmp_path_factory.mktemp(f"rocketmq-{version}")
            processes[version] = RocketMQ(folder, version=version)
        return processes[version]

    yield start
    for process in processes.values():
        process.close()
