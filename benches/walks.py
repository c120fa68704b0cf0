"""Source files with executed lines on a warm hot path: `make walks`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from counts import PATHS, READ, ROOT, WRITTEN, built, counted

WORKS = ("append-128", "key-query", "queue-read", "scan-arrow")
# The release's own code, with the line of each instruction; kept apart from it.
LINES = {
    "CARGO_PROFILE_RELEASE_DEBUG": "line-tables-only",
    "CARGO_PROFILE_RELEASE_STRIP": "none",
    "CARGO_TARGET_DIR": str(ROOT / "target" / "walks"),
}


def files_of(profile: Path) -> set[str]:
    """Files of `src` that callgrind names: of functions, and of code inlined into them."""
    named = re.findall(r"^f[ile]=(?:\(\d+\) )?(\S+)$", profile.read_text("utf-8"), re.MULTILINE)
    return {
        name[name.index("src/") :] for name in named if (ROOT / name).is_relative_to(ROOT / "src")
    }


def main() -> int:
    """Prints the files of each path."""
    if shutil.which("valgrind") is None:
        print("skipped: walks: valgrind is not installed")
        return 0
    program = built(LINES)
    with tempfile.TemporaryDirectory(prefix="mqstore-walks-") as folder:
        for work in WORKS:
            store, count = Path(folder) / "store", READ
            if work.startswith("append"):
                count = WRITTEN
            else:
                subprocess.run([program, "prepare", store, str(count)], check=True)
            counted(program, work, store, count)
            found = sorted(files_of(store.with_name("callgrind")))
            shutil.rmtree(store)
            print(f"{len(found):3}  {PATHS[work]}\n" + "".join(f"     {name}\n" for name in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
