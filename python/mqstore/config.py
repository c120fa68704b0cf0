"""The settings of a store: RocketMQ's, from keywords, from a mapping, or from a ``broker.conf``.

A setting that is left out is ``None`` here: the store then takes it from the files that are there,
else from what it was made with (``config/mqstore.json``), else from RocketMQ's default. One that is
given must fit the files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from mqstore._native import _read_broker_line
from mqstore._settings import (
    DEFAULTS,
    FIELD_OF,
    FOLDERS,
    SETTINGS,
    check,
    check_index_file,
    check_retention,
    duration,
    read,
    unknown,
)
from mqstore.errors import ConfigError, expected, io_errors

__all__ = ["ConfigLike", "ConfigWarning", "StoreConfig", "load_config"]


class ConfigWarning(UserWarning):
    """A ``broker.conf`` has names that mean nothing to a store."""


class _Suggesting(type(msgspec.Struct)):  # type: ignore[misc] # its type has no name
    """Names near settings where an unknown one is given by keyword."""

    if not TYPE_CHECKING:

        def __call__(cls, *others: object, **settings: object) -> StoreConfig:
            if others:
                advice = "StoreConfig.from_mapping takes a mapping"
                raise TypeError(
                    expected("StoreConfig", "settings by name", repr(others[0]), advice)
                )
            for name in settings:
                if name not in DEFAULTS:
                    raise TypeError(unknown(name))
            return super().__call__(**settings)


class StoreConfig(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    metaclass=_Suggesting,
):
    """Settings of a store, by RocketMQ's names in snake_case; checked when made.

    Defaults are those of RocketMQ 5.3 to 5.5; they hold where neither caller, files nor
    ``config/mqstore.json`` say otherwise. A store that is made remembers sizes, flush mode, delay
    levels and retention there; another flush mode or retention that is given later holds for that
    opening, other delay levels from then on. ``delivery`` is not remembered.

    Where milliseconds or hours are said, a ``timedelta`` is taken too, and kept as that number.

    Files:
        store_path_commit_log: Folders of the commit log, joined by commas; a relative one counts
            from the store. ``commitlog``.
        read_only_commit_log_store_paths: Those of them that take no new files. None.
        store_path_epoch_file: A slave's file of epochs; a relative one counts from the store.
            ``epochFileCheckpoint``.
        enable_dleger_commit_log: The log is DLedger's: the store is opened for reading only. False.
        store_path_dledger_commit_log: Folders of DLedger's log, joined by commas, if they are not
            ``dledger-*/data``. None.
        mapped_file_size_commit_log: Bytes of one commit log file. 1,073,741,824.
        warm_maped_file_enable: Bring each file of the commit log into memory whole when it is made:
            appends meet no page that is not there, and the disk takes twice as many bytes. Without
            effect under ``SYNC_FLUSH``. False.
        mapped_file_size_consume_queue: Bytes of one queue file, rounded up to a multiple of 20.
            6,000,000.
        mapper_file_size_batch_consume_queue: Bytes of one batch queue file, rounded down to a
            multiple of 46. 13,800,000.
        mapped_file_size_consume_queue_ext: Bytes of one extension file of a queue. 50,331,648.
        enable_consume_queue_ext: Write the queues' extension files. False.
        enable_lmq: Give light queues (``%LMQ%...``) their offsets. False.
        enable_multi_dispatch: Enter a message in each queue that it names. False.

    Index:
        max_hash_slot_num: Hash slots of an index file. 5,000,000.
        max_index_num: Room for entries in an index file, one of which is never used. 20,000,000.
        message_index_enable: Build the index. True.
        message_index_safe: Begin recovery no later than the index reaches. False.
        max_msgs_num_batch: Most messages of a key query by RocketMQ's rules (``exact=False``). 64.

    Messages:
        max_message_size: Most bytes of a body. 4,194,304.
        auto_message_version_on_topic_len: Write the second record version where a topic is longer
            than 127 characters. True.
        enabled_append_prop_crc: End the properties with a checksum of the record. False.
        force_verify_prop_crc: In recovery, check that checksum and not the body's. False.
        check_crc_on_recover: Check checksums in recovery. True.
        message_delay_level: The delays of the levels that property ``DELAY`` names. ``1s 5s 10s 30s
            1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h``.
        timer_wheel_enable: Whether a broker reads the timer's files, so that wrong ones keep it
            from starting. True.
        broker_ip1: The store's address, in message ids and as ``store_host``: an IPv4 or IPv6
            address. ``127.0.0.1``.
        listen_port: The port beside it. 10911.

    Flush:
        flush_disk_type: ``"ASYNC_FLUSH"`` or ``"SYNC_FLUSH"``. ``"ASYNC_FLUSH"``.
        sync_flush_timeout: Milliseconds that an append waits for its flush. 5,000.
        flush_interval_commit_log: Milliseconds between two flushes of the log. 500.
        flush_commit_log_least_pages: Pages of 4,096 bytes that a flush waits for. 4.
        flush_commit_log_thorough_interval: Milliseconds after which it waits for none. 10,000.
        flush_interval_consume_queue: Milliseconds between two flushes of the queues. 1,000.
        flush_consume_queue_thorough_interval: Milliseconds after which they are made durable.
            60,000.

    One read of a queue, under ``emulate_transfer_limits``:
        max_transfer_bytes_on_message_in_memory: Bytes of recent messages. 262,144.
        max_transfer_count_on_message_in_memory: How many of them. 32.
        max_transfer_bytes_on_message_in_disk: Bytes of old messages. 65,536.
        max_transfer_count_on_message_in_disk: How many of them. 8.
        access_message_in_memory_max_ratio: What is recent: this per cent of the memory. 40.
        max_filter_message_size: Bytes of queue entries looked at. 16,000.

    Retention. No file is deleted unless ``retention``, ``keep_hours`` or ``keep_bytes`` is given:
        retention: ``"off"`` keeps every file; ``"rocketmq"`` deletes by RocketMQ's rules and the
            settings below. ``"off"``.
        keep_hours: Delete a file once its newest message was stored so many hours ago. Not beside
            ``retention``. None.
        keep_bytes: Delete a file once so many bytes of the log lie behind it. With both limits
            given one is enough. Not beside ``retention``. None.
        disk_reserve_bytes: Bytes that appends leave free on the disk; an append that would leave
            less fails with ``StoreIOError``, ``ENOSPC``. By default what a clean close needs.

    RocketMQ's rules, under ``retention="rocketmq"`` and ``mqstore clean``:
        file_reserved_time: Hours that a commit log file is kept. 72.
        delete_when: Hours of the day at which files are deleted, joined by ``;``. ``04``.
        disk_max_used_space_ratio: Per cent of the disk in use past which expired files go at any
            hour. 75.
        disk_space_clean_forcibly_ratio: Per cent past which files go though not expired, 30 to 85.
            85.
        disk_space_warning_level_ratio: Per cent past which nothing is appended, 35 to 90. 90.
        clean_resource_interval: Milliseconds between two rounds. 10,000.
        delete_file_batch_max: How many files of the log go in one round. 10.
        clean_file_forcibly_enable: Whether files may go though not expired. True.

    Ours:
        rocketmq_version: Whose files are written: ``"5.3"``, ``"5.4"`` or ``"5.5"``. From 5.4 on
            the index has an entry for the tags of each message, from 5.5 on the checkpoint says up
            to which message the queues are flushed. An older one than the store shows is refused.
            ``"5.3"`` for a new store, else what the store shows.
        validate_topic_names: Refuse a topic that is empty, longer than 127 bytes (255 behind
            ``%RETRY%``), or has other characters than ``%``, ``|``, letters, digits, ``_`` and
            ``-``. True.
        max_queue_id: Refuse a new queue with a higher number in a topic that has none half as high,
            as a mistake: a broker would be given all queues below it. Without effect where topic
            names are not validated. 1,023.
        delivery: Deliver delayed messages when they are due, and the failed messages of consumer
            groups, while this writer has the store open. Not given: from the first group or delay
            on in a store that mqstore made, and not in a broker's. A broker does it by itself.
        emulate_transfer_limits: Keep to RocketMQ's limits of one read. False.

    Of RocketMQ's, and without effect here; taken so that a ``broker.conf`` serves both:
        bit_map_length_consume_queue_ext, commit_commit_log_least_pages,
        commit_commit_log_thorough_interval, commit_interval_commit_log, default_query_max_num,
        delete_commit_log_files_interval, destroy_maped_file_interval_forcibly, duplication_enable,
        flush_commit_log_timed, flush_consume_queue_least_pages, flush_consumer_offset_interval,
        flush_delay_offset_interval, max_topic_length, os_page_cache_busy_time_out_mills,
        put_consume_queue_data_by_file_channel, read_un_committed, recheck_reput_offset_from_cq,
        slave_timeout, transient_store_pool_enable, transient_store_pool_size,
        travel_cq_file_num_when_get_message, wake_commit_when_put_message,
        wake_flush_when_put_message.

    Raises:
        ConfigError: A value of the wrong type, out of range, or not one of those said.
        TypeError: An unknown name; the text has near ones.
    """

    # Written by `make reference` from the core's table, as are the names above.
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    store_path_epoch_file: str | None = None
    enable_dleger_commit_log: bool | None = None
    store_path_dledger_commit_log: str | None = None
    mapped_file_size_commit_log: int | None = None
    warm_maped_file_enable: bool | None = None
    mapped_file_size_consume_queue: int | None = None
    mapper_file_size_batch_consume_queue: int | None = None
    mapped_file_size_consume_queue_ext: int | None = None
    bit_map_length_consume_queue_ext: int | None = None
    enable_consume_queue_ext: bool | None = None
    enable_lmq: bool | None = None
    enable_multi_dispatch: bool | None = None

    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    message_index_enable: bool | None = None
    message_index_safe: bool | None = None
    max_msgs_num_batch: int | None = None
    default_query_max_num: int | None = None

    max_message_size: int | None = None
    auto_message_version_on_topic_len: bool | None = None
    max_topic_length: int | None = None
    enabled_append_prop_crc: bool | None = None
    force_verify_prop_crc: bool | None = None
    check_crc_on_recover: bool | None = None
    duplication_enable: bool | None = None
    message_delay_level: str | None = None
    timer_wheel_enable: bool | None = None
    broker_ip1: str | None = None
    listen_port: int | None = None

    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] | None = None
    sync_flush_timeout: int | timedelta | None = None
    slave_timeout: int | None = None
    flush_interval_commit_log: int | timedelta | None = None
    flush_commit_log_timed: bool | None = None
    flush_commit_log_least_pages: int | None = None
    flush_commit_log_thorough_interval: int | timedelta | None = None
    transient_store_pool_enable: bool | None = None
    transient_store_pool_size: int | None = None
    commit_interval_commit_log: int | None = None
    commit_commit_log_least_pages: int | None = None
    commit_commit_log_thorough_interval: int | None = None
    wake_flush_when_put_message: bool | None = None
    wake_commit_when_put_message: bool | None = None
    flush_interval_consume_queue: int | timedelta | None = None
    flush_consume_queue_least_pages: int | None = None
    flush_consume_queue_thorough_interval: int | timedelta | None = None
    put_consume_queue_data_by_file_channel: bool | None = None
    read_un_committed: bool | None = None

    max_transfer_bytes_on_message_in_memory: int | None = None
    max_transfer_count_on_message_in_memory: int | None = None
    max_transfer_bytes_on_message_in_disk: int | None = None
    max_transfer_count_on_message_in_disk: int | None = None
    access_message_in_memory_max_ratio: int | None = None
    max_filter_message_size: int | None = None
    travel_cq_file_num_when_get_message: int | None = None
    recheck_reput_offset_from_cq: bool | None = None
    os_page_cache_busy_time_out_mills: int | None = None

    retention: Literal["off", "rocketmq"] | None = None
    keep_hours: int | timedelta | None = None
    keep_bytes: int | None = None
    disk_reserve_bytes: int | None = None

    file_reserved_time: int | timedelta | None = None
    delete_when: str | None = None
    disk_max_used_space_ratio: int | None = None
    disk_space_clean_forcibly_ratio: int | None = None
    disk_space_warning_level_ratio: int | None = None
    clean_resource_interval: int | timedelta | None = None
    delete_file_batch_max: int | None = None
    delete_commit_log_files_interval: int | None = None
    destroy_maped_file_interval_forcibly: int | None = None
    clean_file_forcibly_enable: bool | None = None
    flush_delay_offset_interval: int | None = None
    flush_consumer_offset_interval: int | None = None

    rocketmq_version: Literal["5.3", "5.4", "5.5"] | None = None
    validate_topic_names: bool | None = None
    max_queue_id: int | None = None
    delivery: bool | None = None
    emulate_transfer_limits: bool | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, timedelta):
                value = duration(name, value)
                force_setattr(self, name, value)
            if value is not None:
                check(name, value)
        check_index_file(self.max_hash_slot_num, self.max_index_num)
        check_retention(self.retention, keep_hours=self.keep_hours, keep_bytes=self.keep_bytes)

    @classmethod
    def embedded(cls, **others: Any) -> StoreConfig:  # noqa: ANN401 - of any setting
        """Settings with small files, for a store that is copied, zipped or shipped with a program.

        A new store of one topic takes less than 64 MiB of apparent size, 1.4 GB with RocketMQ's
        sizes; a store that grows has more files. A broker opens it with the settings that ``mqstore
        config STORE --broker-conf`` prints. For other settings beside these, change a copy:
        ``msgspec.structs.replace(StoreConfig.embedded(), flush_disk_type="SYNC_FLUSH")``.

        Examples:
            >>> import mqstore, tempfile
            >>> with mqstore.open(
            ...     tempfile.mkdtemp(), "a", config=mqstore.StoreConfig.embedded()
            ... ) as store:
            ...     store.append("orders", b"one").queue_offset
            0
        """
        small = {
            "mapped_file_size_commit_log": 16 << 20,
            "mapped_file_size_consume_queue": 120_000,
            "mapper_file_size_batch_consume_queue": 276_000,
            "mapped_file_size_consume_queue_ext": 1 << 20,
            "max_hash_slot_num": 100_000,
            "max_index_num": 400_000,
        }
        return cls(**small | others)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object], /) -> StoreConfig:
        """Settings out of a mapping.

        Args:
            settings: Values by our names or by RocketMQ's own (``mappedFileSizeCommitLog``). Text
                that spells a number or a truth value counts as one.

        Raises:
            ConfigError: An unknown name, with near ones offered; or a value that cannot be.
        """
        given: dict[str, object] = {}
        for name, value in settings.items():
            if not isinstance(name, str):
                raise ConfigError(
                    expected("config", "str as names of settings", type(name).__name__), str(name)
                )
            field = name if name in DEFAULTS else FIELD_OF.get(name)
            if field is None:
                raise ConfigError(unknown(name), name)
            if field in given:
                raise ConfigError(f"{field}: expected once, got {name} too", field)
            given[field] = read(field, value)
        return cls(**given)  # type: ignore[arg-type] # each was read as its field's type

    @classmethod
    def from_broker_conf(cls, path: str | os.PathLike[str], /) -> StoreConfig:
        """Settings out of a broker's ``broker.conf``, a Java properties file.

        Its settings of retention delete nothing by themselves: that takes a line of our own,
        ``retention=rocketmq``, ``keep_hours=`` or ``keep_bytes=``, which a broker passes over.

        A value counts as RocketMQ's parser reads it, so that the store is as the broker has it: a
        number with a space behind it is passed over, and the default stays.

        Folders below ``storePathRootDir`` are taken as below the store that is opened, so the file
        serves a copy of the broker's folder too.

        Args:
            path: The file.

        Raises:
            StoreIOError: The file cannot be read.
            ConfigError: It is not a properties file, or a value in it cannot be.

        Warns:
            ConfigWarning: It has names that mean nothing to a store, or values that RocketMQ reads
                otherwise than they are meant; each with its line.
        """
        file, lines = os.fspath(path), broker_conf_lines(path)
        strange: list[str] = []
        given: dict[str, object] = {}
        for name, (number, value) in lines.items():
            kind, field, taken = _read_broker_line(name, value)
            place = f"{file}: line {number}: {name}"
            if kind == "unknown":
                strange.append(name)
            elif kind == "of_four":
                # A file for both has both names.
                if field not in lines:
                    text = f"is a name of 4.x, which 5.x passes over; it takes {field}"
                    _warn(f"{place} {text}={value.strip()}")
            elif kind == "setting" and taken is None:
                default = str(SETTINGS[field].default).lower()
                _warn(f"{place}: RocketMQ cannot read {value!r} and keeps its default {default}")
            elif kind == "ours" or taken is not None:
                taken = value.strip() if taken is None else taken
                try:
                    given[field] = read(field, taken)
                    check(field, given[field])
                except ConfigError as error:
                    reason = str(error).removeprefix(f"{field}: ")
                    raise ConfigError(f"{place}: {reason}", field) from None
                meant = value.strip() if SETTINGS[field].type is str else value.removeprefix("+")
                if kind == "setting" and taken.lower() != meant.lower():
                    _warn(f"{place}: RocketMQ reads {value!r} as {taken.lower()}")
        root = lines.get("storePathRootDir", (0, ""))[1].strip()
        for field in FOLDERS:
            if field in given:
                given[field] = _below(root, str(given[field]))
        if given.get("store_path_commit_log") == "commitlog":
            del given["store_path_commit_log"]
        if strange:
            _warn(f"{file}: not settings of a store: {', '.join(sorted(strange))}")
        try:
            return cls(**given)  # type: ignore[arg-type] # each was read as its field's type
        except ConfigError as error:  # of two settings together
            raise ConfigError(f"{file}: {error}", error.field) from None

    def given(self) -> dict[str, bool | int | str]:
        """Only what is not left out, by name."""
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }


ConfigLike: TypeAlias = "StoreConfig | Mapping[str, object] | str | os.PathLike[str] | None"
"""Argument of ``config=``: settings, a mapping, or the path of a ``broker.conf``."""


def load_config(config: ConfigLike) -> StoreConfig:
    """Settings out of whatever ``config=`` takes.

    Raises:
        ConfigError: As ``StoreConfig.from_mapping`` and ``StoreConfig.from_broker_conf``.
        StoreIOError: The file cannot be read.
        TypeError: Something else was given.
    """
    if config is None:
        return StoreConfig()
    if isinstance(config, StoreConfig):
        return config
    if isinstance(config, str | os.PathLike):
        return StoreConfig.from_broker_conf(config)
    if isinstance(config, Mapping):
        return StoreConfig.from_mapping(config)
    raise TypeError(expected("config", "a StoreConfig, a mapping or a path", type(config).__name__))


def broker_conf_lines(path: str | os.PathLike[str]) -> dict[str, tuple[int, str]]:
    """The last value of each name in a ``broker.conf``, and its line.

    Raises:
        StoreIOError: The file cannot be read.
        ConfigError: It is not a properties file.
    """
    import javaproperties  # 48 ms that only this needs

    file = os.fspath(path)
    with io_errors("read", file):
        text = Path(file).read_bytes()
    found: dict[str, tuple[int, str]] = {}
    number = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found[element.key] = number, element.value
            number += len(element.source.splitlines())
    except ValueError as error:
        raise ConfigError(f"{file}: not a properties file: {error}", "config") from error
    return found


def _warn(text: str) -> None:
    warnings.warn(text, ConfigWarning, stacklevel=3)


def _below(root: str, folders: str) -> str:
    """The comma list `folders`, each as seen from `root` where it lies below."""

    def seen(folder: str) -> str:
        try:
            return str(PurePosixPath(folder).relative_to(root)) if root else folder
        except ValueError:
            return folder

    return ",".join(seen(folder.strip()) for folder in folders.split(",") if folder.strip())
