"""Step observers that are passed to a worker: they end a process the first time that a step is reached."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


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
        os.kill(os.getpid() if self.whom == "executor" else os.getppid(), self.number)
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
