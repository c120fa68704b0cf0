"""The time zone in which times are read and shown."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import NamedTuple

_ZONE_FOLDER = "zoneinfo/"
# As in POSIX: CET-1CEST, <+0330>-3:30.
_WRITTEN_OUT = re.compile(r"(<[^>]+>|[A-Za-z]{3,})[+-]?\d")


class Zone(NamedTuple):
    """A time zone.

    Attributes:
        name: Its name, as the output shows it.
        rules: Its rules; ``None`` are those of the system.
    """

    name: str
    rules: tzinfo | None

    def local(self, moment: datetime) -> datetime:
        """A moment in this zone."""
        return moment.astimezone(self.rules)

    def read(self, moment: datetime) -> datetime:
        """A time in this zone, unless it has an offset of its own, as a moment."""
        if moment.tzinfo is None and self.rules is not None:
            moment = moment.replace(tzinfo=self.rules)
        return moment.astimezone(UTC)

    def is_on_hours(self) -> bool:
        """Whether its days begin at full hours of UTC."""
        years = range(1970, 2051)
        moments = (datetime(year, month, 1, tzinfo=UTC) for year in years for month in (1, 7))
        offsets = (self.local(moment).utcoffset() or timedelta() for moment in moments)
        return not any(offset % timedelta(hours=1) for offset in offsets)


def _local_zone() -> Zone:
    """Returns the system's zone.

    Raises:
        ValueError: ``TZ`` names none.
    """
    name = os.environ.get("TZ", "").removeprefix(":")
    if name and not _WRITTEN_OUT.match(name):
        folder = os.environ.get("TZDIR", f"/usr/share/{_ZONE_FOLDER}")
        # The system takes a name that it does not know for UTC, in silence.
        if not Path(folder, name).is_file():
            return _named(name, "TZ: ")
    if not name:
        try:
            _, _, name = str(Path("/etc/localtime").readlink()).rpartition(_ZONE_FOLDER)
        except OSError:
            name = ""
    if not name or Path(name).is_absolute():
        name = datetime.now().astimezone().tzname() or "local"
    return Zone("UTC" if name in {"Etc/UTC", "UTC0"} else name, None)


def parse_zone(text: str | None) -> Zone:
    """Returns the zone of a name (``Europe/Berlin``), an offset (``+02:00``), ``UTC`` or ``local``.

    Raises:
        ValueError: No such zone.
    """
    if text is None or text in {"", "local"}:
        return _local_zone()
    if text.upper() in {"UTC", "Z"}:
        return Zone("UTC", UTC)
    if text[0] in "+-":
        try:
            offset = datetime.strptime(text, "%z").utcoffset()
        except ValueError:
            offset = None
        if offset is not None:
            return Zone(text, timezone(offset) if offset else UTC)
        raise _no_zone(text)
    return _named(text)


def _named(name: str, source: str = "") -> Zone:
    import zoneinfo  # 5 ms that only a named zone needs

    try:
        return Zone(name, zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise _no_zone(name, source) from None


def _no_zone(text: str, source: str = "") -> ValueError:
    return ValueError(
        f"{source}{text!r} is no time zone: expected a name (Europe/Berlin), an offset (+02:00), "
        "UTC or local"
    )


_in_force: Zone | None = None


def zone() -> Zone:
    """The zone in force: the system's unless ``set_zone`` was called, UTC if it has none."""
    global _in_force
    if _in_force is None:
        try:
            _in_force = _local_zone()
        except ValueError:
            _in_force = Zone("UTC", UTC)
    return _in_force


def set_zone(text: str | None) -> None:
    """Puts a zone in force.

    Raises:
        ValueError: No such zone.
    """
    global _in_force
    _in_force = parse_zone(text)


def day_begin(timestamp_ms: int) -> int:
    """The time at which the day of a time begins in the zone in force."""
    local = zone().local(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms))
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return round(zone().read(midnight).timestamp() * 1000)
