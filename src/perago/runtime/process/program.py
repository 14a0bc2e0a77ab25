"""What this process is: a program of Perago's own, from its first line on, which may so be forked; and how it is called.

The rule: only who wrote the first line of a program says so.  A notebook, a test runner or any other process that imports
Perago has threads and files that a fork would take along.
"""

from __future__ import annotations

import contextlib
import os
import threading
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


def name_process(name: str) -> None:
    """What `ps` and `top` call this process, where they tell; 15 characters are shown."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])
