"""Processes whose parent has died, and that come to another one: who adopts them reaps them, or ends them.

As process 1 of a container a worker inherits every such process, and must reap it.  An executor adopts what its bodies
have started (`adopt_orphans`), so that a process in a session of its own, or one whose parent has left it, is still among
its descendants, and is ended with it (`end_descendants`).

The rule: only what is not ours is reaped.  The exit status of an executor belongs to its slot, so a dead child that
multiprocessing knows is left alone; and a dead child must have been seen twice, because one that is just being
started is known a moment later than it exists.

What this process is: a program of Perago's own, from its first line on, which may so be forked; and how it is called.

The rule: only who wrote the first line of a program says so.  A notebook, a test runner or any other process that imports
Perago has threads and files that a fork would take along.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import multiprocessing.process
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perago.runtime.periodic import looking
from perago.runtime.root.state_dir import children, descendants, is_zombie

log = logging.getLogger("perago.orphans")

LOOK_SECONDS = 5.0
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 200
_ROUND_SECONDS = 0.005


def adopt_orphans() -> None:
    """Be the parent of every process below this one whose own parent dies, where the kernel offers that (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(pid: int) -> None:
    """Kill all that a process has started, and what that has started; the process itself stays.

    What is killed may leave children, which come to the process if it adopts: so it is looked at until nothing is left.
    """
    for _ in range(_ROUNDS):
        left = descendants(pid)
        if not left:
            return
        for one in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


@contextlib.contextmanager
def reaping_orphans(*, adopts: bool | None = None, every: float = LOOK_SECONDS) -> Iterator[None]:
    """Reap orphans for as long as the block runs; `adopts` says whether this process gets any (process 1 does)."""
    if not (os.getpid() == 1 if adopts is None else adopts):
        yield
        return
    seen: set[int] = set()

    def look() -> bool:
        nonlocal seen
        seen = reap(seen)
        return True

    with looking(look, every=every, name="perago-orphans"):
        yield


def reap(seen: set[int]) -> set[int]:
    """Reap the dead children that are not ours and were `seen` before; returns those to be given next time."""
    dead = {pid for pid in children() if is_zombie(pid)} - started_by_multiprocessing()
    for pid in dead & seen:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
            log.debug("process %d, which nobody waited for, is reaped", pid)
    return dead - seen


def reap_now(pids: set[int]) -> None:
    """Reap those of these children that are dead and that multiprocessing does not wait for."""
    for pid in pids - started_by_multiprocessing():
        if is_zombie(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def started_by_multiprocessing() -> set[int]:
    """What multiprocessing has started; asked without `active_children`, which would reap them itself."""
    started: Any = vars(multiprocessing.process)["_children"]
    tracker: Any = vars(multiprocessing.resource_tracker)["_resource_tracker"]
    return {process.pid for process in list(started)} | {tracker._pid}


_ours = False


def mark_main_program() -> None:
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


def start_process_group(name: str) -> None:
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
