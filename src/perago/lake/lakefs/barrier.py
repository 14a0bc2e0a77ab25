"""The barrier: stops in-flight publish requests that target a branch on a lakeFS server.

lakeFS reads the target's record, resolves the source, merges, runs hooks, and finally replaces the record by
compare-and-swap, which fails if the record was rewritten in the meantime.  A hard reset does the same.  A merge
rewrites the record before it looks up its own source.  So a merge from a branch that does not exist publishes nothing
and returns 404, but makes the compare-and-swap of every request in flight fail.  Such a request starts over, and finds
no source if its source was dropped before.  `perago fence prove` demonstrates this order.

The rule: only a 404 from lakeFS itself confirms the barrier.  Each barrier leaves a sealed staging token on the branch
until the next commit, so a barrier is sent only when needed.
"""

from __future__ import annotations

import uuid

from perago.errors import BranchDirty, LakeError, LakeForbidden, LakeNotFound, LakeUnavailable
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.protocol.metadata import EXPECTED_HEAD

SOURCE = "perago-barrier-"
NO_HEAD = "none: a barrier publishes nothing"


def send_barrier(
    client: LakeFSClient, options: Options, repository: str, branch: str, timeout: float
) -> None:
    """Send the barrier to a branch: a merge from a branch that does not exist.

    Its 404 confirms the barrier, if it comes from lakeFS and not from a proxy; every other response is retried.

    Raises `LakeForbidden` without retrying, and `LakeUnavailable` if no such response arrives within `timeout` seconds.
    """
    doing = f"send a barrier to branch {branch!r} of repository {repository!r}"
    until, failures = options.clock() + timeout, 0
    while True:
        left = until - options.clock()
        try:
            _merge_from_nowhere(client, doing, repository, branch, max(left, options.connect_timeout))
        except LakeNotFound:
            return
        except LakeForbidden:
            raise
        except LakeError as error:
            failures += 1
            delay = options.delay(failures)
            if delay >= left:
                hint = (
                    ". It has uncommitted objects: commit or reset them"
                    if isinstance(error, BranchDirty)
                    else ""
                )
                raise LakeUnavailable(
                    f"{doing}: not confirmed within {timeout:g} s, so a publish request may still be in flight: "
                    f"{error}{hint}"
                ) from error
        options.sleep(delay)


def _merge_from_nowhere(
    client: LakeFSClient, doing: str, repository: str, branch: str, timeout: float
) -> None:
    # The name is new each time, so that no such branch can exist, and no branch can be at the expected head.
    source = SOURCE + uuid.uuid4().hex
    made = client.call(
        doing,
        api.merge_into_branch(
            repository, source, branch, message="perago: a barrier", metadata={EXPECTED_HEAD: NO_HEAD}
        ),
        repeat=Repeat.UNSENT,
        timeout=timeout,
    )
    raise LakeUnavailable(f"{doing}: the answer was {made!r} instead of 404, which lakeFS would say")
