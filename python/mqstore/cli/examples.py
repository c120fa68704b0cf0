"""Two examples for each command, shown at the end of its ``--help``."""

from __future__ import annotations

# Each is run as it stands in a shell; the second word is its command.
EXAMPLES = """\
mqstore info /data/store
mqstore info /data/store --json | jq .state
mqstore topics /data/store
mqstore topics /data/store --no-bytes
mqstore queues /data/store -t orders
mqstore queues /data/store --json
mqstore groups /data/store
mqstore groups /data/store -g billing -v
mqstore cat /data/store -t orders --from -2h --tags 'paid || refunded'
mqstore cat /data/store -t orders -q 0 -o 1200 -n 10 --body json
mqstore tail /data/store -t orders -n 20
mqstore tail /data/store -f --grep timeout
mqstore get /data/store 81234
mqstore get /data/store 0A09080700002A9F0000000000013D62 --raw > body
mqstore query /data/store -k order-17
mqstore query /data/store -t orders -k order-17 --from -1d --json
mqstore at /data/store -t orders -2h
mqstore at /data/store -t orders -q 0 '2026-11-21 10:00' --tz Europe/Berlin
mqstore why /data/store -g billing -k order-17
mqstore why /data/store -g billing -t orders -q 0 -o 1200 --json
mqstore pending /data/store
mqstore pending /data/store --json | jq .half
mqstore resend /data/store -g billing --to namesrv:9876
mqstore resend /data/store -g billing --to namesrv:9876 --rate 200/s --apply
mqstore replay /data/store -t orders --key order-17 --to namesrv:9876 --apply
mqstore replay /backup/store --missed-by billing --to namesrv:9876 --report failed.csv
mqstore cq /data/store -t orders -q 0 -n 20
mqstore cq /data/store -t orders -q 0 --check
mqstore index /data/store
mqstore index /data/store -t orders --chain order-17
mqstore checkpoint /data/store
mqstore checkpoint /data/store --json
mqstore config /data/store
mqstore config /data/store --broker-conf > broker.conf
mqstore verify /data/store
mqstore verify /data/store --level quick --threads 2
mqstore stats /data/store --by topic --sort bytes --top 10
mqstore stats /data/store --by minute -t orders --from -1h
mqstore metrics /data/store --label cluster=a > /var/lib/node_exporter/mqstore.prom
mqstore metrics /data/store --json
mqstore doctor /data/store
mqstore doctor /data/store --config broker.conf
mqstore preflight /data/store --to 5.5
mqstore preflight /data/store --to 5.5 --config broker.conf --json
mqstore recover /data/store
mqstore recover /data/store --apply
mqstore rebuild /data/store --what index --apply
mqstore rebuild /data/store --what topics --apply
mqstore convert /data/store --queues file
mqstore convert /data/store --queues rocksdb --apply
mqstore report /data/store -o store.html
mqstore report /data/store -o store.html --overwrite --config broker.conf
mqstore pipeline ingest.toml --dry-run
mqstore pipeline ingest.toml --jsonl --health /run/ingest.json
mqstore export /data/store /backup/store
mqstore export /data/store /backup/orders -t orders --format parquet
mqstore import /backup/store /data/new
mqstore import messages.jsonl /data/new --config broker.conf
mqstore salvage /data/store
mqstore salvage /data/disk.img --out /data/saved
mqstore copy /data/store /data/part -t orders --from -1d
mqstore copy /data/store /data/shared --redact rules.toml --redact-default zeros
mqstore diff /data/store /backup/store
mqstore diff /data/a /data/b --lost
mqstore clean /data/store --keep-hours 72
mqstore clean /data/store --keep-hours 72 --apply
mqstore sync /data/store /backup/store
mqstore sync /data/store s3://bucket/store --every 60s --bytes 50m/s
mqstore snapshots /backup/store
mqstore snapshots /backup/store --check
mqstore restore /backup/store /data/new --dry-run
mqstore restore /backup/store /data/new --at -2h
mqstore prune /backup/store --keep 7d
mqstore prune /backup/store --keep 7d --keep-hourly 24 --apply
mqstore sql /data/store 'select topic, count(*) from messages group by all'
mqstore sql /data/a/store /data/b/store 'from groups where lag > 0' -o lag.csv
mqstore demo
mqstore demo --messages 20000 --no-spark
""".splitlines()
"""Examples of all commands."""


def examples_of(name: str) -> list[str]:
    """The examples of a command."""
    return [line for line in EXAMPLES if line.split()[1] == name]
