"""Tells apart two reasons for an MD5 mismatch: damaged bytes, and a checksum that is not a plain MD5.

For an object that was uploaded in parts, lakeFS stores the MD5 of the parts' MD5s, which looks just like a plain MD5.
So if the MD5 of some bytes differs from the checksum, either the bytes are damaged or they were uploaded in parts.  All
parts but the last are at least 5 MiB, so a smaller object has only one part.  For a larger object, the part sizes of
common tools are tried.  S3 itself appends the number of parts to such a hash, and imported objects keep this suffix.

Objects whose bytes lakeFS never saw (imports, presigned uploads) carry the store's ETag, which is not a hash of the
bytes if the store encrypts them with KMS.  Bytes cannot be verified against such a checksum.  Instead, they are
accepted if two transfers are equal.  A warning is then logged, once per repository.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

from perago.lake.base import Entry

SMALLEST_PART = 5 * 1024 * 1024
_MD5 = re.compile(r"[0-9a-f]{32}")
_MIB = 1024 * 1024
# In MiB: aws and boto use 8, s3a 64, obstore 5, lakectl and others 16 and 32, and older s3a 100 and 128.
_USUAL_PARTS = (8 * _MIB, 64 * _MIB, SMALLEST_PART, 16 * _MIB, 32 * _MIB, 100 * _MIB, 128 * _MIB)
# Trying a size means reading the whole file.
_MOST_SIZES = 12
_CORES = os.cpu_count() or 1

_log = logging.getLogger(__name__)


class OddChecksums:
    """Warns once per repository about objects whose checksum cannot verify their bytes. Thread-safe."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def found(self, repository: str, entry: Entry) -> None:
        """Warn that two transfers of this object were equal, but its checksum is not a hash of the bytes."""
        with self._lock:
            if repository in self._warned:
                return
            self._warned.add(repository)
        _log.warning(
            "repository %r: checksum %s of object %r is no MD5 of its %d bytes; two transfers were equal, so the bytes are "
            "accepted (imported, presigned or encrypted objects have such checksums, and so has an object that is "
            "damaged on the server); further objects of this repository are not reported",
            repository,
            entry.checksum,
            entry.path,
            entry.size,
        )


def is_like_an_md5(checksum: str) -> bool:
    """Return whether a checksum looks like a plain MD5."""
    return _MD5.fullmatch(checksum) is not None


def fits(md5: str, entry: Entry, file: int) -> bool:
    """Return whether an object's checksum matches this file, either as a plain MD5 or as a multipart checksum."""
    wanted = entry.checksum or ""
    if fits_whole(md5, wanted):
        return True
    if "-" in wanted:
        return fits_counted_parts(file, entry.size, wanted)
    return entry.size > SMALLEST_PART and fits_usual_parts(file, entry.size, wanted)


def fits_whole(md5: str, checksum: str) -> bool:
    """Return whether `checksum` matches an object with this MD5 that was uploaded whole or as a single part."""
    return md5 == checksum or fits_one_part(md5, checksum)


def fits_one_part(md5: str, checksum: str) -> bool:
    """Return whether `checksum` matches an object with this MD5 that was uploaded as a single part."""
    return _of_parts([bytes.fromhex(md5)]) == checksum


def fits_usual_parts(file: int, size: int, checksum: str) -> bool:
    """Return whether `checksum` is this file's multipart checksum for one of the usual part sizes."""
    return any(_of_parts(_parts(file, size, part)) == checksum for part in _USUAL_PARTS if part < size)


def fits_counted_parts(file: int, size: int, checksum: str) -> bool:
    """Return whether `checksum`, a multipart checksum that ends in the number of parts, matches this file.

    The number leaves few possible part sizes. Of these, the usual ones are tried first, then multiples of 1 MiB.
    """
    digest, _, count = checksum.partition("-")
    number = int(count)
    if number <= 1:
        return _of_parts(_parts(file, size, max(size, 1))) == digest
    least, below = -(-size // number), -(-size // (number - 1))
    whole = range(-(-least // _MIB) * _MIB, below, _MIB)
    sizes = [part for part in (*_USUAL_PARTS, *whole) if least <= part < below]
    tried = list(dict.fromkeys(sizes))[:_MOST_SIZES]
    return any(_of_parts(_parts(file, size, part)) == digest for part in tried)


def _parts(file: int, size: int, part: int) -> list[bytes]:
    """Return the MD5 of each part, hashing several parts at once."""

    def digest(start: int) -> bytes:
        total = hashlib.md5(usedforsecurity=False)
        for at in range(start, min(start + part, size), _MIB):
            total.update(os.pread(file, min(_MIB, start + part - at), at))
        return total.digest()

    with ThreadPoolExecutor(_CORES, "perago-hash") as pool:
        return list(pool.map(digest, range(0, size, part)))


def _of_parts(digests: list[bytes]) -> str:
    return hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
