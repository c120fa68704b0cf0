"""Running the commands that are printed as cures."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path


def run(command: str) -> str:
    """Runs a printed command as a shell would, with the command beside this interpreter.

    Returns:
        What it printed; it must have ended well.
    """
    words = shlex.split(command)
    assert words[0] == "mqstore"
    script = Path(sys.executable).with_name("mqstore")
    done = subprocess.run([script, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout
