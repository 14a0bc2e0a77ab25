"""Decides whether an attempt failed because of its worker rather than its task, its input or its data.

    error                                       at step          worker fault
    the lake rejects the keys (401)             all but body     keys
    the lake does not answer                    input            lake
    ENOSPC, EDQUOT, EROFS                       all              disk
    EMFILE, ENFILE                              all but body     descriptors
    anything else                                                none

The first call to the lake is made at the step "input", so an unreachable lake is noticed there.  A lake that stops
responding later was reachable before, and may only have trouble with this one repository.  A 403 or a 404 concerns one
repository.  A body may exhaust the descriptors itself, and may talk to another lake.  A disk that is full for a body
is full for other attempts too.  An error that the author raises on purpose is attributed to the task, whatever its
cause.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Literal

from perago.errors import LakeUnauthenticated, LakeUnavailable, TaskExecutionError
from perago.protocol.steps import BODY, INPUT

WorkerFault = Literal["keys", "lake", "disk", "descriptors", "executor"]
"""The kind of worker fault.

`executor` means that several executors in a row died before the attempt could start.  Only the supervisor detects this.
"""

FIRST_CALL = INPUT.name
_ERRNOS: dict[int, WorkerFault] = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EROFS: "disk",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
}


def worker_fault(error: BaseException, step: str) -> WorkerFault | None:
    """Return the worker fault behind an error that ended an attempt at `step`, or None if it has another cause."""
    if isinstance(error, TaskExecutionError):
        return None
    found: WorkerFault | None = None
    for one in _chain(error):
        if isinstance(one, OSError) and one.errno is not None:
            found = found or _ERRNOS.get(one.errno)
    if step == BODY.name:
        return found if found == "disk" else None
    if found is None and isinstance(error, LakeUnauthenticated):
        return "keys"
    if found is None and isinstance(error, LakeUnavailable) and step == FIRST_CALL:
        return "lake"
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its chain of causes, without duplicates."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
