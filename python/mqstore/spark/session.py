"""Starts a session of the commands' own, without the lines that a JVM prints while it starts."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from io import FileIO
from shutil import copyfileobj
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from mqstore.errors import StoreError
from mqstore.spark.failures import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK = b"\0"
_SHOWN_LINES = 10


def start_session(settings: Mapping[str, str]) -> SparkSession:
    """Starts a session; what its JVM writes afterwards reaches standard error.

    Args:
        settings: Settings of Spark.

    Raises:
        StoreError: Spark does not start; the last lines of the JVM are on standard error.
    """
    # Workers must find this package: they run the interpreter of the command unless told.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    release = _HeldStderr().release if sys.stderr else str  # it may be closed
    try:
        session: SparkSession = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except Exception as error:
        lines = [line for line in release().splitlines() if not line.startswith("\tat ")]
        if lines:
            sys.stderr.write("".join(f"{line}\n" for line in lines[-_SHOWN_LINES:]))
        cause = getattr(error, "java_exception", None)
        reason = sentence(error if cause is None else Exception(cause.toString()))
        raise StoreError(f"Spark does not start: {reason}") from None
    except BaseException:
        release()
        raise
    release()
    return session


class _HeldStderr:
    """Standard error of the processes that begin meanwhile, held back until it is released.

    They keep the pipe, so that a thread copies to standard error what they write later.
    """

    def __init__(self) -> None:
        sys.stderr.flush()
        self._stderr = os.dup(2)
        self._pipe, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self._held = b""
        self._released = threading.Event()
        threading.Thread(target=self._copy, daemon=True).start()

    def release(self) -> str:
        """Ends the holding back; what was written until now."""
        os.write(2, _MARK)
        os.dup2(self._stderr, 2)
        self._released.wait()
        return self._held.decode(errors="replace")

    def _copy(self) -> None:
        while _MARK not in self._held:
            self._held += os.read(self._pipe, 1 << 16)
        self._held, _, later = self._held.partition(_MARK)
        self._released.set()
        # Without buffers a line goes through as soon as it is there.
        with FileIO(self._pipe) as pipe, FileIO(self._stderr, "w") as stderr, suppress(OSError):
            stderr.write(later)
            copyfileobj(pipe, stderr)
