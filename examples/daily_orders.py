"""Orders of many brokers as typed rows, each once, by day: daily_orders.py 'STORES' OUT.

A second run gives the same rows: the first message of a unique key counts, and each day that is
read is replaced as a whole. Bodies that are no order are kept in OUT/rejected.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import mqstore.spark

stores, out = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
columns = ["broker", "physical_offset", "store_timestamp", "unique_key", "body"]
order = f.from_json(f.col("body").cast("string"), "id long, customer string, amount decimal(12, 2)")
messages = (
    mqstore.spark.read(spark, stores, topics=["orders"], columns=columns)
    .withColumn("order", order)
    .withColumn("date", f.to_date("store_timestamp"))
)
place = f.concat_ws("/", "broker", "physical_offset")
found = f.struct("store_timestamp", "broker", "physical_offset", "order", "date")
first = (
    messages.where("order.id is not null")
    .groupBy(f.coalesce("unique_key", place))
    .agg(f.min(found).alias("first"))
    .select("first.order.*", "first.*")
    .drop("order")
)
rejected = messages.where("order.id is null").drop("order")
for name, rows in (("orders", first), ("rejected", rejected)):
    replaced = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    replaced.partitionBy("date").parquet(f"{out}/{name}")
    print(name, spark.read.parquet(f"{out}/{name}").count())
