"""Runs a map on Spark: all rows form one Spark job, with one task per row, and outcomes are yielded as they arrive.

- Each row is a separate Spark task, so a slow row does not delay the others.
- Outcomes come back in an accumulator.  Spark delivers it as soon as a task has ended, even from another machine, and
  does not wait for the whole job.  By then the outcome is already in the run's record.
- Spark reruns a task if its executor dies.  The rerun is a new execution, and claims the row in the run's record.
  Speculative copies of slow tasks are disabled.
- The plan, including the keys to the lake, is sent inside the job's function, so no page, log or command line shows
  them.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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
"""The number of failures of one task after which Spark fails the job. The record gives up on a row much sooner."""
_GROUP = "perago-map"
_ENDED = object()
_NO_FOLDER = "(no folder)"


class SparkEngine:
    """Runs the rows of a map as tasks on this process's Spark context."""

    def __init__(self, settings: Settings, modules: Sequence[str] = ()) -> None:
        self._context = EngineContext(settings, modules, failures=_MOST_FAILURES, conf={})

    def check(self, plan: MapPlan) -> None:
        """Load the task once on an executor. Raises `RuntimeConfigError` if that fails, before any row is run."""
        context = self._context.get()
        [problem] = context.parallelize([plan], 1).map(_problem).collect()
        if problem:
            raise RuntimeConfigError(
                f"the Spark executors cannot load {plan.target}: {problem}; install it there, or send it with --py-files"
            )

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run the rows as one Spark job, and yield the outcome of each row as soon as it arrives."""
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
            # The caller stopped, so start no more rows. Running rows end by themselves, or when Spark does.
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
    """Run the rows of one partition, in an executor's Python process, and collect their outcomes."""
    for row in rows:
        outcomes.add([run_here(plan, row, scratch=scratch())])


def _problem(plan: MapPlan) -> str:
    """Return why an executor's Python process cannot run rows, or "" if it can."""
    try:
        load_task(plan)
    except Exception as error:
        return describe(error)
    return ""


def _outcome_param(arrived: Callable[[RowOutcome], None] | None) -> Any:
    """Return the accumulator's merge rule.

    Executors collect outcomes in a list.  The driver passes each outcome to `arrived`.
    """
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
