"""The view: what a task may see and change of its workspace.

    reads    writes    the task sees            the task may change
    None     None      the whole prefix         the whole prefix
    None     paths     the whole prefix         these paths
    paths    None      these paths              the same paths
    paths    paths     both together            `writes`

A path is below the prefix and names a file or a folder: `plays` covers the object `plays` and everything below `plays/`,
and never `plays-old/`.  lakeFS's actions are in no view, whatever it covers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from perago.protocol.paths import has_wildcard, in_actions


class Roots(tuple[str, ...]):
    """Sorted object paths, none below another; a lookup costs the object's path parts, however many roots there are."""

    _names: frozenset[str]

    def __new__(cls, paths: Iterable[str]) -> Roots:
        """Sort the paths, and drop those below another."""
        found: dict[str, None] = {}
        # A folder comes before its content.
        for path in sorted(set(paths), key=lambda path: path.split("/")):
            if not _is_in(path, found):
                found[path] = None
        made = super().__new__(cls, found)
        made._names = frozenset(found)
        return made

    def hold(self, object_path: str) -> bool:
        """Return whether an object is a root or below one; a root that ends in `/`, or is empty, is a folder."""
        return _is_in(object_path, self._names)


@dataclass(frozen=True, slots=True)
class View:
    """The declared view: `prefix` ends in `/` or is empty; `reads` and `writes` are paths below it, None for all of it."""

    prefix: str
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    roots: Roots = field(init=False, repr=False, compare=False)
    """The object paths that the task sees; the prefix itself if it sees all of it."""
    write_roots: Roots = field(init=False, repr=False, compare=False)
    """The object paths that the task may change."""

    def __post_init__(self) -> None:
        """Sort the paths once: a task may name thousands, and every file is looked up."""
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
        """Return whether the task may put or delete this object."""
        return not in_actions(object_path) and self.write_roots.hold(object_path)

    def sees(self, path: str) -> bool:
        """Return whether the task sees everything at a path below the prefix; for a pattern, at its literal beginning."""
        return self.roots.hold(self.prefix + literal_beginning(path))

    def may_write(self, path: str) -> bool:
        """Return whether the task may change everything at a path below the prefix."""
        return self.write_roots.hold(self.prefix + path)

    def describe_roots(self, roots: Iterable[str]) -> str:
        """Return roots as the task's author names them, for messages."""
        return ", ".join(root.removeprefix(self.prefix) or f"/{self.prefix.rstrip('/')}" for root in roots)

    def _objects(self, paths: Iterable[str] | None) -> Roots:
        return Roots([self.prefix] if paths is None else [self.prefix + path for path in paths])


def literal_beginning(pattern: str) -> str:
    """Return the parts of a pattern before the first with a wildcard; all of a plain path."""
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
        # `plays` is a file or a folder, `plays/` a folder.
        if object_path[:at] in roots or object_path[: at + 1] in roots:
            return True
        at = object_path.find("/", at + 1)
    return False
