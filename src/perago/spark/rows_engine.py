"""The engine of a map: all rows as one Spark job, a task for each row, outcomes as they come.

- A row is a task of its own, so a slow one holds back nothing but itself.
- An outcome travels back in an accumulator, which Spark delivers when a task has ended: also from another machine, and
  without waiting for the job.  It is in the run's record by then.
- Spark runs a task again if its executor dies.  That is a new execution of the row, which takes the row over in the record.
  Running two copies of a slow task at once is off.
- The plan, with the keys to the lake, travels inside the job's function: no page, log or command line shows it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError
from perago.protocol.outcome import describe
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.row import Row, RowOutcome
from perago.runtime.maps.row_runner import load_task, run_here
from perago.settings import Settings
from perago.spark.conf import is_local
from perago.spark.session import Sessions

if TYPE_CHECKING:
    from pyspark import SparkContext

_MOST_FAILURES = 50
"""How often Spark runs one task before it gives the job up; the record gives up on a row much sooner."""
_GROUP = "perago-map"
_OF_LOST_TASKS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
_ENDED = object()
_NO_FOLDER = "(no folder)"


class SparkEngine:
    """Runs rows on the session of this process."""

    def __init__(self, settings: Settings, py_files: Sequence[Path] = ()) -> None:
        self._sessions = Sessions(_for_rows(settings))
        self._py_files = py_files
        self._on_this_machine = runs_here(settings.spark_master)

    def check(self, plan: MapPlan) -> None:
        """Load the task once on an executor; a module that is not there is one clear error before the first row."""
        context = self._context()
        [wrong] = context.parallelize([plan], 1).map(_problem).collect()
        if wrong:
            raise RuntimeConfigError(
                f"the Spark executors cannot load {plan.target}: {wrong}; install it there, or send it with --py-files"
            )

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run rows as one job, and tell of each when it ends."""
        from pyspark import InheritableThread

        if not rows:
            return
        context = self._context()
        arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        job = InheritableThread(target=partial(_run_job, context, plan, list(rows), arrived), daemon=True)
        job.start()
        try:
            while (item := arrived.get()) is not _ENDED:
                if isinstance(item, Exception):
                    raise _told(item) from item
                yield item
        except BaseException:
            # Who stops listening wants no more rows begun; those that run end by themselves, or with Spark.
            with contextlib.suppress(Exception):
                context.cancelJobGroup(_GROUP)
            raise

    def _context(self) -> SparkContext:
        if self._on_this_machine:
            # Executors beside this process have its Python, with its packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        context = self._sessions.get().sparkContext
        _quieten(context)
        for file in self._py_files:
            context.addPyFile(str(file))
        return context


def runs_here(master: str) -> bool:
    """Whether all executors of a master are on this machine, where a folder is the same for all."""
    return is_local(master) or master.startswith("local-cluster[")


def _quieten(context: SparkContext) -> None:
    """Keep Spark's stacks of lost tasks off the terminal: a row that dies is run again, and its outcome says the rest."""
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in _OF_LOST_TASKS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _for_rows(settings: Settings) -> Settings:
    """The same settings, with what a job of rows needs of its session."""
    forced = f"spark.task.maxFailures={_MOST_FAILURES};spark.speculation=false"
    defaults = "spark.locality.wait=0s"
    conf = ";".join(filter(None, [defaults, settings.spark_conf, forced]))
    return replace(settings, spark_master=_lasting(settings.spark_master), spark_conf=conf)


def _lasting(master: str) -> str:
    """A local master that runs a task again when its Python dies, as clusters do."""
    match = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{match[1] or 1},{_MOST_FAILURES}]" if match else master


def _run_job(context: SparkContext, plan: MapPlan, rows: list[Row], arrived: queue.SimpleQueue[Any]) -> None:
    try:
        context.setJobGroup(_GROUP, f"perago map {plan.task}", interruptOnCancel=False)
        outcomes = context.accumulator([], _arrivals(arrived.put))
        context.parallelize(rows, len(rows)).foreachPartition(partial(_run_rows, plan, outcomes))
    except Exception as error:
        arrived.put(error)
    else:
        arrived.put(_ENDED)


def _run_rows(plan: MapPlan, outcomes: Any, rows: Iterable[Row]) -> None:
    """In a Python process of an executor."""
    for row in rows:
        outcomes.add([run_here(plan, row, scratch=_scratch())])


def _problem(plan: MapPlan) -> str:
    """In a Python process of an executor: why it could not run rows, or nothing."""
    try:
        load_task(plan)
    except Exception as error:
        return describe(error)
    return ""


def _scratch() -> Path:
    """A folder of the executor that Spark, or the session, removes when it ends."""
    return Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())


def _arrivals(arrived: Callable[[RowOutcome], None] | None) -> Any:
    """How an accumulator adds up: in an executor a list, in the driver whatever `arrived` does with each."""
    from pyspark.accumulators import AccumulatorParam

    class Arrivals(AccumulatorParam[list[RowOutcome]]):
        def __init__(self, told: Callable[[RowOutcome], None] | None) -> None:
            self._told = told

        def zero(self, value: list[RowOutcome]) -> list[RowOutcome]:
            return []

        def addInPlace(self, value1: list[RowOutcome], value2: list[RowOutcome]) -> list[RowOutcome]:
            if self._told is None:
                return value1 + value2
            for outcome in value2:
                self._told(outcome)
            return []

        def __reduce__(self) -> tuple[Any, tuple[None]]:
            return _arrivals, (None,)

    return Arrivals(arrived)


def _told(error: Exception) -> Exception:
    from perago.spark.failures import SPARK_ERRORS, short_reason

    if not isinstance(error, SPARK_ERRORS):
        return error
    return RuntimeConfigError(f"the Spark job of the map failed: {short_reason(error, base=_NO_FOLDER)}")
