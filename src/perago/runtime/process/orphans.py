"""As process 1 of a container a worker inherits every process whose parent has died, and must reap it.

The rule: only what is not ours is reaped.  The exit status of an executor belongs to its slot, so a dead child that
multiprocessing knows is left alone; and a dead child must have been seen twice, because one that is just being
started is known a moment later than it exists.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.process
import multiprocessing.resource_tracker
import os
from collections.abc import Iterator
from typing import Any

from perago.runtime.looking import looking
from perago.runtime.root.identity import children, is_zombie

log = logging.getLogger("perago.orphans")

LOOK_SECONDS = 5.0


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
    dead = {pid for pid in children() if is_zombie(pid)} - _ours()
    for pid in dead & seen:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
            log.debug("process %d, which nobody waited for, is reaped", pid)
    return dead - seen


def _ours() -> set[int]:
    """What multiprocessing has started; asked without `active_children`, which would reap them itself."""
    started: Any = vars(multiprocessing.process)["_children"]
    tracker: Any = vars(multiprocessing.resource_tracker)["_resource_tracker"]
    return {process.pid for process in list(started)} | {tracker._pid}
