"""A Spark task whose first attempts at some partitions are slow, so that Spark starts second ones beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pyspark import TaskContext
from pyspark.sql import Row

from perago import SparkWorkspace, WorkspaceSpec, task
from perago.declare.spark_controls import SparkControls

PARTITIONS = 16
ROWS = 50
SLOW = (0, 5, 10)
"""The partitions whose first attempts are slow: fewer than the cluster's cores, so that second ones have room."""
LONGEST_WAIT = 60.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
}


class Flags(BaseModel):
    folder: str
    """A folder in which a second attempt leaves a file when it has made its rows."""


class Nothing(BaseModel):
    pass


@task(
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(placement="direct"),
    spark=SparkControls(conf=SPECULATION),
)
def write_twice(workspace: SparkWorkspace, params: Flags) -> Nothing:
    """Write a table in several files per partition; each row says which attempt wrote it."""

    folder = params.folder

    def rows(number: int, _: object) -> Iterator[Row]:
        attempt = TaskContext.get().attemptNumber()  # type: ignore[union-attr]
        second = Path(folder) / str(number)
        for row in range(ROWS):
            if number in SLOW and row == ROWS - 1:
                if attempt > 0:
                    second.touch()
                else:
                    # The first attempt ends after the second one, or together with it.
                    until = time.monotonic() + LONGEST_WAIT
                    while not second.exists() and time.monotonic() < until:
                        time.sleep(0.01)
                    time.sleep(number / 8)
            yield Row(partition=number, row=row, attempt=attempt)

    numbers = workspace.spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS)
    table = numbers.mapPartitionsWithIndex(rows).toDF("partition INT, row INT, attempt INT")
    workspace.write(table, "table", maxRecordsPerFile=20)
    return Nothing()
