"""Spark's Python daemon, prepared to import task modules.

Spark starts it as `python -m perago.spark.python_daemon` (`spark.python.daemon.module`) and forks Python workers from
it.
"""

from __future__ import annotations

from pyspark.daemon import manager

from perago.spark.udf_types import parse_types_late

if __name__ == "__main__":
    parse_types_late()
    manager()
