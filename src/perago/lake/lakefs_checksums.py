"""Telling a multipart object's checksum from damage.

lakeFS keeps, for an object that came in parts, the MD5 of the parts' MD5s, cut to the form of a plain MD5; nothing
else tells the two apart.  So bytes whose MD5 is not the checksum are either damaged or came in parts.  Parts other
than the last have at least 5 MiB, so a smaller object has one part, and there the answer is exact.  For a larger one
the part sizes that tools use are tried.
"""

from __future__ import annotations

import hashlib
import os

SMALLEST_PART = 5 * 1024 * 1024
_MIB = 1024 * 1024
# aws and boto 8, s3a 64, obstore 5, lakectl and others 16 and 32, older s3a 100 and 128.
_USUAL_PARTS = (8 * _MIB, 64 * _MIB, SMALLEST_PART, 16 * _MIB, 32 * _MIB, 100 * _MIB, 128 * _MIB)


def fits_one_part(md5: str, checksum: str) -> bool:
    """Whether `checksum` is that of an object with this MD5 that came as one part."""
    return _of_parts([bytes.fromhex(md5)]) == checksum


def fits_usual_parts(file: int, size: int, checksum: str) -> bool:
    """Whether `checksum` is that of this file's bytes in parts of a usual size."""
    return any(_of_parts(_parts(file, size, part)) == checksum for part in _USUAL_PARTS if part < size)


def _parts(file: int, size: int, part: int) -> list[bytes]:
    digests = []
    for start in range(0, size, part):
        total = hashlib.md5(usedforsecurity=False)
        for at in range(start, min(start + part, size), _MIB):
            total.update(os.pread(file, min(_MIB, start + part - at), at))
        digests.append(total.digest())
    return digests


def _of_parts(digests: list[bytes]) -> str:
    return hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
