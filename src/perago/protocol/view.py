"""The view: the part of the workspace that a task may see or change.

    reads    writes    the task sees            the task may change
    None     None      the whole prefix         the whole prefix
    None     paths     the whole prefix         these paths
    paths    None      these paths              the same paths
    paths    paths     both together            `writes`

A path is relative to the prefix and names a file or a folder: `plays` includes the object `plays` and everything below
`plays/`, but never `plays-old/`.  lakeFS's actions are never part of a view.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from perago.protocol.paths import has_wildcard, in_actions


class Roots(tuple[str, ...]):
    """Sorted object paths, none of which is inside another.

    A lookup is O(depth of the path), whatever the number of roots.
    """

    _names: frozenset[str]

    def __new__(cls, paths: Iterable[str]) -> Roots:
        """Sort the paths, and drop those that are nested in another."""
        found: dict[str, None] = {}
        # A folder sorts before its content.
        for path in sorted(set(paths), key=lambda path: path.split("/")):
            if not _is_in(path, found):
                found[path] = None
        made = super().__new__(cls, found)
        made._names = frozenset(found)
        return made

    def hold(self, object_path: str) -> bool:
        """Return whether an object is a root or lies below one.  A root that ends in `/` or is empty is a folder."""
        return _is_in(object_path, self._names)


@dataclass(frozen=True, slots=True)
class View:
    """The declared view.  `prefix` ends in `/` or is empty.

    `reads` and `writes` are paths below the prefix.  The module's table explains the meaning of None.
    """

    prefix: str
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    roots: Roots = field(init=False, repr=False, compare=False)
    """The object paths that the task sees, or just the prefix if the task sees all of it."""
    write_roots: Roots = field(init=False, repr=False, compare=False)
    """The object paths that the task may change."""

    def __post_init__(self) -> None:
        """Sort the paths once, because a task may name thousands of them and every file is looked up in them."""
        seen = None if self.reads is None else {*self.reads, *(self.writes or ())}
        changed = self.writes if self.writes is not None else self.reads
        object.__setattr__(self, "roots", self._objects(seen))
        object.__setattr__(self, "write_roots", self._objects(changed))

    @property
    def whole(self) -> bool:
        """True if the task sees the whole prefix."""
        return self.reads is None

    @property
    def declared(self) -> bool:
        """True if the task declares what it reads or writes."""
        return self.reads is not None or self.writes is not None

    def covers(self, object_path: str) -> bool:
        """Return whether the task sees this object."""
        return not in_actions(object_path) and self.roots.hold(object_path)

    def may_change(self, object_path: str) -> bool:
        """Return whether the task may write or delete this object."""
        return not in_actions(object_path) and self.write_roots.hold(object_path)

    def sees(self, path: str) -> bool:
        """Return whether the task sees everything at a path below the prefix.

        For a pattern, only its leading parts without wildcards are considered.
        """
        return self.roots.hold(self.prefix + literal_beginning(path))

    def may_write(self, path: str) -> bool:
        """Return whether the task may change everything at a path below the prefix."""
        return self.write_roots.hold(self.prefix + path)

    def may_write_in(self, path: str) -> bool:
        """Return whether the task may change everything at a path, or something below it."""
        folder = f"{self.prefix}{path}/"
        return self.may_write(path) or any(root.startswith(folder) for root in self.write_roots)

    def describe_roots(self, roots: Iterable[str]) -> str:
        """Format roots for messages, the way the task's author would write them."""
        return ", ".join(root.removeprefix(self.prefix) or f"/{self.prefix.rstrip('/')}" for root in roots)

    def _objects(self, paths: Iterable[str] | None) -> Roots:
        return Roots([self.prefix] if paths is None else [self.prefix + path for path in paths])


def literal_beginning(pattern: str) -> str:
    """Return the path parts before the first one with a wildcard, or the whole path if it has none."""
    return "/".join(takewhile(lambda part: not has_wildcard(part), pattern.split("/")))


def overlap(left: Iterable[str], right: Iterable[str]) -> bool:
    """Return whether two sets of roots have a path in common."""
    ones, others = Roots(left), Roots(right)
    return any(map(others.hold, ones)) or any(map(ones.hold, others))


def _is_in(object_path: str, roots: Container[str]) -> bool:
    if "" in roots or object_path in roots:
        return True
    at = object_path.find("/")
    while at >= 0:
        # The root `plays` may be a file or a folder, but `plays/` is always a folder.
        if object_path[:at] in roots or object_path[: at + 1] in roots:
            return True
        at = object_path.find("/", at + 1)
    return False
