"""A cache that a test fills with objects."""

from __future__ import annotations

import hashlib
import itertools
import zlib
from pathlib import Path

from perago.lake.lakefs.cache.cache import Cache, ObjectKey, repository_id
from perago.lake.lakefs.cache.files import create

# Two files with one MD5, by Wang and others (2004).
_SAME = (
    "d131dd02c5e6eec4693d9a0698aff95c2fcab5{}12467eab4004583eb8fb7f8955ad340609f4b30283e4888325{}415a085125e8f7cdc99fd91dbd"
    "{}80373c5bd8823e3156348f5bae6dacd436c919c6dd53e2{}87da03fd02396306d248cda0e99f33420f577ee8ce54b67080{}0d1ec69821bcb6a88"
    "39396f965{}6ff72a70"
)
COLLIDING = (
    bytes.fromhex(_SAME.format("87", "71", "f2", "b4", "a8", "2b")),
    bytes.fromhex(_SAME.format("07", "f1", "72", "34", "28", "ab")),
)

REPOSITORY = repository_id("http://here", "repo")


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def key_of(data: bytes) -> ObjectKey:
    """Return the cache's key of these bytes."""
    return ObjectKey(REPOSITORY, md5(data), len(data))


class CacheFixture:
    """A cache with a fake clock, and short forms of the calls that tests make."""

    def __init__(self, folder: Path, limit: int = 10**6) -> None:
        self.folder = folder
        self.ticks = itertools.count(1)
        self.cache = Cache(folder / "cache", limit, clock=lambda: next(self.ticks))
        self.names = itertools.count()

    def put(self, data: bytes, *, few: bool = False) -> str:
        """Put bytes into the cache as a download does."""
        key = key_of(data)
        file = self.folder / f"file-{next(self.names)}"
        with open(create(str(file)), "wb") as download:
            download.write(data)
        if key.name in self.cache.reserve({key.name: key.size}):
            self.cache.put_in(key, str(file), zlib.crc32(data), few=few)
            self.cache.settle([key.name])
        return key.name

    def get(self, data: bytes) -> bytes | None:
        """Return what the cache holds under the checksum of these bytes."""
        part = self.folder / f"part-{next(self.names)}"
        if not self.cache.copy_out(key_of(data), str(part)):
            assert not part.exists()
            return None
        return part.read_bytes()

    def path(self, data: bytes) -> Path:
        """Return the file that holds these bytes."""
        [found] = self.folder.glob(f"cache/objects/*/{key_of(data).name}")
        return found

    def kept_bytes(self) -> int:
        """Return the size of all files in the folder, except the index."""
        files = [*self.folder.glob("cache/objects/*/*"), *self.folder.glob("cache/notes/*")]
        return sum(file.stat().st_size for file in files)
