"""What this process is: a program of Perago's own, from its first line on, which may so be forked; and how it is called.

The rule: only who wrote the first line of a program says so.  A notebook, a test runner or any other process that imports
Perago has threads and files that a fork would take along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

_ours = False


def is_ours() -> None:
    """To be said by the first line of a program."""
    global _ours
    _ours = True


def may_fork() -> bool:
    """Whether a child of this process would be as good as a new one: on Linux, in a program of ours without threads."""
    try:
        # Libraries may have threads that Python does not know of.
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return False
    return _ours and threads == 1 and threading.active_count() == 1 and hasattr(os, "pidfd_open")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a new process takes over from the one that starts it, and one that was forked before does not have."""

    folder: str | None
    path: list[str]
    environ: dict[str, str] = field(repr=False)

    @classmethod
    def here(cls) -> Standing:
        """That of this process."""
        try:
            folder = os.getcwd()
        except OSError:
            folder = None
        return cls(folder, list(sys.path), dict(os.environ))

    def take(self) -> None:
        """Stand there from now on."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(self.folder)
        sys.path[:] = self.path
        for name in os.environ.keys() - self.environ.keys():
            del os.environ[name]
        os.environ.update(self.environ)


def stand_apart(name: str) -> None:
    """Be a process group of its own, under this name, that takes no notice of SIGINT and SIGTERM."""
    os.setpgid(0, 0)
    for ignored in (signal.SIGINT, signal.SIGTERM):
        # A handler that does nothing, not SIG_IGN: that would be passed on to what a body starts.
        signal.signal(ignored, lambda _number, _frame: None)
    _name_process(name)


def _name_process(name: str) -> None:
    """What `ps` and `top` call this process, where they tell; 15 characters are shown."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])
