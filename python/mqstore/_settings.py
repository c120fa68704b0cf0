"""Each setting's default, range and name in RocketMQ."""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import TYPE_CHECKING, Final

import msgspec

from mqstore.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DEFAULTS",
    "FIELD_OF",
    "IN_BROKER_CONF",
    "NOT_OF_A_STORE",
    "OWN_FILE",
    "check",
    "check_index_file",
    "check_retention",
    "read",
    "unknown",
]

OWN_FILE: Final = "mqstore.json"
"""Our file below ``config``: the settings that a store was made with."""


_SLOTS: Final = 5_000_000
_ENTRIES: Final = 20_000_000

DEFAULTS: Final[Mapping[str, bool | int | str | None]] = {
    "store_path_commit_log": "commitlog",
    "read_only_commit_log_store_paths": "",
    "mapped_file_size_commit_log": 1_073_741_824,
    "warm_maped_file_enable": False,
    "mapped_file_size_consume_queue": 6_000_000,
    "mapper_file_size_batch_consume_queue": 13_800_000,
    "mapped_file_size_consume_queue_ext": 50_331_648,
    "bit_map_length_consume_queue_ext": 64,
    "enable_consume_queue_ext": False,
    "enable_lmq": False,
    "enable_multi_dispatch": False,
    "max_hash_slot_num": _SLOTS,
    "max_index_num": _ENTRIES,
    "message_index_enable": True,
    "message_index_safe": False,
    "max_msgs_num_batch": 64,
    "default_query_max_num": 32,
    "max_message_size": 4_194_304,
    "auto_message_version_on_topic_len": True,
    "max_topic_length": 127,
    "enabled_append_prop_crc": False,
    "force_verify_prop_crc": False,
    "check_crc_on_recover": True,
    "duplication_enable": False,
    "message_delay_level": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "broker_ip1": "127.0.0.1",
    "listen_port": 10_911,
    "flush_disk_type": "ASYNC_FLUSH",
    "sync_flush_timeout": 5_000,
    "slave_timeout": 3_000,
    "flush_interval_commit_log": 500,
    "flush_commit_log_timed": True,
    "flush_commit_log_least_pages": 4,
    "flush_commit_log_thorough_interval": 10_000,
    "transient_store_pool_enable": False,
    "transient_store_pool_size": 5,
    "commit_interval_commit_log": 200,
    "commit_commit_log_least_pages": 4,
    "commit_commit_log_thorough_interval": 200,
    "wake_flush_when_put_message": False,
    "wake_commit_when_put_message": True,
    "flush_interval_consume_queue": 1_000,
    "flush_consume_queue_least_pages": 2,
    "flush_consume_queue_thorough_interval": 60_000,
    "put_consume_queue_data_by_file_channel": True,
    "read_un_committed": False,
    "max_transfer_bytes_on_message_in_memory": 262_144,
    "max_transfer_count_on_message_in_memory": 32,
    "max_transfer_bytes_on_message_in_disk": 65_536,
    "max_transfer_count_on_message_in_disk": 8,
    "access_message_in_memory_max_ratio": 40,
    "max_filter_message_size": 16_000,
    "travel_cq_file_num_when_get_message": 1,
    "recheck_reput_offset_from_cq": False,
    "os_page_cache_busy_time_out_mills": 1_000,
    "retention": "off",
    "keep_hours": None,
    "keep_bytes": None,
    "disk_reserve_bytes": None,
    "file_reserved_time": 72,
    "delete_when": "04",
    "disk_max_used_space_ratio": 75,
    "disk_space_clean_forcibly_ratio": 85,
    "disk_space_warning_level_ratio": 90,
    "clean_resource_interval": 10_000,
    "delete_file_batch_max": 10,
    "delete_commit_log_files_interval": 100,
    "destroy_maped_file_interval_forcibly": 120_000,
    "clean_file_forcibly_enable": True,
    "flush_delay_offset_interval": 10_000,
    "flush_consumer_offset_interval": 5_000,
    "validate_topic_names": True,
    "emulate_transfer_limits": False,
}
"""The defaults by name, RocketMQ's where the name is."""

_INT_MAX = 2**31 - 1

# The least a number may be, where that is not 0: a division, a file or a loop depends on it.
_LEAST: Final = {
    "mapped_file_size_commit_log": 48,
    "mapped_file_size_consume_queue": 20,
    "mapper_file_size_batch_consume_queue": 46,
    "mapped_file_size_consume_queue_ext": 24,
    "max_hash_slot_num": 1,
    "max_index_num": 2,
    "max_msgs_num_batch": 1,
    "max_message_size": 1,
    "sync_flush_timeout": 1,
    "flush_interval_commit_log": 1,
    "flush_commit_log_thorough_interval": 1,
    "flush_interval_consume_queue": 1,
    "flush_consume_queue_thorough_interval": 1,
    "max_transfer_bytes_on_message_in_memory": 1,
    "max_transfer_count_on_message_in_memory": 1,
    "max_transfer_bytes_on_message_in_disk": 1,
    "max_transfer_count_on_message_in_disk": 1,
    "max_filter_message_size": 20,
    "disk_max_used_space_ratio": 10,
    "clean_resource_interval": 1,
    "delete_file_batch_max": 1,
    "keep_hours": 1,
    "keep_bytes": 1,
}
_DAY_MS = 86_400_000
_MOST: Final = {
    "max_hash_slot_num": 2**29,
    "max_index_num": 2**27,
    "max_message_size": 2**30,
    "max_msgs_num_batch": 65_536,
    "listen_port": 65_535,
    "sync_flush_timeout": _DAY_MS,
    "flush_interval_commit_log": _DAY_MS,
    "flush_commit_log_least_pages": 2**20,
    "flush_commit_log_thorough_interval": _DAY_MS,
    "flush_interval_consume_queue": _DAY_MS,
    "flush_consume_queue_thorough_interval": _DAY_MS,
    "access_message_in_memory_max_ratio": 100,
    "file_reserved_time": 2**24,
    "disk_max_used_space_ratio": 95,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_space_warning_level_ratio": 100,
    "delete_file_batch_max": 2**24,
    "clean_resource_interval": _DAY_MS,
    "keep_hours": 2**24,
    "keep_bytes": 2**62,
    "disk_reserve_bytes": 2**62,
}
_OURS: Final = (
    "retention",
    "keep_hours",
    "keep_bytes",
    "disk_reserve_bytes",
    "validate_topic_names",
    "emulate_transfer_limits",
)

# Where RocketMQ's spelling is not what camel case makes of ours.
_SPELT: Final = {
    "broker_ip1": "brokerIP1",
    "check_crc_on_recover": "checkCRCOnRecover",
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


FIELD_OF: Final = {_SPELT.get(name, _camel(name)): name for name in DEFAULTS if name not in _OURS}

IN_BROKER_CONF: Final = {name: name for name in _OURS[:4]} | FIELD_OF
"""Setting of a ``broker.conf`` line; also our own of retention, which a broker ignores."""

# Settings of the broker around a store that stand in nearly every broker.conf.
NOT_OF_A_STORE: Final = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerClusterName",
        "brokerId",
        "brokerName",
        "brokerRole",
        "defaultTopicQueueNums",
        "namesrvAddr",
        "storePathRootDir",
    }
)


def _kind(name: str) -> type[bool | int | str]:
    default = DEFAULTS[name]
    # A limit without a default is a number.
    return int if default is None else type(default)


def read(name: str, value: object) -> object:
    """`value` as the type of setting `name`, as far as text spells it."""
    kind = _kind(name)
    if isinstance(value, str) and kind is not str:
        try:
            return msgspec.convert(value.strip(), kind, strict=False)
        except msgspec.ValidationError:
            raise ConfigError(_must_be(name, _KIND_NAMES[kind], value), name) from None
    return value


_KIND_NAMES: Final = {bool: "true or false", int: "a whole number", str: "text"}


def check(name: str, value: object) -> None:
    kind = _kind(name)
    # A bool is an int to Python, and not to a setting.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(_must_be(name, _KIND_NAMES[kind], value), name)
    if isinstance(value, str):
        _check_text(name, value)
    elif not isinstance(value, bool) and isinstance(value, int):
        least, most = _LEAST.get(name, 0), _MOST.get(name, _INT_MAX)
        if not least <= value <= most:
            raise ConfigError(_must_be(name, f"{least} to {most}", value), name)


def _check_text(name: str, value: str) -> None:
    match name:
        case "flush_disk_type":
            if value not in {"ASYNC_FLUSH", "SYNC_FLUSH"}:
                raise ConfigError(_must_be(name, "ASYNC_FLUSH or SYNC_FLUSH", value), name)
        case "retention":
            if value not in {"off", "rocketmq"}:
                raise ConfigError(_must_be(name, "off or rocketmq", value), name)
        case "broker_ip1":
            try:
                ipaddress.ip_address(value)
            except ValueError:
                raise ConfigError(_must_be(name, "an IP address", value), name) from None
        case "delete_when":
            hours = [hour.strip() for hour in value.split(";")]
            if not all(re.fullmatch("[01]?[0-9]|2[0-3]", hour) for hour in hours):
                raise ConfigError(_must_be(name, "hours 00 to 23 joined by ;", value), name)
        case "message_delay_level":
            levels = value.split(" ")
            if not all(re.fullmatch("[0-9]{1,9}[smhd]", level) for level in levels):
                raise ConfigError(_must_be(name, "delays such as 1s 5m 2h", value), name)
        case _:
            if "\0" in value:
                raise ConfigError(_must_be(name, "a path", value), name)


def check_index_file(slots: int | None, entries: int | None) -> None:
    """Refuses numbers whose file is larger than RocketMQ can address; ``None`` is the default.

    Raises:
        ConfigError: More than 2**31 - 1 bytes, in which RocketMQ computes positions.
    """
    size = 40 + 4 * (slots or _SLOTS) + 20 * (entries or _ENTRIES)
    if size > _INT_MAX:
        field = "max_hash_slot_num" if entries is None else "max_index_num"
        raise ConfigError(
            f"{field}: an index file of {slots or _SLOTS} slots and {entries or _ENTRIES} entries "
            f"has {size} bytes, more than {_INT_MAX}",
            field,
        )


def check_retention(retention: str | None, **limits: int | None) -> None:
    """Refuses limits of our own beside a rule that they would contradict.

    Raises:
        ConfigError: Names the limit.
    """
    for name, limit in limits.items():
        if retention is not None and limit is not None:
            raise ConfigError(
                f'{name}: cannot be given with retention="{retention}"; leave out one of them', name
            )


def _must_be(name: str, what: str, value: object) -> str:
    return f"{name}: must be {what}, not {value!r}"


def unknown(name: str) -> str:
    names: Iterable[str] = (*DEFAULTS, *FIELD_OF)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    offer = f"; near it: {', '.join(near)}" if near else ""
    return f"{name}: no such setting{offer}"
