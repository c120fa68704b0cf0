"""Errors of Spark as one sentence: it wraps ours into two tracebacks."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

import mqstore.errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["PySparkException", "in_one_sentence", "jvm_end", "reason", "sentence"]

_JVM_S = 5

# `mqstore.errors.ConfigError: option topics: ...`, wherever it stands in a text of Spark's; a
# `RuntimeError` is that of `mqstore.spark.worker_check`.
_OURS = re.compile(
    r"(?:^\s*|: )(?:[\w.]+\.)?(?:"
    + "|".join(mqstore.errors.__all__)
    + r"|RuntimeError(?=: worker )): (.+)$",
    re.MULTILINE,
)


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """Leaves out the traceback of our errors where Spark plans; its process ends with the error."""
    try:
        yield
    except mqstore.errors.StoreError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


_REASONS = (
    (
        "JVM gone",
        r"Connection re(fused|set)|Answer from Java|Error while (send|receiv)ing|JVM ended",
    ),
    ("disk full", r"No space left on device|Disk quota exceeded"),
    ("store replaced", r"is another store than the one that was read|both agree to"),
    ("log cut", r"a crash cut its tail"),
    ("messages deleted", r"retention deleted"),
    ("store gone", r"its store is gone|not a store|no store:"),
    ("target locked", r"writes to this target"),
    ("configuration refused", r"nothing was written"),
    ("catalog refused", r"catalog|Iceberg|NoSuchNamespace|NotAuthorized|Forbidden|AccessDenied"),
)


def reason(error: BaseException) -> str:
    """A word or two for why a pipeline ended, such as ``disk full``.

    Args:
        error: What ended it.
    """
    text = f"{sentence(error)}\n{error}"
    for line in (sentence(error), text):
        for words, pattern in _REASONS:
            if re.search(pattern, line):
                return words
    return "configuration refused" if isinstance(error, mqstore.errors.ConfigError) else "error"


def jvm_end(spark: SparkSession) -> str | None:
    """How the JVM of a session ended; ``None`` where it runs, or is not of this process."""
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    try:
        code = None if process is None else process.wait(_JVM_S)
    except subprocess.TimeoutExpired:
        return None
    if code is None:
        return None
    return f"Spark's JVM ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def sentence(error: BaseException) -> str:
    """One sentence on an error; without Spark's frame where it is the package's own.

    Args:
        error: An error that Spark raised.
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
