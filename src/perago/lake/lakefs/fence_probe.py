"""Probes whether a lakeFS server runs the fence that its commits carry, and the order of its publication steps.

The fence file proves nothing about the server: with `actions.enabled: false` it is an object like any other.  So a
merge counts as hard only after the server has been observed to refuse one.  The probe merges a commit that carries the
fence into a throwaway branch at the same commit, naming an expected head that no branch ever has.  This takes three
calls.  If the server does not check the head, an empty commit lands on the throwaway branch and is dropped with it.

The rule: no merge counts as hard unless a probe has succeeded.  A success is valid for the whole server.  The reason
for a failure (the "doubt") applies to one repository only, since permissions differ.  Both are kept in this process for
a limited time, because someone may switch actions off or on.  Switching them takes a server restart, so a success is
also discarded after the first broken connection.

The lakeFS documentation does not guarantee the order of the publication steps, so `Order` probes it.  A pre-merge
action that sleeps holds a merge in flight while its source is dropped.  This merge still lands, because its source was
resolved first.  For a second merge, a barrier is sent after the drop, and the merge must not land.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from perago.errors import HeadMoved, LakeError, LakeNotFound, LakeUnavailable
from perago.lake.base import Lake, Merge, Upload
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Repeat
from perago.protocol.metadata import EXPECTED_HEAD, KEY
from perago.protocol.names import probe_branch_name
from perago.protocol.paths import ACTIONS

log = logging.getLogger("perago.lake.lakefs.fence")

FENCE_KEY = "perago-fence"
"""The logical task key of fence commits. No workflow step has it, so no retry mistakes such a commit for its own."""
SIGNED = {KEY: FENCE_KEY}
NO_HEAD = "0" * 64
"""A commit id that is never the head of any branch."""
KEPT_SECONDS = 600.0
HELD_SECONDS = 3
SENT_SECONDS = 1.0
"""Seconds to wait for the merge to reach the action that holds it."""
_TIMEOUT = 60.0
_BARRIER_SECONDS = 30.0

_ACTION = f"""\
name: perago order proof
on:
  pre-merge:
hooks:
  - id: hold
    type: lua
    properties:
      script: |
        local time = require("time")
        time.sleep({HELD_SECONDS * 10**9})
"""


def new_side_name() -> str:
    """Return a unique name for a throwaway branch."""
    return probe_branch_name(time.time(), uuid.uuid4().hex[:12])


class SideBranches:
    """Creates throwaway hidden branches in one lake, and writes text objects to them."""

    def __init__(self, lake: Lake, new_name: Callable[[], str] = new_side_name) -> None:
        self._lake = lake
        self._new_name = new_name

    @contextmanager
    def at(self, repository: str, commit: str) -> Iterator[str]:
        """Create a branch at a commit. It is dropped at the end of the block."""
        name = self._new_name()
        self._lake.create_branch(repository, name, commit)
        try:
            yield name
        finally:
            self._lake.drop_branch(repository, name)

    def put(self, repository: str, branch: str, path: str, text: str) -> None:
        """Write text to an object on a branch without committing."""
        data = text.encode()
        checksum = hashlib.new(self._lake.checksum_algorithm, data).hexdigest()
        with TemporaryDirectory(prefix="perago-fence-") as folder:
            file = Path(folder) / "object"
            file.write_bytes(data)
            self._lake.upload(repository, branch, [Upload(file, path, len(data), checksum)])


def signed_merge(source: str, target: str, expected_head: str, message: str) -> Merge:
    """Return a merge whose commit no retry will mistake for its own publication."""
    return Merge(source, target, expected_head, message, SIGNED, _TIMEOUT)


class FenceProof:
    """Remembers whether a server has been observed to enforce the fence. Thread-safe."""

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
        """Return why the server is not known to enforce the fence that `commit` carries, or `""` if it is known to."""
        if self._is_proven(self._clock()):
            return ""
        with self._lock:
            now = self._clock()
            if self._is_proven(now):
                return ""
            until, doubt = self._doubts.get(repository, (now, ""))
            return doubt if now < until else self._probe(repository, commit)

    def forget(self) -> None:
        """Forget that a probe succeeded. Called when the server has been observed not to check the head."""
        self._proven_until = float("-inf")

    def _is_proven(self, now: float) -> bool:
        return now < self._proven_until and self._client.breaks == self._proven_at_break

    def _probe(self, repository: str, commit: str) -> str:
        """Send the server a merge that it must refuse. Returns `""` if it does, else the reason not to trust the fence.

        The result is remembered, unless the server was unavailable.
        """
        last_doubt = self._doubts.pop(repository, (0.0, ""))[1]
        breaks = self._client.breaks
        try:
            doubt = self._prove(repository, commit)
        except LakeUnavailable as error:
            log.warning(
                "could not prove the fence of repository %r, its merges count as soft: %s",
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
        if doubt != last_doubt:
            log.warning(
                "repository %r carries the fence, but its merges count as soft: %s", repository, doubt
            )
        return doubt

    def _prove(self, repository: str, commit: str) -> str:
        branch = self._new_name()
        doing = f"prove the fence of repository {repository!r} on branch {branch!r}"
        self._client.call(
            doing, api.create_branch(repository, branch, commit, hidden=True), repeat=Repeat.UNSENT
        )
        try:
            self._client.call(
                doing,
                api.merge_into_branch(
                    repository,
                    commit,
                    branch,
                    message="Prove the Perago fence",
                    metadata={**SIGNED, EXPECTED_HEAD: NO_HEAD},
                    allow_empty=True,
                ),
                repeat=Repeat.UNSENT,
                timeout=_TIMEOUT,
            )
        except HeadMoved:
            return ""
        finally:
            self._drop(repository, branch)
        return (
            "the server accepted a merge that expected another head, so it does not run actions: set "
            "`actions.enabled: true` in the lakeFS configuration, then run `perago fence prove`"
        )

    def _drop(self, repository: str, branch: str) -> None:
        try:
            self._client.call(
                f"drop branch {branch!r} of repository {repository!r}",
                api.delete_branch(repository, branch),
                repeat=Repeat.ALWAYS,
            )
        except LakeError as error:
            log.warning("failed to drop branch %s of %s: %s", branch, repository, error)


@dataclass(frozen=True, slots=True)
class OrderProof:
    """A commit that landed although its source was dropped, and the error from a merge that a barrier stopped."""

    landed: str
    stopped: str


class Order:
    """Probes the order in which a lake's server performs the steps of a publication."""

    def __init__(
        self, lake: Lake, sides: SideBranches, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._lake = lake
        self._sides = sides
        self._sleep = sleep

    def prove(self, repository: str, head: str) -> OrderProof:
        """Verify the order with two merges held in flight on throwaway branches, the second stopped by a barrier.

        Raises `LakeError` if the first does not land, or the second is not stopped.
        """
        with self._held_merge(repository, head) as (source, _, merge):
            self._lake.drop_branch(repository, source)
            landed = self._result_or_error(merge)
        if not isinstance(landed, str):
            raise LakeError(
                f"could not prove the server's order: a merge whose source was dropped in flight ended with {landed}"
            )
        with self._held_merge(repository, head) as (source, target, merge):
            self._lake.drop_branch(repository, source)
            self._lake.barrier(repository, target, _BARRIER_SECONDS)
            stopped = self._result_or_error(merge)
            now = self._lake.head(repository, target).id
        if not isinstance(stopped, LakeNotFound) or now != head:
            raise LakeError(
                f"the barrier does not hold on this server: a merge whose source was dropped ended with {stopped}, and "
                f"the branch is at {now}, not at {head}; a dead attempt could publish here after its retry"
            )
        return OrderProof(landed, str(stopped))

    @contextmanager
    def _held_merge(self, repository: str, head: str) -> Iterator[tuple[str, str, Future[str]]]:
        """Yield the source, the target, and a merge from source to target that the server holds in flight."""
        with ExitStack() as opened:
            target = opened.enter_context(self._sides.at(repository, head))
            source = opened.enter_context(self._sides.at(repository, head))
            self._sides.put(repository, source, f"{ACTIONS}perago-order-proof.yaml", _ACTION)
            self._lake.commit(repository, source, "A publication that is held in flight", SIGNED)
            pool = opened.enter_context(ThreadPoolExecutor(1, "perago-order-proof"))
            # "hard": otherwise the adapter would first prove the fence with a merge that this action would hold, too.
            request = replace(signed_merge(source, target, head, "Prove the server's order"), level="hard")
            merge = pool.submit(self._lake.merge, repository, request)
            self._sleep(SENT_SECONDS)
            if merge.done():
                raise LakeError(
                    f"could not prove the server's order: a merge that its action holds for {HELD_SECONDS} s "
                    f"ended at once with {self._result_or_error(merge)}; are actions switched off on this server?"
                )
            yield source, target, merge

    @staticmethod
    def _result_or_error(merge: Future[str]) -> str | BaseException:
        error = merge.exception()
        return error if error is not None else merge.result()
