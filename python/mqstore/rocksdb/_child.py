"""Reads one RocksDB database and writes its rows to standard output.

It runs in a process of its own: on damaged files RocksDB may stop the process or never answer. It
gets a folder with copies and links, so what the package writes there is not in the store.

Arguments: where the package ``rocksdict`` lies, the folder, and for each column family to read its
name and a prefix of keys in hex, as ``name=hex``, or ``name=hex=first=last`` where a time of 8
bytes precedes the prefix. A frame of the output is a kind, two lengths and two byte strings: ``O``
opened, ``F`` a column family, ``R`` key and value, ``E`` an error, ``Z`` the end.
"""

import resource
import struct
import sys

# A wrong length in a file asks for any amount of memory.
MOST_MEMORY = 8 << 30
BLOCK = 1 << 18


def main(site: str, folder: str, wanted: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    sys.path.append(site)
    from rocksdict import AccessType, Options, Rdict, ReadOptions

    out = bytearray()
    pack = struct.Struct(">cII").pack

    def put(kind: bytes, key: bytes = b"", value: bytes = b"") -> None:
        out.extend(pack(kind, len(key), len(value)) + key + value)
        if len(out) > BLOCK or kind not in b"R":
            sys.stdout.buffer.write(out)
            sys.stdout.buffer.flush()
            out.clear()

    try:
        options = Options(raw_mode=True)
        # Every file is open from the start: a broker may delete one meanwhile.
        options.set_max_open_files(-1)
        there = Rdict.list_cf(folder, options)
        families = {name: Options(raw_mode=True) for name in there}
        access = AccessType.read_only(error_if_log_file_exist=False)
        database = Rdict(folder, options, column_families=families, access_type=access)
        put(b"O")
        for name, prefix, *times in (one.split("=") for one in wanted):
            if name not in families:
                continue
            put(b"F", name.encode())
            text = bytes.fromhex(prefix)
            checked = ReadOptions()
            checked.set_verify_checksums(True)
            rows = database.get_column_family(name).iter(checked)
            time, last = map(int, times) if times else (0, 0)
            while time <= last:
                begin = text
                if times:
                    # The next time with a row.
                    rows.seek(time.to_bytes(8, "big"))
                    if not rows.valid():
                        break
                    time = int.from_bytes(rows.key()[:8].ljust(8, b"\0"), "big")
                    begin = time.to_bytes(8, "big") + text
                    if not time <= last:
                        break
                if begin:
                    rows.seek(begin)
                else:
                    rows.seek_to_first()
                while rows.valid():
                    key = rows.key()
                    if not key.startswith(begin):
                        break
                    put(b"R", key, rows.value())
                    rows.next()
                rows.status()
                time += 1
            # An iterator ends at a damaged block as at the last row.
            rows.status()
        put(b"Z")
    except Exception as error:
        put(b"E", str(error).encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
