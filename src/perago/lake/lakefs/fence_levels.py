"""Which commits carry the fence: read once for each commit, since commits never change.

What was published from a fenced staging carries it as well, and is not read at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from perago.lake.base import FenceLevel
from perago.lake.lakefs.fence import Read, carries_fence

V = TypeVar("V")

_MOST = 4096


class Recent(Generic[V]):
    """Values by repository and name, the newest few thousand."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], V] = OrderedDict()

    def get(self, repository: str, name: str) -> V | None:
        """What was kept, if it still is."""
        return self._known.get((repository, name))

    def keep(self, repository: str, name: str, value: V) -> None:
        """Keep a value; an old one may have to go."""
        self._known[repository, name] = value
        while len(self._known) > _MOST:
            self._known.popitem(last=False)


class Levels:
    """The fence level of commits: hard where one carries the exact fence file and the server is known to run it."""

    def __init__(self, read: Read, doubt: Callable[[str, str], str]) -> None:
        self._read = read
        self._doubt = doubt
        self._known: Recent[bool] = Recent()

    def of(self, repository: str, commit: str) -> FenceLevel:
        """Whether a merge from this commit is fenced by the server."""
        fenced = self._carries(repository, commit) and not self._doubt(repository, commit)
        return "hard" if fenced else "soft"

    def why_soft(self, repository: str, commit: str, branch: str) -> str:
        """What a merge from this commit lacks to be fenced by the server, and what to do."""
        if not self._carries(repository, commit):
            return (
                f"does not carry the fence: run `perago fence install {repository} {branch}` and start a new "
                "workflow from the new head"
            )
        return f"carries a fence that this server was not seen to hold: {self._doubt(repository, commit)}"

    def note_fenced(self, repository: str, commit: str) -> None:
        """Take down that a commit carries the exact fence; whether the server runs it is asked for as ever."""
        self._known.keep(repository, commit, True)

    def _carries(self, repository: str, commit: str) -> bool:
        known = self._known.get(repository, commit)
        if known is None:
            known = carries_fence(self._read, repository, commit)
            self._known.keep(repository, commit, known)
        return known
