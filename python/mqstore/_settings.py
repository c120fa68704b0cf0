"""The core's table of settings, and checks of values by it."""

from __future__ import annotations

import difflib
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, cast

import msgspec

from mqstore._native import _setting_refusal, _settings
from mqstore.errors import wrong_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INT_MAX: Final = 2**31 - 1
_SPANS: Final = {"milliseconds": timedelta(milliseconds=1), "hours": timedelta(hours=1)}
_Type: TypeAlias = type[bool | int | str]

OWN_FILE: Final = "mqstore.json"
"""Our file below ``config``: the settings that a store was made with."""


class Setting(msgspec.Struct, frozen=True, tag_field="kind"):
    """One row of the core's table of settings."""

    name: str
    conf_name: str
    """Name in a ``broker.conf``; empty for a setting that is not read there."""
    doc: str
    """Meaning, without the default; empty for a setting that has no effect here."""
    heading: str
    """Heading above this setting and those that follow; empty for the heading before."""
    type_name: ClassVar[str]


class Flag(Setting, frozen=True, tag="flag"):
    default: bool
    type: ClassVar[_Type] = bool
    type_name: ClassVar[str] = "true or false"


class Number(Setting, frozen=True, tag="number"):
    default: int | None
    least: int
    most: int
    unit: str
    type: ClassVar[_Type] = int
    type_name: ClassVar[str] = "a whole number"


class Choice(Setting, frozen=True, tag="choice"):
    default: str | None
    choices: tuple[str, ...]
    type: ClassVar[_Type] = str
    type_name: ClassVar[str] = "text"


class Text(Setting, frozen=True, tag="text"):
    default: str
    expected: str
    type: ClassVar[_Type] = str
    type_name: ClassVar[str] = "text"


SETTINGS: Final[Mapping[str, Flag | Number | Choice | Text]] = {
    setting.name: setting
    for setting in msgspec.json.decode(_settings(), type=list[Flag | Number | Choice | Text])
}

DEFAULTS: Final[Mapping[str, bool | int | str | None]] = {
    name: setting.default for name, setting in SETTINGS.items()
}
"""The defaults by name, RocketMQ's where the name is."""

FOLDERS: Final = (
    "store_path_commit_log",
    "read_only_commit_log_store_paths",
    "store_path_epoch_file",
    "store_path_dledger_commit_log",
)
"""Settings that lead out of a store's folder, or to another place in it."""

OF_FILES: Final = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "max_hash_slot_num",
    "max_index_num",
    "enable_lmq",
    "enable_multi_dispatch",
    "message_delay_level",
    "enabled_append_prop_crc",
    "flush_disk_type",
)
"""Settings by which the files of a store are laid out, or read."""

FIELD_OF: Final = {
    setting.conf_name: name for name, setting in SETTINGS.items() if setting.conf_name
}
"""Setting of a ``broker.conf`` line; also some of our own, which a broker skips."""


def read(name: str, value: object) -> object:
    """`value` as the type of setting `name`, as far as text spells it."""
    setting = SETTINGS[name]
    if isinstance(value, str) and setting.type is not str:
        try:
            return msgspec.convert(value.strip(), setting.type, strict=False)
        except msgspec.ValidationError:
            raise wrong_setting(name, _type_name(setting), repr(value)) from None
    return value


def duration(name: str, value: timedelta) -> int:
    """A time span in the unit of setting `name`.

    Raises:
        ConfigError: The setting has no such unit, or the span is no whole number of it.
    """
    setting = SETTINGS[name]
    unit = _SPANS.get(setting.unit) if isinstance(setting, Number) else None
    if unit is None:
        raise wrong_setting(name, _type_name(setting), repr(value))
    whole, rest = divmod(value, unit)
    if rest:
        raise wrong_setting(name, f"whole {setting.unit}", repr(value))  # type: ignore[union-attr] # a Number
    return whole


def check(name: str, value: object) -> None:
    """Refuses a value of another type, or one that the core's table does not allow.

    Raises:
        ConfigError: Names the setting and the allowed values.
    """
    setting = SETTINGS[name]
    # A bool is an int to Python, and not to a setting.
    if not isinstance(value, setting.type) or (setting.type is int and isinstance(value, bool)):
        raise wrong_setting(name, _type_name(setting), repr(value))
    expected = _setting_refusal(name, str(value))
    if expected is not None:
        raise wrong_setting(name, expected, repr(value))


def check_index_file(slots: int | None, entries: int | None) -> None:
    """Refuses numbers whose file is larger than RocketMQ can address; ``None`` is the default.

    Raises:
        ConfigError: More than 2**31 - 1 bytes, in which RocketMQ computes positions.
    """
    field = "max_hash_slot_num" if entries is None else "max_index_num"
    slots = slots or cast("int", DEFAULTS["max_hash_slot_num"])
    entries = entries or cast("int", DEFAULTS["max_index_num"])
    size = 40 + 4 * slots + 20 * entries
    if size > _INT_MAX:
        got = f"{size}, of {slots} slots and {entries} entries"
        wanted = f"an index file of at most {_INT_MAX} bytes"
        raise wrong_setting(field, wanted, got)


def check_retention(retention: str | None, **limits: int | timedelta | None) -> None:
    """Refuses limits of our own beside a rule that they would contradict.

    Raises:
        ConfigError: Names the limit.
    """
    for name, limit in limits.items():
        if retention is not None and limit is not None:
            got = f'retention="{retention}" too'
            raise wrong_setting(name, "no limit beside retention", got, "leave out one of them")


def _type_name(setting: Setting) -> str:
    if isinstance(setting, Number) and setting.unit in _SPANS:
        return f"a whole number of {setting.unit} or a timedelta"
    return setting.type_name


def unknown(name: str) -> str:
    names: Iterable[str] = dict.fromkeys((*SETTINGS, *FIELD_OF))
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    offer = f"; near it: {', '.join(near)}" if near else ""
    return f"{name}: no such setting{offer}"
