"""The Spark context whose executors run Perago's own functions, on behalf of a map or a worker.

- Settings that the jobs rely on (the limit on task failures, no speculative copies) override the configuration.
- Executors on this machine use the same Python as this process.  All executors receive the --py-files, and executors on
  other machines the project's own modules (`project_code`).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.settings import Settings
from perago.spark.config import runs_here
from perago.spark.python_workers import ship_modules
from perago.spark.session import Sessions

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOST_TASK_LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


class EngineContext:
    """Provides the Spark context on which a map or a worker runs its jobs. Thread-safe.

    The context is created on first use, and recreated if its JVM has died.
    """

    def __init__(
        self, settings: Settings, modules: Sequence[str], *, failures: int, conf: Mapping[str, str]
    ) -> None:
        self._sessions = Sessions(_for_jobs(settings, failures, conf), for_attempts=False)
        self._modules = modules
        self._py_files = settings.spark_files.py_files
        self._on_this_machine = runs_here(settings.spark_master)
        self._lock = threading.Lock()
        self._context: SparkContext | None = None

    @property
    def current(self) -> SparkContext | None:
        """The Spark context, or None if it has not been created yet."""
        return self._context

    def get(self) -> SparkContext:
        """Return the Spark context, creating it if necessary. All --py-files have been added to it."""
        with self._lock:
            if self._on_this_machine:
                # Executors on this machine use the same Python as this process, with its packages.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            context = self._sessions.get().sparkContext
            if context is not self._context:
                _quieten(context)
                for file in self._py_files:
                    context.addPyFile(str(file))
                if not self._on_this_machine:
                    ship_modules(context, self._sessions.scratch(), self._modules)
                self._context = context
            return context


def scratch() -> Path:
    """Return a scratch folder for code that runs in an executor. It is removed when Spark or the session ends."""
    return Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())


def _quieten(context: SparkContext) -> None:
    """Keep Spark's stack traces for lost tasks out of the log: the attempt's or row's outcome contains the reason."""
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in _LOST_TASK_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _for_jobs(settings: Settings, failures: int, conf: Mapping[str, str]) -> Settings:
    """Return a copy of the settings, with the Spark master and configuration adapted to Perago's jobs."""
    forced = {"spark.task.maxFailures": str(failures), "spark.speculation": "false", **conf}
    pairs = [
        "spark.locality.wait=0s",
        settings.spark_conf,
        *(f"{key}={value}" for key, value in forced.items()),
    ]
    return replace(
        settings,
        spark_master=with_max_failures(settings.spark_master, failures),
        spark_conf=";".join(filter(None, pairs)),
    )


def with_max_failures(master: str, failures: int) -> str:
    """Return a local master with this limit on task failures. Other masters read the limit from the configuration."""
    match = re.fullmatch(r"local(?:\[([^,\]]+)(?:,[^\]]*)?\])?", master)
    return f"local[{match[1] or 1},{failures}]" if match else master
