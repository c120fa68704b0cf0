"""``config/mqstore.json``: a store remembers what it was made with."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

import mqstore
from helpers.files import stamps
from mqstore import ConfigError

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
MADE = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 2_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 40_000,
    "flush_disk_type": "SYNC_FLUSH",
}


def settings_file(store: Path) -> Path:
    return store / "config" / "mqstore.json"


def remembered(store: Path) -> dict:
    return json.loads(settings_file(store).read_text())["settings"]


def change(store: Path, **changes) -> None:
    path = settings_file(store)
    whole = json.loads(path.read_text())
    whole["settings"] |= changes
    path.write_text(json.dumps(whole))


@pytest.fixture
def store(tmp_path):
    """A store made with settings of its own, with 30 messages that have keys."""
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=MADE) as store:
        for number in range(30):
            store.append("orders", b"one", keys=f"k{number}")
    return path


def in_force(store: Path, mode: str = "r", **config) -> dict:
    with mqstore.open(store, mode, config=config or None) as opened:
        return {name: getattr(opened.config, name) for name in MADE}


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_store_opens_again_with_the_settings_it_was_made_with(store, mode):
    assert in_force(store, mode) == MADE
    with mqstore.open(store, mode) as opened:
        assert opened.warnings == []
        assert len(list(opened.query("orders", "k7"))) == 1


def test_care_needs_no_settings_to_be_repeated(store, tmp_path):
    assert mqstore.verify(store).findings == ()
    assert list(mqstore.doctor(store)) == []
    assert mqstore.recover(store, dry_run=True).mode == "clean"
    assert mqstore.stats(store) is not None
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue")
    mqstore.rebuild(store)
    assert mqstore.verify(store).findings == ()
    assert in_force(store, "r+") == MADE
    mqstore.copy(store, tmp_path / "copy")
    assert in_force(tmp_path / "copy") == MADE
    shutil.rmtree(store / "index")
    mqstore.salvage(store, tmp_path / "salvaged")
    assert in_force(tmp_path / "salvaged") == MADE
    for made in ("copy", "salvaged"):
        assert mqstore.verify(tmp_path / made).findings == ()


def test_a_rebuild_with_other_sizes_is_remembered(store):
    shutil.rmtree(store / "index")
    mqstore.rebuild(store, what=["index"], config={"max_hash_slot_num": 700})
    assert in_force(store, "r+") == MADE | {"max_hash_slot_num": 700}
    assert mqstore.verify(store).findings == ()


def test_a_rebuild_keeps_the_release(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config={"rocketmq_version": "5.5"}) as store:
        store.append("t", b"x")
    mqstore.rebuild(path)
    with mqstore.open(path, "r+") as store:
        assert store.versions()["writes"] == "5.5"
        assert store.warnings == []
    assert remembered(path)["rocketmq_version"] == "5.5"


def test_a_setting_without_a_value_counts_as_absent(store):
    path = settings_file(store)
    told = json.loads(path.read_text())
    told["settings"]["rocketmq_version"] = None
    path.write_text(json.dumps(told))
    with mqstore.open(store, "r+") as opened:
        assert opened.warnings == []


def test_an_index_without_entries_still_has_its_slots_and_entries(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=MADE) as store:
        store.append("orders", b"no key")
    assert in_force(path, "r+") == MADE
    with mqstore.open(path, "r+") as store:
        store.append("orders", b"one", keys="k")
    assert [file.stat().st_size for file in (path / "index").iterdir()] == [40 + 4_000 + 800_000]
    assert mqstore.verify(path).findings == ()


def test_a_given_setting_goes_first_and_is_not_remembered_instead(store):
    assert in_force(store, "r+", flush_disk_type="ASYNC_FLUSH")["flush_disk_type"] == "ASYNC_FLUSH"
    assert in_force(store, "r+")["flush_disk_type"] == "SYNC_FLUSH"


def test_a_size_that_files_prove_goes_before_the_remembered_one(store):
    change(
        store,
        mapped_file_size_commit_log=4_096,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=5,
    )
    assert in_force(store)["mapped_file_size_commit_log"] == 65_536
    assert in_force(store)["mapped_file_size_consume_queue"] == 2_000
    # One writer puts right what the files prove otherwise.
    change(store, max_hash_slot_num=1_000)
    assert in_force(store, "r+") == MADE
    assert remembered(store)["mapped_file_size_commit_log"] == 65_536


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mapped_file_size_commit_log", 4_096),
        ("mapped_file_size_consume_queue", 400),
        ("max_hash_slot_num", 2_000),
        ("max_index_num", 400),
        ("max_index_num", 50_000),
    ],
)
def test_a_given_setting_that_contradicts_the_files_is_refused_by_its_name(
    store, name, value, mode
):
    before = stamps(store)
    with pytest.raises(ConfigError, match=name) as caught:
        mqstore.open(store, mode, config={name: value})
    assert caught.value.field == name
    assert {path: state for path, state in stamps(store).items() if path != "lock"} == {
        path: state for path, state in before.items() if path != "lock"
    }


def test_a_reader_writes_nothing(tmp_path):
    path = broker_store(tmp_path)
    before = stamps(path)
    with mqstore.open(path, config={"flush_disk_type": "SYNC_FLUSH"}) as store:
        store.topics()
    assert stamps(path) == before


def test_of_a_store_that_rocketmq_made_only_what_was_given_is_kept(tmp_path):
    path = broker_store(tmp_path)
    params = json.loads((GOLDEN / "broker" / "params.json").read_text())
    sizes = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")
    settings = {
        name: params["storeConfig"][name] for name in (*sizes, "maxHashSlotNum", "maxIndexNum")
    }
    with mqstore.open(path, "r+", config=settings):
        pass
    assert not settings_file(path).exists()
    given = settings | {"flushDiskType": "SYNC_FLUSH", "fileReservedTime": 5}
    with mqstore.open(path, "r+", config=given):
        pass
    assert remembered(path) == {"flush_disk_type": "SYNC_FLUSH"}
    with mqstore.open(path, "r+", config=settings) as store:
        assert store.config.flush_disk_type == "SYNC_FLUSH"


def broker_store(folder: Path) -> Path:
    with tarfile.open(GOLDEN / "broker" / "store.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "store"


def test_retention_is_remembered_of_the_making_and_not_passed_on(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=MADE | {"file_reserved_time": 5}):
        pass
    with mqstore.open(path, "r+", config={"file_reserved_time": 7}) as store:
        assert store.config.file_reserved_time == 7
    with mqstore.open(path, "r+") as store:
        assert store.config.file_reserved_time == 5
    mqstore.copy(path, tmp_path / "copy")
    with mqstore.open(tmp_path / "copy") as store:
        assert store.config.file_reserved_time == 72


def test_settings_of_a_newer_version_are_kept_and_told(store):
    path = settings_file(store)
    whole = json.loads(path.read_text())
    whole |= {"format_version": 9, "later": [1]}
    whole["settings"] |= {
        "shards": 3,
        "flush_disk_type": "QUANTUM",
        "mapped_file_size_commit_log": 9,
    }
    path.write_text(json.dumps(whole))
    with mqstore.open(store, "r+") as opened:
        (warning,) = opened.warnings
        assert opened.config.flush_disk_type == "ASYNC_FLUSH"
    assert "version 9" in warning
    assert "shards" in warning
    assert "flush_disk_type" in warning
    after = json.loads(path.read_text())
    assert after["format_version"] == 9
    assert after["later"] == [1]
    assert after["settings"]["shards"] == 3
    assert mqstore.verify(store).ok


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"{}",
        b'{"dataVersion":{}}',
        b'{"format_version":0,"settings":{}}',
        b'{"format_version":1,"settings":[]}',
        b'{"format_version":1,"settings":{"flush_disk_type":"SYNC_FLUSH"',
        b" " * (1 << 20),
    ],
)
def test_a_damaged_or_foreign_file_is_a_warning(store, text):
    settings_file(store).write_bytes(text)
    sizes = {name: MADE[name] for name in ("max_hash_slot_num", "max_index_num")}
    with mqstore.open(store) as opened:
        assert any("mqstore.json" in warning for warning in opened.warnings)
        assert opened.read("orders", 0, 0).messages[0].body == b"one"
    finding = next(f for f in mqstore.verify(store).findings if "mqstore.json" in f.path)
    assert finding.severity == "warning"
    with mqstore.open(store, "r+", config=sizes) as opened:
        assert any("mqstore.json" in warning for warning in opened.warnings)
    # A given setting that files cannot prove is remembered, and the damaged file is kept.
    assert settings_file(store).with_name("mqstore.json.bak").read_bytes() == text
    assert remembered(store) == sizes
    assert in_force(store, "r+") == MADE | {"flush_disk_type": "ASYNC_FLUSH"}


def test_a_damaged_file_stays_where_nothing_is_to_be_remembered(tmp_path):
    with mqstore.open(tmp_path, "a", config={"mapped_file_size_commit_log": 4096}) as store:
        store.append("T", b"x")
    settings_file(tmp_path).write_bytes(b"{")
    with mqstore.open(tmp_path, "r+") as store:
        assert len(store.warnings) == 1
    assert settings_file(tmp_path).read_bytes() == b"{"


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_folder_in_place_of_the_file_is_a_warning(store, tmp_path, kind):
    path = settings_file(store)
    path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(tmp_path / "elsewhere.json")
    with mqstore.open(store) as opened:
        assert any("mqstore.json" in warning for warning in opened.warnings)


def test_numbers_that_make_no_index_file_are_not_used(store):
    change(store, max_hash_slot_num=2**29, max_index_num=2**27)
    with mqstore.open(store) as opened:
        assert opened.read("orders", 0, 0).messages[0].body == b"one"


def test_the_rules_of_deletion_are_remembered_together(tmp_path):
    path = tmp_path / "store"
    mqstore.open(path, "a", config=mqstore.StoreConfig(keep_hours=24)).close()
    with mqstore.open(path, "r+") as store:
        assert (store.config.retention, store.config.keep_hours) == (None, 24)
    with mqstore.open(path, "r+", config=mqstore.StoreConfig(retention="off")) as store:
        assert (store.config.retention, store.config.keep_hours) == ("off", None)
    with mqstore.open(path, "r+", config=mqstore.StoreConfig(keep_bytes=1 << 30)) as store:
        assert (store.config.keep_hours, store.config.keep_bytes) == (None, 1 << 30)
    assert remembered(path)["keep_hours"] == 24
