"""One download call: what the cache has of it, what has to be fetched, and what is kept of that."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence

from perago.errors import LakeError
from perago.lake.base import Download, Entry, Progress
from perago.lake.lakefs.cache.cache import Cache, object_name
from perago.lake.lakefs.transfer.each import each
from perago.lake.lakefs.transfer.get import Fetched, Getter, part_name

_COPIERS = min(8, os.cpu_count() or 1)


class Downloads:
    """One download call: what came from the cache, what has to come from the server."""

    def __init__(self, cache: Cache, where: tuple[str, str, str], progress: Progress | None) -> None:
        self._cache = cache
        self.where = where
        self._progress = progress
        self._put_in: list[str] = []
        self.found: dict[str, str] = {}

    def settle(self) -> None:
        """End with a cache whose books are right."""
        self._cache.settle(self._put_in)

    def from_cache(self, files: Sequence[Download]) -> list[Download]:
        """Copy out what the cache has; returns the rest."""
        if not self._cache.enabled:
            return list(files)
        aliases = self._aliases(files)
        kept = self._cache.present([object_name(*key) for file in files if (key := self._key(file, aliases))])
        missing: list[Download] = []

        def copy(file: Download) -> None:
            key = self._key(file, aliases)
            if key is None or object_name(*key) not in kept or not self._copied(file, key):
                missing.append(file)

        each(files, copy, _COPIERS)
        self._cache.touch(kept)
        return missing

    def reserve(self, files: Sequence[Download]) -> set[str]:
        """Room in the cache for what is about to come; the names of what may be kept."""
        known = [(file.entry.checksum, file.entry.size) for file in files]
        return self._cache.reserve(
            {object_name(checksum, size): size for checksum, size in known if checksum}
        )

    def fetch(self, getter: Getter, file: Download, admitted: set[str]) -> None:
        """Fetch one object, keep it, and give it its name."""
        try:
            got = getter.fetch(file, self._progress)
        except OSError as error:
            raise _unwritable(file, error) from error
        if self._cache.enabled:
            self._keep(file, got, admitted)
        self._rename(got.part, file)
        self._done(file, got.md5, reported=getter.is_large(file))

    def _aliases(self, files: Sequence[Download]) -> dict[str, str]:
        """MD5 by object path, for those whose checksum is none but which were here before."""
        names = {name: file.entry.path for file in files for name in self._aliases_of(file.entry)}
        found = {name: self._cache.load(name) for name in self._cache.present(list(names))}
        return {names[name]: md5.decode() for name, md5 in found.items() if md5}

    def _key(self, file: Download, aliases: Mapping[str, str]) -> tuple[str, int] | None:
        checksum = aliases.get(file.entry.path) or file.entry.checksum
        return (checksum, file.entry.size) if checksum else None

    def _copied(self, file: Download, key: tuple[str, int]) -> bool:
        part = part_name(file.target)
        try:
            if not self._cache.copy_out(*key, part):
                return False
        except OSError as error:
            raise _unwritable(file, error) from error
        self._rename(part, file)
        self._done(file, key[0], reported=True)
        return True

    def _keep(self, file: Download, got: Fetched, admitted: set[str]) -> None:
        name = object_name(got.md5, file.entry.size)
        if got.md5 != file.entry.checksum:
            # Its checksum is no MD5: next time it is found by what it is called now.
            names = self._aliases_of(file.entry)
            self._cache.save(names[0] if got.vouched_for else names[-1], got.md5.encode())
            admitted = self._cache.reserve({name: file.entry.size})
        if name in admitted:
            self._cache.put_in(got.md5, file.entry.size, got.part, got.crc)
            self._put_in.append(name)

    def _rename(self, part: str, file: Download) -> None:
        try:
            os.replace(part, file.target)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise _unwritable(file, error) from error

    def _aliases_of(self, entry: Entry) -> tuple[str, ...]:
        """The names under which an object's MD5 may be noted: by what a checksum vouches for, or by its place."""
        if entry.checksum is None:
            return (_alias(*self.where, entry.path),)
        endpoint, repository, _ = self.where
        return (
            _alias(f"{entry.checksum}-{entry.size}"),
            # Nothing keeps such a checksum from being that of other bytes elsewhere.
            _alias(endpoint, repository, entry.path, f"{entry.checksum}-{entry.size}"),
        )

    def _done(self, file: Download, checksum: str, *, reported: bool) -> None:
        self.found[file.entry.path] = checksum
        if self._progress is not None:
            self._progress(1, 0 if reported else file.entry.size)


def _alias(*called: str) -> str:
    text = "\n".join(called)
    return f"md5.{hashlib.sha256(text.encode()).hexdigest()}"


def _unwritable(file: Download, error: OSError) -> LakeError:
    return LakeError(f"cannot write {file.entry.path!r} to {file.target}: {error.strerror}")
