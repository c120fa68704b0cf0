"""The programs in ``examples/`` that need no Spark."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore
from helpers.golden import Case

if TYPE_CHECKING:
    import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> dict[str, Any]:
    monkeypatch.setattr("sys.argv", [name, *map(str, arguments)])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


async def answer(app: Any, method: str, url: str, user: str, body: object = None) -> Any:
    """What an ASGI application answers: the status, and the document."""
    path, _, query = url.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"x-user", user.encode())],
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(part.get("body", b"") for part in sent))


def test_each_change_is_in_the_audit_log_before_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_LOG", str(tmp_path / "log"))
    names = run(monkeypatch, "audit_log.py")
    app = names["app"]

    async def requests() -> None:
        async with names["lifespan"](app):
            assert (await answer(app, "POST", "/orders", "ann", {"id": 1}))[0] == 201
            with mqstore.open(tmp_path / "log") as beside:
                (entry,) = beside.topic("audit")
                assert (entry.tags, entry.keys) == ("POST", ("ann",))
            await answer(app, "POST", "/orders", "bob", {"id": 2})
            status, rows = await answer(app, "GET", "/audit?user=ann", "eve")
            assert (status, [row["user"] for row in rows]) == (200, ["ann"])
            status, rows = await answer(app, "GET", "/audit", "eve")
            assert [row["user"] for row in rows] == ["bob", "ann"]

    asyncio.run(requests())


def test_a_letter_is_sent_or_tried_again_or_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "work_queue.py", tmp_path / "queue", "ann@x", "busy@x", "nowhere")
    assert capsys.readouterr().out.splitlines() == [
        "sent to ann@x at attempt 1",
        "sent to busy@x at attempt 2",
        "2 sent, 3 tried again, 1 given up",
        "dead letter: nowhere",
    ]


def test_an_account_is_what_its_events_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for now, then in ((350, 0), (700, 350)):
        names = run(monkeypatch, "account.py", tmp_path / "bank")
        refused, *lines, last = capsys.readouterr().out.splitlines()
        assert refused.startswith("refused: bob has ")
        assert [line.split()[2:] for line in lines[-2:]] == [
            ["deposited", "+500"],
            ["withdrawn", "-150"],
        ]
        assert last == f"ann has {now}, had {then} before"
    with mqstore.open(tmp_path / "bank") as store:
        assert names["Bank"](store).balances == {"ann": 700, "bob": 400}
        for account in ("ann", "bob"):
            queues = {event.queue_id for event in store.query("account-events", account)}
            assert len(queues) == 1
        later = [*store.topic("account-events").since(datetime.now(UTC))]
        assert not later


def test_the_notebook_goes_from_a_brokers_copy_to_a_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", str(Case("broker").unpack(tmp_path)))
    notebook = json.loads((EXAMPLES / "broker_chart.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                assert not cell["outputs"], "clear the outputs before a commit"
                source = "".join(cell["source"])
                ast.parse(source)
                exec(compile(source, cell["id"], "exec"), names)
    assert sum(names["counts"].values()) > 0
    assert names["per_second"]["messages"].sum() == sum(
        names["counts"][topic] for topic in names["busiest"]
    )
    assert {line.name for line in names["figure"].data} == set(names["busiest"])
