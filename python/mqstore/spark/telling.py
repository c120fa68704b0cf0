"""Errors of Spark as one sentence: it wraps ours into two tracebacks."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

import mqstore.errors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PySparkException", "in_one_sentence", "sentence"]

# `mqstore.errors.ConfigError: option topics: ...`, wherever it stands in a text of Spark's; a
# `RuntimeError` is that of `mqstore.spark.shipping`.
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


def sentence(error: BaseException) -> str:
    """What went wrong, in our own words where the error is one of ours.

    Args:
        error: An error that Spark raised.
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        told: str = ours[-1].strip()
        return told
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
