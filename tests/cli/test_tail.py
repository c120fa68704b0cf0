"""``tail``: the last messages of a store, and those that another process writes."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

import mqstore
from helpers.running import SETTINGS, command_line, environment, on_terminal

# Appends as many messages as each line of its input says, and answers when they are in the log.
WRITER = """
import sys, mqstore
path, settings = sys.argv[1], eval(sys.argv[2])
with mqstore.open(path, "a", config=settings) as store:
    number = len(list(store.scan()))
    for line in sys.stdin:
        for _ in range(int(line)):
            store.append(
                ("even", "odd")[number % 2], b"message %d" % number, queue_id=number % 3,
                tags=f"t{number % 4}",
            )
            number += 1
        print(number, flush=True)
"""


@contextmanager
def running(*command):
    """A process with pipes, which is ended when it takes too long."""
    with subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        watch = threading.Timer(60, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


@contextmanager
def writing(path):
    """A process that writes to a store: a function that makes it append so many messages."""
    with running(sys.executable, "-c", WRITER, path, repr(SETTINGS)) as process:

        def write(count):
            process.stdin.write(b"%d\n" % count)
            process.stdin.flush()
            assert process.stdout.readline(), process.stderr.read()

        yield write
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def read_numbers(process, count):
    lines = [process.stdout.readline() for _ in range(count)]
    assert all(lines), process.stderr.read()
    return [int(json.loads(line)["body"].removeprefix("message ")) for line in lines]


def tail(path, *options):
    return running(*command_line(), "tail", path, *options)


def interrupt(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, b"", b"interrupted")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], range(30, 40)),
        (["-n", 0], []),
        (["-n", 3], [37, 38, 39]),
        (["-n", 1000], range(40)),
        (["-n", 3, "-t", "audit"], [31, 35, 39]),
        (["-n", 2, "-t", "orders", "-q", 1], [33, 37]),
        (["-n", 2, "--tags", "paid"], [34, 37]),
        (["-n", 2, "--grep", ": .5"], [25, 35]),
    ],
)
def test_tail_prints_the_newest_oldest_first(mq, store, options, expected):
    rows = mq("tail", store, "--jsonl", *options).jsonl
    assert [json.loads(row["body"])["number"] for row in rows] == list(expected)


def test_tail_shows_messages_as_cat_does(mq, store):
    assert mq("tail", store, "-n", 3).lines == mq("cat", store).lines[-3:]
    template = ["--format", "{queue_offset} {body}", "--body", "hex"]
    assert mq("tail", store, "-n", 3, *template).lines == mq("cat", store, *template).lines[-3:]
    assert len(mq("tail", store, "--json").json) == 10


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(["-q", 0], "-q needs -t"), (["-f", "--json"], "say --jsonl"), (["-n", -1], "range")],
)
def test_tail_refuses_what_makes_no_sense(mq, store, options, complaint):
    assert complaint in mq("tail", store, *options, code=2).err


def test_tail_follows_another_process_over_many_files(tmp_path):
    path = tmp_path / "store"
    with writing(path) as write:
        write(7)
        with tail(path, "-f", "-n", 3, "--jsonl") as process:
            assert read_numbers(process, 3) == [4, 5, 6]
            begin = 7
            for count in (1, 1, 40, 200, 1):
                files = len(list((path / "commitlog").iterdir()))
                write(count)
                assert read_numbers(process, count) == list(range(begin, begin + count))
                begin += count
                assert count < 200 or len(list((path / "commitlog").iterdir())) > files + 3
            interrupt(process)


def test_tail_follows_what_is_chosen(tmp_path):
    path = tmp_path / "store"
    with writing(path) as write:
        write(2)
        options = ["-t", "odd", "-q", 1, "--tags", "t1 || t3", "--grep", "[13]$"]
        with tail(path, "-f", "-n", 1, "--jsonl", *options) as process:
            assert read_numbers(process, 1) == [1]
            write(60)
            wanted = [n for n in range(2, 62) if n % 2 and n % 3 == 1 and n % 10 in {1, 3}]
            assert read_numbers(process, len(wanted)) == wanted
            interrupt(process)


def test_tail_follows_a_store_that_is_closed_and_opened_again(tmp_path):
    path = tmp_path / "store"
    with writing(path) as write:
        write(5)
    with tail(path, "-f", "-n", 1, "--jsonl") as process:
        assert read_numbers(process, 1) == [4]
        for round_ in range(2):
            with writing(path) as write:
                write(3)
            assert read_numbers(process, 3) == list(range(5 + 3 * round_, 8 + 3 * round_))
        interrupt(process)


def test_tail_tells_what_retention_took_from_it(tmp_path):
    path = tmp_path / "store"
    with writing(path) as write:
        write(100)
    with tail(path, "-f", "-n", 1, "--jsonl") as process:
        assert read_numbers(process, 1) == [99]
        process.send_signal(signal.SIGSTOP)
        with writing(path) as write:
            write(100)
        files = sorted((path / "commitlog").iterdir())
        for file in files[:-1]:
            file.unlink()
        process.send_signal(signal.SIGCONT)
        with mqstore.open(path) as store:
            left = [int(m.body.removeprefix(b"message ")) for m in store.scan()]
        seen = read_numbers(process, 1)
        while seen[-1] != left[-1]:
            seen += read_numbers(process, 1)
        # Stopped while it looked, it still has a file open that is gone, and reads on in that.
        assert seen[-len(left) :] == left
        assert seen == sorted(set(seen))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        told = f"the log now begins at {int(files[-1].name)}" in err.decode()
        assert told == (seen != list(range(100, 200)))


def test_tail_ends_when_nobody_reads_any_more(tmp_path):
    path = tmp_path / "store"
    with writing(path) as write:
        write(2)
        with tail(path, "-f", "--jsonl") as process:
            assert read_numbers(process, 2) == [0, 1]
            process.stdout.close()
            # Nothing is written meanwhile: it sees for itself that its reader has gone.
            assert process.wait(timeout=60) == 0
            assert process.stderr.read() == b""


def test_tail_of_a_store_that_is_made_anew(tmp_path):
    path = tmp_path / "store"
    with writing(path) as write:
        write(2)
    with tail(path, "-f", "--jsonl") as process:
        assert read_numbers(process, 2) == [0, 1]
        shutil.rmtree(path)
        # A check while the folders go warns of the log's missing bytes before.
        assert any(b"the log now ends at 0" in line for line in iter(process.stderr.readline, b""))
        with writing(path) as write:
            write(3)
            assert read_numbers(process, 3) == [0, 1, 2]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            # A slow reader also reports that the old bytes are gone.
            assert (process.returncode, out) == (130, b"")
            assert err.strip().endswith(b"interrupted")


def test_tail_ends_where_another_log_lies_in_the_place_of_its_own(tmp_path):
    path, copy = tmp_path / "store", tmp_path / "copy"
    with writing(path) as write:
        write(5)
    shutil.copytree(path, copy)
    with writing(path) as write:
        write(5)
    with tail(path, "-f", "-n", 1, "--jsonl") as process:
        assert read_numbers(process, 1) == [9]
        process.send_signal(signal.SIGSTOP)
        shutil.rmtree(path)
        shutil.copytree(copy, path)
        with mqstore.open(path, "a", config=SETTINGS) as store:
            store.append_many([mqstore.Message("even", b"other %d" % n) for n in range(20)])
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert b"another log than the one that was read up to " in err
    record = rb"a record of \d+ bytes with checksum [0-9a-f]{8}"
    says = rb"expected " + record + rb" at physical offset \d+, found: (" + record + rb"|no record)"
    assert re.search(says, err), err


def test_the_searched_text_is_set_off_on_a_terminal_only(mq, tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=SETTINGS) as store:
        store.append("t", "naïve \x1b[31mred".encode())
        store.append("t", b"nothing")
    # The pattern meets the second byte of a character, which is shown whole.
    code, out, _ = on_terminal(["cat", str(path), "--grep", r"[\xaf-\xff]v|re."])
    assert code == 0
    line = out.decode().strip()
    assert line.endswith("na\x1b[1;31mïv\x1b[0me \\x1b[31m\x1b[1;31mred\x1b[0m"), repr(line)
    _, out, _ = on_terminal(["tail", str(path), "--grep", "red", "--body", "hex"])
    assert b"6d\x1b[1;31m726564\x1b[0m" in out
    _, out, _ = on_terminal(["cat", str(path), "--grep", "red"], NO_COLOR="1")
    assert b"\x1b" not in out
    assert "\x1b" not in mq("cat", path, "--grep", "red").out


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{topc}", "{topic}"),
        ("{queue_ofset}", "{queue_offset}"),
        ("{storetime}", "{store_time}"),
        ("{propertie:a}", "{property:NAME}"),
        ("{key}", "{keys}"),
    ],
)
def test_a_template_that_is_nearly_right(mq, store, template, hint):
    for command in ("cat", "tail"):
        err = mq(command, store, "--format", template, code=2).err
        assert "did you mean " in err
        assert hint in err
