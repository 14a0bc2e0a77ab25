"""Downloads with deferred verification: from a scripted source, and with scripted verdicts."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from perago.lake.base import Download, Entry, Lake, Verification
from perago.lake.deferred_verification import CheckCancelled, Unverified
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.checksums import OddChecksums
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.concurrency import MemoryBudget
from perago.lake.lakefs.transfer.download import CacheWriter, Downloads
from perago.lake.lakefs.transfer.fetch import Fetcher, HelperThreads
from perago.lake.lakefs.transfer.hashing import Hashers

PIECE = 1000
LARGE = 4 * 1024 * 1024
"""The cache calls objects of this size large, too."""


class ScriptedSource:
    """Serves each transfer of any object with the next of `transfers`, and repeats the last one."""

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
    """Return an object of these bytes, with their MD5 unless another checksum is given."""
    return Entry(path, len(data), checksum or hashlib.md5(data).hexdigest())


class HeldVerification(Verification):
    """Verifies nothing before `wait`, so that the test can act as the body first."""

    def __init__(self, most: int) -> None:
        super().__init__(most=most)
        self.left: list[Unverified] = []

    def begin(self, objects: Sequence[Unverified]) -> None:
        self.left += objects

    def wait(self) -> dict[str, str]:
        super().begin(self.left)
        return super().wait()


class DeferringDownloads:
    """A cache, and downloads through it that defer verification wherever allowed."""

    def __init__(
        self, folder: Path, *, hashed_below: float = 0, repository: str = "repo", url: str = "http://here"
    ) -> None:
        self.folder = folder
        self._where = (url, repository, "main")
        self.cache = Cache(folder / "cache", 10**9)
        self._hashed_below = hashed_below

    def download(
        self, source: ScriptedSource, *entries: Entry, most: int = 128
    ) -> tuple[list[Path], HeldVerification]:
        """Download objects into new files in the folder `out`."""
        (self.folder / "out").mkdir(exist_ok=True)
        number = len(list((self.folder / "out").iterdir()))
        files = [Download(entry, self.folder / f"out/{number + n}") for n, entry in enumerate(entries)]
        verification = HeldVerification(most=most)
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

    def cached_names(self) -> list[str]:
        """Return the names of the objects in the cache."""
        return sorted(path.name for path in self.folder.glob("cache/objects/*/*"))

    def open_files(self) -> list[str]:
        """Return the files that this process has open below the folder, except the cache's index."""
        found: list[str] = []
        for link in Path("/proc/self/fd").iterdir():
            try:
                target = str(link.readlink())
            except FileNotFoundError:
                continue
            if target.startswith(str(self.folder)) and "index.db" not in target:
                found.append(target)
        return found


# --- verdicts ----------------------------------------------------------------------------------------------------------


class Verdict:
    """One unverified object: its verdict, `checksum` or `error`, comes once `gate` is set."""

    def __init__(
        self,
        path: str,
        *,
        checksum: str | None = None,
        error: Exception | None = None,
        gate: threading.Event | None = None,
    ) -> None:
        self.path = path
        self.done = threading.Event()
        self.drops = 0
        self._checksum = checksum
        self._error = error
        self._gate = gate

    @property
    def verified(self) -> bool:
        """Return whether the verdict is known."""
        return self.done.is_set()

    def verify(self, check_cancelled: CheckCancelled) -> str | None:
        while self._gate is not None and not self._gate.wait(0.01):
            check_cancelled()
        check_cancelled()
        self.done.set()
        if self._error is not None:
            raise self._error
        return self._checksum

    def drop(self) -> None:
        self.drops += 1


class DeferringLake:
    """A lake whose downloads defer the given verdicts, if deferring is allowed."""

    def __init__(self, lake: Lake, *left: Verdict) -> None:
        self._lake = lake
        self._left = left

    def download(
        self,
        repository: str,
        ref: str,
        files: Sequence[Download],
        progress: Any = None,
        *,
        verification: Verification | None = None,
    ) -> Mapping[str, str]:
        found = self._lake.download(repository, ref, files, progress)
        if verification is not None:
            verification.begin(self._left)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)
