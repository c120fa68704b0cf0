"""The report: one page that says what a store is and how it fares, and needs nothing else.

The page's policy lets no script run but its own, by their hash, and lets nothing be loaded. Values
out of a store are escaped for the place where they stand: by jinja2 in the page, in JSON by
``_json_for_html``, in plotly's labels by ``figures.label``.

Needs jinja2 and plotly (``pip install 'mqstore[report]'``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqstore
from mqstore import text
from mqstore.errors import StoreIOError, checked, needs
from mqstore.files.durable import new_file
from mqstore.html_report.facts import gather
from mqstore.html_report.figures import figures
from mqstore.store import check_outside, connect, local

with needs("report", "mqstore.report"):
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import SimpleNamespace

    from mqstore.config import ConfigLike

__all__ = ["report"]


# Base 85 without characters that mean something in a page.
_NO_MARKUP = str.maketrans("<>&`", "[],.")


@checked
def report(
    path: str | os.PathLike[str],
    out_html: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    config: ConfigLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Writes a page about a store: what it is, its health, and plots of what it holds.

    State, verdict and cures of ``mqstore.doctor``, lag in time, dead letters and disk come first.
    Then messages and bytes over time and by topic, the time from born to stored, how full the index
    files are and how long their chains, how far consumer groups are behind, and what
    ``mqstore.verify`` found. Times are those of the zone in force. The page is one file that loads
    nothing, and it appears whole or not at all. The store is only read.

    Args:
        path: The store's root folder.
        out_html: Where the page goes.
        overwrite: Whether a file that is there may be replaced.
        progress: Called with ``(done_bytes, total_bytes)`` now and then.
        config: As for ``mqstore.open``.
        storage_options: As for ``mqstore.open``.

    Raises:
        FileExistsError: The page is there already.
        ModuleNotFoundError: jinja2 or plotly is not installed.
        NotAStoreError: No such folder, or no store in it.
        ConfigError: A setting that cannot be, or `out_html` lies inside of the store.
        StoreIOError: The operating system refused something, or the page cannot be written.
    """
    path = connect(path, storage_options)
    out = Path(local(out_html, "mqstore.report"))
    check_outside("out_html", out, path)
    if not overwrite and os.path.lexists(out):
        raise FileExistsError(17, "the report is there already", str(out))
    facts = gather(path, progress=progress, config=config)
    page = render(facts)
    try:
        with new_file(out, overwrite=overwrite) as temporary:
            temporary.write_text(page, encoding="utf-8", newline="\n")
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreIOError(
            f"write {out}: {error.strerror}", error.errno, str(out), "write"
        ) from error


def render(facts: SimpleNamespace) -> str:
    """The page as text."""
    resources = files("mqstore.html_report")
    template, style, own = (
        (resources / name).read_text("utf-8") for name in ("page.html.j2", "page.css", "page.js")
    )
    script, library = _for_script(own), get_plotlyjs()
    policy = (
        f"default-src 'none'; script-src {_hash(script)} {_hash(library)}; "
        "style-src 'unsafe-inline'; img-src data: blob:"
    )
    made = figures(facts)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(_FILTERS)
    return environment.from_string(template).render(
        facts=facts,
        figures=_json_for_html(made),
        layouts={name: figure["layout"] for name, figure in made.items()},
        policy=policy,
        library=Markup(_packed(library)),  # noqa: S704 - its alphabet has no markup
        script=Markup(script),  # noqa: S704 - the package's own, and what its hash lets run
        style=Markup(style),  # noqa: S704 - the package's own
        version=mqstore.__version__,
    )


def _json_for_html(value: object) -> Markup:
    """JSON that stands in a script element: nothing in it ends that, or begins a comment."""
    encoded = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return Markup(encoded)  # noqa: S704 - there is no markup left in it


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _packed(script: str) -> str:
    """A script, compressed, as text that page.js unpacks: a third of its size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 15, 9)
    data = packer.compress(script.encode()) + packer.flush()
    # page.js knows the length by it.
    encoded = base64.b85encode(data, pad=True).decode()
    return f"{len(data)}:" + encoded.translate(_NO_MARKUP)


def _for_script(script: str) -> str:
    """A script that stands in a page: no text in it is taken for the element's end."""
    return re.sub("<(?=/script|!--|script)", r"\\x3c", script, flags=re.IGNORECASE)


def _span_text(time_ms: int) -> str:
    if time_ms < 10_000:
        return f"{text.count_text(time_ms)} ms"
    return text.duration_text(time_ms / 1000)


_FILTERS: dict[str, Callable[..., str]] = {
    "shown": text.escape,  # jinja2 escapes what HTML would read in it
    "count": text.count_text,
    "size": text.size_text,
    "day": text.day_text,
    "clock": lambda ms: "" if ms is None else text.time_text(ms)[11:19],
    "minute": lambda ms: text.minute_text(ms).replace("T", " "),
    "age": text.age_text,
    "span": _span_text,
    "percent": lambda part: f"{100 * min(max(part, 0.0), 1.0):.1f}%",
    "duration": text.duration_text,
}
