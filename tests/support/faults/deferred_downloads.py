"""Downloads from a source that a test writes, which leave all large objects to be verified later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from perago.lake.base import Download, Entry, Verification
from perago.lake.deferred_verification import Unverified
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.checksums import OddChecksums
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.concurrency import MemoryBudget
from perago.lake.lakefs.transfer.download import CacheWriter, Downloads
from perago.lake.lakefs.transfer.fetch import Fetcher, HelperThreads
from perago.lake.lakefs.transfer.hashing import Hashers

PIECE = 1000
LARGE = 4 * 1024 * 1024
"""What the cache calls large, too."""


class WrittenSource:
    """Gives for each transfer of any object the next of `transfers`, and the last of them from then on."""

    def __init__(self, *transfers: bytes | Exception) -> None:
        self.transfers = list(transfers)
        self.count = 0

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[bytes]:
        found = self.transfers[min(self.count, len(self.transfers) - 1)]
        self.count += 1
        if isinstance(found, Exception):
            raise found
        for at in range(0, len(found), PIECE * 1000):
            yield found[at : at + PIECE * 1000]

    def get(self, repository: str, ref: str, path: str) -> bytes:
        return b"".join(self.stream(repository, ref, path, 0))

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> bytes:
        raise NotImplementedError

    def retry(self, doing: str, work: Callable[[], Any]) -> Any:
        return work()


def an_entry(data: bytes, checksum: str | None = None, path: str = "some/path") -> Entry:
    """An object of these bytes, with another checksum than their MD5 if one is said."""
    return Entry(path, len(data), checksum or hashlib.md5(data).hexdigest())


class Held(Verification):
    """Verifies nothing before `wait`, so that a test has done by then what a body does."""

    def __init__(self, most: int) -> None:
        super().__init__(most=most)
        self.left: list[Unverified] = []

    def begin(self, objects: Sequence[Unverified]) -> None:
        self.left += objects

    def wait(self) -> dict[str, str]:
        super().begin(self.left)
        return super().wait()


class Leaving:
    """A cache, and downloads over it that leave what they may."""

    def __init__(
        self, folder: Path, *, hashed_below: float = 0, repository: str = "repo", url: str = "http://here"
    ) -> None:
        self.folder = folder
        self._where = (url, repository, "main")
        self.cache = Cache(folder / "cache", 10**9)
        self._hashed_below = hashed_below

    def download(self, source: WrittenSource, *entries: Entry, most: int = 128) -> tuple[list[Path], Held]:
        """Download objects into new files of the folder `out`."""
        (self.folder / "out").mkdir(exist_ok=True)
        number = len(list((self.folder / "out").iterdir()))
        files = [Download(entry, self.folder / f"out/{number + n}") for n, entry in enumerate(entries)]
        verification = Held(most=most)
        budget, options = MemoryBudget(10**8), Options(part_bytes=LARGE - 1)
        cache_writer = CacheWriter(self.cache, self._where)
        with (
            ThreadPoolExecutor(1) as ranges,
            Hashers(budget, hashed_below=self._hashed_below) as hashers,
            Downloads(cache_writer, None, verification, large=options.part_bytes) as downloads,
        ):
            fetcher = Fetcher(
                source, budget, HelperThreads(ranges, hashers), options, ("repo", "main"), odd=OddChecksums()
            )
            for file in downloads.from_cache(files):
                downloads.fetch(fetcher, file)
        return [file.target for file in files], verification

    def kept(self) -> list[str]:
        """The names of the objects in the cache."""
        return sorted(path.name for path in self.folder.glob("cache/objects/*/*"))

    def open_files(self) -> list[str]:
        """What this process has open below the folder, the cache's index aside."""
        found: list[str] = []
        for link in Path("/proc/self/fd").iterdir():
            try:
                target = str(link.readlink())
            except FileNotFoundError:
                continue
            if target.startswith(str(self.folder)) and "index.db" not in target:
                found.append(target)
        return found
