"""The environment for trials: an embedded lake, an orchestrator per trial, and a clock that never waits.

Except for the clock, it is the same as that of `perago run`.  Each trial has a separate orchestrator, so no trial polls
a retry that another one left behind.
"""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from perago.assembly import max_result_bytes
from perago.backend import Embedded, for_short_run, open_local_lake
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.place import OpenPlace
from perago.settings import Settings, load_settings
from perago.testing.clock import Clock


class TrialEnvironment:
    """An embedded lake, plus everything needed to run attempts against it."""

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
        """Open an empty orchestrator, and close it afterwards."""
        file = self.settings.root / f"orchestrator-{next(self._numbers)}.db"
        with closing(LocalOrchestrator(file, clock=clock, sleep=clock.sleep)) as opened:
            yield opened

    def context(self, orchestrator: LocalOrchestrator, tasks: Sequence[TaskDefinition]) -> AttemptContext:
        """Return the attempt context for these tasks.

        Raises an error if one of them cannot run on the embedded lake.
        """
        return AttemptContext(
            self.lake,
            orchestrator,
            self.settings.workspace_root,
            max_result_bytes=max_result_bytes(),
            open_place=self._places(tasks),
        )

    def _places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        servers = Embedded(self.settings)
        if all(task.kind == "plain" for task in tasks):
            return servers.open_places(tasks)
        servers.check_places(tasks)
        from perago.testing.shared_spark import shared_places

        return shared_places()


@contextmanager
def open_environment(root: Path | None = None, clock: Clock | None = None) -> Iterator[TrialEnvironment]:
    """Open an environment in a new folder below `root`, or in a temporary folder that is removed afterwards."""
    with ExitStack() as closes:
        if root is None:
            root = Path(closes.enter_context(tempfile.TemporaryDirectory(prefix="perago-trial-")))
        settings = for_short_run(load_settings({}, root=Path(root) / secrets.token_hex(4)))
        lake = closes.enter_context(closing(open_local_lake(settings)))
        yield TrialEnvironment(lake, settings, clock or Clock())
