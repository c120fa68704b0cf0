"""HO01: nothing that a store holds may act on a terminal."""

import base64
import json
import os
import pathlib
import shutil

import pytest

import mqstore
from helpers.running import SETTINGS, on_terminal
from mqstore.text import escape

HOSTILE = "\x1b[31m\u202e\x07\x9b\r\n"


SPELT = r"\x1b[31m\u202e\x07\x9b\r\n"


@pytest.fixture
def hostile(tmp_path):
    """A store whose messages try to act on a terminal wherever they can."""
    path = tmp_path / "store"
    # The store refuses such a topic, so it is put over another one of its length.
    topic = HOSTILE.encode()
    innocent = "T" * len(topic)
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append(
            "t",
            HOSTILE.encode() + b"\xff",
            keys=HOSTILE,
            unique_key=HOSTILE,
            # The argument `tags` refuses text that an expression cannot select.
            properties={"TAGS": HOSTILE, f"name{HOSTILE}": f"value{HOSTILE}"},
        )
        store.append(innocent, b"body")
    log = path / "commitlog" / f"{0:020}"
    log.write_bytes(log.read_bytes().replace(innocent.encode(), topic))
    folder = path / "consumequeue"
    shutil.copytree(folder / "t", folder / HOSTILE)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["cat"],
        ["cat", "--body", "json"],
        ["cat", "--format", "{topic}|{tags}|{keys}|{unique_key}|{properties}|{body}"],
        ["cat", "--json"],
        ["cat", "--jsonl"],
        ["tail"],
        ["tail", "--body", "json", "--grep", "."],
        ["stats", "--by", "topic,tags"],
        ["stats", "--by", "topic,tags", "--json"],
        ["stats", "--by", HOSTILE],
        ["metrics"],
        ["metrics", "--json"],
        ["metrics", "--label", HOSTILE],
        ["groups"],
        ["doctor"],
        ["report", "-o", f"{HOSTILE}/page.html"],
        ["get", "0"],
        ["get", "0", "--json"],
        ["query", "-t", "t", "-k", HOSTILE],
        ["query", "-t", f"no{HOSTILE}", "-k", "a"],
        ["at", "-t", f"no{HOSTILE}", "0"],
        ["topics"],
        ["queues"],
        ["queues", "--json"],
        ["index", "--chain", f"t#{HOSTILE}"],
        ["config"],
        ["config", "--json"],
        ["config", "--file", HOSTILE],
        ["info"],
        ["info", "--json"],
        ["verify"],
        [HOSTILE],
    ],
    ids=lambda command: "-".join(command).encode("unicode_escape").decode(),
)
def test_ho01_nothing_that_moves_a_terminal_is_printed(mq, hostile, conf, command):
    (hostile / f"stray{HOSTILE}").write_text("")
    arguments = [command[0], hostile, *command[1:]]
    if len(command[0]) < 10:
        arguments += ["--config", conf]
    ran = mq(*arguments, code=None)
    for text in (ran.out, ran.err):
        assert not {c for c in text if not c.isprintable() and c != "\n"}, text
        assert "\u202e" not in text
    if command == ["cat"]:
        assert SPELT in ran.out
        assert len(ran.lines) == 2
    if command == ["info"]:
        assert f"stray{SPELT}" in ran.out


def test_ho01_json_says_the_same_as_the_store(mq, hostile):
    row = mq("cat", hostile, "--jsonl").jsonl[0]
    assert (row["tags"], row["unique_key"], row["keys"]) == (HOSTILE, HOSTILE, [HOSTILE])
    assert base64.b64decode(row["body_base64"]) == HOSTILE.encode() + b"\xff"


# Every control and every mark of direction there is, and what terminals are known to obey.
NASTY = [
    *(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))),
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff",
    *(f"\x1b[{end}" for end in ("A", "2J", "31m", "?25l", "6n", "5i", "!p", ">0c", "s", "u", "H")),
    *(f"\x1b{end}" for end in ("c", "7", "8", "#8", "(0", "=", "D", "E", "M", "Z", "P+q\x1b\\")),
    *(f"\x1b]{end}\x07" for end in ("0;title", "2;t", "4;1;?", "52;c;AAAA", "8;;http://a", "50;?")),
    *(f"\x9d{end}\x9c" for end in ("0;title", "52;c;AAAA", "8;;http://a")),
    *("\x9b2J", "\x90q\x9c", "\x98x\x9c", "\x9ex\x9c", "\x9fx\x9c", "\x1b_Gx\x1b\\", "\x0e\x0f"),
    *(
        "[bold]x[/bold]",
        "[link=http://a]x[/link]",
        "{topic}",
        "%s%n",
        "\\x1b[31m",
        "<script>",
        "=1+1",
    ),
]


def test_ho01_nasty_strings_through_every_output(mq, tmp_path, conf):
    path = tmp_path / "store"
    messages = []
    for text in NASTY:
        property_text = text.replace("\x01", "").replace("\x02", "") or "-"
        messages.append(
            mqstore.Message(
                "t",
                text.encode(),
                keys=property_text.replace(" ", ""),
                unique_key=property_text,
                properties={"TAGS": property_text, "p": property_text},
            )
        )
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append_many(messages)
    for command in (
        ["cat"],
        ["cat", "--reverse", "--body", "json"],
        ["cat", "--format", "{tags} {keys} {unique_key} {properties} {property:p} {body}"],
        ["cat", "--json"],
        ["cat", "--jsonl"],
        ["query", "-t", "t", "-k", NASTY[0x1B]],
        ["index", "--chain", f"t#{NASTY[0x1B]}"],
        ["topics"],
        ["verify"],
    ):
        ran = mq(command[0], path, *command[1:], "--config", conf)
        assert not {c for c in ran.out + ran.err if not c.isprintable() and c != "\n"}, command
        if command == ["cat"]:
            assert len(ran.lines) == len(NASTY)
        if command == ["cat", "--jsonl"]:
            assert [row["body"] for row in ran.jsonl] == NASTY
    for text in NASTY:
        assert escape(text).isprintable()


def test_ho01_raw_is_for_programs_only(mq, hostile):
    assert mq("cat", hostile, "-n", 1, "--raw", "--format", "{tags}").out == HOSTILE + "\n"
    code, out, err = on_terminal(["cat", str(hostile), "--raw"])
    assert code == 2
    assert b"--raw writes unescaped bytes" in err
    assert out == b""


def test_names_that_are_no_utf8_are_shown_in_json(mq, tmp_path):
    source, out = (os.fsdecode(os.fsencode(tmp_path) + name) for name in (b"/\xff", b"/\xfe"))
    with mqstore.open(source, "a", config=SETTINGS) as store:
        store.append("t", b"")
    pathlib.Path(source, "commitlog", os.fsdecode(b"\xfd")).touch()
    for command in (
        *("info", "verify", "doctor", "rebuild", "recover", "clean", "pending", "salvage", "stats"),
        ("preflight", "--to", "5.5"),
        ("convert", "--index", "rocksdb"),
        ("diff", source),
        ("sync", out + "-backup"),
        ("export", out + "-export"),
        ("copy", out + "-copy"),
    ):
        name, *options = [command] if isinstance(command, str) else command
        shown = json.loads(mq(name, source, *options, "--json", code=None).out)
        path = shown.get("path", "\ufffd") if isinstance(shown, dict) else "\ufffd"
        assert "\ufffd" in path, name
    assert mq("import", out + "-export", out + "-import", "--json").code == 0
    assert mq("restore", out + "-backup", out + "-restored", "--json").code == 0
    rows = json.loads(mq("sql", source, "select broker from messages", "--json").out)
    assert rows == [{"broker": r"\udcff"}]
    assert "\ufffd" in mqstore.verify(source).to_json()


def test_an_error_that_names_a_hostile_path_is_escaped(mq, tmp_path):
    path = tmp_path / f"x{HOSTILE}"
    ran = mq("info", path, code=3)
    assert f"x{SPELT}" in ran.err
    assert ran.err.count("\n") == 1
