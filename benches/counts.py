"""Instructions and cache misses of one message on the hot paths: `make counts`.

Callgrind runs `benches/counts.rs` and simulates one cache, so the counts do not depend on the load
of the machine. They depend on the compiler, the C library and callgrind: counts are compared with
the kept ones only where these are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from document import put_section

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "performance" / "counts.json"
# Both counts of a path may grow by so much; a small count by a little more, since it is rounded.
GROWTH, SLACK = 0.03, 0.2
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64")
# A log of 16 MiB and more is recovered on several threads.
WRITTEN, READ = 16_000, 16_000
# Work of which the whole process counts, since threads do it.
WHOLE = ("recover", "verify")
# Callgrind counts each byte of these instructions as one.
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1073741824:"
    "glibc.cpu.x86_rep_stosb_threshold=1073741824"
}

PATHS = {
    "append-128": "append, 128 B, two keys",
    "append-1024": "append, 1 KiB, two keys",
    "append-many-128": "append_many, 128 B",
    "append-many-1024": "append_many, 1 KiB",
    "append-arrow-128": "append_arrow, 128 B",
    "append-arrow-1024": "append_arrow, 1 KiB",
    "index-put": "index put, one by one",
    "index-put-many": "index put, in bulk",
    "key-query": "key query",
    "queue-read": "read of a queue, 32 at a time",
    "scan": "scan with checksums",
    "scan-arrow": "scan_arrow, all columns",
    "scan-arrow-three": "scan_arrow, three columns",
    "recover": "recovery, log alone",
    "verify": "verify",
}

Counts = dict[str, dict[str, float]]


def tools() -> dict[str, str]:
    """The tools and the machine that the counts depend on."""

    def version(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    library, number = platform.libc_ver()
    return {
        "rustc": version("rustc", "--version"),
        "valgrind": version("valgrind", "--version"),
        "library": f"{library} {number}",
        "machine": platform.machine(),
    }


def built(environment: dict[str, str] | None = None) -> Path:
    """The program, compiled as a release is."""
    command = ["cargo", "build", "--release", "--locked", "--features", "arrow"]
    done = subprocess.run(
        [*command, "--bench", "counts", "--message-format=json-render-diagnostics"],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    messages = map(json.loads, done.stdout.splitlines())
    [program] = [
        message["executable"]
        for message in messages
        if message.get("executable") and message["target"]["name"] == "counts"
    ]
    return Path(program)


def counted(program: Path, work: str, store: Path, count: int) -> tuple[int, int]:
    """Instructions and last-level misses of a run: of `measured`, or of the whole process."""
    out = store.with_name("callgrind")
    command = ["valgrind", "--tool=callgrind", "--cache-sim=yes", *CACHES]
    command += [f"--callgrind-out-file={out}"]
    if work in WHOLE:
        # How far threads search the empty end of the log depends on their turns.
        command += ["--toggle-collect=*file_walk*open_at*", "--collect-atstart=yes"]
    else:
        command += ["--toggle-collect=*counts*measured*"]
    done = subprocess.run(
        [*command, str(program), work, str(store), str(count)],
        env={"PATH": os.environ["PATH"], **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{work}: exit code {done.returncode}\n{done.stdout}")
    text = out.read_text(encoding="utf-8")
    lines = dict(re.findall(r"^(events|totals): (.*)$", text, flags=re.MULTILINE))
    found = dict(zip(lines["events"].split(), map(int, lines["totals"].split()), strict=False))
    return found["Ir"], found.get("DLmr", 0) + found.get("DLmw", 0)


def count_path(program: Path, work: str, folder: Path) -> dict[str, float]:
    """Counts of one message."""
    is_written = work.startswith(("append", "index"))
    count = WRITTEN if is_written else READ

    def run(count: int) -> tuple[int, int]:
        store = folder / "store"
        if not is_written:
            subprocess.run([program, "prepare", store, str(count)], check=True)
        found = counted(program, work, store, count)
        shutil.rmtree(store)
        return found

    found = run(count)
    if work in WHOLE:
        # The process begins and ends in both.
        twice = run(2 * count)
        found = (twice[0] - found[0], twice[1] - found[1])
    instructions, misses = (round(each / count, 1) for each in found)
    return {"instructions": instructions, "misses": misses}


def grown(kept: Counts, now: Counts) -> list[str]:
    """Names the counts that exceed the kept ones by more than is allowed."""
    return [
        f"{work}: {kept[work][what]:,.1f} {what} before, {number:,.1f} now"
        for work, counts in now.items()
        for what, number in counts.items()
        # Between threads that take turns misses vary by a tenth.
        if (what, work in WHOLE) != ("misses", True)
        and work in kept
        and number > kept[work][what] * (1 + GROWTH) + SLACK
    ]


def table(counts: Counts) -> str:
    """The counts, for people."""
    lines = ["| path | instructions | last-level misses |", "|---|---:|---:|"]
    lines += [
        f"| {PATHS[work]} | {one['instructions']:,.0f} | {one['misses']:.1f} |"
        for work, one in counts.items()
    ]
    return "\n".join(lines)


def main() -> int:
    """Counts, and compares or keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write docs/performance")
    parser.add_argument("works", nargs="*", help=f"some of {', '.join(PATHS)}")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: counts: valgrind is not installed")
        return 0
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    now = tools()
    others = [f"{name} is {now[name]}, the kept counts have {kept.get(name)}" for name in now]
    others = [told for told, name in zip(others, now, strict=True) if now[name] != kept.get(name)]
    if others and not options.keep and not options.works:
        print(f"skipped: counts: {'; '.join(others)}; `make counts ARGS=--keep` counts anew")
        return 0
    program = built()
    counts: Counts = {}
    with tempfile.TemporaryDirectory(prefix="mqstore-counts-") as folder:
        for work in options.works or PATHS:
            counts[work] = count_path(program, work, Path(folder))
            print(f"{work}: {counts[work]}", flush=True)
    if options.keep:
        counts = {**kept.get("counts", {}), **counts}
        KEPT.write_text(json.dumps({**now, "counts": counts}, indent=1) + "\n", encoding="utf-8")
        put_section(ROOT / "docs" / "performance.md", "counts", table(counts))
        return 0
    worse = [] if others else grown(kept["counts"], counts)
    print("\n".join(worse))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
