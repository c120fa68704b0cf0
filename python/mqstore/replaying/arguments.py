"""Arguments of ``replay`` and ``resend`` that are wrong by themselves or together."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from mqstore.errors import wrong_setting
from mqstore.replaying.selection import REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["check"]

# The values that an argument may have, by its name.
_WANTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "include": (" or ".join(REFUSED), lambda names: {*names} <= {*REFUSED}),
    "queue": ("keep or any", lambda name: name in ("keep", "any")),
    "on_failure": ("stop or skip", lambda name: name in ("stop", "skip")),
    "properties": (
        "UTF-8 text without the bytes 1 and 2",
        lambda given: (
            not re.search("[\1\2\ud800-\udfff]", "".join(map("".join, (given or {}).items())))
        ),
    ),
    "to_topic": ("UTF-8 text", lambda topic: not re.search("[\ud800-\udfff]", topic or "")),
    "limit": ("a count", lambda count: count is None or count >= 0),
    "rate": ("more than 0", lambda rate: rate is None or rate > 0),
    "bytes_rate": ("more than 0", lambda rate: rate is None or rate > 0),
    "batch": ("1 to 1024", lambda count: 1 <= count <= 1024),
    "tries": ("1 to 1000", lambda count: 1 <= count <= 1000),
    "timeout_s": ("more than 0", lambda seconds: 0 < seconds < math.inf),
}


def check(given: Mapping[str, Any], group: str | None, *, to_origin: bool) -> None:
    """Refuses arguments that are wrong by themselves or together."""
    for name, (wanted, is_right) in _WANTED.items():
        try:
            if is_right(given[name]):
                continue
        except TypeError:
            pass
        raise wrong_setting(name, wanted, repr(given[name]))
    others = {
        "missed_by": (group is not None, "dead letters are of one group alone"),
        "to_topic": (
            given["missed_by"] is not None or (group is not None and not to_origin),
            "these messages go into the group's retry topic",
        ),
        **dict.fromkeys(
            (
                *("topics", "queue_ids", "first_queue_offset", "last_queue_offset"),
                *("begin_ms", "end_ms", "tags", "keys", "grep"),
            ),
            (bool(given["ids"]), "ids go alone"),
        ),
    }
    for name, (is_refused, advice) in others.items():
        if is_refused and given[name] not in (None, ()):
            raise wrong_setting(name, "none", repr(given[name]), advice)
