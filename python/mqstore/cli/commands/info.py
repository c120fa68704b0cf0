"""``info``, ``config`` and ``report``: what a store is, and how it is set up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

import mqstore
from mqstore._names import lite_names
from mqstore._settings import DEFAULTS, FOLDERS, OF_FILES, OWN_FILE, SETTINGS
from mqstore.cli.messages import STAND_INS
from mqstore.cli.options import FILE, flag, option, read_command
from mqstore.cli.output import Column, Lines, Output, Row, columns, known, note, table_lines
from mqstore.cli.progress import progress
from mqstore.files.layout import index_files, list_files, open_index_files
from mqstore.store import below, is_remote, root_of
from mqstore.text import count_text, escape, size_text, time_text

if TYPE_CHECKING:
    from mqstore import Store


_LEARNT = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
)
_OFFSETS = ("min_physical_offset", "max_physical_offset", "flushed_offset", "dispatched_offset")
_CHECKPOINT = ("physic_msg_timestamp_ms", "logics_msg_timestamp_ms", "index_msg_timestamp_ms")
_FILES = columns(
    "name",
    Column("files", count_text, right=True),
    "bytes",
    Column("allocated_bytes", size_text, right=True, title="ON DISK"),
    Column("what", title=""),
)
_UNKNOWN_SHOWN = 20
_JSON_SHOWN = 4_096
# Bytes of a log that `info` reads in search of stand-ins.
_MOST_COUNTED = 64 << 20


@read_command("info")
def info_command(output: Output, store: str, config: str | None) -> None:
    """Say what a store holds and what state it is in.

    Files and their meaning, unknown ones by name; offsets and time span; whether it was closed or
    crashed, and whether a process writes to it; how far the queues and the index reach.

    Examples:
        mqstore info /data/store
        mqstore info /data/store --json | jq .state
    """
    with mqstore.open(store, config=config) as opened:
        document = _info(opened) | {"stand_ins": _stand_ins(opened, config)}
    output.document(document, lambda: _info_lines(document))


def _info(store: Store) -> Row:
    root = root_of(store)
    locked, pid = mqstore.lock_state(root)
    aborted = below(root, "abort").exists()
    topics, queues = store.topics(), store.queues()
    firsts = known(queue.first_store_timestamp_ms for queue in queues)
    lasts = known(queue.last_store_timestamp_ms for queue in queues)
    files = list_files(root)
    not_read = mqstore.inventory(root)
    return {
        "path": store.path,
        "state": "open" if locked else "crashed" if aborted else "closed",
        "locked": locked,
        "locked_by_pid": pid,
        **{name: getattr(store, name) for name in _OFFSETS},
        "topics": len(topics),
        "queues": len(queues),
        "lite_topics": sum(lite_names(topic) is not None for topic in topics),
        "messages": sum(queue.max_offset - queue.min_offset for queue in queues),
        "first_store_timestamp_ms": min(firsts, default=None),
        "last_store_timestamp_ms": max(lasts, default=None),
        "index": _index_info(store),
        "checkpoint": _checkpoint_info(store),
        "versions": store.versions(),
        "settings": {name: getattr(store.config, name) for name in _LEARNT},
        "files": files.groups,
        "rocksdb": None if is_remote(root) else _rocksdb(store.path),
        "not_read": not_read,
        "unknown": [path for path in files.unknown if not _is_below(path, not_read)],
        "warnings": store.warnings,
    }


def _stand_ins(store: Store, config: str | None) -> int | None:
    """Messages in the place of lost ones; ``None`` where the log is too long to be read."""
    if store.max_physical_offset - store.min_physical_offset > _MOST_COUNTED:
        return None
    return mqstore.stats(root_of(store), by=(), on_error="skip", config=config).stand_ins


def _rocksdb(path: str) -> dict[str, dict[str, int]] | None:
    """Rows of each RocksDB database; ``None`` where they cannot be read."""
    from mqstore.rocksdb import count_rows

    try:
        return count_rows(path)
    except mqstore.StoreError:
        return None


def _is_below(path: str, structures: list[Row]) -> bool:
    """Whether a path is one of the structures, or lies in one."""
    return any(f"{path}/".startswith(f"{structure['path']}/") for structure in structures)


def _index_info(store: Store) -> Row:
    paths = index_files(root_of(store))
    info = {"usable": store.index_usable, "files": len(paths), "entries": 0}
    if store.index_usable:
        for _, file in open_index_files(store, paths):
            info["entries"] += len(file)
            info["end_physical_offset"] = file.header.end_physical_offset
            info["end_timestamp_ms"] = file.header.end_timestamp_ms
    return info


def _checkpoint_info(store: Store) -> Row | None:
    path = below(root_of(store), "checkpoint")
    if not path.exists():
        return None
    checkpoint = mqstore.Checkpoint(path)
    return {name: getattr(checkpoint, name) for name in _CHECKPOINT}


_STATES = {
    "open": "open: a process writes to it",
    "crashed": "crashed: not closed, and no process writes to it",
    "closed": "closed",
}


def _info_lines(info: Row) -> Lines:
    def line(name: str, value: object) -> str:
        return f"{name:<30} {escape(str(value))}"

    yield line("path", info["path"])
    pid = info["locked_by_pid"]
    yield line("state", _STATES[info["state"]] + ("" if pid is None else f" (pid {pid})"))
    begin, end = info["min_physical_offset"], info["max_physical_offset"]
    yield line("log", f"{begin} to {end}, {size_text(end - begin)}")
    yield line("flushed", _reach(info["flushed_offset"], end))
    yield line("dispatched", _reach(info["dispatched_offset"], end))
    yield line("messages", count_text(info["messages"]))
    if info["stand_ins"]:
        yield line("", f"{count_text(info['stand_ins'])} {STAND_INS}")
    lite = f"; lite topics: {info['lite_topics']}" if info["lite_topics"] else ""
    yield line("topics, queues", f"{info['topics']}, {info['queues']}{lite}")
    first, last = info["first_store_timestamp_ms"], info["last_store_timestamp_ms"]
    if first is not None and last is not None:
        yield line("store times", f"{time_text(first)} to {time_text(last)}")
    yield line("RocketMQ", " or ".join(info["versions"]["can_be"]))
    for mark in info["versions"]["marks"]:
        yield line("", f"{mark['path']}: {mark['what']}")
    yield line("index", _index_text(info["index"]))
    for name, value in info["settings"].items():
        yield line(name, value)
    yield ""
    yield from table_lines(info["files"], _FILES)
    counted = {name: _counts_text(counts) for name, counts in (info["rocksdb"] or {}).items()}
    rocksdb = [line("RocksDB", f"{name}: {text}") for name, text in counted.items() if text]
    not_read = [
        line("not read", _structure_text(structure))
        for structure in info["not_read"]
        if not counted.get(structure["path"])
    ]
    warnings = [line("warning", warning) for warning in info["warnings"]]
    unknown = [line("unknown", path) for path in info["unknown"][:_UNKNOWN_SHOWN]]
    more = len(info["unknown"]) - len(unknown)
    if more:
        unknown.append(line("unknown", f"... and {more} more (--json)"))
    for paragraph in (rocksdb, not_read, warnings, unknown):
        if paragraph:
            yield ""
            yield from paragraph


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{count_text(count)} {what}" for what, count in counts.items() if count)


def _structure_text(structure: Row) -> str:
    counts = structure["counts"].items()
    counted = "".join(f", {count_text(count)} {name}" for name, count in counts)
    return f"{structure['path']}: {structure['what']}, {size_text(structure['bytes'])}{counted}"


def _reach(offset: int, end: int) -> str:
    return f"to {offset}" + (f", {size_text(end - offset)} behind" if offset < end else "")


def _index_text(index: Row) -> str:
    if not index["files"]:
        return "no files"
    if not index["usable"]:
        return f"{index['files']} files, not usable with these settings; keys are sought in the log"
    return (
        f"{index['files']} files, {count_text(index['entries'])} entries, "
        f"to {index['end_physical_offset']}"
    )


@read_command("config")
@option("--file only", "NAME", "Only this file, such as topics.json.")
@flag("--broker-conf", "Print the broker.conf with which a broker opens the store.")
def config_command(
    output: Output, store: str, only: str | None, broker_conf: bool, config: str | None
) -> None:
    """Print the settings in force and the broker's own JSON files.

    Examples:
        mqstore config /data/store
        mqstore config /data/store --broker-conf > broker.conf
    """
    if broker_conf and only is not None:
        raise click.UsageError("--broker-conf and --file: expected one of them, got both.")
    with mqstore.open(store, config=config) as opened:
        settings = opened.config.given()
        if broker_conf:
            if is_remote(store):
                raise click.UsageError("--broker-conf: expected a folder for a broker, got a URL.")
            lines = _broker_conf(Path(store).absolute(), settings)
            output.document(lines, lambda: _conf_lines(lines))
            return
        files = _config_files(below(root_of(opened), "config"), only)
    if only is not None and not files:
        raise click.ClickException(f"no file {only!r} below config in {store}")
    document: Row = {
        "files": {name: msgspec.Raw(file.text.encode()) for name, file in files.items()},
        "from_backup": {name: file.why for name, file in files.items() if file.why},
    }
    if only is None:
        document = {"settings": settings, **document}
    output.document(document, lambda: _config_lines({} if only else settings, files))


# They decide whether and how a broker reads the files that are there.
_OF_BROKER = (*FOLDERS, "enable_dleger_commit_log", *OF_FILES)


def _broker_conf(root: Path, settings: Row) -> dict[str, str]:
    """The lines of a broker.conf for the store, without what is a broker's default."""
    lines = {"storePathRootDir": str(root)}
    if any(
        (root / folder / "CURRENT").is_file() for folder in ("consumequeue", "consumequeue_rocksdb")
    ):
        lines["storeType"] = "defaultRocksDB"
    for name in _OF_BROKER:
        value = settings.get(name)
        if value is None or value == DEFAULTS[name]:
            continue
        if name.startswith(("store_path", "read_only")):
            value = ",".join(str(root / folder.strip()) for folder in str(value).split(","))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        lines[SETTINGS[name].conf_name] = text
    return lines


def _conf_lines(lines: dict[str, str]) -> Lines:
    for name, value in lines.items():
        yield f"{name}={escape(value)}"
    yield "# A broker deletes files of the log after fileReservedTime hours, 72 by default."


class _ConfigFile(NamedTuple):
    """One of the broker's files, and why its backup is shown, if it is."""

    text: str
    why: str


def _config_files(folder: Path, only: str | None) -> dict[str, _ConfigFile]:
    if not folder.is_dir():
        return {}
    names = {path.name.removesuffix(".bak") for path in folder.iterdir() if ".json" in path.name}
    files = {}
    # Settings in force include those of our own file.
    names = {name for name in names if name.endswith(".json") and name != OWN_FILE}
    for name in sorted(names if only is None else {only} & (names | {OWN_FILE})):
        file = _config_file(folder / name)
        if file is not None:
            files[name] = file
    return files


def _config_file(path: Path) -> _ConfigFile | None:
    """The file, or else its backup, as a broker reads them; ``None`` where neither is of use."""
    why = ""
    for file in (path, path.with_name(f"{path.name}.bak")):
        state = "empty" if file.is_file() else "gone"
        try:
            if file.is_file() and file.stat().st_size:
                text = mqstore.read_config_json(file)
                if why:
                    note(f"mqstore: config/{path.name} is {why}, {file.name} is shown in its place")
                return _ConfigFile(text, why)
        except mqstore.CorruptionError as error:
            note(f"mqstore: {error}")
            state = "unreadable"
        why = why or state
    return None


def _config_lines(settings: Row, files: dict[str, _ConfigFile]) -> Lines:
    for name, value in settings.items():
        yield f"{name:<44} {escape(str(value))}".rstrip()
    for name, (text, why) in files.items():
        yield ""
        yield f"config/{escape(name)}" + (f".bak, as the file is {why}" if why else "")
        shown = msgspec.json.format(text, indent=2).splitlines()
        for line in shown[:_JSON_SHOWN]:
            yield escape(line)
        if len(shown) > _JSON_SHOWN:
            yield f"... and {len(shown) - _JSON_SHOWN} lines more (--json)"


@read_command("report", short_help="Write an HTML page about a store.")
@option("-o --out", "FILE.html", "Where the page goes.", required=True, type=FILE)
@flag("--overwrite", "Replace a page that is there.")
def report_command(output: Output, store: str, out: str, **options: Any) -> None:
    """Write one HTML page about a store, which needs nothing else and loads nothing.

    It shows the store's state, its health and every finding's cure, messages and bytes over time
    and by topic, the time from born to stored, the index files, and the lag of consumers.

    Examples:
        mqstore report /data/store -o store.html
        mqstore report /data/store -o store.html --overwrite --config broker.conf
    """
    with progress("reading the store") as advance:
        mqstore.report(store, out, progress=advance, **options)
    size = Path(out).stat().st_size
    output.document({"path": out, "bytes": size}, tuple)
    note(f"{out}: {size_text(size)}")
