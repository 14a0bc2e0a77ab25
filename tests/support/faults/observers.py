"""Step observers that are passed to a worker: they end a process the first time that a step is reached."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perago.protocol.steps import PUBLISH
from tests.support.processes.processes import ancestors, name_of


def supervisor_of(executor: int) -> int:
    """The process that an executor works for: its parent, or the parent of the template that it was forked from."""
    parent, grandparent, *_ = ancestors(executor)
    return grandparent if name_of(parent) == "perago-template" else parent


@dataclass(frozen=True, slots=True)
class SignalAt:
    """Sends a signal to the executor or its supervisor when a step begins, once; `done` is made first."""

    step: str
    number: int
    whom: Literal["executor", "supervisor"]
    done: Path

    def __call__(self, step: str) -> None:
        if step != self.step or self.done.exists():
            return
        self.done.touch()
        os.kill(os.getpid() if self.whom == "executor" else supervisor_of(os.getpid()), self.number)
        if self.number == signal.SIGKILL:
            # The executor of a killed supervisor must not get any further than this step.
            time.sleep(60)


@dataclass(frozen=True, slots=True)
class PauseAt:
    """Holds an execution at a step, once, until a file is there; `reached` tells that it waits."""

    step: str
    reached: Path
    go_on: Path

    def __call__(self, step: str) -> None:
        if step != self.step or self.reached.exists():
            return
        self.reached.touch()
        while not self.go_on.exists():
            time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class KillBeside:
    """Kills one of two executors at a step, once, in the very moment that the other one goes on to publish.

    The first executor to begin is the victim, and goes on once the other has begun.  At the step it waits until the other
    one is about to publish, lets it go, and dies.  The other one is held at its publication until then.
    """

    step: str
    folder: Path

    def __call__(self, step: str) -> None:
        begun, publishes, killed = (self.folder / name for name in ("begun", "publishes", "killed"))
        if self._chosen() == os.getpid():
            _wait_for(begun)
            if step == self.step:
                _wait_for(publishes)
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return
        begun.touch()
        if step == PUBLISH.name and not killed.exists():
            publishes.touch()
            _wait_for(killed)

    def _chosen(self) -> int:
        """The victim's pid; this process, if nobody was chosen yet."""
        name = self.folder / "victim"
        mine = self.folder / f"candidate-{os.getpid()}"
        if not name.exists():
            mine.write_text(str(os.getpid()))
            # A link is there with its content or not at all.
            with suppress(FileExistsError):
                os.link(mine, name)
        return int(name.read_text())


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.005)
