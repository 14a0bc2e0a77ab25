"""Decides whether an attempt failed because of its worker, and not because of its task, its input or its data.

    what ended the attempt                      at step          the worker's own reason
    the lake does not know the keys (401)       all but body     keys
    the lake gives no answer                    input            lake
    ENOSPC, EDQUOT, EROFS                       all              disk
    EMFILE, ENFILE                              all but body     descriptors
    anything else                                                none

The first call to the lake is made at the step "input", so an unreachable lake shows there; one that stops answering later
has answered before, and may have trouble with this one repository.  A 403 or a 404 is about a repository.  A body may use
up descriptors by itself, and may talk to another lake; a disk that it finds full is full for other attempts too.  An error
that the author raises on purpose is the task's, whatever its cause.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Literal

from perago.errors import LakeUnauthenticated, LakeUnavailable, TaskExecutionError
from perago.protocol.steps import BODY, INPUT

OwnReason = Literal["keys", "lake", "disk", "descriptors", "executor"]
"""`executor`: several executors in a row died before the attempt could start; only the supervisor can see that."""

FIRST_CALL = INPUT.name
_ERRNOS: dict[int, OwnReason] = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EROFS: "disk",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
}


def own_reason(error: BaseException, step: str) -> OwnReason | None:
    """Return the worker's own reason for an error that ended an attempt at `step`, or None if it is not the worker's."""
    if isinstance(error, TaskExecutionError):
        return None
    found: OwnReason | None = None
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
    """Yield the error and its causes, each once."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
