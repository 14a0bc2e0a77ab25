"""Runs a worker's attempts on Spark. Each one is a Spark job with a single task, in a pool with fair scheduling.

- Spark gives up on a task at its first failure, because retrying is up to the orchestrator.  If Spark reruns a task
  anyway, for example after an executor was decommissioned, the function is told how many earlier runs there were.
- The function, including the keys that it contains, is sent inside the job, so no page, log or command line shows them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perago.errors import RuntimeConfigError
from perago.runtime.worker.hosted.engine import Endpoint, JobContext, JobLost
from perago.settings import Settings
from perago.spark.engine_context import EngineContext, scratch

if TYPE_CHECKING:
    from pyspark import SparkContext


T = TypeVar("T")

POOL = "perago"
PORT = "spark.perago.port"
"""Spark setting for the port on which the worker listens for its hosts. The default is any free port."""
_POOLS = f"""\
<?xml version="1.0"?>
<allocations>
  <pool name="{POOL}"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""
_NO_FOLDER = "(no folder)"


class SparkJobs:
    """Runs functions as single-task Spark jobs, on the executors of this process's Spark context."""

    def __init__(self, settings: Settings, modules: Sequence[str] = ()) -> None:
        self._pools = settings.root / "spark" / "pools.xml"
        conf = {
            "spark.scheduler.mode": "FAIR",
            # Use the plain path, not an escaped URI: Hadoop does not decode escapes.
            "spark.scheduler.allocation.file": f"file://{self._pools}",
            "spark.locality.wait": "0s",
        }
        self._context = EngineContext(settings, modules, failures=1, conf=conf)

    def open(self) -> Endpoint:
        """Start Spark. Returns the endpoint at which its executors can connect to this process."""
        conf = self._open_context().getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        configured = conf.get(PORT, "0") or "0"
        port = int(configured) if configured.isdecimal() else -1
        if not 0 <= port < 2**16:
            raise RuntimeConfigError(f"{PORT}={configured} in PERAGO_SPARK_CONF is not a port")
        return Endpoint(conf.get("spark.driver.bindAddress") or host, host, port)

    def run(self, job: str, label: str, work: Callable[[JobContext], T]) -> T:
        """Run a function as a single-task job, and wait for it. Raises `JobLost` if Spark fails."""
        from perago.spark.failures import SPARK_ERRORS

        try:
            context = self._open_context()
            context.setJobGroup(job, label, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", POOL)
            [value] = context.parallelize([0], 1).map(partial(_call, work)).collect()
        except RuntimeConfigError as error:
            raise JobLost(str(error)) from error
        except SPARK_ERRORS as error:
            raise JobLost(lost_reason(error)) from error
        return value

    def cancel(self, job: str) -> None:
        """Cancel a job, wherever it is running. Does nothing if the job has already ended."""
        if (context := self._context.current) is not None:
            with contextlib.suppress(Exception):
                context.cancelJobGroup(job)

    def _open_context(self) -> SparkContext:
        if self._context.current is None:
            # Without this file, the pool would run its jobs in FIFO order.
            self._pools.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._pools.write_text(_POOLS, encoding="utf-8")
        return self._context.get()


def _call(work: Callable[[JobContext], T], _: int) -> T:
    """Call the function with its job context. This happens in an executor's Python process."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return work(JobContext(scratch(), context.attemptNumber()))


def lost_reason(error: Exception) -> str:
    """Return a short reason why a job was lost."""
    from perago.spark.failures import short_reason

    lost = re.search(r"ExecutorLostFailure \(executor \S+ exited.*?Reason: ([^\n]*)", str(error))
    return (
        f"its Spark executor: {lost[1].strip()}"
        if lost
        else f"its Spark job: {short_reason(error, base=_NO_FOLDER)}"
    )
