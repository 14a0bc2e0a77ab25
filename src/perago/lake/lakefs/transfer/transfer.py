"""Moving bytes through lakeFS's S3 gateway: parallel, streamed, retried per object, verified.

    small object or file    one request, bytes in memory
    larger object           ranges of one part each, a few under way, written in order
    larger file             multipart upload, streamed

Memory is bounded by one budget of bytes in flight, whatever a file's size.  A download goes to a temporary name next
to its target and is renamed when size and MD5 fit.  An upload whose bytes are not those the caller hashed is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perago.errors import LakeError
from perago.lake.base import Download, Entry, Progress, Upload
from perago.lake.lakefs.cache.cache import Cache, object_name
from perago.lake.lakefs.checksums import OddChecksums
from perago.lake.lakefs.client import LakeFSClient, Options
from perago.lake.lakefs.transfer.budget import Budget
from perago.lake.lakefs.transfer.gateway import Stores
from perago.lake.lakefs.transfer.get import Fetched, Getter
from perago.lake.lakefs.transfer.put import Putter

T = TypeVar("T")

_IN_FLIGHT_BYTES = 64 * 1024 * 1024
_COPIERS = min(8, os.cpu_count() or 1)
_READ_CHUNK = 1024 * 1024


class Transfer:
    """Downloads and uploads of many objects at once; safe for threads."""

    def __init__(
        self, endpoint: str, keys: tuple[str, str], client: LakeFSClient, options: Options, cache: Cache
    ) -> None:
        self._stores = Stores(endpoint, keys, client, options)
        self._endpoint = endpoint
        self._options = options
        self._cache = cache
        self._budget = Budget(_IN_FLIGHT_BYTES)
        self._odd = OddChecksums()

    def download(
        self, repository: str, ref: str, files: Sequence[Download], progress: Progress | None = None
    ) -> dict[str, str]:
        """Write the objects to their files, from the cache where it has them; returns MD5 by object path."""
        with ThreadPoolExecutor(self._options.parallel, "perago-range") as ranges:
            getter = Getter(
                self._stores, self._budget, ranges, self._options, (repository, ref), odd=self._odd
            )
            downloads = _Downloads(self._cache, getter, (self._endpoint, repository, ref), progress)
            missing = downloads.from_cache(files)
            admitted = downloads.reserve(missing)
            # Large ones first, so that the end is not one thread with a large one.
            missing.sort(key=lambda file: file.entry.size, reverse=True)
            try:
                _all(missing, lambda file: downloads.from_server(file, admitted), self._options.parallel)
            finally:
                downloads.settle()
        return downloads.found

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """One object's bytes, in pieces."""
        return (bytes(piece) for piece in self._stores.stream(repository, ref, path, _READ_CHUNK))

    def read_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> bytes:
        """One object's bytes from `span[0]` up to, not including, `span[1]`."""
        doing = f"read object {path!r} at {ref!r} of repository {repository!r}"
        return bytes(self._stores.again(doing, lambda: self._stores.get_range(repository, ref, path, span)))

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Put the files onto a branch."""
        putter = Putter(self._stores, self._budget, self._options, (repository, branch))
        _all(files, lambda file: putter.put(file, progress), self._options.parallel)

    def close(self) -> None:
        """Let go of the connections."""
        self._stores.close()


class _Downloads:
    """One download call: what came from the cache, what has to come from the server."""

    def __init__(
        self, cache: Cache, getter: Getter, where: tuple[str, str, str], progress: Progress | None
    ) -> None:
        self._cache = cache
        self._getter = getter
        self._where = where
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

        _all(files, copy, _COPIERS)
        self._cache.touch(kept)
        return missing

    def reserve(self, files: Sequence[Download]) -> set[str]:
        """Room in the cache for what is about to come; the names of what may be kept."""
        known = [(file.entry.checksum, file.entry.size) for file in files]
        return self._cache.reserve(
            {object_name(checksum, size): size for checksum, size in known if checksum}
        )

    def from_server(self, file: Download, admitted: set[str]) -> None:
        """Fetch one object, keep it, and give it its name."""
        try:
            got = self._getter.fetch(file, self._progress)
        except OSError as error:
            raise _unwritable(file, error) from error
        if self._cache.enabled:
            self._keep(file, got, admitted)
        self._rename(got.part, file)
        self._done(file, got.md5, reported=self._getter.is_large(file))

    def _aliases(self, files: Sequence[Download]) -> dict[str, str]:
        """MD5 by object path, for those whose checksum is none but which were here before."""
        names = {name: file.entry.path for file in files for name in self._aliases_of(file.entry)}
        found = {name: self._cache.load(name) for name in self._cache.present(list(names))}
        return {names[name]: md5.decode() for name, md5 in found.items() if md5}

    def _key(self, file: Download, aliases: Mapping[str, str]) -> tuple[str, int] | None:
        checksum = aliases.get(file.entry.path) or file.entry.checksum
        return (checksum, file.entry.size) if checksum else None

    def _copied(self, file: Download, key: tuple[str, int]) -> bool:
        part = self._getter.part(file.target)
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
            return (_alias(*self._where, entry.path),)
        endpoint, repository, _ = self._where
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


def _all(items: Sequence[T], work: Callable[[T], None], threads: int) -> None:
    """Do work for every item, several at once; the first error stops the rest and comes out."""
    queue = deque(items)
    errors: list[BaseException] = []

    def run() -> None:
        while not errors:
            try:
                item = queue.popleft()
            except IndexError:
                return
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    count = min(threads, len(items))
    workers = [threading.Thread(target=run, name="perago-transfer", daemon=True) for _ in range(count - 1)]
    for worker in workers:
        worker.start()
    run()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
