"""A cache with objects of a test's own."""

from __future__ import annotations

import hashlib
import itertools
import zlib
from pathlib import Path

from perago.lake.lakefs.cache.cache import Cache, object_name
from perago.lake.lakefs.cache.files import create


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Kept:
    """A cache with a clock of its own, and the few moves of these tests."""

    def __init__(self, folder: Path, limit: int = 10**6) -> None:
        self.folder = folder
        self.ticks = itertools.count(1)
        self.cache = Cache(folder / "cache", limit, clock=lambda: next(self.ticks))
        self.names = itertools.count()

    def put(self, data: bytes) -> str:
        """Keep bytes as a download would."""
        name = object_name(md5(data), len(data))
        file = self.folder / f"file-{next(self.names)}"
        with open(create(str(file)), "wb") as download:
            download.write(data)
        if name in self.cache.reserve({name: len(data)}):
            self.cache.put_in(md5(data), len(data), str(file), zlib.crc32(data))
            self.cache.settle([name])
        return name

    def get(self, data: bytes) -> bytes | None:
        """What the cache gives for these bytes' checksum."""
        part = self.folder / f"part-{next(self.names)}"
        if not self.cache.copy_out(md5(data), len(data), str(part)):
            assert not part.exists()
            return None
        return part.read_bytes()

    def path(self, data: bytes) -> Path:
        """Where these bytes are kept."""
        [found] = self.folder.glob(f"cache/objects/*/{md5(data)}-{len(data)}")
        return found

    def kept_bytes(self) -> int:
        """What the folder really holds, the index aside."""
        files = [*self.folder.glob("cache/objects/*/*"), *self.folder.glob("cache/notes/*")]
        return sum(file.stat().st_size for file in files)
