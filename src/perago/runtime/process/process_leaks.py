"""Finds what user code leaves behind in its executor, and decides whether the executor may run another attempt.

An executor is not reused if user code has changed its process in a way that cannot be undone, or has left a thread or a
program running.  Daemon threads, idle pool threads, py4j's threads, Java, and the processes of Python's own pools do
not matter: they wait for work from a library, and restarting them for every attempt would cost more.
"""

from __future__ import annotations

import concurrent.futures.thread as pools
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perago.protocol.outcome import describe
from perago.runtime.process.process_setup import reap_now, started_by_multiprocessing
from perago.runtime.process.process_state import preserving_process_state
from perago.runtime.root.state_dir import children

_READS = 50
_POOLED = ("multiprocessing", "loky")
"""Strings found in the command lines of Python's process pools and their helpers."""


class ProcessLeaks:
    """Records the permanent changes that an execution's user code makes to the process, and what it leaves running."""

    def __init__(self) -> None:
        self._unrestored: list[str] = []
        self._threads: list[threading.Thread] = []
        self._programs: set[int] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Run user code in this block, then restore the process and record the threads and programs that it started."""
        threads, programs = set(threading.enumerate()), children()
        try:
            with preserving_process_state(self._unrestored.append):
                yield
        finally:
            self._threads += [one for one in threading.enumerate() if one not in threads]
            self._programs |= (started := children() - programs)
            # Nothing else waits for processes that the executor has adopted.
            reap_now(started)

    def unusable_reason(self) -> str:
        """Return why this process should not run another attempt, or "" if it may."""
        try:
            return "; ".join(self._reasons())
        except Exception as error:
            # A thread may be an instance of a user's class. Raise nothing here: a result is being handed over.
            return f"cannot find out what the task left running: {describe(error)}"

    def _reasons(self) -> list[str]:
        threads = [one.name for one in busy_threads(self._threads)]
        programs = [_name(pid) for pid in sorted(self._programs & children()) if _is_leak(pid)]
        reasons = [f"the task changed {what}" for what in self._unrestored]
        if threads:
            reasons.append(f"the task left a thread running: {', '.join(threads)}")
        if programs:
            reasons.append(f"the task left a program running: {', '.join(programs)}")
        return reasons


def busy_threads(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    """Return the threads that Python would wait for at exit and that are not idle."""
    return [
        one
        for one in threads
        if one.is_alive() and not one.daemon and one is not threading.main_thread() and not _is_idle(one)
    ]


def _is_idle(thread: threading.Thread) -> bool:
    """Return whether a thread is waiting for work in a pool, or is one of py4j's threads, which wait for Java."""
    if (queue := pools._threads_queues.get(thread)) is not None:
        frame = sys._current_frames().get(thread.ident or 0)
        # A busy worker thread is in a function called by `_worker`.
        return bool(queue.empty()) and frame is not None and frame.f_code is pools._worker.__code__
    processes: Any = sys.modules.get("concurrent.futures.process")
    if processes is not None and isinstance(thread, processes._ExecutorManagerThread):
        return not getattr(thread, "pending_work_items", None)
    target = getattr(thread, "_target", None)
    return any(str(getattr(one, "__module__", "")).startswith("py4j.") for one in (type(thread), target))


def _is_leak(pid: int) -> bool:
    """Return whether a program is still running and is not a helper that a library keeps alive for reuse."""
    command = _command_line(pid)
    # A process with our command line that multiprocessing started is a forked pool worker.
    forked = command == _command_line(os.getpid()) and pid in started_by_multiprocessing()
    pooled = forked or any(name in command for name in _POOLED)
    return bool(command) and _name(pid) != "java" and not pooled


def _command_line(pid: int) -> str:
    """Return a program's command line, or "" if it has ended. Waits for a program that is just starting."""
    for _ in range(_READS):
        command = _read(pid, "cmdline")
        # The state follows the program's name, which may contain any character.
        state = _read(pid, "stat").rpartition(")")[2].split()[:1]
        if command or not state or state[0] in "ZX":
            return command
        time.sleep(0.001)
    return ""


def _name(pid: int) -> str:
    return _read(pid, "comm").strip()


def _read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
