"""A topic of many stores, a new store for each broker: write_stores.py STORES TOPIC OUT."""

import os
import sys

from pyspark.sql import SparkSession

import mqstore.spark

stores, topic, out = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").getOrCreate()
frame = mqstore.spark.read(spark, stores, topics=[topic])
for path in mqstore.spark.write_store(frame, out):
    print(path, mqstore.verify(path).counts["messages"])
