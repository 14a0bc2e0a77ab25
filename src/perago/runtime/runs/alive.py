"""Whether a run's process is alive, by a lock on the run's folder that the system gives back when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perago.errors import RuntimeConfigError

LOCK = ".lock"
_TRIES = 20
_PAUSE_SECONDS = 0.05


@contextmanager
def holding(folder: Path, *, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Say, for as long as the block runs, that the run goes on; `RuntimeConfigError` where it does elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # Whoever looks holds it for a moment: that is not worth an error.
        for turn in range(_TRIES):
            if _locked(file, fcntl.LOCK_EX):
                break
            if turn == _TRIES - 1:
                raise RuntimeConfigError(
                    f"run {folder.name} is going on in another process: wait for its end"
                )
            pause(_PAUSE_SECONDS)
        yield
    finally:
        os.close(file)


def is_going_on(folder: Path) -> bool:
    """Whether a process holds the run."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
