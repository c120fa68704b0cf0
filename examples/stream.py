"""New messages of stores since the last run, as Parquet: python examples/stream.py 'STORES' OUT."""

import os
import sys

from pyspark.sql import SparkSession

import mqstore.spark

stores, out = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").getOrCreate()
mqstore.spark.register(spark)
query = (
    spark.readStream.format("mqstore")
    .option("maxBytesPerTrigger", "64m")
    .load(stores)
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{out}/_checkpoint")
    .trigger(availableNow=True)
    .start(out)
)
query.awaitTermination()
print(spark.read.parquet(out).count(), "messages")
