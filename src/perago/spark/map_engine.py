"""The engine of a map: all rows as one Spark job, a task for each row, outcomes as they come.

- Each row is a separate Spark task, so a slow one does not delay the others.
- An outcome travels back in an accumulator, which Spark delivers when a task has ended: also from another machine, and
  without waiting for the job.  It is in the run's record by then.
- Spark runs a task again if its executor dies.  That is a new execution of the row, which claims the row in the record.
  Speculative copies of slow tasks are off.
- The plan, with the keys to the lake, travels inside the job's function: no page, log or command line shows it.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError
from perago.protocol.outcome import describe
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.row_runner import load_task, run_here
from perago.runtime.maps.rows import Row, RowOutcome
from perago.settings import Settings
from perago.spark.engine_context import EngineContext, scratch

if TYPE_CHECKING:
    from pyspark import SparkContext


_MOST_FAILURES = 50
"""Limit of failures of one Spark task before Spark fails the job; the record gives up on a row much sooner."""
_GROUP = "perago-map"
_ENDED = object()
_NO_FOLDER = "(no folder)"


class SparkEngine:
    """Runs rows on the Spark context of this process."""

    def __init__(self, settings: Settings, py_files: Sequence[Path] = ()) -> None:
        self._context = EngineContext(settings, py_files, failures=_MOST_FAILURES, conf={})

    def check(self, plan: MapPlan) -> None:
        """Load the task once on an executor. Raises `RuntimeConfigError` before the first row if that fails."""
        context = self._context.get()
        [wrong] = context.parallelize([plan], 1).map(_problem).collect()
        if wrong:
            raise RuntimeConfigError(
                f"the Spark executors cannot load {plan.target}: {wrong}; install it there, or send it with --py-files"
            )

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run rows as one job, and yield the outcome of each when it ends."""
        from pyspark import InheritableThread

        if not rows:
            return
        context = self._context.get()
        arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        job = InheritableThread(target=partial(_run_job, context, plan, list(rows), arrived), daemon=True)
        job.start()
        try:
            while (item := arrived.get()) is not _ENDED:
                if isinstance(item, Exception):
                    raise _job_error(item) from item
                yield item
        except BaseException:
            # The caller stopped: start no more rows. Those that run end by themselves, or with Spark.
            with contextlib.suppress(Exception):
                context.cancelJobGroup(_GROUP)
            raise


def _run_job(context: SparkContext, plan: MapPlan, rows: list[Row], arrived: queue.SimpleQueue[Any]) -> None:
    try:
        context.setJobGroup(_GROUP, f"perago map {plan.task}", interruptOnCancel=False)
        outcomes = context.accumulator([], _outcome_param(arrived.put))
        context.parallelize(rows, len(rows)).foreachPartition(partial(_run_rows, plan, outcomes))
    except Exception as error:
        arrived.put(error)
    else:
        arrived.put(_ENDED)


def _run_rows(plan: MapPlan, outcomes: Any, rows: Iterable[Row]) -> None:
    """Run rows, in a Python process of an executor."""
    for row in rows:
        outcomes.add([run_here(plan, row, scratch=scratch())])


def _problem(plan: MapPlan) -> str:
    """Return why a Python process of an executor cannot run rows, or ""."""
    try:
        load_task(plan)
    except Exception as error:
        return describe(error)
    return ""


def _outcome_param(arrived: Callable[[RowOutcome], None] | None) -> Any:
    """Return the accumulator's rule: executors collect a list, the driver passes each outcome to `arrived`."""
    from pyspark.accumulators import AccumulatorParam

    class OutcomeParam(AccumulatorParam[list[RowOutcome]]):
        def __init__(self, arrived: Callable[[RowOutcome], None] | None) -> None:
            self._arrived = arrived

        def zero(self, value: list[RowOutcome]) -> list[RowOutcome]:
            return []

        def addInPlace(self, value1: list[RowOutcome], value2: list[RowOutcome]) -> list[RowOutcome]:
            if self._arrived is None:
                return value1 + value2
            for outcome in value2:
                self._arrived(outcome)
            return []

        def __reduce__(self) -> tuple[Any, tuple[None]]:
            return _outcome_param, (None,)

    return OutcomeParam(arrived)


def _job_error(error: Exception) -> Exception:
    from perago.spark.failures import SPARK_ERRORS, short_reason

    if not isinstance(error, SPARK_ERRORS):
        return error
    return RuntimeConfigError(f"the Spark job of the map failed: {short_reason(error, base=_NO_FOLDER)}")
