"""Step observers for a worker: they signal, pause or kill a process the first time that a step is reached."""

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
    """Return the pid of an executor's supervisor: its parent, or the parent of its fork server."""
    parent, grandparent, *_ = ancestors(executor)
    return grandparent if name_of(parent) == "perago-template" else parent


@dataclass(frozen=True, slots=True)
class SignalAt:
    """Sends a signal to the executor or its supervisor when a step begins, once; creates `done` first."""

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
            # The executor of a killed supervisor must not get past this step.
            time.sleep(60)


@dataclass(frozen=True, slots=True)
class PauseAt:
    """Holds an execution at a step, once, until the file `go_on` exists; creates `reached` when it waits."""

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
    """Kills one of two executors at a step, once, exactly when the other one publishes.

    The first executor to start is the victim, and continues once the other has started.  At the step it waits until the
    other one is about to publish, releases it, and dies.  The other one is held at its publication until then.
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
        """Return the victim's pid: this process, unless one was chosen before."""
        name = self.folder / "victim"
        mine = self.folder / f"candidate-{os.getpid()}"
        if not name.exists():
            mine.write_text(str(os.getpid()))
            # A hard link appears with its content, atomically.
            with suppress(FileExistsError):
                os.link(mine, name)
        return int(name.read_text())


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.005)
