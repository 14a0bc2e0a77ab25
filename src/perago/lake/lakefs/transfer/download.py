"""What a download keeps in the cache, and under which names: by repository and MD5, with a note where an object's checksum
is none.

One download call: what the cache has of it, what has to be fetched, and what is left to verify.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import LakeError
from perago.lake.base import Entry
from perago.lake.deferred_verification import GivenUp, GoOn
from perago.lake.lakefs.checksums import fits, fits_whole
from perago.lake.lakefs.transfer.fetch import Getter
from perago.lake.lakefs.transfer.hashing import Digested, Left

if TYPE_CHECKING:
    pass


import contextlib
from collections.abc import Iterator, Mapping, Sequence

from perago.lake.base import Download, Progress, Verification
from perago.lake.deferred_verification import Unverified
from perago.lake.lakefs.cache.cache import Cache, ObjectKey, repository_id
from perago.lake.lakefs.checksums import is_like_an_md5
from perago.lake.lakefs.transfer.concurrency import each
from perago.lake.lakefs.transfer.fetch import Fetched, part_name

_FEW = 64
"""So many files are copied into the cache in no time; to copy thousands would take a third as long as to fetch them."""


class CacheWriter:
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

    def keep_unverified(self, entry: Entry, part: str) -> CachedObject | None:
        """Keep what was fetched; `CachedObject` is told later whether it is right."""
        key = self.key(entry.checksum or "", entry)
        if key.name not in self._admitted:
            return None
        self._put_in.append(key.name)
        mtime = self.cache.put_in_unverified(key, part)
        return None if mtime is None else CachedObject(self, entry, key.name, mtime)

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
class CachedObject:
    """An object that was put into the cache before it was verified."""

    cache_writer: CacheWriter
    entry: Entry
    name: str
    mtime: int

    def verified(self, md5: str, crc: int, *, vouched_for: bool) -> None:
        """Its bytes are right, and this is their MD5."""
        cache, name = self.cache_writer.cache, self.name
        if md5 != self.entry.checksum:
            self.cache_writer.note(self.entry, md5, vouched_for=vouched_for)
            name = self.cache_writer.key(md5, self.entry).name
            cache.rename(self.name, name)
        cache.mark_verified(name, crc, self.mtime)

    def drop(self) -> None:
        """Its bytes are wrong."""
        self.cache_writer.cache.drop(self.name)


def _alias(*called: str) -> str:
    text = "\n".join(called)
    return f"md5.{hashlib.sha256(text.encode()).hexdigest()}"


_COPIERS = min(8, os.cpu_count() or 1)


class Downloads:
    """One download call: what came from the cache, what has to come from the server, what is left to verify."""

    def __init__(
        self,
        cache_writer: CacheWriter,
        progress: Progress | None,
        verification: Verification | None,
        *,
        large: int,
    ) -> None:
        self._cache_writer = cache_writer
        self._progress = progress
        self._verification = verification
        self._large = large
        self._left: list[Unverified] = []
        self.found: dict[str, str] = {}

    def __enter__(self) -> Downloads:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """End with a cache whose books are right; what was left is verified from now on, if all is here."""
        self._cache_writer.settle()
        # Not sooner: with as many streams as this takes, hashing would hold them up.
        if failed is None and self._verification is not None:
            self._verification.begin(self._left)
            return
        for one in self._left:
            one.drop()

    def from_cache(self, files: Sequence[Download]) -> list[Download]:
        """Copy out what the cache has; returns the rest, for which there is room in the cache."""
        if not self._cache_writer.cache.enabled:
            return list(files)
        keys = self._cache_writer.keys(files)
        missing: list[Download] = []

        def copy(file: Download) -> None:
            key = keys.get(file.entry.path)
            if key is None or not self._copied(file, key):
                missing.append(file)

        each(files, copy, _COPIERS)
        self._cache_writer.touch(keys)
        if missing:
            self._cache_writer.reserve(missing)
        return missing

    def fetch(self, getter: Getter, file: Download) -> None:
        """Fetch one object, keep it, and give it its name."""
        may_leave = is_like_an_md5(file.entry.checksum or "") and self._may_leave(file)
        try:
            got = getter.fetch(file, self._progress, may_leave=may_leave)
        except OSError as error:
            raise _unwritable(file, error) from error
        with _named(got.part, file):
            if got.left is None:
                self._cache_writer.keep(file, got)
            else:
                self._left.append(self._unhashed(getter, file.entry, got, got.left))
        self._done(file, got.md5 or file.entry.checksum or "", reported=getter.is_large(file))

    def _unhashed(self, getter: Getter, entry: Entry, got: Fetched, left: Left) -> Unhashed:
        # For reading alone: a program that is open for writing cannot be run.
        opened = os.open(got.part, os.O_RDONLY | os.O_CLOEXEC)
        return Unhashed(
            entry, opened, got.crc or 0, left, getter, self._cache_writer.keep_unverified(entry, got.part)
        )

    def _copied(self, file: Download, key: ObjectKey) -> bool:
        part, cache = part_name(file.target), self._cache_writer.cache
        try:
            left = cache.copy_out_unchecked(key, part, file.entry.path) if self._may_leave(file) else None
            if left is not None:
                self._left.append(left)
            elif not cache.copy_out(key, part):
                return False
        except OSError as error:
            raise _unwritable(file, error) from error
        with _named(part, file):
            pass
        self._done(file, key.checksum, reported=True)
        return True

    def _may_leave(self, file: Download) -> bool:
        """Whether an object is worth it, and may be verified later."""
        return (
            self._verification is not None
            and file.entry.size > self._large
            and len(self._left) < self._verification.room
        )

    def _done(self, file: Download, checksum: str, *, reported: bool) -> None:
        self.found[file.entry.path] = checksum
        if self._progress is not None:
            self._progress(1, 0 if reported else file.entry.size)


@contextlib.contextmanager
def _named(part: str, file: Download) -> Iterator[None]:
    """Give a part file its name when all went well with it; otherwise it is gone."""
    try:
        yield
        os.replace(part, file.target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError):
            raise _unwritable(file, error) from error
        raise


def _unwritable(file: Download, error: OSError) -> LakeError:
    return LakeError(f"cannot write {file.entry.path!r} to {file.target}: {error.strerror}")


_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Unhashed:
    """One such object: its open file, what is known of its bytes, where they came from, and what the cache has of it."""

    entry: Entry
    file: int
    crc: int
    left: Left
    getter: Getter
    kept: CachedObject | None

    @property
    def path(self) -> str:
        """The object's path."""
        return self.entry.path

    def verify(self, go_on: GoOn) -> str | None:
        """The MD5 of the bytes that came, if that is not the object's checksum; `LakeError` if they are wrong."""
        try:
            md5, vouched_for = self._verdict(go_on)
        except GivenUp:
            # Without a verdict the cached object is one that is hashed when it is taken out.
            raise
        except BaseException:
            if self.kept is not None:
                self.kept.drop()
            raise
        if self.kept is not None:
            self.kept.verified(md5, self.crc, vouched_for=vouched_for)
        return md5 if md5 != self.entry.checksum else None

    def drop(self) -> None:
        """Close the file."""
        os.close(self.file)

    def _verdict(self, go_on: GoOn) -> tuple[str, bool]:
        """The MD5 of the bytes that came, and whether the object's checksum vouches for it."""
        found = self._finish(go_on)
        if fits(found, self.entry, self.file):
            return found, True
        second = self._second(go_on)
        alike = (second.crc, second.size) == (self.crc, self.entry.size)
        fitting = fits_whole(second.md5, self.entry.checksum or "")
        if fitting and not alike:
            raise LakeError(
                f"{self.getter.doing(self.entry)}: its bytes are not those of its checksum {self.entry.checksum}, which a "
                "second transfer gave; it was damaged on its way, try again"
            )
        if not alike:
            raise self.getter.differing(self.entry, found, second.md5)
        if not fitting:
            self.getter.odd(self.entry)
        return second.md5, fitting

    def _finish(self, go_on: GoOn) -> str:
        """The MD5 of what the file holds by now."""
        md5, at = self.left.md5, self.left.at
        while at < self.entry.size:
            piece = os.pread(self.file, min(_CHUNK, self.entry.size - at), at)
            if not piece:
                break
            md5.update(piece)
            at += len(piece)
            go_on()
        return md5.hexdigest()

    def _second(self, go_on: GoOn) -> Digested:
        """What the object's bytes come to, once more from the lake; they are written nowhere."""
        md5, crc, size = hashlib.md5(usedforsecurity=False), 0, 0
        for piece in self.getter.stream(self.entry):
            md5.update(piece)
            crc = zlib.crc32(piece, crc)
            size += len(piece)
            go_on()
        return Digested(md5.hexdigest(), crc, size)
