"""Whether a lakeFS server runs the fence that its commits carry: shown once by a merge that it must refuse.

The fence file says nothing about the server: with `actions.enabled: false` it is an object like any other.  So
before a merge counts as hard, the server has to refuse one: a commit that carries the fence is merged into a
throw-away branch at that very commit, with an expected head that no commit has.  Three calls; where the server does
not compare, an empty commit lands on the throw-away branch and goes with it.

The rule: no proof, no "hard".  A proof holds for the server; a doubt holds for one repository, since permissions
differ.  Both are kept in this process and for a while only: someone may switch actions off, or on.  That takes a
restart of the server, so a proof ends with the first connection that breaks, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from perago.errors import HeadMoved, LakeError, LakeUnavailable
from perago.lake.lakefs.client import LakeFSClient, Repeat
from perago.lake.lakefs.sdk import sdk
from perago.lake.lakefs.side_branches import SIGNED, new_side_name
from perago.protocol.metadata import EXPECTED_HEAD

log = logging.getLogger("perago.lake.lakefs.fence")

KEPT_SECONDS = 600.0
NO_HEAD = "0" * 64
"""A head that no branch is ever at."""

_TIMEOUT = 60.0


class FenceProof:
    """What is known of one server; safe for threads."""

    def __init__(
        self,
        client: LakeFSClient,
        clock: Callable[[], float],
        *,
        new_name: Callable[[], str] = new_side_name,
    ) -> None:
        self._client = client
        self._clock = clock
        self._new_name = new_name
        self._lock = threading.Lock()
        self._proven_until = float("-inf")
        self._proven_at_break = 0
        self._doubts: dict[str, tuple[float, str]] = {}

    def doubt(self, repository: str, commit: str) -> str:
        """Why the server is not known to hold the fence that `commit` carries; empty where it was seen to."""
        if self._is_proven(self._clock()):
            return ""
        with self._lock:
            now = self._clock()
            if self._is_proven(now):
                return ""
            until, doubt = self._doubts.get(repository, (now, ""))
            return doubt if now < until else self._ask(repository, commit)

    def forget(self) -> None:
        """Drop the proof: the server was seen not to compare."""
        self._proven_until = float("-inf")

    def _is_proven(self, now: float) -> bool:
        return now < self._proven_until and self._client.breaks == self._proven_at_break

    def _ask(self, repository: str, commit: str) -> str:
        """Have the server refuse, and remember what it did."""
        said = self._doubts.pop(repository, (0.0, ""))[1]
        breaks = self._client.breaks
        try:
            doubt = self._prove(repository, commit)
        except LakeUnavailable as error:
            log.warning(
                "the fence of repository %r could not be proven, its merges count as soft: %s",
                repository,
                error,
            )
            return str(error)
        except LakeError as error:
            doubt = str(error)
        until = self._clock() + KEPT_SECONDS
        if not doubt:
            self._proven_until, self._proven_at_break = until, breaks
            return ""
        self._doubts[repository] = (until, doubt)
        if doubt != said:
            log.warning(
                "repository %r carries the fence, but its merges count as soft: %s", repository, doubt
            )
        return doubt

    def _prove(self, repository: str, commit: str) -> str:
        branch = self._new_name()
        doing = f"prove the fence of repository {repository!r} on branch {branch!r}"
        target = sdk.BranchCreation(name=branch, source=commit, hidden=True)
        wrong = sdk.Merge(
            message="Prove the Perago fence",
            metadata={**SIGNED, EXPECTED_HEAD: NO_HEAD},
            allow_empty=True,
            squash_merge=True,
        )
        self._client.call(
            doing,
            lambda apis, limit: apis.branches.create_branch(repository, target, _request_timeout=limit),
            repeat=Repeat.UNSENT,
        )
        try:
            self._client.call(
                doing,
                lambda apis, limit: apis.refs.merge_into_branch(
                    repository, commit, branch, merge=wrong, _request_timeout=limit
                ),
                repeat=Repeat.UNSENT,
                timeout=_TIMEOUT,
            )
        except HeadMoved:
            return ""
        finally:
            self._drop(repository, branch)
        return (
            "the server let a merge through that expected another head, so it does not run actions: set "
            "`actions.enabled: true` in the lakeFS configuration, then run `perago fence prove`"
        )

    def _drop(self, repository: str, branch: str) -> None:
        try:
            self._client.call(
                f"drop branch {branch!r} of repository {repository!r}",
                lambda apis, limit: apis.branches.delete_branch(repository, branch, _request_timeout=limit),
                repeat=Repeat.ALWAYS,
            )
        except LakeError as error:
            log.warning("failed to drop branch %s of %s: %s", branch, repository, error)
