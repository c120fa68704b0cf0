"""Write, close, read again: is the installed wheel whole? Needs nothing but the wheel."""

import tempfile
from pathlib import Path

import mqstore

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "store"
    with mqstore.open(path, "a") as store:
        written = store.append("orders", b"hello", tags="paid", keys="o-1")
    with mqstore.open(path) as store:
        assert store.get(written.physical_offset).body == b"hello"
        assert [m.body for m in store.query("orders", "o-1")] == [b"hello"]
        assert store.read("orders", 0, 0, tags="paid").status == "FOUND"
