"""One download call: what the cache has of it, what has to be fetched, and what is left to verify."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from perago.errors import LakeError
from perago.lake.base import Download, Entry, Progress, Verification
from perago.lake.lakefs.cache.cache import ObjectKey
from perago.lake.lakefs.checksums import is_like_an_md5
from perago.lake.lakefs.transfer.digests import Left
from perago.lake.lakefs.transfer.each import each
from perago.lake.lakefs.transfer.get import Fetched, Getter, part_name
from perago.lake.lakefs.transfer.keeping import Keeping
from perago.lake.lakefs.transfer.unhashed import Unhashed
from perago.lake.verification import Unverified

_COPIERS = min(8, os.cpu_count() or 1)


class Downloads:
    """One download call: what came from the cache, what has to come from the server, what is left to verify."""

    def __init__(
        self,
        keeping: Keeping,
        progress: Progress | None,
        verification: Verification | None,
        *,
        large: int,
    ) -> None:
        self._keeping = keeping
        self._progress = progress
        self._verification = verification
        self._large = large
        self._left: list[Unverified] = []
        self.found: dict[str, str] = {}

    def __enter__(self) -> Downloads:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """End with a cache whose books are right; what was left is verified from now on, if all is here."""
        self._keeping.settle()
        # Not sooner: with as many streams as this takes, hashing would hold them up.
        if failed is None and self._verification is not None:
            self._verification.begin(self._left)
            return
        for one in self._left:
            one.drop()

    def from_cache(self, files: Sequence[Download]) -> list[Download]:
        """Copy out what the cache has; returns the rest, for which there is room in the cache."""
        if not self._keeping.cache.enabled:
            return list(files)
        keys = self._keeping.keys(files)
        missing: list[Download] = []

        def copy(file: Download) -> None:
            key = keys.get(file.entry.path)
            if key is None or not self._copied(file, key):
                missing.append(file)

        each(files, copy, _COPIERS)
        self._keeping.touch(keys)
        if missing:
            self._keeping.reserve(missing)
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
                self._keeping.keep(file, got)
            else:
                self._left.append(self._unhashed(getter, file.entry, got, got.left))
        self._done(file, got.md5 or file.entry.checksum or "", reported=getter.is_large(file))

    def _unhashed(self, getter: Getter, entry: Entry, got: Fetched, left: Left) -> Unhashed:
        # For reading alone: a program that is open for writing cannot be run.
        opened = os.open(got.part, os.O_RDONLY | os.O_CLOEXEC)
        return Unhashed(
            entry, opened, got.crc or 0, left, getter, self._keeping.keep_unverified(entry, got.part)
        )

    def _copied(self, file: Download, key: ObjectKey) -> bool:
        part, cache = part_name(file.target), self._keeping.cache
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
