"""Output of the command: escapes, tables, JSON."""

import json

import pytest

from mqstore import LostInQueue, VerifyReport
from mqstore.cli import output as module
from mqstore.cli.output import Column, Output, as_document, columns, table_lines, to_json
from mqstore.text import escape

COLUMNS = (Column("name"), Column("count", lambda n: f"{n:,}", right=True))
ROWS = [{"name": "a", "count": 1}, {"name": "lo\x1bng", "count": 12345}, {"name": None, "count": 0}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, naïve, 東京, 🙂", "plain, naïve, 東京, 🙂"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]52;c;AAAA\x07", r"\x1b]52;c;AAAA\x07"),
        ("\x1b]8;;http://x\x1b\\y", r"\x1b]8;;http://x\x1b\y"),
        ("a\u202eb\u2066c\u2069", r"a\u202eb\u2066c\u2069"),
        ("\r\n\t\0\x7f", r"\r\n\t\x00\x7f"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u2028\u2029\ufeff\u200e\u061c", r"\u2028\u2029\ufeff\u200e\u061c"),
        ("\udc80", r"\udc80"),
    ],
)
def test_ho01_what_could_act_on_a_terminal_is_spelt_out(text, expected):
    assert escape(text) == expected


def test_ho01_json_is_escaped_as_json_escapes():
    value = {"a": ["\x1b\x9b\u202e\u2028\n", "東京"], "b\u202e": 1}
    for shown in (to_json(value), to_json(value, indent=2)):
        assert json.loads(shown) == value
        assert "\\u009b\\u202e\\u2028" in shown
        assert escape(shown.replace("\n", "")) == shown.replace("\n", "")


def test_a_table_is_as_wide_as_it_must_be(capsys):
    assert Output("text").rows(iter(ROWS), COLUMNS) == 3
    assert capsys.readouterr().out.splitlines() == [
        "NAME       COUNT",
        "a              1",
        r"lo\x1bng  12,345",
        "-              0",
    ]
    assert list(table_lines(ROWS, COLUMNS)) == [
        "NAME       COUNT",
        "a              1",
        r"lo\x1bng  12,345",
        "-              0",
    ]


def test_a_table_without_rows_prints_nothing(capsys):
    assert Output("text").rows([], COLUMNS) == 0
    assert capsys.readouterr().out == ""
    assert list(table_lines([], COLUMNS)) == ["NAME  COUNT"]


def test_a_long_table_is_printed_as_it_comes(capsys):
    taken = []

    def rows():
        for number in range(module._ROWS_MEASURED + 10):
            taken.append(number)
            if number == module._ROWS_MEASURED + 1:
                assert len(capsys.readouterr().out.splitlines()) > module._ROWS_MEASURED
            yield {"name": "x", "count": number}

    assert Output("text").rows(rows(), COLUMNS) == module._ROWS_MEASURED + 10
    assert len(taken) == module._ROWS_MEASURED + 10


def test_json_is_one_array_and_jsonl_a_document_each(capsys):
    assert Output("json").rows(iter(ROWS), COLUMNS) == 3
    assert json.loads(capsys.readouterr().out) == ROWS
    assert Output("jsonl").rows(iter(ROWS), COLUMNS) == 3
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
    assert Output("json").rows([], COLUMNS) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert Output("jsonl").rows([], COLUMNS) == 0
    assert capsys.readouterr().out == ""


def test_a_json_array_is_whole_though_the_rows_break_off(capsys):
    def rows():
        yield ROWS[0]
        raise ValueError("damage")

    with pytest.raises(ValueError, match="damage"):
        Output("json").rows(rows(), COLUMNS)
    assert json.loads(capsys.readouterr().out) == [ROWS[0]]


def test_a_document_in_each_format(capsys):
    for form in ("json", "jsonl"):
        Output(form).document({"a": 1}, lambda: ["text"])
        assert json.loads(capsys.readouterr().out) == {"a": 1}
    Output("text").document({"a": 1}, lambda: ["text"])
    assert capsys.readouterr().out == "text\n"


def test_a_report_is_printed_by_its_fields(capsys):
    lost = LostInQueue("orders", 3, 1_000, 0, 999)
    report = VerifyReport("/a", "full", ok=False, findings=(lost,), counts={"messages": 7})
    row = {"topic": "orders", "queue_id": 3, "messages": 1000, "first": 0, "last": 999}
    document = {"path": "/a", "level": "full", "ok": False, "findings": [row]}
    assert as_document(report) == {**document, "counts": {"messages": 7}}
    for form, shown in (("json", as_document(report)), ("jsonl", row)):
        Output(form).document(report, tuple, rows="findings")
        assert json.loads(capsys.readouterr().out) == shown
    assert list(table_lines(report.findings, columns("queue_id", "messages", "first"))) == [
        "QUEUE  MESSAGES  FIRST",
        "    3     1,000  0",
    ]
