"""The Spark task of the worker tests, under the name of the first plain one (`steps.py`)."""

from __future__ import annotations

from pydantic import BaseModel
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from perago import SparkWorkspace, WorkspaceSpec, require_rows, task
from tests.support.tasks.steps import CONTROLS, SUFFIX


class Numbers(BaseModel):
    do: str = "write"


class Written(BaseModel):
    rows: int


@task(
    name=f"worker_step_1_{SUFFIX}",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data", placement="local", post=[require_rows("numbers", 2)]),
    controls=CONTROLS,
)
def write_numbers(workspace: SparkWorkspace, params: Numbers) -> Written:
    """Write a table, or fail in a Spark worker if the params ask for it."""

    def bad(number):
        raise ValueError(f"bad number {number}")

    print("printed beside Spark")
    numbers = workspace.spark.range(3)
    if params.do == "fail in a UDF":
        numbers = numbers.select(F.udf(bad, LongType())("id"))
    workspace.write(numbers.coalesce(1), "numbers")
    return Written(rows=3)
