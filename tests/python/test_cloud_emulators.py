"""Azure's and Google's storage, each by an emulator: the answers of the local store."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import quote

import obstore
import pytest
from obstore.store import from_url

import mqstore
from helpers.buckets import compare, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCOUNT = "devstoreaccount1"
# Azurite's own, and no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
TOOLS = {
    "az": ("azurite-blob", "npm install -g azurite"),
    "gs": ("fake-gcs-server", "go install github.com/fsouza/fake-gcs-server@latest"),
}
WAIT_S = 60


def command(scheme: str, port: int, folder: Path) -> list[str]:
    name, how = TOOLS[scheme]
    variable = f"MQSTORE_{name.upper().replace('-', '_')}"
    tool = os.environ.get(variable) or shutil.which(name)
    if tool is None:
        pytest.skip(f"[no-{name}] {how}, or name the command in {variable}")
    if scheme == "az":
        given = ["--silent", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
        return [tool, *given, "--skipApiVersionCheck", "--location", str(folder)]
    given = ["-scheme=http", "-host=127.0.0.1", f"-port={port}", "-backend=memory"]
    return [tool, *given, f"-public-host=127.0.0.1:{port}"]


def make_bucket(scheme: str, port: int) -> dict[str, str]:
    """Makes the bucket; returns the storage options that lead there."""
    endpoint = f"http://127.0.0.1:{port}"
    if scheme == "gs":
        headers, body = {"Content-Type": "application/json"}, b'{"name": "stores"}'
        _send(urllib.request.Request(f"{endpoint}/storage/v1/b", body, headers, method="POST"))
        key = {"gcs_base_url": endpoint, "disable_oauth": True}
        key |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        return {"service_account_key": json.dumps(key), "allow_http": "true"}
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = [f"{name}:{value}" for name, value in headers.items()]
    place = [f"/{ACCOUNT}/{ACCOUNT}/stores", "restype:container"]
    kind = "application/octet-stream"
    signed = "\n".join(["PUT", *[""] * 4, kind, *[""] * 6, *lines, *place]).encode()
    digest = hmac.digest(base64.b64decode(KEY), signed, hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    headers["Content-Type"] = kind
    url = f"{endpoint}/{ACCOUNT}/stores?restype=container"
    _send(urllib.request.Request(url, b"", headers, method="PUT"))
    options = {"account_name": ACCOUNT, "account_key": KEY, "allow_http": "true"}
    return {**options, "endpoint": f"{endpoint}/{ACCOUNT}"}


def _send(request: urllib.request.Request) -> None:
    """Sends a request as soon as the server takes it."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@pytest.fixture(params=TOOLS)
def emulated(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket's URL of an emulator that ends with the test, and its storage options."""
    (port,) = free_ports(1)
    started = command(request.param, port, tmp_path)
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(started, stdout=log, stderr=log, cwd=tmp_path)
    try:
        yield f"{request.param}://stores", make_bucket(request.param, port)
    finally:
        server.kill()
        server.wait()


def put(url: str, options: dict[str, str], name: str, data: bytes) -> None:
    """Puts an object; Google's emulator takes it in Google's own way only."""
    if "service_account_key" in options:
        endpoint = json.loads(options["service_account_key"])["gcs_base_url"]
        place = f"/upload/storage/v1/b/stores/o?uploadType=media&name={quote(name, safe='')}"
        headers = {"Content-Type": "application/octet-stream"}
        _send(urllib.request.Request(endpoint + place, data, headers, method="POST"))
        return
    config = {name: value for name, value in options.items() if name != "allow_http"}
    store = from_url(url, config=config, client_options={"allow_http": True})
    obstore.put(store, name, data)


def test_an_emulator_answers_the_same(emulated: tuple[str, dict[str, str]], usual: Path) -> None:
    bucket, options = emulated
    for path in usual.rglob("*"):
        if path.is_file():
            name = f"deep/store/{path.relative_to(usual)}"
            put(bucket, options, name, path.read_bytes())
    url = f"{bucket}/deep/store"
    compare(usual, url, storage_options=options).close()
    with mqstore.open(url, storage_options=options) as store:
        put(bucket, options, f"deep/store/commitlog/{1 << 20:020}", b"other")
        with pytest.raises(mqstore.StoreIOError, match="was replaced since"):
            list(store.scan())
    with pytest.raises(mqstore.NotAStoreError, match=r"has some is .*://stores/deep$"):
        mqstore.open(f"{bucket}/deep/stare", storage_options=options)
