"""Sets up Perago's processes: reaping and ending their descendants, forking, and process groups.

As process 1 of a container, a worker inherits every orphan and must reap it.  An executor adopts the processes that its
bodies have started (`adopt_orphans`).  So a process that started its own session, or whose parent is gone, is still
among the executor's descendants and is killed with it (`end_descendants`).

Only processes that Perago did not start are reaped.  An executor's exit status belongs to its slot, so a dead child
that multiprocessing knows about is left alone.  A dead child must also have been seen twice, because multiprocessing
registers a new child slightly after it starts.

`mark_main_program` is called only on the first line of one of Perago's own programs.  A notebook, a test runner or any
other process that imports Perago may have threads and files that a fork would inherit.
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

from perago.runtime.periodic import call_periodically
from perago.runtime.root.state_dir import children, descendants, is_zombie

log = logging.getLogger("perago.orphans")

REAP_SECONDS = 5.0
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 200
_ROUND_SECONDS = 0.005

_is_main_program = False


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies. Does nothing on systems other than Linux."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(pid: int) -> None:
    """Kill all descendants of a process, but not the process itself.

    A descendant that is killed may leave children, which the process adopts, so this repeats until none are left.
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
def reaping_orphans(*, adopts: bool | None = None, every: float = REAP_SECONDS) -> Iterator[None]:
    """Reap orphans while the block runs. `adopts` says whether this process adopts any; by default, only process 1 does."""
    if not (os.getpid() == 1 if adopts is None else adopts):
        yield
        return
    seen: set[int] = set()

    def reap_seen() -> bool:
        nonlocal seen
        seen = reap(seen)
        return True

    with call_periodically(reap_seen, every=every, name="perago-orphans"):
        yield


def reap(seen: set[int]) -> set[int]:
    """Reap the dead children in `seen` that Perago did not start. Returns the set to pass as `seen` next time."""
    dead = {pid for pid in children() if is_zombie(pid)} - started_by_multiprocessing()
    for pid in dead & seen:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
            log.debug("reaped orphan process %d", pid)
    return dead - seen


def reap_now(pids: set[int]) -> None:
    """Reap the dead ones among these children, except those that multiprocessing started."""
    for pid in pids - started_by_multiprocessing():
        if is_zombie(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def started_by_multiprocessing() -> set[int]:
    """Return the processes that multiprocessing has started. `active_children` would reap them, so it is not used."""
    started: Any = vars(multiprocessing.process)["_children"]
    tracker: Any = vars(multiprocessing.resource_tracker)["_resource_tracker"]
    return {process.pid for process in list(started)} | {tracker._pid}


def mark_main_program() -> None:
    """Mark this process as one of Perago's programs. Called on the first line of a program."""
    global _is_main_program
    _is_main_program = True


def may_fork() -> bool:
    """Return whether it is safe to fork instead of starting a new process.

    It is safe on Linux, if this process is one of Perago's programs and has only one thread.
    """
    try:
        # Libraries may have threads that Python does not know about.
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return False
    return _is_main_program and threads == 1 and threading.active_count() == 1 and hasattr(os, "pidfd_open")


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The working directory, `sys.path` and environment for an executor.

    They may have changed in the worker since its fork server was forked.
    """

    folder: str | None
    path: list[str]
    environ: dict[str, str] = field(repr=False)

    @classmethod
    def current(cls) -> ProcessEnvironment:
        """Return the environment of this process."""
        try:
            folder = os.getcwd()
        except OSError:
            folder = None
        return cls(folder, list(sys.path), dict(os.environ))

    def apply(self) -> None:
        """Apply this working directory, `sys.path` and environment."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(self.folder)
        sys.path[:] = self.path
        for name in os.environ.keys() - self.environ.keys():
            del os.environ[name]
        os.environ.update(self.environ)


def start_process_group(name: str) -> None:
    """Move this process into a new process group, set its name, and ignore SIGINT and SIGTERM."""
    os.setpgid(0, 0)
    for ignored in (signal.SIGINT, signal.SIGTERM):
        # An empty handler instead of SIG_IGN, which programs started by a body would inherit.
        signal.signal(ignored, lambda _number, _frame: None)
    _name_process(name)


def _name_process(name: str) -> None:
    """Set the name that `ps` and `top` show, truncated to 15 characters."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])
