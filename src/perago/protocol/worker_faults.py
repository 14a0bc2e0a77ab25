"""When an attempt failed because of the worker that ran it, and not because of its task, its input or its data.

    what ended the attempt                      at step          the worker's own reason
    the lake does not know the keys (401)       all but body     keys
    the lake gives no answer                    input            lake
    ENOSPC, EDQUOT, EROFS                       all              disk
    EMFILE, ENFILE                              all but body     descriptors
    anything else                                                none

The first call to the lake is made at the step "input", so a lake that is away shows there; one that does not answer
later has answered before, and may have trouble with this one repository.  A 403 or a 404 is about a repository.  A body
may use up descriptors by itself, and may talk to a lake of its own; a disk that it finds full is full for others too.
What authors raise on purpose is theirs, whatever they raise it from.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Literal

from perago.errors import LakeUnauthenticated, LakeUnavailable, TaskExecutionError
from perago.protocol.steps import BODY, INPUT

OwnReason = Literal["keys", "lake", "disk", "descriptors", "executor"]
"""`executor`: one after the other died before the attempt could begin; only the supervisor can tell that."""

FIRST_CALL = INPUT.name
_ERRNOS: dict[int, OwnReason] = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EROFS: "disk",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
}


def own_reason(error: BaseException, step: str) -> OwnReason | None:
    """The worker's own reason for an error that ended an attempt at `step`; None where it is not the worker's."""
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
    """The error and what it came from, each once."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
