"""What differs between commits of a branch below some paths, and which commit made the difference.

The rule: the lake compares, object by object; lakeFS's actions are nobody's data and never count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perago.lake.base import Lake
from perago.protocol.paths import in_actions
from perago.protocol.publication import Commit, ViewChange
from perago.protocol.segments import Segment, within


@dataclass(frozen=True, slots=True)
class Differences:
    """Compares commits of one repository."""

    lake: Lake
    repository: str

    def first(self, segment: Segment, roots: tuple[str, ...]) -> str | None:
        """The first path below the roots that differs between both ends."""
        found = self.lake.differing(self.repository, *segment, roots)
        return next((path for path in found if not in_actions(path)), None)

    def change(
        self, segments: Iterable[Segment], advance: Sequence[Commit], roots: tuple[str, ...]
    ) -> ViewChange | None:
        """The first path that differs between the ends of a segment, and the commit that changed it."""
        for segment in segments:
            path = self.first(segment, roots)
            if path is not None:
                return ViewChange(path, self._maker(segment, advance, path))
        return None

    def _maker(self, segment: Segment, advance: Sequence[Commit], path: str) -> Commit:
        """A commit of the segment that changed a path, away from what it was at the older end."""
        commits = within(segment, advance)
        changed = bisect_left(
            commits, True, key=lambda commit: self.first((segment[0], commit.id), (path,)) is not None
        )
        return commits[min(changed, len(commits) - 1)]
