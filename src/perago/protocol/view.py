"""What a task may see and change of its workspace: the view.

    reads    writes    the task sees            the task may change
    None     None      the whole prefix         the whole prefix
    None     paths     the whole prefix         these paths
    paths    None      these paths              the same paths
    paths    paths     both together            `writes`

A path is below the prefix and names a file or a folder: `plays` covers the object `plays` and everything below `plays/`,
and never `plays-old/`.  lakeFS's actions are in no view, whatever it covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from perago.protocol.paths import has_wildcard, in_actions


@dataclass(frozen=True, slots=True)
class View:
    """`prefix` ends in `/` or is empty; `reads` and `writes` are paths below it, None for all of it."""

    prefix: str
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether it is the whole prefix."""
        return self.reads is None

    @property
    def declared(self) -> bool:
        """Whether the task says what it reads or writes."""
        return self.reads is not None or self.writes is not None

    @property
    def roots(self) -> tuple[str, ...]:
        """What the task sees, as object paths in order, none below another; the prefix itself where it sees all of it."""
        if self.reads is None:
            return (self.prefix,)
        return self._objects({*self.reads, *(self.writes or ())})

    @property
    def write_roots(self) -> tuple[str, ...]:
        """What the task may change, as object paths in order, none below another."""
        declared = self.writes if self.writes is not None else self.reads
        return (self.prefix,) if declared is None else self._objects(declared)

    def covers(self, object_path: str) -> bool:
        """Whether the task sees this object."""
        return not in_actions(object_path) and is_below(object_path, self.roots)

    def may_change(self, object_path: str) -> bool:
        """Whether the task may put or delete this object."""
        return not in_actions(object_path) and is_below(object_path, self.write_roots)

    def sees(self, path: str) -> bool:
        """Whether everything at a path below the prefix is seen; of a pattern, everything at its literal beginning."""
        return is_below(self.prefix + literal_beginning(path), self.roots)

    def may_write(self, path: str) -> bool:
        """Whether everything at a path below the prefix may be changed."""
        return is_below(self.prefix + path, self.write_roots)

    def told(self, roots: Iterable[str]) -> str:
        """Roots as the author names them, for people."""
        return ", ".join(root.removeprefix(self.prefix) or f"/{self.prefix.rstrip('/')}" for root in roots)

    def _objects(self, paths: Iterable[str]) -> tuple[str, ...]:
        found: list[str] = []
        for path in sorted({self.prefix + path for path in paths}, key=lambda path: path.split("/")):
            if not is_below(path, found):
                found.append(path)
        return tuple(found)


def is_below(object_path: str, roots: Iterable[str]) -> bool:
    """Whether an object is one of the roots or below one; a root that ends in `/`, or is empty, is a folder."""
    return any(
        object_path.startswith(root) if root.endswith("/") or not root else _at_or_below(object_path, root)
        for root in roots
    )


def literal_beginning(pattern: str) -> str:
    """The parts of a pattern before the first that may stand for several names; all of a plain path."""
    return "/".join(takewhile(lambda part: not has_wildcard(part), pattern.split("/")))


def overlap(left: Iterable[str], right: Iterable[str]) -> bool:
    """Whether two sets of roots have a path in common."""
    right = tuple(right)
    return any(is_below(one, (other,)) or is_below(other, (one,)) for one in left for other in right)


def _at_or_below(object_path: str, root: str) -> bool:
    return object_path == root or object_path.startswith(root + "/")
