"""Downloads many objects: copies what the cache has, fetches the rest, and defers the verification of large objects.

The cache names objects by repository and MD5.  If an object's checksum is not an MD5, a note in the cache contains its
MD5.

Deferred verification reads a file through a descriptor that was opened before the file was renamed to its target, so
the body may rename or delete it.  The file's MD5 does not match the object's checksum if the body wrote to the file, if
the bytes were damaged in transit, if the object was uploaded in parts of an unusual size, or if the checksum is not a
hash.  A second transfer tells these cases apart, by its MD5 and by its CRC.  The CRC is compared with the CRC of the
bytes that arrived in the first transfer:

    second transfer's MD5    its CRC              verdict
    matches the checksum     equal to the first   accepted: the body wrote to its file
    matches the checksum     different            `LakeError`: the first transfer was damaged in transit
    does not match           equal to the first   accepted: the transfers agree, so the checksum is not a hash of them
    does not match           different            `LakeError`: the transfers differ
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perago.errors import LakeError
from perago.lake.base import Download, Entry, Progress, Verification
from perago.lake.deferred_verification import CheckCancelled, Unverified, VerificationCancelled
from perago.lake.lakefs.cache.cache import Cache, ObjectKey, repository_id
from perago.lake.lakefs.checksums import fits, fits_whole, is_like_an_md5
from perago.lake.lakefs.transfer.concurrency import for_each
from perago.lake.lakefs.transfer.fetch import Fetched, Fetcher, part_name
from perago.lake.lakefs.transfer.hashing import Digests, PartialMd5

_CHUNK = 1024 * 1024
_COPIERS = min(8, os.cpu_count() or 1)
_FEW = 64
"""Small files are copied into the cache if there are no more than this many files.

For thousands of files, the copies would take a third as long as the download."""


class CacheWriter:
    """Reads from and writes to the cache for one download call. `where` is the endpoint, the repository and the ref."""

    def __init__(self, cache: Cache, where: tuple[str, str, str]) -> None:
        self.cache = cache
        self._where = where
        self._repository = repository_id(*where[:2])
        self._admitted: set[str] = set()
        self._few = False
        self._put_in: list[str] = []

    def reserve(self, files: Sequence[Download]) -> None:
        """Reserve cache space for files that are about to be fetched."""
        sizes = {
            self.key(file.entry.checksum, file.entry).name: file.entry.size
            for file in files
            if file.entry.checksum
        }
        self._admitted = self.cache.reserve(sizes)
        self._few = len(files) <= _FEW

    def settle(self) -> None:
        """Make the cache index consistent after the download."""
        self.cache.settle(self._put_in)

    def key(self, md5: str, entry: Entry) -> ObjectKey:
        """Return the cache key of an object with this MD5."""
        return ObjectKey(self._repository, md5, entry.size)

    def keys(self, files: Sequence[Download]) -> dict[str, ObjectKey]:
        """Return the cache keys by object path, for the objects that are probably in the cache."""
        aliases = self._aliases(files)
        keys: dict[str, ObjectKey] = {}
        for file in files:
            if checksum := aliases.get(file.entry.path) or file.entry.checksum:
                keys[file.entry.path] = self.key(checksum, file.entry)
        kept = self.cache.present([key.name for key in keys.values()])
        return {path: key for path, key in keys.items() if key.name in kept}

    def touch(self, keys: Mapping[str, ObjectKey]) -> None:
        """Mark these objects as used now."""
        self.cache.touch({key.name for key in keys.values()})

    def keep(self, file: Download, got: Fetched) -> None:
        """Add a fetched and verified file to the cache."""
        if not self.cache.enabled:
            return
        key, admitted = self.key(got.md5, file.entry), self._admitted
        if got.md5 != file.entry.checksum:
            # The checksum is not an MD5: the note lets the next download find the object.
            self.note(file.entry, got.md5, confirmed=got.confirmed)
            admitted = self.cache.reserve({key.name: key.size})
        if key.name in admitted:
            self.cache.put_in(key, got.part, got.crc, few=self._few)
            self._put_in.append(key.name)

    def keep_unverified(self, entry: Entry, part: str) -> CachedObject | None:
        """Add a fetched file to the cache before it is verified. Returns None if it was not added."""
        key = self.key(entry.checksum or "", entry)
        if key.name not in self._admitted:
            return None
        self._put_in.append(key.name)
        mtime = self.cache.put_in_unverified(key, part)
        return None if mtime is None else CachedObject(self, entry, key.name, mtime)

    def note(self, entry: Entry, md5: str, *, confirmed: bool) -> None:
        """Save the MD5 of an object whose checksum is not an MD5."""
        names = self._note_names(entry)
        self.cache.save(names[0] if confirmed else names[-1], md5.encode())

    def _aliases(self, files: Sequence[Download]) -> dict[str, str]:
        """Return the saved MD5s by object path, for objects whose checksum is not an MD5."""
        names = {name: file.entry.path for file in files for name in self._note_names(file.entry)}
        found = {name: self.cache.load(name) for name in self.cache.present(list(names))}
        return {names[name]: md5.decode() for name, md5 in found.items() if md5}

    def _note_names(self, entry: Entry) -> tuple[str, ...]:
        """Return the names of the notes that may contain an object's MD5, derived from its checksum or its path."""
        if entry.checksum is None:
            return (_alias(*self._where, entry.path),)
        endpoint, repository, _ = self._where
        return (
            _alias(endpoint, repository, f"{entry.checksum}-{entry.size}"),
            # If a checksum is not a hash, other bytes elsewhere in the repository may have the same one.
            _alias(endpoint, repository, entry.path, f"{entry.checksum}-{entry.size}"),
        )


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object that was added to the cache before it was verified."""

    cache_writer: CacheWriter
    entry: Entry
    name: str
    mtime: int

    def mark_verified(self, md5: str, crc: int, *, confirmed: bool) -> None:
        """Mark the object as verified, with this MD5."""
        cache, name = self.cache_writer.cache, self.name
        if md5 != self.entry.checksum:
            self.cache_writer.note(self.entry, md5, confirmed=confirmed)
            name = self.cache_writer.key(md5, self.entry).name
            cache.rename(self.name, name)
        cache.mark_verified(name, crc, self.mtime)

    def drop(self) -> None:
        """Remove the object from the cache, because it failed verification."""
        self.cache_writer.cache.drop(self.name)


def _alias(*parts: str) -> str:
    text = "\n".join(parts)
    return f"md5.{hashlib.sha256(text.encode()).hexdigest()}"


class Downloads:
    """The state of one download call. A context manager that starts the deferred verification if its block succeeds."""

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
        self._deferred: list[Unverified] = []
        self.found: dict[str, str] = {}

    def __enter__(self) -> Downloads:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Make the cache index consistent, and start the deferred verification unless the download failed."""
        self._cache_writer.settle()
        # Not earlier: hashing would slow the streams down.
        if failed is None and self._verification is not None:
            self._verification.begin(self._deferred)
            return
        for one in self._deferred:
            one.drop()

    def from_cache(self, files: Sequence[Download]) -> list[Download]:
        """Copy objects from the cache. Returns the missing ones, after reserving cache space for them."""
        if not self._cache_writer.cache.enabled:
            return list(files)
        keys = self._cache_writer.keys(files)
        missing: list[Download] = []

        def copy(file: Download) -> None:
            key = keys.get(file.entry.path)
            if key is None or not self._copy_from_cache(file, key):
                missing.append(file)

        for_each(files, copy, _COPIERS)
        self._cache_writer.touch(keys)
        if missing:
            self._cache_writer.reserve(missing)
        return missing

    def fetch(self, fetcher: Fetcher, file: Download) -> None:
        """Fetch one object, add it to the cache, and move it to its target."""
        may_defer = is_like_an_md5(file.entry.checksum or "") and self._may_defer(file)
        try:
            got = fetcher.fetch(file, self._progress, may_defer=may_defer)
        except OSError as error:
            raise _unwritable(file, error) from error
        with _moved_to_target(got.part, file):
            if got.partial is None:
                self._cache_writer.keep(file, got)
            else:
                self._deferred.append(self._unverified(fetcher, file.entry, got, got.partial))
        self._finish(file, got.md5 or file.entry.checksum or "", reported=fetcher.is_large(file))

    def _unverified(
        self, fetcher: Fetcher, entry: Entry, got: Fetched, partial: PartialMd5
    ) -> UnverifiedDownload:
        # Read-only: a program that is open for writing cannot be executed.
        opened = os.open(got.part, os.O_RDONLY | os.O_CLOEXEC)
        return UnverifiedDownload(
            entry, opened, got.crc or 0, partial, fetcher, self._cache_writer.keep_unverified(entry, got.part)
        )

    def _copy_from_cache(self, file: Download, key: ObjectKey) -> bool:
        part, cache = part_name(file.target), self._cache_writer.cache
        try:
            unverified = (
                cache.copy_out_unverified(key, part, file.entry.path) if self._may_defer(file) else None
            )
            if unverified is not None:
                self._deferred.append(unverified)
            elif not cache.copy_out(key, part):
                return False
        except OSError as error:
            raise _unwritable(file, error) from error
        with _moved_to_target(part, file):
            pass
        self._finish(file, key.checksum, reported=True)
        return True

    def _may_defer(self, file: Download) -> bool:
        """Return whether to defer verification of this object."""
        return (
            self._verification is not None
            and file.entry.size > self._large
            and len(self._deferred) < self._verification.room
        )

    def _finish(self, file: Download, checksum: str, *, reported: bool) -> None:
        self.found[file.entry.path] = checksum
        if self._progress is not None:
            self._progress(1, 0 if reported else file.entry.size)


@contextlib.contextmanager
def _moved_to_target(part: str, file: Download) -> Iterator[None]:
    """Rename a part file to its target when the block succeeds, or delete the part file if anything fails."""
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


@dataclass(frozen=True, slots=True)
class UnverifiedDownload:
    """A downloaded object whose MD5 is not known yet: its open file, the received bytes' CRC, and its cached copy."""

    entry: Entry
    file: int
    crc: int
    partial: PartialMd5
    fetcher: Fetcher
    cached: CachedObject | None

    @property
    def path(self) -> str:
        """The object's path."""
        return self.entry.path

    def verify(self, check_cancelled: CheckCancelled) -> str | None:
        """Verify the received bytes.

        Returns None if the object's checksum is the MD5 of the bytes. Returns the MD5 if the checksum is something
        else: a multipart checksum, or not a hash at all. Raises `LakeError`, and removes the object from the cache, if
        the bytes cannot be verified. Raises `VerificationCancelled` if the verification was closed; in that case the
        object stays in the cache.
        """
        try:
            md5, confirmed = self._verdict(check_cancelled)
        except VerificationCancelled:
            # Without a verdict, the object stays in the cache unverified, and is hashed when it is copied out.
            raise
        except BaseException:
            if self.cached is not None:
                self.cached.drop()
            raise
        if self.cached is not None:
            self.cached.mark_verified(md5, self.crc, confirmed=confirmed)
        return md5 if md5 != self.entry.checksum else None

    def drop(self) -> None:
        """Close the file."""
        os.close(self.file)

    def _verdict(self, check_cancelled: CheckCancelled) -> tuple[str, bool]:
        """Return the MD5 of the received bytes, and whether the object's checksum confirms it."""
        found = self._finish_md5(check_cancelled)
        if fits(found, self.entry, self.file):
            return found, True
        second = self._second_transfer(check_cancelled)
        equal = (second.crc, second.size) == (self.crc, self.entry.size)
        matches = fits_whole(second.md5, self.entry.checksum or "")
        if matches and not equal:
            raise LakeError(
                f"{self.fetcher.doing(self.entry)}: its bytes are not those of its checksum {self.entry.checksum}, which a "
                "second transfer gave; it was damaged on its way, try again"
            )
        if not equal:
            raise self.fetcher.differing(self.entry, found, second.md5)
        if not matches:
            self.fetcher.odd(self.entry)
        return second.md5, matches

    def _finish_md5(self, check_cancelled: CheckCancelled) -> str:
        """Complete the partial MD5 with the rest of the file's current content, and return it."""
        md5, at = self.partial.md5, self.partial.at
        while at < self.entry.size:
            piece = os.pread(self.file, min(_CHUNK, self.entry.size - at), at)
            if not piece:
                break
            md5.update(piece)
            at += len(piece)
            check_cancelled()
        return md5.hexdigest()

    def _second_transfer(self, check_cancelled: CheckCancelled) -> Digests:
        """Transfer the object again, without writing it to a file, and return its digests."""
        md5, crc, size = hashlib.md5(usedforsecurity=False), 0, 0
        for piece in self.fetcher.stream(self.entry):
            md5.update(piece)
            crc = zlib.crc32(piece, crc)
            size += len(piece)
            check_cancelled()
        return Digests(md5.hexdigest(), crc, size)
