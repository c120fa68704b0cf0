"""Bulk loading: casts without loss, all or nothing, going on behind an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mqstore

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"mapped_file_size_commit_log": 65_536}
MS = 1_767_225_600_000


@pytest.fixture
def store(tmp_path: Path):
    with mqstore.open(tmp_path / "store", "a", config=CONFIG) as opened:
        yield opened


def bodies(store) -> list[bytes]:
    return [message.body for message in store.scan()]


def test_a_column_that_casts_without_loss_is_cast(store) -> None:
    table = pa.table(
        {
            "topic": ["t", "t"],
            "body": pa.array(["one", "zw\u00f6lf"]),
            "tags": pa.nulls(2),
            "keys": pa.nulls(2),
            "properties": pa.array([None, None], pa.string()),
            "born_timestamp_ms": [MS, MS + 1],
        }
    )
    assert store.append_arrow(table).count == 2
    assert bodies(store) == [b"one", "zw\u00f6lf".encode()]
    assert [m.born_timestamp_ms for m in store.scan()] == [MS, MS + 1]
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        store.append_arrow(pa.table({"topic": ["t"], "body": pa.array(["x"]).cast(kind)}))
        assert bodies(store)[-1] == b"x"


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"body": [7]},
            "column body: expected binary, got int64; cast it, for example .cast(pa.bin",
        ),
        ({"queue_id": ["1"]}, "column queue_id: expected int32, got string; cast it, for example"),
        (
            {"keys": ["k"]},
            "column keys: expected list<string>, got string; for example .cast(pa.li",
        ),
        (
            {"born_timestamp": [MS]},
            "column born_timestamp: expected timestamp, got int64; cast it, or",
        ),
    ],
)
def test_a_column_of_another_type_is_named_with_the_cast(store, columns, says) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        store.append_arrow(pa.table({"topic": ["t"], "body": [b""], **columns}))


def bad_row(count: int, bad: int) -> pa.RecordBatchReader:
    """A stream of batches of 100 rows with one empty topic."""
    table = pa.table(
        {
            "topic": ["" if n == bad else "t" for n in range(count)],
            "body": [b"%d" % n for n in range(count)],
        }
    )
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))


def test_an_error_says_how_many_rows_are_in_and_a_second_call_goes_on(store) -> None:
    with pytest.raises(mqstore.InvalidMessageError) as caught:
        store.append_arrow(bad_row(450, 330))
    assert str(caught.value).endswith("; 300 rows were written: go on with resume_from=300")
    assert caught.value.index == 330
    assert len(bodies(store)) == len(caught.value.results) == 300
    summary = store.append_arrow(bad_row(450, 450), resume_from=300)
    assert summary.count == 150
    assert bodies(store) == [b"%d" % n for n in range(450)]
    with pytest.raises(ValueError, match="resume_from: expected at most the 450 rows"):
        store.append_arrow(bad_row(450, 450), resume_from=451)
    with pytest.raises(mqstore.InvalidMessageError) as caught:
        store.append_arrow(bad_row(450, 420), resume_from=310)
    assert str(caught.value).endswith("go on with resume_from=400")
    assert caught.value.index == 420


def test_atomic_writes_all_rows_or_none(store) -> None:
    with pytest.raises(mqstore.InvalidMessageError, match="no row was written") as caught:
        store.append_arrow(bad_row(450, 330), atomic=True)
    assert (caught.value.index, bodies(store)) == (330, [])
    with pytest.raises(TypeError, match="no row was written"):
        store.append_arrow(pa.table({"topic": ["t"], "body": [7]}), atomic=True)
    # More than the store writes at a time.
    end = store.max_physical_offset
    with pytest.raises(mqstore.InvalidMessageError, match="no row was written") as caught:
        store.append_arrow(bad_row(2500, 2400), atomic=True)
    assert (caught.value.index, store.max_physical_offset) == (2400, end)
    with pytest.raises(ValueError, match="resume_from: expected 0 or more, got -1"):
        store.append_arrow(bad_row(1, 1), resume_from=-1)
    assert store.append_arrow(bad_row(450, 450), atomic=True).count == 450
    assert bodies(store) == [b"%d" % n for n in range(450)]
    assert store.append_arrow(bad_row(450, 450), atomic=True, resume_from=440).count == 10
