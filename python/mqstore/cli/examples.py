"""Two examples for each command, shown at the end of its ``--help``."""

from __future__ import annotations

EXAMPLES = {
    "info": ("mqstore info /data/store", "mqstore info /data/store --json | jq .state"),
    "topics": ("mqstore topics /data/store", "mqstore topics /data/store --no-bytes"),
    "queues": ("mqstore queues /data/store -t orders", "mqstore queues /data/store --json"),
    "groups": ("mqstore groups /data/store", "mqstore groups /data/store -g billing -v"),
    "cat": (
        "mqstore cat /data/store -t orders --from -2h --tags 'paid || refunded'",
        "mqstore cat /data/store -t orders -q 0 -o 1200 -n 10 --body json",
    ),
    "tail": (
        "mqstore tail /data/store -t orders -n 20",
        "mqstore tail /data/store -f --grep timeout",
    ),
    "get": (
        "mqstore get /data/store 81234",
        "mqstore get /data/store 0A09080700002A9F0000000000013D62 --raw > body",
    ),
    "query": (
        "mqstore query /data/store -k order-17",
        "mqstore query /data/store -t orders -k order-17 --from -1d --json",
    ),
    "at": (
        "mqstore at /data/store -t orders -2h",
        "mqstore at /data/store -t orders -q 0 '2026-11-21 10:00' --tz Europe/Berlin",
    ),
    "why": (
        "mqstore why /data/store -g billing -k order-17",
        "mqstore why /data/store -g billing -t orders -q 0 -o 1200 --json",
    ),
    "pending": ("mqstore pending /data/store", "mqstore pending /data/store --json | jq .half"),
    "resend": (
        "mqstore resend /data/store -g billing --to namesrv:9876",
        "mqstore resend /data/store -g billing --to namesrv:9876 --rate 200/s --apply",
    ),
    "replay": (
        "mqstore replay /data/store -t orders --key order-17 --to namesrv:9876 --apply",
        "mqstore replay /backup/store --missed-by billing --to namesrv:9876 --report failed.csv",
    ),
    "cq": (
        "mqstore cq /data/store -t orders -q 0 -n 20",
        "mqstore cq /data/store -t orders -q 0 --check",
    ),
    "index": (
        "mqstore index /data/store",
        "mqstore index /data/store -t orders --chain order-17",
    ),
    "checkpoint": (
        "mqstore checkpoint /data/store",
        "mqstore checkpoint /data/store --json",
    ),
    "config": (
        "mqstore config /data/store",
        "mqstore config /data/store --broker-conf > broker.conf",
    ),
    "verify": (
        "mqstore verify /data/store",
        "mqstore verify /data/store --level quick --threads 2",
    ),
    "stats": (
        "mqstore stats /data/store --by topic --sort bytes --top 10",
        "mqstore stats /data/store --by minute -t orders --from -1h",
    ),
    "metrics": (
        "mqstore metrics /data/store --label cluster=a > /var/lib/node_exporter/mqstore.prom",
        "mqstore metrics /data/store --json",
    ),
    "doctor": ("mqstore doctor /data/store", "mqstore doctor /data/store --config broker.conf"),
    "preflight": (
        "mqstore preflight /data/store --to 5.5",
        "mqstore preflight /data/store --to 5.5 --config broker.conf --json",
    ),
    "recover": ("mqstore recover /data/store", "mqstore recover /data/store --apply"),
    "rebuild": (
        "mqstore rebuild /data/store --what index --apply",
        "mqstore rebuild /data/store --what topics --apply",
    ),
    "convert": (
        "mqstore convert /data/store --queues file",
        "mqstore convert /data/store --queues rocksdb --apply",
    ),
    "report": (
        "mqstore report /data/store -o store.html",
        "mqstore report /data/store -o store.html --overwrite --config broker.conf",
    ),
    "pipeline": (
        "mqstore pipeline ingest.toml --dry-run",
        "mqstore pipeline ingest.toml --jsonl --health /run/ingest.json",
    ),
    "export": (
        "mqstore export /data/store /backup/store",
        "mqstore export /data/store /backup/orders -t orders --format parquet",
    ),
    "import": (
        "mqstore import /backup/store /data/new",
        "mqstore import messages.jsonl /data/new --config broker.conf",
    ),
    "salvage": (
        "mqstore salvage /data/store",
        "mqstore salvage /data/disk.img --out /data/saved",
    ),
    "copy": (
        "mqstore copy /data/store /data/part -t orders --from -1d",
        "mqstore copy /data/store /data/shared --redact rules.toml --redact-default zeros",
    ),
    "diff": ("mqstore diff /data/store /backup/store", "mqstore diff /data/a /data/b --lost"),
    "clean": (
        "mqstore clean /data/store --keep-hours 72",
        "mqstore clean /data/store --keep-hours 72 --apply",
    ),
    "sync": (
        "mqstore sync /data/store /backup/store",
        "mqstore sync /data/store s3://bucket/store --every 60s --bytes 50m/s",
    ),
    "snapshots": ("mqstore snapshots /backup/store", "mqstore snapshots /backup/store --check"),
    "restore": (
        "mqstore restore /backup/store /data/new --dry-run",
        "mqstore restore /backup/store /data/new --at -2h",
    ),
    "prune": (
        "mqstore prune /backup/store --keep 7d",
        "mqstore prune /backup/store --keep 7d --keep-hourly 24 --apply",
    ),
    "sql": (
        "mqstore sql /data/store 'select topic, count(*) from messages group by all'",
        "mqstore sql /data/a/store /data/b/store 'from groups where lag > 0' -o lag.csv",
    ),
    "demo": ("mqstore demo", "mqstore demo --messages 20000 --no-spark"),
}
"""By command; each is run as it stands in a shell."""
