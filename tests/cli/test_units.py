"""Times and sizes, as the command reads and shows them."""

import time

import pytest

from mqstore.text import (
    count_text,
    duration_text,
    parse_duration,
    parse_size,
    parse_time,
    rate_text,
    size_text,
    time_text,
)
from mqstore.text.zone import set_zone

NOW = 1_795_246_513_325


@pytest.fixture(autouse=True)
def in_utc():
    """Times are shown in UTC."""
    set_zone("UTC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-5", -5),
        (" 1795246513325 ", NOW),
        ("20261121", 20261121),
        ("9223372036854775807", 2**63 - 1),
        ("2026-11-21T07:35:13.325Z", NOW),
        ("2026-11-21T09:35:13.325+02:00", NOW),
        ("2026-11-21 07:35:13.325+00:00", NOW),
        ("1969-12-31T23:59:59.999Z", -1),
        ("now", NOW),
        ("-2h", NOW - 7_200_000),
        ("+1h30m", NOW + 5_400_000),
        ("-1w2d3s4ms", NOW - 777_603_004),
    ],
)
def test_a_time(text, expected):
    assert parse_time(text, lambda: NOW) == expected


def test_a_time_without_offset_is_local(monkeypatch):
    set_zone(None)
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert parse_time("2026-11-21T15:35:13.325") == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


def test_now_is_the_systems():
    before = time.time_ns() // 1_000_000
    assert before <= parse_time("now") <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2h", "-2x", "-", "+h", "12:00", "2026-13-01", "9223372036854775808"],
)
def test_no_time(text):
    with pytest.raises(ValueError, match=r"no time|64 bits"):
        parse_time(text)


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (NOW, "2026-11-21T07:35:13.325Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "the year 10000"),
        (2**63 - 1, "the year 292278994"),
        (-(2**63), "the year -292275055"),
        (None, "-"),
    ],
)
def test_a_time_is_shown_in_the_zone_or_as_its_year(milliseconds, expected):
    assert time_text(milliseconds) == expected


@pytest.mark.parametrize("milliseconds", [0, NOW, -1, 253_402_300_799_999])
def test_a_shown_time_is_read_again(milliseconds):
    assert parse_time(time_text(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604_800), (" 1h30m ", 5_400), ("500ms", 0.5), ("0s", 0), ("100000d", 8_640_000_000)],
)
def test_a_duration(text, seconds):
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "0", "604800000", "-7d", "+7d", "7x", "now", "2026-11-21", "100001d"]
)
def test_no_duration(text):
    with pytest.raises(ValueError, match=r"a duration such as 30s, 2h or 7d|at most 100000d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64k", 65536),
        ("1G", 1 << 30),
        ("16MiB", 16 << 20),
        ("2tb", 2 << 40),
    ],
)
def test_a_size(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5k", "5 k", "1e3", "9999999999999t"])
def test_no_size(text):
    with pytest.raises(ValueError, match=r"expected bytes|64 bits"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_a_size_is_shown_in_its_unit(size, expected):
    assert size_text(size) == expected


def test_counts_rates_and_durations():
    assert count_text(1234567) == "1,234,567"
    assert count_text(2**63 - 101) == "9,223,372,036,854,775,707"
    assert count_text(1234.6) == "1,235"
    assert rate_text(1000, 0.5, "messages") == "2,000 messages/s"
    assert rate_text(1000, 0, "messages").endswith(" messages/s")
    assert [duration_text(seconds) for seconds in (0.123, 59.9, 200, 7500)] == [
        "0.12 s",
        "59.90 s",
        "3 min 20 s",
        "2 h 05 min",
    ]
