"""The hard fence on lakeFS: a pre-merge action that refuses a merge unless the branch is at the expected head.

lakeFS runs the action inside the loop that moves the branch, and passes it the head that is about to be replaced, so
the comparison and the move are one atomic step.  It reads actions from the *source* commit of a merge, so a staging
commit is not fenced unless it carries the unmodified fence file.  A merge that names no expected head passes.

`Fence` installs the file on a branch, removes it, and verifies that it works.  All of this is done by merge, so it also
works on protected branches.  `Levels` determines which commits carry the file.  It reads each commit only once, since
commits never change.  It does not read commits published from a fenced staging branch, since they carry the file too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from perago.errors import HeadMoved, LakeError, LakeNotFound, LakeRefused, LandedElsewhere
from perago.lake.base import FenceLevel, Lake, Merge
from perago.lake.lakefs.errors import FENCE_MARK
from perago.lake.lakefs.fence_probe import (
    SIGNED,
    Order,
    OrderProof,
    SideBranches,
    new_side_name,
    signed_merge,
)
from perago.protocol.metadata import EXPECTED_HEAD
from perago.protocol.paths import ACTIONS

V = TypeVar("V")

_MOST_RECENT = 4096

FENCE_PATH = f"{ACTIONS}perago-fence.yaml"

FENCE_TEXT = f"""\
name: perago fence
description: refuses a merge onto a head other than the one its publisher read
on:
  pre-merge:
hooks:
  - id: expected_head
    type: lua
    properties:
      script: |
        local expected = action.commit.metadata["{EXPECTED_HEAD}"]
        local head = action.commit.parents[1]
        if expected ~= nil and expected ~= "" and expected ~= head then
          error("{FENCE_MARK} expected head " .. expected .. " but the branch is at " .. head)
        end
"""

Read = Callable[[str, str, str], Iterator[bytes]]
"""The signature of `Lake.read`, which yields the bytes of one object."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The head of a branch after `install` or `remove`. `changed` is False if the call was a no-op."""

    head: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence that the fence works: the error from the refused merge, and the commit made by the accepted one."""

    refused: str
    let_through: str


class Fence:
    """Installs, removes and verifies the fence on branches of one lake."""

    def __init__(self, lake: Lake, *, new_name: Callable[[], str] = new_side_name) -> None:
        self._lake = lake
        self._sides = SideBranches(lake, new_name)

    def install(self, repository: str, branch: str) -> Fenced:
        """Publish the fence's action file to a branch, unless the branch already carries it."""
        head = self._lake.head(repository, branch).id
        if carries_fence(self._lake.read, repository, head):
            return Fenced(head, changed=False)
        with self._sides.at(repository, head) as side:
            self._sides.put(repository, side, FENCE_PATH, FENCE_TEXT)
            return Fenced(
                self._publish(repository, side, branch, head, "Install the Perago fence"), changed=True
            )

    def remove(self, repository: str, branch: str) -> Fenced:
        """Remove the fence's action file from a branch, whatever its content."""
        head = self._lake.head(repository, branch).id
        if all(entry.path != FENCE_PATH for entry in self._lake.list(repository, head, ACTIONS)):
            return Fenced(head, changed=False)
        with self._sides.at(repository, head) as side:
            self._lake.delete(repository, side, [FENCE_PATH])
            return Fenced(
                self._publish(repository, side, branch, head, "Remove the Perago fence"), changed=True
            )

    def prove(self, repository: str, branch: str) -> Proof:
        """Verify that the server refuses a merge that expects an outdated head.

        The test merges use two throwaway branches at the branch's head.  Raises `LakeRefused` if that head does not
        carry the fence, and `LakeError` if the server accepts the merge.
        """
        head = self._lake.head(repository, branch).id
        if not carries_fence(self._lake.read, repository, head):
            raise LakeRefused(
                f"branch {branch!r} of repository {repository!r} is not fenced: its head {head} does not carry the "
                f"exact {FENCE_PATH}; run `perago fence install {repository} {branch}`"
            )
        with self._sides.at(repository, head) as target, self._sides.at(repository, head) as source:
            self._sides.put(repository, source, "perago-fence-proof/late", "from the old head")
            self._lake.commit(repository, source, "A publication from the old head", SIGNED)
            self._sides.put(repository, target, "perago-fence-proof/first", "on the branch already")
            moved = self._lake.commit(repository, target, "A publication that was first", SIGNED)
            refused = self._refusal(repository, _proof_merge(source, target, head))
            return Proof(refused, self._lake.merge(repository, _proof_merge(source, target, moved)))

    def prove_order(self, repository: str, branch: str) -> OrderProof:
        """Verify on throwaway branches that dropping the source and then calling `barrier` stops a merge in flight."""
        return Order(self._lake, self._sides).prove(repository, self._lake.head(repository, branch).id)

    def _refusal(self, repository: str, merge: Merge) -> str:
        try:
            made = self._lake.merge(repository, merge)
        except HeadMoved as error:
            return str(error)
        except LandedElsewhere as error:
            made = error.commit
        raise LakeError(
            f"the fence does not hold: the server made {made} by a merge that expected head {merge.expected_head}; "
            "are actions switched off on this server (`actions.enabled`)?"
        )

    def _publish(self, repository: str, side: str, branch: str, head: str, message: str) -> str:
        self._lake.commit(repository, side, message, SIGNED)
        try:
            return self._lake.merge(repository, signed_merge(side, branch, head, message))
        except LandedElsewhere as landed:
            # The branch moved meanwhile and the server did not check the head, but the change has landed anyway.
            return landed.commit


def _proof_merge(source: str, target: str, expected_head: str) -> Merge:
    # "hard": the server must check the head, not the adapter.
    return replace(signed_merge(source, target, expected_head, "Prove the Perago fence"), level="hard")


def carries_fence(read: Read, repository: str, ref: str) -> bool:
    """Return whether a ref contains the unmodified fence file. This says nothing about whether the server runs it."""
    try:
        return b"".join(read(repository, ref, FENCE_PATH)) == FENCE_TEXT.encode()
    except LakeNotFound:
        return False


class Recent(Generic[V]):
    """A cache of the few thousand most recently added values, by repository and name."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], V] = OrderedDict()

    def get(self, repository: str, name: str) -> V | None:
        """Return the cached value, or None."""
        return self._known.get((repository, name))

    def keep(self, repository: str, name: str, value: V) -> None:
        """Cache a value, evicting the oldest one if the cache is full."""
        self._known[repository, name] = value
        while len(self._known) > _MOST_RECENT:
            self._known.popitem(last=False)


class Levels:
    """Determines the fence level of a commit: hard if it carries the fence file and the server is known to run it."""

    def __init__(self, read: Read, doubt: Callable[[str, str], str]) -> None:
        self._read = read
        self._doubt = doubt
        self._known: Recent[bool] = Recent()

    def of(self, repository: str, commit: str) -> FenceLevel:
        """Return `hard` if the server fences a merge from this commit, else `soft`."""
        fenced = self._carries(repository, commit) and not self._doubt(repository, commit)
        return "hard" if fenced else "soft"

    def fence_gap(self, repository: str, commit: str, branch: str) -> str:
        """Return why the server cannot fence a merge from this commit, and the remedy."""
        if not self._carries(repository, commit):
            return (
                f"does not carry the fence: run `perago fence install {repository} {branch}` and start a new "
                "workflow from the new head"
            )
        return f"carries a fence that this server was not seen to hold: {self._doubt(repository, commit)}"

    def note_fenced(self, repository: str, commit: str) -> None:
        """Remember that a commit carries the fence file. Whether the server runs it is still probed as usual."""
        self._known.keep(repository, commit, True)

    def _carries(self, repository: str, commit: str) -> bool:
        known = self._known.get(repository, commit)
        if known is None:
            known = carries_fence(self._read, repository, commit)
            self._known.keep(repository, commit, known)
        return known
