"""Support for Spark tasks, which is an optional extra.

Task modules import `workspace`, which does not need pyspark.  Everything else is imported when a process starts its
first Spark task.
"""
