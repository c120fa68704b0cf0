"""An audit log for a web application: uvicorn audit_log:app (pip install starlette uvicorn).

Each request that changes something is on the disk before its answer is sent.
``GET /audit?user=ann`` gives a user's requests, newest first; ``GET /audit`` the latest of all.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import mqstore
import mqstore.aio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = os.environ.get("AUDIT_LOG", "audit-log")
SETTINGS = mqstore.StoreConfig.embedded(flush_disk_type="SYNC_FLUSH")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    async with mqstore.aio.open(FOLDER, "a", config=SETTINGS) as store:
        app.state.audit = store
        yield


class Audit:
    """Records each request but ``GET``, with the status of its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        user = request.headers.get("x-user", "nobody")

        async def record_first(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry = {"path": request.url.path, "status": message["status"], "user": user}
                await scope["app"].state.audit.append(
                    "audit", json.dumps(entry).encode(), keys=user, tags=request.method
                )
            await send(message)

        await self.app(scope, receive, record_first)


async def add_order(request: Request) -> Response:
    order = await request.json()
    return JSONResponse({"accepted": order}, status_code=201)


async def audit(request: Request) -> Response:
    store: mqstore.aio.AsyncStore = request.app.state.audit
    user = request.query_params.get("user")
    if user is not None:
        found = list(await store.query("audit", user, max_messages=100))
    else:
        found = await store.topic("audit").latest(100)
    rows = [
        {"at": message.store_timestamp_ms, "method": message.tags, **json.loads(message.body)}
        for message in found
    ]
    return JSONResponse(rows)


app = Starlette(
    routes=[Route("/orders", add_order, methods=["POST"]), Route("/audit", audit)],
    middleware=[Middleware(Audit)],
    lifespan=lifespan,
)
