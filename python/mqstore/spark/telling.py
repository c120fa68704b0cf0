"""Errors of Spark as one sentence: it wraps ours into two tracebacks."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

import mqstore.errors

__all__ = ["PySparkException", "sentence"]

# `mqstore.errors.ConfigError: option topics: ...`, wherever it stands in a text of Spark's; a
# `RuntimeError` is that of `mqstore.spark.shipping`.
_OURS = re.compile(
    r"^\s*(?:[\w.]+\.)?(?:"
    + "|".join(mqstore.errors.__all__)
    + r"|RuntimeError(?=: worker )): (.+)$",
    re.MULTILINE,
)


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
