"""The report in a real browser: plots drawn, nothing loaded, nothing run, room on a phone."""

from __future__ import annotations

import json
import os
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

BEGIN_MS = 1_700_000_000_000
# Whatever one of these gets done, `window.hit` or an alert tells.
HOSTILE = [
    "<script>window.hit=1</script>",
    '"onload="window.hit=1"><img src=x onerror=window.hit=1>',
    "</script><script>window.hit=1</script>",
    "</title></style><svg onload=window.hit=1>",
    "<a href='javascript:window.hit=1'>click</a>",
    "javascript:window.hit=1//<!--<script>",
    "{{ 7 * 7 }}${window.hit=1}%{x}$\\alpha$",
    "'; window.hit=1; '\u2028\u202e\x1b[31m]]>",
]
CONFIG = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 6_000,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
PICTURE = Path(__file__).parents[2] / "docs/images/report.png"
SIZES = [(360, 740), (420, 800), (1400, 900)]


@pytest.fixture(scope="session")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about a store with some of everything."""
    folder = tmp_path_factory.mktemp("usual")
    random_ = random.Random(7)
    topics = ["orders", "payments", "audit", "%RETRY%billing", "events_of_the_mobile_apps", *"abcd"]
    with mqstore.open(folder / "store", "a", config=CONFIG) as store:
        time_ms = BEGIN_MS
        for number in range(900):
            time_ms += random_.randrange(60_000)
            store.append_many(
                [
                    mqstore.Message(
                        topics[min(int(random_.expovariate(0.5)), len(topics) - 1)],
                        random_.randbytes(random_.randrange(400)),
                        queue_id=number % 4,
                        keys=f"key-{random_.randrange(400)}",
                        born_timestamp_ms=time_ms - int(random_.lognormvariate(2, 1.5)),
                        store_timestamp_ms=time_ms,
                    )
                ]
            )
        store.wait_dispatched()
        for name in ("billing", "search", "warehouse"):
            with store.group(name) as group:
                for queue in store.queues("orders"):
                    offset = random_.randrange(queue.max_offset)
                    group.seek("orders", queue.queue_id, offset)
                group.commit()
    mqstore.report(folder / "store", folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about a damaged store whose every name tries to do harm."""
    folder = tmp_path_factory.mktemp("hostile<b>&amp;")
    path = folder / "store"
    stand_ins = [chr(ord("A") + number) * len(text.encode()) for number, text in enumerate(HOSTILE)]
    with mqstore.open(path, "a", config=CONFIG) as store:
        for name, text in zip(stand_ins, HOSTILE, strict=True):
            property_text = text.replace("\x1b", "")
            store.append(
                name,
                text.encode(),
                tags=property_text,
                keys=property_text.replace(" ", ""),
                unique_key=property_text,
                properties={property_text: property_text},
            )
        store.wait_dispatched()
        with store.group("stand-in") as group:
            group.seek(stand_ins[0], 0, 0)
            group.commit()
    # The store refuses such names, so they are put over others of their length.
    for log in (path / "commitlog").iterdir():
        content = log.read_bytes()
        for name, text in zip(stand_ins, HOSTILE, strict=True):
            content = content.replace(name.encode(), text.encode())
        log.write_bytes(content)
    offsets = path / "config" / "consumerOffset.json"
    table = {f"{topic}@{group}": {"0": 0} for topic, group in product(stand_ins[:1], HOSTILE)}
    offsets.write_text(json.dumps({"offsetTable": table}))
    for text in HOSTILE:
        (path / text.replace("/", "_")).touch()
    # Damage, so that findings name what they found.
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(92)  # in the first body
        file.write(b"<script>")
    mqstore.report(path, folder / "report.html")
    return folder / "report.html"


def test_the_picture_of_the_report_has_the_size_of_todays(
    browser: Browser, usual: Path, tmp_path: Path
) -> None:
    """``MQSTORE_PICTURES=1`` takes the README's picture anew; fonts differ by machine."""
    shown = tmp_path / "report.html"
    text = usual.read_text(encoding="utf-8").replace(str(usual.parent / "store"), "/data/store")
    shown.write_text(text, encoding="utf-8")
    target = PICTURE if os.environ.get("MQSTORE_PICTURES") else tmp_path / PICTURE.name
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(shown.as_uri())
    page.screenshot(path=target)
    page.close()
    sizes = [png.read_bytes()[16:24] for png in (PICTURE, target)]
    assert sizes[0] == sizes[1]


# First lines of labels along an axis that stand in each other; a day has a second line below.
OVERLAPS = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
    const boxes = [...plot.querySelectorAll(".xtick text")]
        .map((text) => (text.querySelector("tspan") || text).getBoundingClientRect())
        .filter((box) => box.width).sort((a, b) => a.left - b.left);
    const meet = boxes.slice(1).some((box, at) => box.left < boxes[at].right);
    return meet ? [plot.dataset.figure] : [];
})"""
# The contrast of text with its ground that WCAG 2 asks for (AA).
POOR_CONTRAST = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const color = parse(getComputedStyle(node).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const poor = [];
    const text = "p, h1, h2, h3, dt, dd, th, td, a, .state, small, footer";
    for (const node of document.querySelectorAll(text)) {
        const pair = [light(parse(getComputedStyle(node).color)), light(ground(node))];
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        if (ratio < 4.5) poor.push([node.outerHTML.slice(0, 80), ratio]);
    }
    return poor;
}"""


@dataclass
class Seen:
    """Events of a page while it was shown."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(
    browser: Browser, report: Path, size: tuple[int, int], scheme: str, **more: object
) -> Iterator[Seen]:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **more
    )
    page = context.new_page()
    seen = Seen(page)
    page.on("console", lambda message: seen.console.append(message.text))
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("dialog", lambda dialog: seen.console.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(report.as_uri())
    if more.get("java_script_enabled", True):
        page.wait_for_selector("html[data-drawn]", timeout=30_000, state="attached")
    yield seen
    context.close()


def bars(page: Page, figure: str) -> int:
    return page.locator(f"[data-figure={figure}] .trace.bars .point path").count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
def test_every_plot_is_drawn_and_nothing_else_happens(
    browser: Browser, usual: Path, size: tuple[int, int], scheme: str
) -> None:
    with opened(browser, usual, size, scheme) as seen:
        page = seen.page
        figures = json.loads(page.locator("#figures").text_content())
        assert set(figures) == {
            *("messages", "bytes", "topics", "latency", "index_use", "chains", "lag")
        }
        for name, figure in figures.items():
            assert bars(page, name) == sum(len(trace["x"]) for trace in figure["data"]), name
            box = page.locator(f"[data-figure={name}]").bounding_box()
            assert box["height"] == figure["layout"]["height"], "it does not jump when drawn"
        assert bars(page, "lag") == 3
        assert seen.console == []
        assert seen.requests == [usual.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        # No text of a plot hangs out of the page.
        outside = page.evaluate(
            "[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect())"
            ".filter(r => r.width && (r.left < 0 || r.right > innerWidth)).length"
        )
        assert outside == 0
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(POOR_CONTRAST) == []


def test_tables_are_sorted_and_filtered(browser: Browser, usual: Path) -> None:
    with opened(browser, usual, SIZES[-1], "light") as seen:
        page = seen.page
        table = page.locator("#topics table").first
        column = (
            "[...document.querySelector('#topics table').tBodies[0].rows]"
            ".filter(row => !row.hidden).map(row => row.cells[0].textContent)"
        )
        before = page.evaluate(column)
        table.locator("th button", has_text="Topic").click()
        assert page.evaluate(column) == sorted(before)
        table.locator("th button", has_text="Messages").click()
        counts = table.locator("tbody tr td:nth-child(2)").all_inner_texts()
        numbers = [int(text.replace(",", "")) for text in counts]
        assert numbers == sorted(numbers, reverse=True)
        page.locator("#topics .filter").first.fill("PAY")
        assert page.evaluate(column) == ["payments"]
        assert "%RETRY%billing" not in before
        assert seen.console == []


def test_the_theme_is_followed_while_the_page_is_open(browser: Browser, usual: Path) -> None:
    with opened(browser, usual, SIZES[1], "light") as seen:
        fill = "getComputedStyle(document.querySelector('[data-figure=topics] .point path')).fill"
        ground = "getComputedStyle(document.body).backgroundColor"
        light = [seen.page.evaluate(what) for what in (fill, ground)]
        seen.page.emulate_media(color_scheme="dark")
        seen.page.evaluate(
            "(old) => new Promise((done) => { const look = () =>"
            f" {fill} === old ? requestAnimationFrame(look) : done(); look(); }})",
            light[0],
        )
        assert seen.page.evaluate(ground) != light[1]
        assert seen.console == []


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
def test_ho02_hostile_strings_are_shown_and_do_nothing(
    browser: Browser, hostile: Path, size: tuple[int, int]
) -> None:
    with opened(browser, hostile, size, "light") as seen:
        page = seen.page
        assert page.evaluate("window.hit") is None
        assert seen.console == []
        assert seen.requests == [hostile.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        # Nothing of the page but what the template put there.
        assert page.locator("script").count() == 3
        assert page.locator("img, iframe, object, embed, form, base, link").count() == 0
        links = page.evaluate("[...document.links].map((link) => link.getAttribute('href'))")
        assert all(link.startswith("#") for link in links)
        assert page.evaluate(
            "[...document.querySelectorAll('*')].every((node) =>"
            " [...node.attributes].every((one) => !one.name.startsWith('on')))"
        )
        shown = page.locator("main").inner_text()
        for text in HOSTILE:
            visible = text.replace("\u2028", r"\u2028").replace("\u202e", r"\u202e")
            visible = visible.replace("\x1b", r"\x1b")
            assert visible in shown, text
        # In plots too: each label is one text, none a link.
        assert page.locator(".plot a").count() == 0
        assert "<script>window.hit" in page.locator("[data-figure=lag]").inner_text()
        page.mouse.move(*centre(page, "[data-figure=lag] .point path"))
        page.wait_for_selector(".hoverlayer .hovertext", timeout=10_000)
        assert page.evaluate("window.hit") is None


def centre(page: Page, selector: str) -> tuple[float, float]:
    place = page.locator(selector).first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_policy_lets_nothing_else_run_or_load(browser: Browser, usual: Path) -> None:
    with opened(browser, usual, SIZES[1], "light") as seen:
        page = seen.page
        refused = page.evaluate("""() => new Promise((done) => {
            const seen = [];
            document.addEventListener("securitypolicyviolation", (event) => {
                seen.push(event.effectiveDirective);
                if (seen.length === 3) done(seen.sort());
            });
            const script = document.createElement("script");
            script.textContent = "window.hit = 1";
            document.body.append(script);
            new Image().src = "https://example.invalid/x.png";
            fetch("https://example.invalid/x").catch(() => {});
        })""")
        assert refused == ["connect-src", "img-src", "script-src-elem"]
        assert page.evaluate("window.hit") is None


def test_without_scripts_the_tables_are_there(browser: Browser, usual: Path) -> None:
    with opened(browser, usual, SIZES[0], "light", java_script_enabled=False) as seen:
        text = seen.page.locator("main").inner_text()
        assert "payments" in text
        assert "The plots need scripts" in text
        assert seen.requests == [usual.as_uri()]
