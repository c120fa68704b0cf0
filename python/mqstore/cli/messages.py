"""Messages as the commands show them: a line, a page, or a JSON document."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from mqstore.cli.bodies import Decoder
from mqstore.cli.output import in_colour, note
from mqstore.results.documents import FIELDS, body_of, document, members_of, packed
from mqstore.text import count_text, escape, labels, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mqstore import StoredMessage
    from mqstore._native import _Pattern
    from mqstore.cli.output import Output
    from mqstore.results.documents import BodyForm

STAND_INS = "stand in for lost messages: consumers get them as empty messages"

_TEMPLATE_NAMES = (*FIELDS, "store_time", "born_time", "body")
_BEGIN_MARK, _END_MARK = "\x1b[1;31m", "\x1b[0m"
# Not shown to people where a message has none.
_RARE = {
    "real_topic",
    "real_queue_id",
    "deliver_timestamp_ms",
    "multi_dispatch",
    "lite_topic",
    "priority",
}
_DETAILS = tuple(field for field in FIELDS if field != "properties")
_HEX_ROW = 16


class MessageView:
    """How messages are shown.

    Args:
        body: The form of bodies, or what decodes them; one of another kind is shown as ``text``.
        preview: For people at most so many bytes of a body.

    Attributes:
        raw: Leaves text for people unescaped, for a program to read.
        highlight: What is set off where it stands in a body, for a terminal that shows colour.
    """

    raw = False
    highlight: _Pattern | None = None

    def __init__(self, body: BodyForm | Decoder = "text", *, preview: int = 4096) -> None:
        self.body = body.form if isinstance(body, Decoder) else body
        self.decode = body.decode if isinstance(body, Decoder) else None
        self.preview = preview

    def document(self, message: StoredMessage) -> dict[str, object]:
        """The message for programs."""
        return document(message, self.body, self.decode)

    def line(self, message: StoredMessage) -> str:
        """The message in one line."""
        parts = [
            f"{message.physical_offset:>12}",
            time_text(message.store_timestamp_ms),
            f"{self._safe(message.topic)}/{message.queue_id}@{message.queue_offset}",
        ]
        parts += map(self._safe, labels(message.tags, message.keys))
        parts.extend(f"{name}={self._safe(value)}" for name, value in _kind(message))
        if self.body != "none":
            parts.append(self.body_text(message))
        return "  ".join(filter(None, parts))

    def page(self, message: StoredMessage) -> Iterator[str]:
        """The message with all its fields, one in a line."""
        for field in _DETAILS:
            value = getattr(message, field)
            if field in _RARE and not value and value != 0:
                continue
            if field.endswith("_timestamp_ms"):
                field, shown = field.replace("_timestamp_ms", "_time"), time_text(value)
            else:
                shown = "-" if value is None else _field_text(field, value)
            yield f"{field:<28} {self._safe(shown)}".rstrip()
        for name, value in message.properties.items():
            yield f"{'property':<28} {self._safe(name)} = {self._safe(value)}"
        if self.body == "none":
            return
        members, failure = members_of(message)
        if failure:
            yield f"{'batch':<28} {escape(failure)}"
        for member in members or ():
            yield f"{'batch':<28} {self._member_line(member)}"
        body, failure = body_of(message)
        yield f"{'body':<28} {len(body)} bytes" + (f", {escape(failure)}" if failure else "")
        if self.body == "hex":
            yield from _hex_dump(body[: self.preview])
        elif body:
            yield from self._body_lines(message, body)

    def _body_lines(self, message: StoredMessage, body: bytes) -> Iterator[str]:
        """The body on a page: what can be laid out has a line for each member."""
        laid_out = None
        if self.highlight is None:
            laid_out = packed(body, self.body, self.decode)
        if laid_out is None or len(laid_out) > self.preview:
            yield self.body_text(message)
            return
        for line in msgspec.json.format(laid_out, indent=2).decode().split("\n"):
            yield self._safe(line)

    def body_text(self, message: StoredMessage) -> str:
        """The body in one line, cut after the preview's bytes."""
        body, failure = body_of(message)
        if failure or self.body == "hex":
            text = self._marked(body, bytes.hex)
        else:
            text = self._marked(packed(body, self.body, self.decode) or body, self._text)
        if len(body) > self.preview:
            text += f" ... ({size_text(len(body))})"
        return text

    def _marked(self, data: bytes, show: Callable[[bytes], str]) -> str:
        """The beginning of `data`, what is to be highlighted set off."""
        if self.highlight is None:
            return show(data[: self.preview])
        parts = []
        at = 0
        for begin, end in _spans(self.highlight, data, self.preview):
            parts += [show(data[at:begin]), _BEGIN_MARK, show(data[begin:end]), _END_MARK]
            at = end
        return "".join([*parts, show(data[at : max(at, self.preview)])])

    def _text(self, data: bytes) -> str:
        return self._safe(data.decode("utf-8", "replace"))

    def _safe(self, text: str) -> str:
        return text if self.raw else escape(text)

    def _member_line(self, member: StoredMessage) -> str:
        parts = [f"@{member.queue_offset}"]
        parts += map(self._safe, labels(member.tags, member.keys))
        parts.append(self.body_text(member))
        return "  ".join(filter(None, parts))


class Template:
    r"""A line for each message, from ``--format``.

    ``{name}`` stands for a field, ``{property:NAME}`` for a property, ``{{`` and ``}}`` for braces,
    ``\t`` and ``\n`` for a tab and a line break. Nothing else is looked up or evaluated.

    Args:
        text: The template.
        view: How the body is shown.

    Raises:
        ValueError: An unknown name, or a brace that stands alone.
    """

    _PART = re.compile(r"\{\{|\}\}|\{([a-z_0-9]+)(?::([^{}]*))?\}|\\([tn\\])|[{}]")
    _ESCAPES: Mapping[str, str] = {"t": "\t", "n": "\n", "\\": "\\"}

    def __init__(self, text: str, view: MessageView) -> None:
        self._text = text
        self._view = view
        for match in self._PART.finditer(text):
            if match[0] in {"{", "}"}:
                raise ValueError(f"{match[0]!r} stands alone at {match.start()}; double it")
            name, argument = match[1], match[2]
            if name is None:
                continue
            if name == "property" and argument:
                continue
            if argument is not None or name not in _TEMPLATE_NAMES:
                raise ValueError(f"no such field: {match[0]}{_near(name)}")

    def line(self, message: StoredMessage) -> str:
        """The message's line, without its end."""

        def put(match: re.Match[str]) -> str:
            name, argument, escaped = match[1], match[2], match[3]
            if name is not None:
                return self._value(message, name, argument)
            return self._ESCAPES[escaped] if escaped else match[0][0]

        return self._PART.sub(put, self._text)

    def _value(self, message: StoredMessage, name: str, argument: str | None) -> str:
        match name:
            case "body":
                return self._view.body_text(message)
            case "store_time":
                return time_text(message.store_timestamp_ms)
            case "born_time":
                return time_text(message.born_timestamp_ms)
            case "property":
                text = message.properties.get(argument or "", "")
            case _:
                value = getattr(message, name)
                text = "" if value is None else _field_text(name, value)
        return text if self._view.raw else escape(text)


def line_of(
    view: MessageView, template: str | None, grep: _Pattern | None, *, raw: bool
) -> Callable[[StoredMessage], str]:
    """How a list shows a message: by a template if one is given, matches set off in colour."""
    view.raw = raw
    view.highlight = grep if in_colour() else None
    return view.line if template is None else Template(template, view).line


def _near(name: str) -> str:
    """Suggestions for an unknown name."""
    near = difflib.get_close_matches(name, (*_TEMPLATE_NAMES, "property"), cutoff=0.5)
    names = [f"{{{one}:NAME}}" if one == "property" else f"{{{one}}}" for one in near]
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _spans(pattern: _Pattern, data: bytes, stop: int) -> Iterator[tuple[int, int]]:
    """Where the pattern is found before `stop`, moved out to whole characters of UTF-8."""
    last = 0
    for begin, end in pattern.spans(data, stop):
        while begin > last and data[begin] & 0xC0 == 0x80:
            begin -= 1
        end = min(end, stop)
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        if last <= begin < end:
            yield begin, end
            last = end


def print_messages(
    output: Output,
    messages: Iterable[StoredMessage],
    view: MessageView,
    line: Callable[[StoredMessage], str],
) -> int:
    """Prints messages in the output's form, for people by `line`; returns how many."""
    if output.form != "text":
        return output.rows(view.document(message) for message in messages)
    count = stand_ins = 0
    for message in messages:
        output.line(line(message))
        count += 1
        stand_ins += is_stand_in(message)
    note_stand_ins(stand_ins)
    return count


def note_stand_ins(count: int) -> None:
    """Says what consumers get in the place of lost messages."""
    if count:
        note(f"{count_text(count)} {STAND_INS}")


def note_skipped(ranges: int, size: int, lists: str = "`mqstore verify`") -> int:
    """Says how much damage was skipped, if any, and returns the exit code."""
    if ranges:
        note(f"skipped {ranges} damaged ranges, {size} bytes; {lists} lists them")
    return int(ranges > 0)


def is_stand_in(message: StoredMessage) -> bool:
    """Whether a salvage put the message in the place of a lost one."""
    return b"MQSTORE_LEFT_OUT\x01" in message.raw_properties


def _kind(message: StoredMessage) -> Iterator[tuple[str, str]]:
    """Special kinds of messages, each with its name."""
    if is_stand_in(message):
        yield "stand-in", "for a lost message"
    if message.purpose != "normal":
        yield "purpose", message.purpose
    if message.transaction != "none":
        yield "transaction", message.transaction
    if message.delay_level:
        yield "delay_level", str(message.delay_level)
    if message.real_topic is not None:
        queue = "" if message.real_queue_id is None else f"/{message.real_queue_id}"
        yield "for", f"{message.real_topic}{queue}"
    if message.deliver_timestamp_ms is not None:
        yield "deliver", time_text(message.deliver_timestamp_ms)
    if message.lite_topic is not None:
        yield "lite_topic", message.lite_topic
    if message.priority is not None:
        yield "priority", str(message.priority)
    if message.multi_dispatch:
        yield "also", _field_text("multi_dispatch", message.multi_dispatch)
    members, failure = members_of(message)
    if members is not None or failure:
        yield "batch", failure or f"{len(members or ())} messages"


def _field_text(name: str, value: Any) -> str:
    """A field's value in one line."""
    match name:
        case "keys":
            return " ".join(value)
        case "properties":
            return " ".join(f"{key}={text}" for key, text in value.items())
        case "multi_dispatch":
            return " ".join(f"{topic}@{at}" for topic, at in value)
    return str(value)


def _hex_dump(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _HEX_ROW):
        row = data[at : at + _HEX_ROW]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<{3 * _HEX_ROW}} {shown}"
