"""Spark tasks: the optional extra.  Nothing here imports pyspark before a task runs."""
