"""A Spark task whose first attempt is killed in the middle of its write, by one of its own rows."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pydantic import BaseModel
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from perago import RetryPolicy, SparkWorkspace, TaskControls, TimeoutPolicy, WorkspaceSpec, task

ROWS = 4000


class Write(BaseModel):
    flag: str


class Written(BaseModel):
    rows: int


@task(
    name="write_squares",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data", placement=os.environ.get("SQUARES_PLACEMENT", "auto")),
    controls=TaskControls(
        retry=RetryPolicy(count=2, delay_seconds=1), timeout=TimeoutPolicy(response_seconds=60)
    ),
)
def write_squares(workspace: SparkWorkspace, params: Write) -> Written:
    """Write 8 files; the first row of the fifth kills the executor as long as the flag exists."""
    executor, flag = os.getpid(), Path(params.flag)

    def square(number):
        if number == ROWS // 2 and flag.exists():
            flag.unlink()
            os.kill(executor, signal.SIGKILL)
        return number * number

    numbers = workspace.spark.range(0, ROWS, 1, 8)
    workspace.write(numbers.withColumn("square", F.udf(square, LongType())("id")), "squares")
    return Written(rows=ROWS)
