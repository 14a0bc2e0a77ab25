"""The embedded lake with the order of a lakeFS server: a publish request resolves its source first and swaps last.

    begin   the client's own check of the head (hard reset, soft fence) → record and source are read
    swap    the record is the one that was read: done, whether or not the source is still there
            it was renewed meanwhile: start over, and the source must be there again
    check   the client reads the parent of the merge commit

A commit, a publication and a barrier renew the record of their branch.  Dropping a branch renews nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perago.errors import HeadMoved, LandedElsewhere
from perago.lake.base import FenceLevel, Merge
from perago.lake.local.lake import LocalLake

Swap = Callable[[], Any]
_inside = itertools.count()


class ServerOrder:
    """A lake whose publications can be in flight; all other calls go to the embedded lake."""

    relocation_level: FenceLevel = "soft"

    def __init__(self, lake: LocalLake, *, hard: bool = True) -> None:
        self._lake = lake
        self._hard = hard
        self._renewed: Counter[tuple[str, str]] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def fence_level(self, repository: str, ref: str) -> FenceLevel:
        return "hard" if self._hard else "soft"

    def begin(self, name: str, arguments: tuple[Any, ...]) -> Swap:
        """Send a publish request; returns when the server has read record and source."""
        return {"merge": self._begin_merge, "relocate": self._begin_relocate}[name](*arguments)

    def check(self, name: str, arguments: tuple[Any, ...], made: Any) -> Any:
        """Check the answer to a publish request as the adapter does."""
        if name == "merge":
            repository, merge = arguments
            if self._lake.commit_at(repository, made).first_parent != merge.expected_head:
                raise LandedElsewhere(f"commit {made} landed elsewhere", made)
        return made

    def merge(self, repository: str, merge: Merge) -> str:
        made = self._begin_merge(repository, merge)()
        return str(self.check("merge", (repository, merge), made))

    def relocate(self, repository: str, branch: str, source: str, expected_head: str, timeout: float) -> None:
        self._begin_relocate(repository, branch, source, expected_head, timeout)()

    def barrier(self, repository: str, branch: str, timeout: float) -> None:
        self._renewed[repository, branch] += 1

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        made = self._lake.commit(repository, branch, message, metadata)
        self._renewed[repository, branch] += 1
        return made

    def _begin_merge(self, repository: str, merge: Merge) -> Swap:
        if not self._hard:
            self._check_head(repository, merge.target, merge.expected_head)

        def land(commit: str) -> str:
            expected = merge.expected_head if self._hard else self._lake.head(repository, merge.target).id
            with self._inside(repository, commit) as source:
                return self._lake.merge(repository, replace(merge, source=source, expected_head=expected))

        return self._in_flight(repository, merge.target, merge.source, land)

    def _begin_relocate(
        self, repository: str, branch: str, source: str, expected_head: str, timeout: float
    ) -> Swap:
        self._check_head(repository, branch, expected_head)

        def land(commit: str) -> None:
            with self._inside(repository, commit) as inside:
                self._lake.relocate(
                    repository, branch, inside, self._lake.head(repository, branch).id, timeout
                )

        return self._in_flight(repository, branch, source, land)

    def _in_flight(self, repository: str, target: str, source: str, land: Callable[[str], Any]) -> Swap:
        record = self._renewed[repository, target]
        commit = self._lake.head(repository, source).id

        def swap() -> Any:
            found = commit
            if self._renewed[repository, target] != record:
                found = self._lake.head(repository, source).id
            landed = land(found)
            self._renewed[repository, target] += 1
            return landed

        return swap

    def _check_head(self, repository: str, branch: str, expected: str) -> None:
        if self._lake.head(repository, branch).id != expected:
            raise HeadMoved(f"branch {branch!r} is not at {expected}")

    @contextlib.contextmanager
    def _inside(self, repository: str, commit: str) -> Any:
        name = f"inside-the-server-{next(_inside)}"
        self._lake.create_branch(repository, name, commit)
        try:
            yield name
        finally:
            self._lake.drop_branch(repository, name)
