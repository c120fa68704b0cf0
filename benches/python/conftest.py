"""Fixtures of the benchmarks: the messages of one round, and a store that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import samples

import mqstore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=samples.BODY_BYTES)
def messages(request: pytest.FixtureRequest) -> samples.Sample:
    return samples.sample(request.param)


@pytest.fixture
def filled(tmp_path: Path, messages: samples.Sample) -> Iterator[mqstore.Store]:
    """A store that holds one round."""
    with mqstore.open(tmp_path / "store", "a", config=samples.CONFIG) as store:
        samples.append_all(store, messages)
        store.wait_dispatched()
        yield store
