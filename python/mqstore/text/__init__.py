"""Times, sizes and untrusted text as people write and read them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mqstore.text.zone import Zone, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64_MAX = 2**63 - 1
_YEAR_MS, _DAY_MS = 31_556_952_000, 86_400_000
_MOST_DAYS = 100_000
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE = re.compile(r"([+-])((?:[0-9]{1,12}(?:ms|[smhdw]))+)")
_UNIT_SIZE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,19})([kmgt]?)(?:i?b)?", re.IGNORECASE)
# Controls (C0, DEL, C1), line and paragraph separators, marks and overrides of direction, a byte
# order mark, and lone surrogates, which no encoding can print.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def in_utf8(text: str) -> str:
    """The text, with bytes of a file's name that are no UTF-8 spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


class Milliseconds(int):
    """Milliseconds from a text with a date, which cannot be seconds by mistake."""

    __slots__ = ()


def parse_time(text: str, now_ms: Callable[[], int] | None = None) -> int:
    """Unix milliseconds out of ISO 8601, epoch milliseconds, ``now``, or a time relative to now.

    Args:
        text: ``2026-11-21T07:35:13.325Z``, ``2026-11-21 07:35`` (in the zone in force
            where it has no offset), ``1795246513325``, ``-2h``, ``+1h30m``, ``now``.
        now_ms: Current time, Unix milliseconds; the system's by default.

    Raises:
        ValueError: Nothing of the kind, out of 64 bits, or a number that looks like seconds.
    """
    text = text.strip()
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        number = _in_64_bits(int(text), text)
        if number in _SECONDS:
            moment = utc_text(number)
            raise ValueError(
                f"{text!r} looks like seconds: multiply it by 1000, or say {moment} if it is"
                " milliseconds"
            )
        return number
    relative = _RELATIVE.fullmatch(text)
    if relative or text == "now":
        now = now_ms() if now_ms else time.time_ns() // 1_000_000
        if not relative:
            return now
        parts = re.findall(r"([0-9]+)(ms|[smhdw])", relative[2])
        distance = sum(int(number) * _UNIT_MS[unit] for number, unit in parts)
        return _in_64_bits(now - distance if relative[1] == "-" else now + distance, text)
    try:
        since = zone().read(datetime.fromisoformat(text)) - _EPOCH
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time: say ISO 8601 (2026-11-21T07:35:13Z), epoch milliseconds, "
            "or a time relative to now (-2h)"
        ) from None
    number = since // timedelta(milliseconds=1)
    return Milliseconds(number) if number in _SECONDS else number


# As the store refuses them: milliseconds of these were stored in 1970 or never.
_SECONDS = range(1_000_000_000, 10_000_000_000)


def is_relative(text: str) -> bool:
    """Whether a text is a time relative to now, with its sign: ``-2h``."""
    return _RELATIVE.fullmatch(text) is not None


def parse_duration(text: str) -> timedelta:
    """A duration out of ``7d`` or ``1h30m``; each number has its unit.

    Raises:
        ValueError: Nothing of the kind, or more than a process can wait.
    """
    later = f"+{text.strip()}"
    if not is_relative(later):
        raise ValueError(f"expected a duration such as 30s, 2h or 7d, got {text!r}")
    found_ms = parse_time(later, lambda: 0)
    if found_ms > _MOST_DAYS * _DAY_MS:
        raise ValueError(f"expected at most {_MOST_DAYS}d, got {text!r}")
    return timedelta(milliseconds=found_ms)


def _in_64_bits(value: int, text: str) -> int:
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ValueError(f"expected a time within 64 bits of milliseconds, got {text!r}")
    return value


def parse_size(text: str) -> int:
    """Bytes out of ``4096``, ``64k``, ``1g``; a unit is a power of 1,024.

    Raises:
        ValueError: Nothing of the kind, or out of 64 bits.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"expected bytes (4096), or 64k, 16m, 1g, got {text!r}")
    value = int(match[1]) * _UNIT_SIZE[match[2].lower()]
    if value > _INT64_MAX:
        raise ValueError(f"expected a size within 64 bits of bytes, got {text!r}")
    return value


def time_text(timestamp_ms: int | None) -> str:
    """A time for people, in the zone in force; the year alone where no calendar has it."""
    return _shown(timestamp_ms, zone())


def utc_text(timestamp_ms: int | None) -> str:
    """A time for people, in UTC."""
    return _shown(timestamp_ms, Zone("UTC", UTC))


def _shown(timestamp_ms: int | None, where: Zone) -> str:
    if timestamp_ms is None:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"the year {1970 + (timestamp_ms + _DAY_MS) // _YEAR_MS}"
    try:
        local = where.local(moment)
    except (OverflowError, ValueError, OSError):
        local = moment
    text = local.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z" if local.tzname() == "UTC" else text


def minute_text(timestamp_ms: int) -> str:
    """A time of a whole minute, without its seconds and offset: ``2026-11-21T10:05``."""
    return time_text(timestamp_ms)[:16]


def day_text(timestamp_ms: int) -> str:
    """The day of a time: ``2026-11-21``."""
    return time_text(timestamp_ms)[:10]


def age_text(milliseconds: int) -> str:
    """How long ago something was, in its two largest units: ``3 d 4 h``."""
    seconds = max(milliseconds, 0) // 1000
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts: list[str] = []
    for size, name in units:
        count, seconds = divmod(seconds, size)
        if count or parts or name == "s":
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def size_text(size: int) -> str:
    """A number of bytes for people: ``1.5 GiB``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def count_text(count: float) -> str:
    """A number for people: ``1,234,567``."""
    return f"{round(count):,}"


def rate_text(count: float, seconds: float, unit: str) -> str:
    """So many of a unit in a second: ``12,345 messages/s``."""
    return f"{count_text(count / max(seconds, 1e-9))} {unit}/s"


def duration_text(seconds: float) -> str:
    """A duration for people: ``0.42 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def labels(tags: str | None, keys: Sequence[str]) -> Iterator[str]:
    """A message's tags and keys in a line, where it has any."""
    if tags is not None:
        yield f"tags={tags}"
    if keys:
        yield f"keys={' '.join(keys)}"


def escape(text: str) -> str:
    r"""The text with whatever could act on a terminal spelt out: ``\x1b``, ``\u202e``."""
    return UNSAFE.sub(_spelt, text)


def _spelt(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
