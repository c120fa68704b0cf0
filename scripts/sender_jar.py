"""Compile java/ into python/mqstore/replaying/sender.jar, for Java 8, if a JDK is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
JAR = ROOT / "python/mqstore/replaying/sender.jar"


def main() -> None:
    """Writes the jar; the same sources and compiler give the same bytes."""
    sources = sorted((ROOT / "java").rglob("*.java"))
    if shutil.which("javac") is None:
        JAR.unlink(missing_ok=True)
        sys.stderr.write("no javac: `mqstore replay` and `resend` will ask for a JDK\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "javac",
            "--release",
            "8",
            "-Xlint:all,-options,-serial",
            "-Werror",
            "-d",
            folder,
            *sources,
        ]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        classes = Path(folder)
        with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
            for path in sorted(classes.rglob("*.class")):
                entry = zipfile.ZipInfo(path.relative_to(classes).as_posix())
                jar.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
