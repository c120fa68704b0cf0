"""Single index files that RocketMQ wrote: read by us, and written again, byte for byte."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

import mqstore
from helpers.golden import ROOT, manifest, read_rows

if TYPE_CHECKING:
    from pathlib import Path

NEVER = 2**63 - 1


@pytest.mark.parametrize("name", manifest()["index_files"])
def test_index_file_written_again(name: str, tmp_path: Path) -> None:
    folder = ROOT / "indexfile"
    (params,) = read_rows(folder / f"{name}.params.json")
    path = tmp_path / "20231001123456000"
    if params["endPhyOffset"] or params["endTimestamp"]:
        # A file made behind another begins with the other's end.
        size = 40 + 4 * params["slots"] + 20 * params["entries"]
        time, offset = params["endTimestamp"], params["endPhyOffset"]
        header = struct.pack(">qqqqii", time, time, offset, offset, 0, 1)
        path.write_bytes(header.ljust(size, b"\0"))
    results = []
    sizes = {"slots": params["slots"], "entries": params["entries"]}
    with mqstore.IndexFile(path, "a", **sizes) as index:
        for number, line in enumerate(read_rows(folder / f"{name}.puts.jsonl")):
            if "select" in line:
                offsets = index.select(
                    line["select"],
                    begin_ms=line.get("begin", 0),
                    end_ms=line.get("end", NEVER),
                    max_entries=line["max"],
                )
                results.append({"select": line["select"], "phyOffsets": offsets})
            else:
                ok = index.put(line["key"], line["phyOffset"], line["storeTimestamp"])
                key_hash = mqstore.key_hash(line["key"])
                results.append({"i": number, "key": line["key"], "keyHash": key_hash, "ok": ok})
    assert results == read_rows(folder / f"{name}.results.jsonl")
    assert path.read_bytes() == (folder / f"{name}.index").read_bytes()


@pytest.mark.parametrize("name", manifest()["index_files"])
def test_index_file_read(name: str) -> None:
    folder = ROOT / "indexfile"
    (params,) = read_rows(folder / f"{name}.params.json")
    dump = read_rows(folder / f"{name}.dump.jsonl")
    sizes = {"slots": params["slots"], "entries": params["entries"]}
    with mqstore.IndexFile(folder / f"{name}.index", **sizes) as index:
        header = index.header
        entries = [index.entry(number) for number in range(1, len(index) + 1)]
    assert dump[0] == {
        "type": "header",
        "beginTimestamp": header.begin_timestamp_ms,
        "endTimestamp": header.end_timestamp_ms,
        "beginPhyOffset": header.begin_physical_offset,
        "endPhyOffset": header.end_physical_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
    }
    found = [
        {
            "type": "entry",
            "i": entry.number,
            "keyHash": entry.key_hash,
            "phyOffset": entry.physical_offset,
            "timeDiff": entry.seconds,
            "prev": entry.prev_entry,
        }
        for entry in entries
    ]
    # RocketMQ's dump begins with entry 0, which is never used.
    assert found == [row for row in dump if row["type"] == "entry" and row["i"] > 0]
