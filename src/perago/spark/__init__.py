"""Support for Spark tasks, which need the optional extra `spark`.

Task modules import `workspace`, which does not need pyspark.  Everything else is imported when a process starts its
first Spark task.
"""
