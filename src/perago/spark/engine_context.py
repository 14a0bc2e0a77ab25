"""The Spark context of an engine: executors that have Perago's functions run on them, for a map or for a worker.

- What must hold for its jobs (how often Spark runs a task, no copies of slow ones) wins over what is configured.
- Executors of this machine have this process's Python; --py-files reach all of them.
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
from perago.spark.session import Sessions

if TYPE_CHECKING:
    from pyspark import SparkContext

_OF_LOST_TASKS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


class EngineContext:
    """Gives out the context, made on first use and anew where its JVM has died; safe for threads."""

    def __init__(
        self, settings: Settings, py_files: Sequence[Path], *, failures: int, conf: Mapping[str, str]
    ) -> None:
        self._sessions = Sessions(_with(settings, failures, conf))
        self._py_files = py_files
        self._on_this_machine = runs_here(settings.spark_master)
        self._lock = threading.Lock()
        self._ready: SparkContext | None = None

    @property
    def made(self) -> SparkContext | None:
        """The context, if there is one."""
        return self._ready

    def get(self) -> SparkContext:
        """The context, with all files sent."""
        with self._lock:
            if self._on_this_machine:
                # Executors beside this process have its Python, with its packages.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            context = self._sessions.get().sparkContext
            if context is not self._ready:
                _quieten(context)
                for file in self._py_files:
                    context.addPyFile(str(file))
                self._ready = context
            return context


def scratch() -> Path:
    """In an executor: a folder that Spark, or the session, removes when it ends."""
    return Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())


def _quieten(context: SparkContext) -> None:
    """Keep Spark's stacks of lost tasks out of the log: what becomes of the attempt or the row says the rest."""
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in _OF_LOST_TASKS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _with(settings: Settings, failures: int, conf: Mapping[str, str]) -> Settings:
    """The same settings, with what an engine's jobs need of their session."""
    forced = {"spark.task.maxFailures": str(failures), "spark.speculation": "false", **conf}
    pairs = [
        "spark.locality.wait=0s",
        settings.spark_conf,
        *(f"{key}={value}" for key, value in forced.items()),
    ]
    return replace(
        settings,
        spark_master=failing(settings.spark_master, failures),
        spark_conf=";".join(filter(None, pairs)),
    )


def failing(master: str, failures: int) -> str:
    """A local master that gives a task up after so many failures, as clusters are configured to."""
    match = re.fullmatch(r"local(?:\[([^,\]]+)(?:,[^\]]*)?\])?", master)
    return f"local[{match[1] or 1},{failures}]" if match else master
