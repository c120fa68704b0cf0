"""Write THIRD_PARTY_LICENSES.md: the licences of the Rust crates that are linked into the wheels.

The list is what `cargo metadata` resolves for the extension's features on each platform that has
wheels, without crates that only run while building or testing. The texts are those that the crates
themselves ship; equal texts are printed once. A crate that offers Apache-2.0 as a choice is used
under it, and that text is the project's own LICENSE. With ``--check`` nothing is written: the
answer is 0 where the file is current, else 1.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUT = ROOT / "THIRD_PARTY_LICENSES.md"

#: Files that name others to be mentioned.
NOTICES = ("NOTICE*",)
#: Those and the licences, also of C sources that a crate brings along.
ALL_FILES = (*NOTICES, "LICEN[CS]E*", "COPYING*", "UNLICENSE*", "zstd/LICENSE")

HEAD = """\
# Third-party licences

The wheels of mqstore contain compiled code of the Rust crates below, and of the Rust standard
library (MIT OR Apache-2.0). Where a crate offers Apache-2.0 as a choice, mqstore uses it under that
licence, whose text is in LICENSE; the texts of all others follow the table. `make licenses` writes
this file.
"""


def main() -> int:
    """Write or check the file; answer the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if out of date")
    check: bool = parser.parse_args().check
    text = render(linked_crates())
    if OUT.exists() and OUT.read_text(encoding="utf-8") == text:
        return 0
    if check:
        sys.stderr.write(f"{OUT.name} is not current: run `make licenses` and commit it\n")
        return 1
    OUT.write_text(text, encoding="utf-8")
    return 0


def linked_crates() -> list[dict[str, Any]]:
    """The packages that end up in a wheel, by name and version."""
    targets = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["graph"]["targets"]
    maturin = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "maturin"
    ]
    found: dict[str, dict[str, Any]] = {}
    for target in targets:
        metadata = cargo_metadata(target, maturin["features"])
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        root = metadata["resolve"]["root"]
        waiting, seen = [root], {root}
        while waiting:
            for dependency in nodes[waiting.pop()]["deps"]:
                package = packages[dependency["pkg"]]
                linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
                # A procedural macro runs in the compiler, and so do the crates below it.
                if linked and not is_macro(package) and package["id"] not in seen:
                    seen.add(package["id"])
                    waiting.append(package["id"])
                    found[package["id"]] = package
    return sorted(found.values(), key=lambda package: (package["name"], package["version"]))


def cargo_metadata(target: str, features: list[str]) -> dict[str, Any]:
    """Packages that cargo resolves for one platform."""
    command = ["cargo", "metadata", "--locked", "--format-version=1"]
    command += [f"--filter-platform={target}", "--features", ",".join(features)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    metadata: dict[str, Any] = json.loads(done.stdout)
    return metadata


def is_macro(package: dict[str, Any]) -> bool:
    """Whether the crate is a procedural macro."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def licence_texts(package: dict[str, Any]) -> list[str]:
    """Files to ship with the crate: its notices, and its licences unless ours is a choice."""
    folder = Path(package["manifest_path"]).parent
    choices = re.split(r" OR |\s*/\s*", package["license"])
    patterns = NOTICES if len(choices) > 1 and "Apache-2.0" in choices else ALL_FILES
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    texts = [tidy(path.read_text(encoding="utf-8", errors="replace")) for path in sorted(paths)]
    if patterns is ALL_FILES and not texts:
        raise SystemExit(f"{package['name']} ships no licence file and does not offer Apache-2.0")
    return texts


def tidy(text: str) -> str:
    """The text without trailing spaces and without empty lines around it."""
    return "\n".join(line.rstrip() for line in text.replace("\t", "    ").splitlines()).strip("\n")


def render(packages: list[dict[str, Any]]) -> str:
    """The whole file: a table of crates, then each text with the crates it belongs to."""
    if not packages:
        raise SystemExit("cargo resolved no dependencies: nothing to write")
    table = ["| crate | version | licence |", "|---|---|---|"]
    texts: dict[str, tuple[str, list[str]]] = {}
    for package in packages:
        name, expression = package["name"], package["license"]
        if not expression:
            raise SystemExit(f"{name} {package['version']} names no licence")
        table.append(f"| {name} | {package['version']} | {expression} |")
        for text in licence_texts(package):
            # Equal but for line breaks is equal.
            _, names = texts.setdefault(" ".join(text.split()), (text, []))
            if name not in names:
                names.append(name)
    parts = [HEAD, "\n".join(table) + "\n"]
    for text, names in texts.values():
        parts.append(f"## {', '.join(names)}\n\n````text\n{text}\n````\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
