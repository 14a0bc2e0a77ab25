"""The environment for trials: an embedded lake, an orchestrator per trial, and a clock that never waits.

Except for the clock, it is the same environment as in `perago run`.  Each trial has a separate orchestrator, so no
trial polls a retry that another one left behind.

All Spark trials of a test process share one Spark session, which is started for the first of them.  Its scratch folder
is outside the tests' folders, because the session outlives each test.  The only setting that it takes from the
environment is `PERAGO_SPARK_CONF` (for jars, for example).  Trials take `PERAGO_IMAGE` from there, too.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from perago.assembly import max_result_bytes
from perago.backend import Embedded, for_short_run, open_local_lake
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, install_extra
from perago.lake.base import Lake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.place import OpenPlace
from perago.settings import Settings, load_settings

if TYPE_CHECKING:
    from perago.spark.places import SparkPlaces

_CONF = "PERAGO_SPARK_CONF"
_IMAGE = "PERAGO_IMAGE"


class Clock:
    """A clock that advances only in `sleep`. `slept` records every call.

    Pass one to `try_workflow` to choose when the workflow starts, or to read afterwards how long it would have taken.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        """Return the time, in seconds since 1970."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting."""
        self.slept.append(seconds)
        self.now += seconds


class TrialEnvironment:
    """An embedded lake, with the settings, the clock and the orchestrators that trials need."""

    def __init__(self, lake: Lake, settings: Settings, clock: Clock) -> None:
        self.lake = lake
        self.settings = settings
        self.clock = clock
        self._numbers = itertools.count(1)

    @property
    def uploads(self) -> Path:
        """The folder in which a test's files are stored before they are uploaded to the lake."""
        return self.settings.root / "uploads"

    @contextmanager
    def orchestrator(self, clock: Clock) -> Iterator[LocalOrchestrator]:
        """Open a new, empty orchestrator, and close it at the end of the `with` block."""
        file = self.settings.root / f"orchestrator-{next(self._numbers)}.db"
        with closing(LocalOrchestrator(file, clock=clock, sleep=clock.sleep)) as opened:
            yield opened

    def context(self, orchestrator: LocalOrchestrator, tasks: Sequence[TaskDefinition]) -> AttemptContext:
        """Return the attempt context for these tasks.

        Raises an error if one of the tasks cannot run on the embedded lake.
        """
        return AttemptContext(
            self.lake,
            orchestrator,
            self.settings.workspace_root,
            max_result_bytes=max_result_bytes(),
            open_place=self._places(tasks),
            image=self.settings.image,
        )

    def _places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        servers = Embedded(self.settings)
        if all(task.kind == "plain" for task in tasks):
            return servers.open_places(tasks)
        servers.check_places(tasks)
        return shared_places()


@contextmanager
def open_environment(root: Path | None = None, clock: Clock | None = None) -> Iterator[TrialEnvironment]:
    """Open an environment in a new folder below `root`, or in a temporary folder that is removed afterwards."""
    with ExitStack() as closes:
        if root is None:
            root = Path(closes.enter_context(tempfile.TemporaryDirectory(prefix="perago-trial-")))
        environ = {_IMAGE: os.environ[_IMAGE]} if _IMAGE in os.environ else {}
        settings = for_short_run(load_settings(environ, root=Path(root) / secrets.token_hex(4)))
        lake = closes.enter_context(closing(open_local_lake(settings)))
        yield TrialEnvironment(lake, settings, clock or Clock())


@cache
def shared_places() -> SparkPlaces:
    """Return the factory for the workspaces of Spark trials. All trials in this process share it and its session."""
    # Imported here because these modules import pyspark, which trials of other tasks do not need.
    from perago.spark.places import SparkPlaces
    from perago.spark.session import Sessions

    folder = tempfile.mkdtemp(prefix="perago-spark-")
    # Registered before the session's own exit handler, so that it runs after that handler.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environ = {_CONF: os.environ[_CONF]} if _CONF in os.environ else {}
    settings = for_short_run(load_settings(environ, root=Path(folder)))
    return SparkPlaces(settings, Sessions(settings), embedded=True, sized=False)


def shared_session() -> object:
    """Return the Spark session that all trials in this process share.

    Raises `RuntimeConfigError`, with the install command, if Spark is missing.
    """
    try:
        return shared_places().sessions.get()
    except ModuleNotFoundError as error:
        raise RuntimeConfigError(
            f"Spark is not installed ({error}): run `{install_extra('spark')}`, and install a Java 17 or later"
        ) from error
