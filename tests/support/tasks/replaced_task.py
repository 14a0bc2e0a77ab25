"""A Spark task that replaces partitions of a table, and is killed in each phase of the write, one try after the other.

The phases are files in a folder; a phase that has killed its try is gone.  Two of them are inside the job's commit, where
no Python code runs: a Hadoop file system compiled by Spark's own compiler ends driver and executor there.  In a folder,
Spark's commit deletes a partition and renames the new one to it.  On a branch, Perago's commit deletes the old files.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow
from pyarrow import parquet
from pydantic import BaseModel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from perago import RetryPolicy, SparkWorkspace, TaskControls, TimeoutPolicy, WorkspaceSpec, task

ROWS = 40
PHASES = ("while a task writes", "before the first partition", "between two partitions", "after the job")
OLD_DAYS = (1, 2, 3)

_FILE_SYSTEM = """
package perago.tests;
public class %(name)s extends %(base)s {
  private static int renamed = 0;
  private static int deleted = 0;
  public boolean delete(org.apache.hadoop.fs.Path path, boolean recursive) throws java.io.IOException {
    if (isPartition(path) || (isOld(path) && ++deleted == 1)) endAt("before the first partition");
    if (isOld(path) && deleted == 2) endAt("between two partitions");
    return super.delete(path, recursive);
  }
  public boolean rename(org.apache.hadoop.fs.Path from, org.apache.hadoop.fs.Path to) throws java.io.IOException {
    if (isPartition(to) && ++renamed == 2) endAt("between two partitions");
    return super.rename(from, to);
  }
  private static boolean isPartition(org.apache.hadoop.fs.Path path) {
    return path.toString().matches(".*/days/day=[0-9]+");
  }
  private static boolean isOld(org.apache.hadoop.fs.Path path) {
    return path.getName().endsWith("-old.parquet");
  }
  private static void endAt(String phase) throws java.io.IOException {
    if (!new java.io.File("%(flags)s", phase).delete()) return;
    try {
      new ProcessBuilder("kill", "-9", "%(executor)d").start().waitFor();
    } catch (InterruptedException stopped) {
      throw new java.io.IOException(stopped);
    }
    Runtime.getRuntime().halt(137);
  }
}
"""
_SYSTEMS = {
    "file": "org.apache.hadoop.fs.LocalFileSystem",
    "s3a": "org.apache.hadoop.fs.s3a.S3AFileSystem",
}


class Make(BaseModel):
    pass


class Replace(BaseModel):
    flags: str


class Written(BaseModel):
    rows: int


@task(name="make_days", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/data"))
def make_days(workspace: Path, params: Make) -> Written:
    """Write three partitions of one row each."""
    for day in OLD_DAYS:
        folder = workspace / "days" / f"day={day}"
        folder.mkdir(parents=True)
        parquet.write_table(pyarrow.table({"id": [-day]}), folder / "part-00000-old.parquet")
    return Written(rows=len(OLD_DAYS))


@task(
    name="replace_days",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data", placement=os.environ.get("SQUARES_PLACEMENT", "auto")),
    controls=TaskControls(
        retry=RetryPolicy(count=len(PHASES), delay_seconds=0), timeout=TimeoutPolicy(response_seconds=60)
    ),
)
def replace_days(workspace: SparkWorkspace, params: Replace) -> Written:
    """Replace the second and third of the partitions by rows of four Spark tasks."""
    executor, flags = os.getpid(), Path(params.flags)
    if any(flags.iterdir()):
        _end_in_commit(workspace.spark, workspace.base.partition("://")[0], flags)

    def checked(number):
        if number == ROWS // 2:
            _end_at(PHASES[0], flags, executor)
        return number

    numbers = workspace.spark.range(0, ROWS, 1, 4).withColumn("day", F.col("id") % 2 + 2)
    numbers = numbers.withColumn("id", F.udf(checked, LongType())("id"))
    workspace.write(numbers, "days", partition_by="day", mode="overwrite_partitions")
    _end_at(PHASES[-1], flags, executor)
    return Written(rows=ROWS)


def _end_at(phase, flags, executor):
    if (flags / phase).exists():
        (flags / phase).unlink()
        os.kill(executor, signal.SIGKILL)


def _end_in_commit(spark: SparkSession, scheme: str, flags: Path) -> None:
    """Put a file system in place of the scheme's own that ends driver and executor in the middle of a job's commit."""
    jvm = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    known = {"name": "Ending", "base": _SYSTEMS[scheme], "flags": flags, "executor": os.getpid()}
    compiler.cook(_FILE_SYSTEM % known)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.setClassLoader(compiler.getClassLoader())
    conf.set(f"fs.{scheme}.impl", "perago.tests.Ending")
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
