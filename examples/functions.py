"""RocketMQ's functions in SQL: python examples/functions.py STORE."""

import os
import sys

from pyspark.sql import SparkSession

import mqstore.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").getOrCreate()
mqstore.spark.register(spark)
mqstore.spark.read(spark, sys.argv[1]).createOrReplaceTempView("messages")
spark.sql(
    """
    SELECT mq_parse_message_id(message_id).host AS host, topic, mq_tags_code(tags) AS tags_code,
           mq_sys_flag(sys_flag).compression AS compression, count(*) AS messages
    FROM messages GROUP BY ALL ORDER BY ALL
    """
).show(truncate=False)
