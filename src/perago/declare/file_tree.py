"""File trees that checks read: a folder on disk, or a listing of paths.

The rule: a check gives the same result on both kinds of tree, because one matcher walks both.  Patterns are split at
`/`.  `*`, `?` and `[…]` match within one part.  `**` matches any number of folders and, as the last part, everything
below.  Files and folders both match, as with `pathlib`.  The attempt's marker file and links that lead out of the
folder are invisible.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import Protocol

from perago.protocol.paths import MARKER

_MAGIC = re.compile(r"[*?\[]")


class Tree(Protocol):
    """Files and folders below one root, named by relative paths with `/`."""

    @property
    def path(self) -> Path | None:
        """The folder on disk, or None if the tree is only a listing."""

    def is_file(self, path: str) -> bool:
        """Return whether there is a file at this path."""

    def is_dir(self, path: str) -> bool:
        """Return whether there is a folder at this path."""

    def glob(self, pattern: str) -> Iterator[str]:
        """Return an iterator over every matching file and folder, without duplicates."""

    def names(self, limit: int, under: str = "") -> list[str]:
        """Return up to `limit` names in the folder `under`, sorted; folders end in `/`."""


class _WalkedTree(ABC):
    """Base class of trees that implement every lookup by listing the entries of folders."""

    @abstractmethod
    def entries(self, folder: str) -> Mapping[str, bool]:
        """Return the names in a folder, mapped to True for folders.  Empty if the folder does not exist."""

    def is_file(self, path: str) -> bool:
        return self._kind(path) is False

    def is_dir(self, path: str) -> bool:
        return self._kind(path) is True

    def glob(self, pattern: str) -> Iterator[str]:
        # `a/**/b/**` can match one path in several ways.
        return iter(dict.fromkeys(self._match("", pattern.split("/"))))

    def names(self, limit: int, under: str = "") -> list[str]:
        entries = self.entries(under)
        found = (name + "/" * entries[name] for name in sorted(entries))
        return list(islice(found, limit))

    def _kind(self, path: str) -> bool | None:
        folder, _, name = path.rpartition("/")
        return self.entries(folder).get(name)

    def _match(self, folder: str, parts: list[str]) -> Iterator[str]:
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._match_below(folder, rest)
            return
        fits = re.compile(translate(part)).match if _MAGIC.search(part) else part.__eq__
        for name, is_folder in self.entries(folder).items():
            if not fits(name):
                continue
            path = _join_path(folder, name)
            if not rest:
                yield path
            elif is_folder:
                yield from self._match(path, rest)

    def _match_below(self, folder: str, rest: list[str]) -> Iterator[str]:
        if rest:
            yield from self._match(folder, rest)
        for name, is_folder in self.entries(folder).items():
            path = _join_path(folder, name)
            if not rest:
                yield path
            if is_folder:
                yield from self._match_below(path, rest)


class FolderTree(_WalkedTree):
    """A file tree in a folder on disk, and the names of files that belong to it but are not there."""

    def __init__(self, root: Path, elsewhere: ListingTree | None = None) -> None:
        self._elsewhere = elsewhere
        self._root = root
        self._real = os.path.realpath(root)

    @property
    def path(self) -> Path | None:
        return self._root

    def entries(self, folder: str) -> Mapping[str, bool]:
        found = self._entries_on_disk(folder)
        return found if self._elsewhere is None else {**self._elsewhere.entries(folder), **found}

    def _entries_on_disk(self, folder: str) -> Mapping[str, bool]:
        where = os.path.join(self._root, folder)
        if not self._is_inside(os.path.realpath(where)):
            return {}
        try:
            with os.scandir(where) as found:
                kinds = {entry.name: self._entry_kind(entry) for entry in found}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if not folder:
            kinds.pop(MARKER, None)
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _entry_kind(self, entry: os.DirEntry[str]) -> bool | None:
        if not entry.is_symlink() and entry.is_dir():
            return True
        # Symlinks to folders are skipped: they may form cycles, and their files are found at their real location.
        if entry.is_file() and (not entry.is_symlink() or self._is_inside(os.path.realpath(entry.path))):
            return False
        return None

    def _is_inside(self, real: str) -> bool:
        return real == self._real or real.startswith(self._real.rstrip(os.sep) + os.sep)


class ListingTree(_WalkedTree):
    """A file tree built from a listing of paths relative to the prefix.  The paths imply the folders."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._folders: dict[str, dict[str, bool]] = {"": {}}
        for path in paths:
            if path != MARKER:
                self._add(path.rstrip("/"), is_folder=path.endswith("/"))

    @property
    def path(self) -> Path | None:
        return None

    def entries(self, folder: str) -> Mapping[str, bool]:
        return self._folders.get(folder, {})

    def _add(self, path: str, *, is_folder: bool) -> None:
        parent, _, name = path.rpartition("/")
        if parent not in self._folders:
            self._add(parent, is_folder=True)
        self._folders[parent].setdefault(name, is_folder)
        if is_folder:
            self._folders.setdefault(path, {})


def literal_folder(pattern: str) -> str:
    """Return the deepest folder that must contain every match: the pattern's leading parts without wildcards."""
    parts = pattern.split("/")[:-1]
    plain = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join(parts[:plain])


def may_match_in(pattern: str, path: str) -> bool:
    """Return whether a pattern can match the path itself, something below it, or a folder above it."""
    for part, name in zip(pattern.split("/"), path.split("/"), strict=False):
        if part == "**":
            return True
        if not re.match(translate(part), name) if _MAGIC.search(part) else part != name:
            return False
    return True


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
