"""Moving bytes, through lakeFS's S3 gateway or past it (see `ways`): parallel, streamed, retried per object, verified.

    small object or file    one request, bytes in memory
    larger object           a stream, or ranges of one part each, a few under way; written in order, hashed beside it
    larger file             multipart upload, streamed

Memory is bounded by one budget of bytes in flight, whatever a file's size.  A download goes to a temporary name next
to its target and is renamed when size and MD5 fit; or when its size fits, with the MD5 left to a `Verification`.  An
upload whose bytes are not those the caller hashed is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from perago.lake.base import Download, Progress, Upload, Verification
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.checksums import OddChecksums
from perago.lake.lakefs.client import LakeFSClient, Options
from perago.lake.lakefs.transfer.concurrency import Budget, each
from perago.lake.lakefs.transfer.download import CacheWriter, Downloads
from perago.lake.lakefs.transfer.fetch import Beside, Getter
from perago.lake.lakefs.transfer.gateway import Stores
from perago.lake.lakefs.transfer.hashing import Hashers
from perago.lake.lakefs.transfer.presigned_read import Addresses, PresignedReads, asked_alone
from perago.lake.lakefs.transfer.presigned_write import PresignedWrites
from perago.lake.lakefs.transfer.routing import Routing, Sink, Source, StoreUnreachable, TransferMode
from perago.lake.lakefs.transfer.store_http import StoreHttp
from perago.lake.lakefs.transfer.upload import Putter

_IN_FLIGHT_BYTES = 64 * 1024 * 1024
_READ_CHUNK = 1024 * 1024


class Transfer:
    """Downloads and uploads of many objects at once; safe for threads."""

    def __init__(
        self,
        endpoint: str,
        keys: tuple[str, str],
        client: LakeFSClient,
        options: Options,
        cache: Cache,
        *,
        mode: TransferMode = "auto",
    ) -> None:
        self._stores = Stores(endpoint, keys, client, options)
        self._http = StoreHttp(options)
        self._writes = PresignedWrites(self._http, client, options)
        self._choice = Routing(mode, client, options.clock)
        self._client = client
        self._endpoint = endpoint
        self._options = options
        self._cache = cache
        self._budget = Budget(_IN_FLIGHT_BYTES)
        self._odd = OddChecksums()

    def download(
        self,
        where: tuple[str, str],
        files: Sequence[Download],
        progress: Progress | None = None,
        verification: Verification | None = None,
    ) -> dict[str, str]:
        """Write the objects of a repository's ref to their files, from the cache where it has them; MD5 by object path.

        Where it leaves an object to `verification`, its listed checksum stands for the MD5.
        """
        cache_writer = CacheWriter(self._cache, (self._endpoint, *where))
        with Downloads(cache_writer, progress, verification, large=self._options.part_bytes) as downloads:
            missing = downloads.from_cache(files)
            try:
                self._fetch(downloads, where, missing)
            except StoreUnreachable as problem:
                self._choice.unreachable(problem)
                left = [file for file in missing if file.entry.path not in downloads.found]
                self._fetch(downloads, where, left)
        return downloads.found

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """One object's bytes, in pieces; always through the gateway, which the API stands next to."""
        return (bytes(piece) for piece in self._stores.stream(repository, ref, path, _READ_CHUNK))

    def read_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> bytes:
        """One object's bytes from `span[0]` up to, not including, `span[1]`."""
        doing = f"read object {path!r} at {ref!r} of repository {repository!r}"
        return bytes(self._stores.again(doing, lambda: self._stores.get_range(repository, ref, path, span)))

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Put the files onto a branch."""
        putter = Putter(self._stores, self._past, self._budget, self._options, (repository, branch))
        done: list[Upload] = []

        def put(file: Upload) -> None:
            putter.put(file, progress)
            done.append(file)

        try:
            each(files, put, self._options.parallel)
        except StoreUnreachable as problem:
            self._choice.unreachable(problem)
            there = set(done)
            each([file for file in files if file not in there], put, self._options.parallel)

    def close(self) -> None:
        """Let go of the connections."""
        self._stores.close()
        self._http.close()

    def _fetch(self, downloads: Downloads, where: tuple[str, str], files: Sequence[Download]) -> None:
        """Fetch what the cache did not have."""
        if not files:
            return
        options = self._options
        # Large ones first, so that the end is not one thread with a large one; small ones by name, as they are listed.
        large = [file for file in files if file.entry.size > options.part_bytes]
        large.sort(key=lambda file: file.entry.size, reverse=True)
        small = sorted(
            (file for file in files if file.entry.size <= options.part_bytes),
            key=lambda file: file.entry.path,
        )
        with (
            ThreadPoolExecutor(options.parallel, "perago-range") as ranges,
            ThreadPoolExecutor(2, "perago-address") as ahead,
            Hashers(self._budget, hashed_below=options.hashed_below, clock=options.clock) as hashers,
        ):
            names = [file.entry.path for file in small]
            addresses = Addresses(self._client, *where, names, ahead)
            alone = asked_alone(names)
            beside = Beside(ranges, hashers)

            def getter(source: Source) -> Getter:
                return Getter(source, self._budget, beside, options, where, odd=self._odd)

            through, past = getter(self._stores), getter(PresignedReads(self._http, addresses, options))

            def fetch(file: Download) -> None:
                is_past = self._choice.past_down(file.entry.size, asked_alone=alone)
                downloads.fetch(past if is_past else through, file)

            each([*large, *small], fetch, options.parallel)

    def _past(self, size: int) -> Sink | None:
        """How a file of this size goes past lakeFS, if it does."""
        in_parts = size > self._options.multipart_bytes
        return self._writes if self._choice.past_up(size, in_parts=in_parts) else None
