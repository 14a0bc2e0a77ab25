"""Shows the order in which a lakeFS server publishes, since no documentation promises it.

A merge is held in flight by a pre-merge action that sleeps.  Meanwhile its source is dropped: it lands all the same,
because the source was resolved first.  The same again with a barrier behind the drop: it must not land.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from perago.errors import LakeError, LakeNotFound
from perago.lake.base import Lake
from perago.lake.lakefs.side_branches import SIGNED, SideBranches, signed_merge
from perago.protocol.paths import ACTIONS

HELD_SECONDS = 3
SENT_SECONDS = 1.0
"""After so long the merge has reached the action, and is held there."""

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
_BARRIER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OrderProof:
    """A merge that landed although its source was dropped, and what the server said to one behind a barrier."""

    landed: str
    stopped: str


class Order:
    """The order of one lake's server."""

    def __init__(
        self, lake: Lake, sides: SideBranches, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._lake = lake
        self._sides = sides
        self._sleep = sleep

    def prove(self, repository: str, head: str) -> OrderProof:
        """Hold two merges in flight on branches of their own, and stop the second; `LakeError` if that fails."""
        with self._held_merge(repository, head) as (source, _, merge):
            self._lake.drop_branch(repository, source)
            landed = self._ending(merge)
        if not isinstance(landed, str):
            raise LakeError(
                f"the server's order could not be shown: a merge whose source was dropped in flight ended with {landed}"
            )
        with self._held_merge(repository, head) as (source, target, merge):
            self._lake.drop_branch(repository, source)
            self._lake.barrier(repository, target, _BARRIER_SECONDS)
            stopped = self._ending(merge)
            now = self._lake.head(repository, target).id
        if not isinstance(stopped, LakeNotFound) or now != head:
            raise LakeError(
                f"the barrier does not hold on this server: a merge whose source was dropped ended with {stopped}, and "
                f"the branch is at {now}, not at {head}; a dead attempt could publish here after its retry"
            )
        return OrderProof(landed, str(stopped))

    @contextmanager
    def _held_merge(self, repository: str, head: str) -> Iterator[tuple[str, str, Future[str]]]:
        """Source, target, and a merge of the one into the other that the server holds in flight."""
        with ExitStack() as opened:
            target = opened.enter_context(self._sides.at(repository, head))
            source = opened.enter_context(self._sides.at(repository, head))
            self._sides.put(repository, source, f"{ACTIONS}perago-order-proof.yaml", _ACTION)
            self._lake.commit(repository, source, "A publication that is held in flight", SIGNED)
            pool = opened.enter_context(ThreadPoolExecutor(1, "perago-order-proof"))
            # "hard": the adapter would prove the fence first, with a merge that this action holds as well.
            request = replace(signed_merge(source, target, head, "Prove the server's order"), level="hard")
            merge = pool.submit(self._lake.merge, repository, request)
            self._sleep(SENT_SECONDS)
            if merge.done():
                raise LakeError(
                    f"the server's order could not be shown: a merge that its action holds for {HELD_SECONDS} s had "
                    f"ended at once with {self._ending(merge)}; are actions switched off on this server?"
                )
            yield source, target, merge

    @staticmethod
    def _ending(merge: Future[str]) -> str | BaseException:
        error = merge.exception()
        return error if error is not None else merge.result()
