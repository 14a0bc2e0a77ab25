"""Telling a checksum of another kind from damage.

lakeFS keeps, for an object that came in parts, the MD5 of the parts' MD5s, cut to the form of a plain MD5; nothing
else tells the two apart.  So bytes whose MD5 is not the checksum are either damaged or came in parts.  Parts other
than the last have at least 5 MiB, so a smaller object has one part; for a larger one the part sizes that tools use are
tried.  S3 itself adds the number of parts to such a hash, which imported objects keep.

Objects that lakeFS did not see the bytes of (imports, presigned uploads) carry what the store calls their ETag, which is
no hash of the bytes where the store encrypts them with KMS.  Nothing can be compared with such a checksum: two equal
transfers have to do, and a warning says so once for each repository.
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
# aws and boto 8, s3a 64, obstore 5, lakectl and others 16 and 32, older s3a 100 and 128.
_USUAL_PARTS = (8 * _MIB, 64 * _MIB, SMALLEST_PART, 16 * _MIB, 32 * _MIB, 100 * _MIB, 128 * _MIB)
# Each one costs reading the file once.
_MOST_SIZES = 12
_CORES = os.cpu_count() or 1

_log = logging.getLogger(__name__)


class OddChecksums:
    """Says once for each repository that it holds objects whose bytes no checksum vouches for; safe for threads."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def found(self, repository: str, entry: Entry) -> None:
        """Two transfers of this object were equal, and its checksum is no hash of them."""
        with self._lock:
            if repository in self._said:
                return
            self._said.add(repository)
        _log.warning(
            "repository %r: checksum %s of object %r is no MD5 of its %d bytes, which two transfers gave alike: taken as "
            "they are (imported, presigned or encrypted objects have such checksums, and so has an object that is "
            "damaged on the server); others of this repository are not named",
            repository,
            entry.checksum,
            entry.path,
            entry.size,
        )


def is_like_an_md5(checksum: str) -> bool:
    """Whether a checksum has the form of a plain MD5."""
    return _MD5.fullmatch(checksum) is not None


def fits(md5: str, entry: Entry, file: int) -> bool:
    """Whether an object's checksum is the MD5 of this file's bytes, or that of a multipart upload of them."""
    wanted = entry.checksum or ""
    if fits_whole(md5, wanted):
        return True
    if "-" in wanted:
        return fits_counted_parts(file, entry.size, wanted)
    return entry.size > SMALLEST_PART and fits_usual_parts(file, entry.size, wanted)


def fits_whole(md5: str, checksum: str) -> bool:
    """Whether `checksum` is that of an object with this MD5 that came whole, or as one part."""
    return md5 == checksum or fits_one_part(md5, checksum)


def fits_one_part(md5: str, checksum: str) -> bool:
    """Whether `checksum` is that of an object with this MD5 that came as one part."""
    return _of_parts([bytes.fromhex(md5)]) == checksum


def fits_usual_parts(file: int, size: int, checksum: str) -> bool:
    """Whether `checksum` is that of this file's bytes in parts of a usual size."""
    return any(_of_parts(_parts(file, size, part)) == checksum for part in _USUAL_PARTS if part < size)


def fits_counted_parts(file: int, size: int, checksum: str) -> bool:
    """Whether `checksum`, a hash of hashes with the number of parts, is that of this file's bytes.

    The number leaves few sizes that the parts can have: the usual ones of these are tried, then whole MiB.
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
    """The MD5 of each part, several of them at once."""

    def digest(start: int) -> bytes:
        total = hashlib.md5(usedforsecurity=False)
        for at in range(start, min(start + part, size), _MIB):
            total.update(os.pread(file, min(_MIB, start + part - at), at))
        return total.digest()

    with ThreadPoolExecutor(_CORES, "perago-hash") as pool:
        return list(pool.map(digest, range(0, size, part)))


def _of_parts(digests: list[bytes]) -> str:
    return hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
