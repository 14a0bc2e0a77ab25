"""Which commits carry the fence: read once for each commit, since commits never change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from perago.errors import LakeNotFound
from perago.lake.base import FenceLevel
from perago.lake.fence import FENCE_PATH, FENCE_TEXT

Read = Callable[[str, str, str], Iterator[bytes]]
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
    """The fence level of commits, by the exact bytes of the fence file."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._known: Recent[FenceLevel] = Recent()

    def of(self, repository: str, commit: str) -> FenceLevel:
        """Whether a merge from this commit is fenced by the server."""
        known = self._known.get(repository, commit)
        if known is None:
            known = self._look(repository, commit)
            self._known.keep(repository, commit, known)
        return known

    def _look(self, repository: str, commit: str) -> FenceLevel:
        try:
            text = b"".join(self._read(repository, commit, FENCE_PATH))
        except LakeNotFound:
            return "soft"
        return "hard" if text == FENCE_TEXT.encode() else "soft"
