"""Bodies of Protobuf, with and without a schema, and of Avro."""

import io
import json
import struct
from pathlib import Path

import fastavro
import pytest
from grpc_tools import protoc

import mqstore
from helpers.json_page import mismatches
from helpers.running import SETTINGS
from mqstore.cli.bodies import protobuf_fields

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  message Line { string item = 1; int32 count = 2; }
  int64 number = 1;
  string customer = 2;
  repeated Line lines = 3;
  double price = 4;
  google.protobuf.Timestamp placed = 5;
}
"""
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}, {"name": "customer", "type": "string"}],
}
# An Order: number 150, customer "ann", two lines, price 2.5, placed at 1 s.
ORDER = (
    b"\x08\x96\x01\x12\x03ann"
    b"\x1a\x06\x0a\x02ab\x10\x03\x1a\x06\x0a\x02cd\x10\x04"
    b"\x21" + struct.pack("<d", 2.5) + b"\x2a\x02\x08\x01"
)
BY_NUMBER = {
    "1": 150,
    "2": "ann",
    "3": [{"1": "ab", "2": 3}, {"1": "cd", "2": 4}],
    "4": {"integer": 4612811918334230528, "float": 2.5},
    "5": {"1": 1},
}
BY_NAME = {
    "number": "150",
    "customer": "ann",
    "lines": [{"item": "ab", "count": 3}, {"item": "cd", "count": 4}],
    "price": 2.5,
    "placed": "1970-01-01T00:00:01Z",
}


def avro_body(**values):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), values)
    return out.getvalue()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a store of three bodies and with their schemas."""
    folder = tmp_path_factory.mktemp("shop")
    avro = avro_body(number=7, customer="bob")
    with mqstore.open(folder / "store", "a", config=SETTINGS) as store:
        for body in (ORDER, avro, b"\0\0\0\0\x09" + avro, b"plain {", b'{"a": [1]}'):
            store.append("orders", body)
    (folder / "order.proto").write_text(PROTO)
    (folder / "order.avsc").write_text(json.dumps(AVRO))
    return folder


def bodies(run, shop, *options):
    code, out, err = run("cat", shop / "store", *options, "--json")
    assert (code, err) == (0, "")
    assert mismatches("cat", json.loads(out)) == []
    return json.loads(out)


def test_protobuf_without_a_schema_is_shown_by_number(run, shop):
    rows = bodies(run, shop, "--body", "protobuf")
    assert rows[0]["body_protobuf"] == BY_NUMBER
    assert rows[3]["body"] == "plain {"
    line = run("cat", shop / "store", "-n", 1, "--body", "protobuf")[1]
    assert '{"1":150,"2":"ann",' in line
    page = run("get", shop / "store", 0, "--body", "protobuf")[1]
    assert '\n  "2": "ann",\n' in page


@pytest.mark.parametrize("message", ["shop.Order", "Order"])
def test_protobuf_with_a_schema_is_shown_by_name(run, shop, message):
    options = ["--proto", shop / "order.proto", "--message", message]
    rows = bodies(run, shop, *options)
    assert rows[0]["body_protobuf"] == BY_NAME
    assert rows[3]["body"] == "plain {"


def test_a_descriptor_set_is_a_schema_too(run, shop):
    made = shop / "order.bin"
    well_known = Path(protoc.__file__).with_name("_proto")
    asked = ["", f"-I{shop}", f"-I{well_known}", "--include_imports"]
    asked.append(f"--descriptor_set_out={made}")
    assert protoc.main([*asked, str(shop / "order.proto")]) == 0
    options = ["--proto", made, "--message", "Order", "-n", 1]
    assert bodies(run, shop, *options)[0]["body_protobuf"] == BY_NAME


def test_avro_is_shown_with_its_schema(run, shop):
    rows = bodies(run, shop, "--avro", shop / "order.avsc")
    assert [row.get("body_avro") for row in rows[1:4]] == [
        {"number": 7, "customer": "bob"},
        {"number": 7, "customer": "bob"},
        None,
    ]


def test_json_is_laid_out_on_a_page(run, shop):
    (row,) = bodies(run, shop, "--grep", '"a"')
    page = run("get", shop / "store", row["physical_offset"], "--body", "json")[1]
    assert page.endswith('\n{\n  "a": [\n    1\n  ]\n}\n')


def test_a_schema_that_is_of_no_use_is_wrong_usage(run, shop, tmp_path):
    cat = ["cat", shop / "store"]
    code, _, err = run(*cat, "--proto", shop / "order.proto", "--message", "Ordr")
    assert (code, "did you mean 'Order'" in err) == (2, True)
    for name, option in (("x.proto", "--proto"), ("x.bin", "--proto"), ("x.avsc", "--avro")):
        (tmp_path / name).write_text("{{{")
        more = ["--message", "A"] if option == "--proto" else []
        code, out, err = run(*cat, option, tmp_path / name, *more)
        assert (code, out, name in err) == (2, "", True)
    assert run(*cat, "--proto", shop / "order.proto")[0] == 2
    assert run(*cat, "--avro", shop / "order.avsc", "--body", "hex")[0] == 2
    for option, more in (("--avro", []), ("--proto", ["--message", "A"])):
        code, out, err = run(*cat, option, tmp_path / "missing.x", *more)
        assert (code, out) == (5, "")
        assert f"mqstore: {option}: {tmp_path / 'missing.x'}: No such file" in err


def test_the_compilers_complaint_is_in_the_error_and_nowhere_else(mq, shop, tmp_path):
    (tmp_path / "x.proto").write_text("{{{")
    said = mq("cat", shop / "store", "--proto", tmp_path / "x.proto", "--message", "A", code=2).err
    assert len(said.splitlines()) == 3
    assert "x.proto:1:1: Expected" in said


@pytest.mark.parametrize(
    "body",
    [b"", b"\x08", b"\x08\xff", b"\0\0", b"\x0b", b"\x12\x05ab", b"\x21abc", b"\xff" * 40],
)
def test_a_body_that_is_no_protobuf_is_recognized(body):
    assert protobuf_fields(body) is None


def test_deep_messages_end_as_bytes():
    body = b"\x08\x01"
    for _ in range(40):
        body = b"\x0a" + bytes([len(body)]) + body
    fields = protobuf_fields(body)
    depth = 0
    while "bytes" not in fields:
        fields, depth = fields["1"], depth + 1
    assert depth < 20
