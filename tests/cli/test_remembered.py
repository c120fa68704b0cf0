"""Commands find the settings that a store was made with."""

import pytest

import mqstore
from helpers.running import SETTINGS

UNUSUAL = SETTINGS | {"max_hash_slot_num": 1000, "max_index_num": 40_000}


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with mqstore.open(path, "a", config=UNUSUAL | {"flush_disk_type": "SYNC_FLUSH"}) as store:
        store.append("orders", b"one", keys="k1")
    return path


def test_commands_need_no_settings_to_be_repeated(mq, store, tmp_path):
    assert mq("verify", store, code=0)
    assert mq("doctor", store, code=0)
    assert mq("recover", store, code=0)
    assert "one" in mq("query", store, "-t", "orders", "-k", "k1", code=0).out
    settings = mq("config", store, "--json", code=0).json["settings"]
    assert settings["max_hash_slot_num"] == 1000
    assert settings["flush_disk_type"] == "SYNC_FLUSH"
    assert mq("info", store, "--json", code=0).json["settings"]["max_index_num"] == 40_000
    mq("copy", store, tmp_path / "copy", code=0)
    mq("export", store, tmp_path / "export", code=0)
    mq("import", tmp_path / "export", tmp_path / "import", code=0)
    for made in ("copy", "import"):
        again = mq("config", tmp_path / made, "--json", code=0).json["settings"]
        assert again == settings


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("mappedFileSizeCommitLog=8192", "mapped_file_size_commit_log"),
        ("mappedFileSizeConsumeQueue=400", "mapped_file_size_consume_queue"),
        ("maxHashSlotNum=2000", "max_hash_slot_num"),
        ("maxIndexNum=400", "max_index_num"),
    ],
)
def test_a_setting_that_contradicts_the_files_is_refused_by_its_name(
    mq, store, tmp_path, line, name
):
    conf = tmp_path / "broker.conf"
    conf.write_text(line)
    ran = mq("recover", store, "--apply", "--config", conf, code=2)
    assert ran.err.startswith(f"mqstore: {name}: "), ran.err
