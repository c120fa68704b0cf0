"""Settings: from keywords, from a mapping, from a broker.conf."""

import pickle
import warnings
from pathlib import Path

import msgspec
import pytest

import mqstore
from mqstore import ConfigError, ConfigWarning, StoreConfig, StoreIOError
from mqstore._settings import DEFAULTS, FIELD_OF, SETTINGS, Number
from mqstore.config import load_config


def test_every_setting_has_a_default_and_is_documented():
    assert set(DEFAULTS) == set(StoreConfig.__struct_fields__)
    for name in DEFAULTS:
        assert name in StoreConfig.__doc__, name


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if isinstance(s, Number)])
def test_the_limits_are_those_of_the_core(name):
    number = SETTINGS[name]
    for value in (number.least, number.most):
        # An index file with so many would be too long.
        if name not in {"max_hash_slot_num", "max_index_num"} or value < number.most:
            assert getattr(StoreConfig(**{name: value}), name) == value
    for value in (number.least - 1, number.most + 1):
        with pytest.raises(ConfigError, match=f"expected {number.least} to {number.most}, got"):
            StoreConfig(**{name: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delete_when", "+4; 016"),
        ("message_delay_level", " 1s 4000000000s "),
        ("broker_ip1", "2001:db8::1"),
    ],
)
def test_text_is_read_as_the_core_reads_it(field, value, tmp_path):
    config = StoreConfig(**{field: value})
    with mqstore.open(tmp_path / "store", "a", config=config) as store:
        store.append("T", b"")
    with pytest.raises(ConfigError, match=f"{field}: expected"):
        StoreConfig(**{field: value + "x"})


def test_every_default_is_a_value_that_the_setting_can_have():
    config = StoreConfig(**DEFAULTS)
    given = {name: value for name, value in DEFAULTS.items() if value is not None}
    assert config.given() == given


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("mapped_file_size_commit_log", "mappedFileSizeCommitLog"),
        ("mapper_file_size_batch_consume_queue", "mapperFileSizeBatchConsumeQueue"),
        ("enabled_append_prop_crc", "enabledAppendPropCRC"),
        ("check_crc_on_recover", "checkCRCOnRecover"),
        ("broker_ip1", "brokerIP1"),
        ("flush_disk_type", "flushDiskType"),
        ("enable_lmq", "enableLmq"),
        ("destroy_maped_file_interval_forcibly", "destroyMapedFileIntervalForcibly"),
        ("os_page_cache_busy_time_out_mills", "osPageCacheBusyTimeOutMills"),
    ],
)
def test_names_are_rocketmqs(field, name):
    assert FIELD_OF[name] == field


def test_a_setting_left_out_is_none_and_not_given():
    config = StoreConfig(max_index_num=500, message_index_enable=False)
    assert config.max_hash_slot_num is None
    assert config.given() == {"max_index_num": 500, "message_index_enable": False}
    assert repr(config) == "StoreConfig(max_index_num=500, message_index_enable=False)"


def test_a_config_is_a_value():
    config = StoreConfig(max_index_num=500)
    assert config == StoreConfig(max_index_num=500)
    assert config != StoreConfig(max_index_num=501)
    assert hash(config) == hash(StoreConfig(max_index_num=500))
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.max_index_num = 1


@pytest.mark.parametrize(
    ("field", "value", "must_be"),
    [
        ("max_index_num", "500", "a whole number"),
        ("max_index_num", True, "a whole number"),
        ("max_index_num", 1.5, "a whole number"),
        ("max_index_num", 0, "2 to 134217728"),
        ("max_hash_slot_num", 0, "1 to 536870912"),
        ("mapped_file_size_commit_log", 2**31, "48 to 2147483647"),
        ("mapped_file_size_commit_log", -1, "48 to 2147483647"),
        ("listen_port", 65536, "0 to 65535"),
        ("message_index_enable", 1, "true or false"),
        ("flush_disk_type", "SYNC", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("broker_ip1", "localhost", "an IP address"),
        ("delete_when", "24", "hours 00 to 23 joined by ;"),
        ("message_delay_level", "1s  5s", "delays such as 1s 5m 2h"),
        ("store_path_commit_log", "a\0b", "a path"),
        ("retention", "on", "off or rocketmq"),
        ("keep_hours", 0, "1 to 16777216"),
        ("keep_bytes", True, "a whole number"),
        ("disk_reserve_bytes", -1, f"0 to {2**62}"),
    ],
)
def test_a_bad_value_names_the_setting_and_what_it_must_be(field, value, must_be):
    with pytest.raises(ConfigError) as caught:
        StoreConfig(**{field: value})
    assert caught.value.field == field
    assert str(caught.value) == f"{field}: expected {must_be}, got {value!r}"


def test_hi08_an_index_file_past_32_bits_is_refused_with_its_size():
    with pytest.raises(ConfigError, match="at most 2147483647 bytes, got 2147483660"):
        StoreConfig(max_hash_slot_num=5, max_index_num=107374180)
    assert StoreConfig(max_hash_slot_num=1, max_index_num=107374180).max_index_num == 107374180


def test_a_mapping_takes_our_names_and_rocketmqs_and_text():
    config = StoreConfig.from_mapping(
        {
            "max_index_num": "500",
            "maxHashSlotNum": 7,
            "messageIndexEnable": "true",
            "check_crc_on_recover": "False",
            "flushDiskType": "SYNC_FLUSH",
        }
    )
    assert config == StoreConfig(
        max_index_num=500,
        max_hash_slot_num=7,
        message_index_enable=True,
        check_crc_on_recover=False,
        flush_disk_type="SYNC_FLUSH",
    )


def test_settings_are_given_by_name():
    with pytest.raises(TypeError, match=r"^StoreConfig: expected settings by name, got 5; "):
        StoreConfig(5)


def test_a_mapping_with_an_unknown_name_is_refused_and_near_ones_are_offered():
    with pytest.raises(
        ConfigError, match=r"^maxIndexNumber: no such setting; near it: maxIndexNum"
    ):
        StoreConfig.from_mapping({"maxIndexNumber": 5})
    with pytest.raises(ConfigError, match=r"^qzx: no such setting$") as caught:
        StoreConfig.from_mapping({"qzx": 5})
    assert caught.value.field == "qzx"
    with pytest.raises(ConfigError, match="expected str as names of settings, got int"):
        StoreConfig.from_mapping({5: 5})


def test_a_mapping_with_one_setting_under_two_names_is_refused():
    with pytest.raises(ConfigError, match="max_index_num: expected once, got maxIndexNum too"):
        StoreConfig.from_mapping({"max_index_num": 5, "maxIndexNum": 6})


@pytest.mark.parametrize(
    ("value", "field"), [("yes", "message_index_enable"), ("5k", "max_index_num")]
)
def test_a_mapping_with_text_that_spells_no_value_is_refused(value, field):
    with pytest.raises(ConfigError, match=f"got '{value}'"):
        StoreConfig.from_mapping({field: value})


def write_conf(folder, text, encoding="latin-1"):
    path = folder / "broker.conf"
    path.write_text(text, encoding=encoding)
    return path


def test_a_broker_conf_is_a_java_properties_file(tmp_path):
    path = write_conf(
        tmp_path,
        "# a comment\n"
        "brokerClusterName = DefaultCluster\n"
        "brokerName=broker-a\n"
        "namesrvAddr: 127.0.0.1:9876\n"
        "mappedFileSizeCommitLog   65536\n"
        "maxIndexNum = \\\n    500\n"
        "flushDiskType = SYNC_FLUSH\n"
        "deleteWhen=04\\u003b16\n"
        "messageIndexSafe=true\n",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = StoreConfig.from_broker_conf(path)
    assert config == StoreConfig(
        mapped_file_size_commit_log=65536,
        max_index_num=500,
        flush_disk_type="SYNC_FLUSH",
        delete_when="04;16",
        message_index_safe=True,
    )


def test_unknown_names_in_a_broker_conf_are_one_warning(tmp_path):
    path = write_conf(tmp_path, "maxIndexNumber=5\nmaxIndexNum=50\nzeta=1\n")
    with pytest.warns(ConfigWarning) as caught:
        config = StoreConfig.from_broker_conf(path)
    assert config == StoreConfig(max_index_num=50)
    assert [str(warning.message) for warning in caught] == [
        f"{path}: not settings of a store: maxIndexNumber, zeta"
    ]


@pytest.mark.parametrize(
    ("line", "field", "expected", "text"),
    [
        ("fileReservedTime=48 ", "file_reserved_time", None, "keeps its default 72"),
        ("mappedFileSizeCommitLog=65536\t", "mapped_file_size_commit_log", None, "1073741824"),
        ("maxIndexNum = many", "max_index_num", None, "cannot read 'many'"),
        ("maxIndexNum = none", "max_index_num", None, "cannot read 'none'"),
        ("maxIndexNum = 1e3", "max_index_num", None, "keeps its default 20000000"),
        ("maxIndexNum = 5_0", "max_index_num", None, "keeps its default 20000000"),
        ("maxIndexNum=+50", "max_index_num", 50, None),
        ("maxIndexNum=007", "max_index_num", 7, "reads '007' as 7"),
        ("maxIndexNum=99999999999", "max_index_num", None, "keeps its default"),
        ("enableLmq=true ", "enable_lmq", False, "reads 'true ' as false"),
        ("enableLmq=yes", "enable_lmq", False, "reads 'yes' as false"),
        ("enableLmq=TRUE", "enable_lmq", True, None),
        ("flushDiskType=SYNC_FLUSH ", "flush_disk_type", "SYNC_FLUSH", None),
        ("flushDiskType=SYNC", "flush_disk_type", None, "keeps its default async_flush"),
        ("brokerIP1=10.0.0.1 ", "broker_ip1", "10.0.0.1", None),
        ("brokerIP1=10.0.0.1", "broker_ip1", "10.0.0.1", None),
        ("mapedFileSizeCommitLog=65536", "mapped_file_size_commit_log", None, "a name of 4.x"),
    ],
)
def test_p16_a_broker_conf_counts_as_rocketmq_reads_it(tmp_path, line, field, expected, text):
    path = write_conf(tmp_path, f"# a comment\nbrokerName = \\\n  a\n{line}\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = StoreConfig.from_broker_conf(path)
    assert getattr(config, field) == expected
    if text is None:
        assert caught == []
    else:
        (warning,) = caught
        assert str(warning.message).startswith(f"{path}: line 4: ")
        assert text in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.parametrize(
    ("line", "field", "text"),
    [
        ("keep_hours = many", "keep_hours", "line 2: keep_hours: expected .* got 'many'"),
        ("keep_hours = -1", "keep_hours", "line 2: keep_hours: expected .* got -1"),
        *(
            (
                f"mappedFileSizeCommitLog={value}",
                "mapped_file_size_commit_log",
                f"line 2: mappedFileSizeCommitLog: expected 48 to 2147483647, got {value}",
            )
            for value in (0, -5)
        ),
        (
            "maxHashSlotNum=500000000",
            "max_hash_slot_num",
            "max_hash_slot_num: expected an index file",
        ),
    ],
)
def test_a_value_that_no_store_can_have_names_the_file_and_the_setting(tmp_path, line, field, text):
    path = write_conf(tmp_path, f"# a comment\n{line}\n")
    with pytest.raises(ConfigError, match=f"^{path}: {text}") as caught:
        StoreConfig.from_broker_conf(path)
    assert caught.value.field == field


def test_a_broker_conf_that_is_none(tmp_path):
    with pytest.raises(StoreIOError) as caught:
        StoreConfig.from_broker_conf(tmp_path / "missing.conf")
    assert caught.value.filename == str(tmp_path / "missing.conf")
    path = write_conf(tmp_path, "maxIndexNum = \\u00zz\n")
    with pytest.raises(ConfigError, match="not a properties file"):
        StoreConfig.from_broker_conf(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("storePathRootDir=/data/store\nstorePathCommitLog=/data/store/commitlog\n", None),
        ("storePathRootDir=/data/store\n", None),
        ("storePathRootDir=/data/store\nstorePathCommitLog=/data/store/log\n", "log"),
        ("storePathRootDir=/data/store\nstorePathCommitLog=/a/log,/b/log\n", "/a/log,/b/log"),
        ("storePathCommitLog=/other/commitlog\n", "/other/commitlog"),
    ],
)
def test_folders_of_a_broker_conf_are_seen_from_the_store(tmp_path, text, expected):
    config = StoreConfig.from_broker_conf(write_conf(tmp_path, text))
    assert config.store_path_commit_log == expected


def test_load_config_takes_each_form(tmp_path):
    path = write_conf(tmp_path, "maxIndexNum=50\n")
    expected = StoreConfig(max_index_num=50)
    assert load_config(None) == StoreConfig()
    for form in (expected, {"maxIndexNum": "50"}, path, str(path)):
        assert load_config(form) == expected
    with pytest.raises(TypeError, match="got int"):
        load_config(5)


def test_a_config_is_json():
    assert msgspec.json.encode(StoreConfig(max_index_num=50)) == b'{"max_index_num":50}'


BROKER_CONF = """\
# Broker a of the shop's cluster. Restart both after a change.
! written by the provisioning, 2026-03-02
brokerClusterName=shop
brokerName = broker-a
brokerId: 0
namesrvAddr=10.20.0.11:9876;10.20.0.12:9876
brokerIP1=10.20.0.21
brokerIP2=10.20.0.21
listenPort=10911
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
storePathRootDir=/data/rocketmq/store
storePathCommitLog=/data/rocketmq/store/commitlog
storePathConsumeQueue=/data/rocketmq/store/consumequeue
storePathIndex=/data/rocketmq/store/index
storeCheckpoint=/data/rocketmq/store/checkpoint
abortFile=/data/rocketmq/store/abort
mapedFileSizeCommitLog=1073741824
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=500
maxIndexNum=2000
deleteWhen=04
fileReservedTime=120
diskMaxUsedSpaceRatio=88
maxMessageSize=\\
  4194304
autoCreateTopicEnable=false
autoCreateSubscriptionGroup=false
defaultTopicQueueNums=8
sendMessageThreadPoolNums=128
pullMessageThreadPoolNums=128
transientStorePoolEnable=false
warmMapedFileEnable=false
waitTimeMillsInSendQueue=1000
aclEnable=false
traceTopicEnable=true
enablePropertyFilter=true
messageDelayLevel=1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
shopsOwnSetting=gr\\u00fcn
"""


def test_a_broker_conf_of_a_real_deployment_opens_a_store(tmp_path):
    path = write_conf(tmp_path, BROKER_CONF)
    with pytest.warns(ConfigWarning) as caught:
        store = mqstore.open(tmp_path / "store", "a", config=path)
    with store:
        store.append("orders", b"x", keys="k")
        config = store.config
        (message,) = store.query("orders", "k")
    (warning,) = [str(warning.message) for warning in caught]
    _, _, listed = warning.partition(f"{path}: not settings of a store: ")
    # A broker's setting without a use here is known; an unknown one is named.
    assert "shopsOwnSetting" in listed.split(", ")
    assert not {"brokerName", "namesrvAddr", "fileReservedTime"} & set(listed.split(", "))
    assert message.store_host == "10.20.0.21:10911"
    assert config.mapped_file_size_commit_log == 65536
    assert config.max_index_num == 2000
    assert config.file_reserved_time == 120
    assert config.max_message_size == 4194304
    # The folders of that machine are seen from the store that was opened.
    assert sorted(path.name for path in (tmp_path / "store").iterdir() if path.is_dir()) == [
        "commitlog",
        "config",
        "consumequeue",
        "index",
    ]
    with pytest.warns(ConfigWarning):
        assert mqstore.verify(tmp_path / "store", config=path).ok


def test_the_length_of_an_extensions_bit_maps_is_taken_from_a_deployment(tmp_path: Path) -> None:
    """A setting of the broker's filters: what they wrote is read whatever it is."""
    conf = tmp_path / "broker.conf"
    conf.write_text("enableConsumeQueueExt=true\nbitMapLengthConsumeQueueExt=128\n")
    config = StoreConfig.from_broker_conf(conf)
    assert config.bit_map_length_consume_queue_ext == 128
    with mqstore.open(tmp_path / "store", "a", config=conf) as store:
        store.append("T", b"", tags="t")
        assert store.config.bit_map_length_consume_queue_ext == 128
        assert len(store.read("T", 0, 0, tags="t").messages) == 1
    assert mqstore.verify(tmp_path / "store", config=conf).ok
