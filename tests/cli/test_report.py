"""``report``: the page that is written, without a browser."""

import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import tarfile
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

import mqstore
from helpers.running import GOLDEN, SETTINGS
from mqstore.html_report.facts import gather
from mqstore.html_report.figures import figures, label
from mqstore.html_report.timeline import make_timeline

DAY_MS = 86_400_000


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.scripts = []
        self.inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def test_ho02_the_page_has_the_policy_and_nothing_to_load(mq, store, tmp_path, conf):
    out = tmp_path / "page.html"
    ran = mq("report", store, "-o", out, "--config", conf)
    assert ran.out == ""
    assert ran.err.startswith(f"{out}: ")
    assert out.stat().st_size < 2_000_000
    page = Elements(out.read_text())
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv")]
    library, data, script = page.scripts
    own, plotly = (
        f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (script, get_plotlyjs())
    )
    assert policy == (
        f"default-src 'none'; script-src {own} {plotly}; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )
    assert "<" not in data + library
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    # The policy stands before anything that it could forbid.
    names = [tag for tag, _ in page.tags]
    assert names.index("meta") < names.index("style") < names.index("script")


def test_json_names_the_page(mq, store, tmp_path):
    out = tmp_path / "page.html"
    assert mq("report", store, "-o", out, "--json").json == {
        "path": str(out),
        "bytes": out.stat().st_size,
    }


def test_a_page_that_is_there_is_kept_unless_told(mq, store, tmp_path):
    out = tmp_path / "page.html"
    out.write_text("mine")
    ran = mq("report", store, "-o", out, code=5)
    assert str(out) in ran.err
    assert out.read_text() == "mine"
    mq("report", store, "-o", out, "--overwrite")
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_nothing_is_written_into_the_store(mq, store, tmp_path):
    (tmp_path / "link").symlink_to(store)
    before = sorted(store.rglob("*"))
    for place in (store, tmp_path / "link"):
        for words in (
            ("report", store, "-o", place / "new"),
            *((name, store, place / "new") for name in ("copy", "export")),
        ):
            assert "outside of the store" in mq(*words, code=2).err
    assert sorted(store.rglob("*")) == before


def test_a_page_that_cannot_be_written_is_named(store, tmp_path):
    page = tmp_path / "nowhere" / "page.html"
    with pytest.raises(mqstore.StoreIOError) as caught:
        mqstore.report(store, page)
    assert caught.value.filename == str(page)
    assert caught.value.strerror == "No such file or directory"


def test_a_page_appears_whole_or_not_at_all(mq, store, tmp_path):
    out = tmp_path / "missing" / "page.html"
    assert "missing" in mq("report", store, "-o", out, code=5).err
    out = tmp_path / "page.html"
    (tmp_path / "none").mkdir()
    mq("report", tmp_path / "none", "-o", out, code=3)
    assert not out.exists()
    with pytest.raises(KeyboardInterrupt):
        mqstore.report(store, out, progress=interrupt)
    assert not out.exists()


def interrupt(done, total):
    raise KeyboardInterrupt


def test_the_store_is_not_touched(mq, store, tmp_path):
    def state():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*")}

    before = state()
    mq("report", store, "-o", tmp_path / "page.html")
    assert state() == before


def test_progress_goes_once_from_nothing_to_all(store, tmp_path):
    told = []
    mqstore.report(store, tmp_path / "page.html", progress=lambda *done: told.append(done))
    parts = [done / total for done, total in told]
    assert parts == sorted(parts)
    assert parts[-1] == 1


def test_figures_are_valid_for_plotly(store, conf):
    made = figures(gather(store, progress=None, config=conf))
    assert set(made) == {"messages", "bytes", "topics", "latency", "index_use", "chains"}
    for name, figure in made.items():
        # Colours are looked up in the page.
        plain = eval(re.sub(r"'var\([a-z0-9-]+\)'", "'#000000'", repr(figure)))
        assert go.Figure(plain).data, name


def test_an_empty_store_has_a_page_too(mq, tmp_path):
    mqstore.open(tmp_path / "store", "a", config=SETTINGS).close()
    mq("report", tmp_path / "store", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for text in ("No messages.", "No index files.", "No consumer group", ">Healthy<"):
        assert text in page


def test_findings_stand_there_with_their_cures(mq, store, tmp_path, conf):
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
    report = mqstore.verify(store, config=conf)
    mq("report", store, "-o", tmp_path / "page.html", "--config", conf)
    page = (tmp_path / "page.html").read_text()
    assert report.findings
    for finding in report.findings:
        assert finding.code in page
        assert finding.fix.split("`")[0].split("'")[0] in page
    assert "Damaged: " in page
    assert "1 damaged ranges of the log count nowhere here" in page


def test_the_facts_are_those_of_the_store(store, conf):
    facts = gather(store, progress=None, config=conf)
    assert (facts.messages, facts.topic_count, facts.queue_count) == (40, 2, 3)
    assert [(topic.name, topic.messages) for topic in facts.topics] == [
        ("orders", 30),
        ("audit", 10),
    ]
    assert [value for _, value in facts.latency.quantiles] == [5] * 5
    assert facts.latency.ranges == [(5, 6, 40)]
    with mqstore.open(store, config=conf) as opened:
        entries = opened.config.max_index_num - 1
    assert [row.entries for row in facts.index.files[:-1]] == [entries] * (
        len(facts.index.files) - 1
    )
    slots = sum(count for count in facts.index.chains.values())
    assert slots == sum(row.used_slots for row in facts.index.files)
    assert sum(length * count for length, count in facts.index.chains.items()) == sum(
        row.entries for row in facts.index.files
    )


def test_messages_far_away_in_time_leave_room_for_the_others():
    near = [(1_700_000_000_000 + 1000 * n, 0, 10, 100) for n in range(300)]
    cells = [(0, 0, 1, 10), *near, (4_000_000_000_000, 1, 1, 10), (9 * 10**18, 0, 1, 10)]
    timeline = make_timeline(["a", "b"], 1000, cells)
    assert timeline.bars[0] >= near[0][0] - 10_000
    assert timeline.bars[-1] <= near[-1][0]
    assert sum(timeline.series[0].messages.values()) == 3000
    assert "3 messages whose times lie far away are not shown" in timeline.text
    assert make_timeline([], 1000, []).bars == []


def test_bars_are_few_and_of_a_length_that_people_use():
    for days in (0.001, 1, 10, 300, 5_000, 2_000_000):
        cells = [(int(n * days / 1000 * DAY_MS) // 1000 * 1000, 0, 1, 1) for n in range(1000)]
        timeline = make_timeline(["a"], 1000, cells)
        assert len(timeline.bars) <= 161, days
        assert sum(timeline.series[0].bytes.values()) == 1000


def test_topics_beyond_the_largest_are_shown_together():
    cells = [(1000 * n, n % 10, 1, 5) for n in range(100)]
    timeline = make_timeline([f"t{n}" for n in range(9)], 1000, cells)
    assert [series.name for series in timeline.series] == [*(f"t{n}" for n in range(6)), None]
    assert sum(timeline.series[-1].messages.values()) == 40


def test_a_figure_of_the_largest_topics_says_how_many_there_are(mq, tmp_path):
    with mqstore.open(tmp_path / "store", "a", config=mqstore.StoreConfig.embedded()) as store:
        for number in range(12):
            store.append(f"topic-{number}", b"x" * number)
    mq("report", tmp_path / "store", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert re.search("<strong>Bytes by topic</strong><span[^>]*>the 10 largest of 12</span>", page)


def test_labels_hold_no_tags_and_no_controls():
    assert label("<a href='x'>&\x1b\u202e") == r"&lt;a href='x'&gt;&amp;\x1b\u202e"
    assert label("x" * 30, 10) == "x" * 9 + "…"


def test_without_the_extra_it_says_how_to_get_it(store, tmp_path):
    script = (
        "import sys; sys.modules['plotly'] = None\n"
        "from mqstore.cli import main\n"
        f"sys.exit(main(['report', {str(store)!r}, '-o', {str(tmp_path / 'x.html')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert b"pip install 'mqstore[report]'" in done.stderr
    assert not Path(tmp_path / "x.html").exists()


@pytest.fixture
def broker(tmp_path):
    """A store that a broker wrote."""
    with tarfile.open(GOLDEN / "broker" / "store.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def test_the_numbers_and_cures_are_those_of_the_other_commands(mq, broker):
    facts = gather(broker, progress=None, config=None)
    info = mq("info", broker, "--json").json
    assert (facts.messages, facts.records) == (info["messages"], 68)
    assert facts.state.lower() == info["state"]
    groups = {(row["group"], row["topic"]): row for row in mq("groups", broker, "--json").json}
    assert len(groups) == len(facts.lags)
    for lag in facts.lags:
        row = groups[lag.group, lag.topic]
        assert (lag.lag, lag.deleted) == (row["lag"], row["deleted_unread"])
        assert lag.oldest_ms == row["oldest_unread_timestamp_ms"]
    assert facts.now.oldest.group == "group-pull-some"
    told = mq("doctor", broker, "--json", code=None).json
    assert [one.code for one in facts.now.diagnoses] == [one["code"] for one in told["diagnoses"]]


def test_the_cures_of_doctor_stand_on_the_page(mq, broker, tmp_path):
    shutil.rmtree(broker / "consumequeue/OrderTopic")
    facts = gather(broker, progress=None, config=None)
    assert facts.now.mood == "bad"
    mq("report", broker, "-o", tmp_path / "page.html")
    page = html.unescape((tmp_path / "page.html").read_text())
    assert facts.now.commands
    for command in facts.now.commands:
        assert f"<li><code>{command}</code></li>" in page
    told = mq("doctor", broker, "--json", code=1).json
    assert facts.now.commands[0] in json.dumps(told)


def test_an_operators_questions_come_first_and_the_brokers_topics_stand_apart(mq, broker, tmp_path):
    offsets = broker / "config/consumerOffset.json"
    offsets.write_text('{"offsetTable":{"%RETRY%group-push-retry@group-push-retry":{"0":1}}}')
    facts = gather(broker, progress=None, config=None)
    (row,) = facts.now.pending.retries
    assert (row.group, row.messages, row.scheduled) == ("group-push-retry", 1, 0)
    assert (facts.now.dead, facts.now.pending.half_messages) == (0, 3)
    skews = {topic.name: topic.skew for topic in facts.topics}
    assert skews["OrderTopic"] == 9 * 3 / 22
    mq("report", broker, "-o", tmp_path / "page.html", "--tz", "Asia/Tokyo")
    page = (tmp_path / "page.html").read_text()
    places = [page.index(text) for text in (">Oldest unread<", ">Disk<", ">Dead letters<")]
    assert max(places) < page.index('id="time"')
    listed = re.split("topics of the broker", page)
    assert ">OrderTopic</td>" in listed[0]
    assert ">SCHEDULE_TOPIC_XXXX</td>" in listed[1]
    assert ">SCHEDULE_TOPIC_XXXX</td>" not in listed[0]
    # 07:52 in UTC.
    assert "2026-11-21 16:5" in page
    assert "Asia/Tokyo" in page
