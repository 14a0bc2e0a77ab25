"""Where trials run: an embedded lake in a folder, an orchestrator for each trial, and a clock that nobody waits for.

All of it is what `perago run` has, but for the clock.  The rule: each trial has an orchestrator of its own, so that a retry
that one trial left is never polled by the next.
"""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from perago.assembly import Embedded, for_short_run, max_result_bytes
from perago.backend import open_local_lake
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.place import OpenPlace
from perago.settings import Settings, load_settings
from perago.testing.clock import Clock


class Bench:
    """An embedded lake, and what attempts on it need."""

    def __init__(self, lake: Lake, settings: Settings, clock: Clock) -> None:
        self.lake = lake
        self.settings = settings
        self.clock = clock
        self._numbers = itertools.count(1)

    @property
    def uploads(self) -> Path:
        """Where the bytes of a test's files are on their way to the lake."""
        return self.settings.root / "uploads"

    @contextmanager
    def orchestrator(self, clock: Clock) -> Iterator[LocalOrchestrator]:
        """One that knows of nothing yet, closed afterwards."""
        file = self.settings.root / f"orchestrator-{next(self._numbers)}.db"
        with closing(LocalOrchestrator(file, clock=clock, sleep=clock.sleep)) as opened:
            yield opened

    def around(self, orchestrator: LocalOrchestrator, tasks: Sequence[TaskDefinition]) -> AttemptContext:
        """What the attempts of these tasks share; refuses tasks that cannot work on the embedded lake."""
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
def opened_bench(root: Path | None = None, clock: Clock | None = None) -> Iterator[Bench]:
    """A bench below `root`, in a folder that no other has; without one, in a temporary folder that goes afterwards."""
    with ExitStack() as closes:
        if root is None:
            root = Path(closes.enter_context(tempfile.TemporaryDirectory(prefix="perago-trial-")))
        settings = for_short_run(load_settings({}, root=Path(root) / secrets.token_hex(4)))
        lake = closes.enter_context(closing(open_local_lake(settings)))
        yield Bench(lake, settings, clock or Clock())
