"""What a download keeps in the cache, and under which names: by repository and MD5, with a note where an object's checksum
is none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perago.lake.base import Download, Entry
from perago.lake.lakefs.cache.cache import Cache, ObjectKey, repository_id
from perago.lake.lakefs.transfer.get import Fetched

_FEW = 64
"""So many files are copied into the cache in no time; to copy thousands would take a third as long as to fetch them."""


class Keeping:
    """The cache as one download call uses it; `where` is the endpoint, the repository and the ref."""

    def __init__(self, cache: Cache, where: tuple[str, str, str]) -> None:
        self.cache = cache
        self._where = where
        self._repository = repository_id(*where[:2])
        self._admitted: set[str] = set()
        self._few = False
        self._put_in: list[str] = []

    def reserve(self, files: Sequence[Download]) -> None:
        """Make room for what is about to come."""
        sizes = {
            self.key(file.entry.checksum, file.entry).name: file.entry.size
            for file in files
            if file.entry.checksum
        }
        self._admitted = self.cache.reserve(sizes)
        self._few = len(files) <= _FEW

    def settle(self) -> None:
        """End with a cache whose books are right."""
        self.cache.settle(self._put_in)

    def key(self, md5: str, entry: Entry) -> ObjectKey:
        """What the cache knows an object by, if this is its MD5."""
        return ObjectKey(self._repository, md5, entry.size)

    def keys(self, files: Sequence[Download]) -> dict[str, ObjectKey]:
        """Key by object path, of what the cache is likely to have."""
        aliases = self._aliases(files)
        keys: dict[str, ObjectKey] = {}
        for file in files:
            if checksum := aliases.get(file.entry.path) or file.entry.checksum:
                keys[file.entry.path] = self.key(checksum, file.entry)
        kept = self.cache.present([key.name for key in keys.values()])
        return {path: key for path, key in keys.items() if key.name in kept}

    def touch(self, keys: Mapping[str, ObjectKey]) -> None:
        """Note that these were used."""
        self.cache.touch({key.name for key in keys.values()})

    def keep(self, file: Download, got: Fetched) -> None:
        """Keep what was fetched, which is verified."""
        if not self.cache.enabled:
            return
        key, admitted = self.key(got.md5, file.entry), self._admitted
        if got.md5 != file.entry.checksum:
            # Its checksum is no MD5: next time it is found by what it is called now.
            self.note(file.entry, got.md5, vouched_for=got.vouched_for)
            admitted = self.cache.reserve({key.name: key.size})
        if key.name in admitted:
            self.cache.put_in(key, got.part, got.crc, few=self._few)
            self._put_in.append(key.name)

    def keep_unverified(self, entry: Entry, part: str) -> Kept | None:
        """Keep what was fetched; `Kept` is told later whether it is right."""
        key = self.key(entry.checksum or "", entry)
        if key.name not in self._admitted:
            return None
        self._put_in.append(key.name)
        mtime = self.cache.put_in_unverified(key, part)
        return None if mtime is None else Kept(self, entry, key.name, mtime)

    def note(self, entry: Entry, md5: str, *, vouched_for: bool) -> None:
        """Note the MD5 of an object whose checksum is none."""
        names = self._names_of_note(entry)
        self.cache.save(names[0] if vouched_for else names[-1], md5.encode())

    def _aliases(self, files: Sequence[Download]) -> dict[str, str]:
        """MD5 by object path, for those whose checksum is none but which were here before."""
        names = {name: file.entry.path for file in files for name in self._names_of_note(file.entry)}
        found = {name: self.cache.load(name) for name in self.cache.present(list(names))}
        return {names[name]: md5.decode() for name, md5 in found.items() if md5}

    def _names_of_note(self, entry: Entry) -> tuple[str, ...]:
        """The names under which an object's MD5 may be noted: by what a checksum vouches for, or by its place."""
        if entry.checksum is None:
            return (_alias(*self._where, entry.path),)
        endpoint, repository, _ = self._where
        return (
            _alias(endpoint, repository, f"{entry.checksum}-{entry.size}"),
            # Nothing keeps such a checksum from being that of other bytes elsewhere in it.
            _alias(endpoint, repository, entry.path, f"{entry.checksum}-{entry.size}"),
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """An object that was put into the cache before it was verified."""

    keeping: Keeping
    entry: Entry
    name: str
    mtime: int

    def verified(self, md5: str, crc: int, *, vouched_for: bool) -> None:
        """Its bytes are right, and this is their MD5."""
        cache, name = self.keeping.cache, self.name
        if md5 != self.entry.checksum:
            self.keeping.note(self.entry, md5, vouched_for=vouched_for)
            name = self.keeping.key(md5, self.entry).name
            cache.rename(self.name, name)
        cache.vouch(name, crc, self.mtime)

    def drop(self) -> None:
        """Its bytes are wrong."""
        self.keeping.cache.drop(self.name)


def _alias(*called: str) -> str:
    text = "\n".join(called)
    return f"md5.{hashlib.sha256(text.encode()).hexdigest()}"
