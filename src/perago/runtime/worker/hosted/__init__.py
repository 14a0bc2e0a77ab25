"""Executors hosted by an engine such as Spark: each attempt is a job, which sends its messages to the worker."""
