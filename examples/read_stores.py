"""Messages of many stores as one table: python examples/read_stores.py '/data/*/store' TOPIC."""

import os
import sys

from pyspark.sql import SparkSession

from mqstore.spark import read

stores, topic = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").getOrCreate()

# A projection is the fastest filter of all: what is not asked for is not decoded.
frame = read(
    spark,
    stores,
    topics=[topic],
    columns=["broker", "queue_id", "store_size", "store_timestamp", "error"],
    onError="rows",
)
sound = frame.where("error IS NULL")
for row in sound.groupBy("broker").sum("store_size").orderBy("broker").collect():
    print(f"{row.broker}: {row[1]:,} bytes of {topic}")
for row in frame.where("error IS NOT NULL").collect():
    print(f"{row.broker}: {row.error}")
for row in read(spark, stores, table="checkpoint").orderBy("broker").collect():
    state = "open, or left by a crash" if row.abort else "closed"
    print(f"{row.broker}: {row.max_physical_offset:,} bytes of log, {state}")
