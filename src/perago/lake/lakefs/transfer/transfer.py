"""Downloads and uploads through lakeFS's S3 gateway or directly (see `routing`): parallel, streamed, retried, verified.

    small object or file    one request, bytes in memory
    larger object           one stream, or parallel part-sized ranges; written in order, hashed on other threads
    larger file             multipart upload, streamed

A shared memory budget limits the bytes in memory, whatever the size of a file.  A download is written to a temporary
file next to its target, and renamed once its size and MD5 are verified.  If the MD5 is left to a `Verification`, only
the size is checked before the rename.  An upload is rejected if its bytes are not the ones that the caller hashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from perago.lake.base import Download, Progress, Upload, Verification
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.checksums import OddChecksums
from perago.lake.lakefs.client import LakeFSClient, Options
from perago.lake.lakefs.transfer.concurrency import MemoryBudget, for_each
from perago.lake.lakefs.transfer.download import CacheWriter, Downloads
from perago.lake.lakefs.transfer.fetch import Fetcher, HelperThreads
from perago.lake.lakefs.transfer.gateway import Gateway
from perago.lake.lakefs.transfer.hashing import Hashers
from perago.lake.lakefs.transfer.presigned_read import PresignedReads, PresignedUrls, needs_single_calls
from perago.lake.lakefs.transfer.presigned_write import PresignedWrites
from perago.lake.lakefs.transfer.routing import Routing, Sink, Source, StoreUnreachable, TransferMode
from perago.lake.lakefs.transfer.store_http import StoreHttp
from perago.lake.lakefs.transfer.upload import Uploader

_IN_FLIGHT_BYTES = 64 * 1024 * 1024
_READ_CHUNK = 1024 * 1024


class Transfer:
    """Downloads and uploads many objects at once. Thread-safe."""

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
        self._gateway = Gateway(endpoint, keys, client, options)
        self._http = StoreHttp(options)
        self._writes = PresignedWrites(self._http, client, options)
        self._routing = Routing(mode, client, options.clock)
        self._client = client
        self._endpoint = endpoint
        self._options = options
        self._cache = cache
        self._budget = MemoryBudget(_IN_FLIGHT_BYTES)
        self._odd = OddChecksums()

    def download(
        self,
        where: tuple[str, str],
        files: Sequence[Download],
        progress: Progress | None = None,
        verification: Verification | None = None,
    ) -> dict[str, str]:
        """Write objects to files, from the cache if it has them. Returns the MD5s by object path.

        `where` is the repository and the ref. For an object left to `verification`, the listed checksum is returned
        instead of the MD5.
        """
        cache_writer = CacheWriter(self._cache, (self._endpoint, *where))
        with Downloads(cache_writer, progress, verification, large=self._options.part_bytes) as downloads:
            missing = downloads.from_cache(files)
            try:
                self._fetch(downloads, where, missing)
            except StoreUnreachable as problem:
                self._routing.unreachable(problem)
                missing = [file for file in missing if file.entry.path not in downloads.found]
                self._fetch(downloads, where, missing)
        return downloads.found

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """Stream one object's bytes. This always uses the gateway, which is reachable if the API is."""
        return (bytes(piece) for piece in self._gateway.stream(repository, ref, path, _READ_CHUNK))

    def read_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> bytes:
        """Return one object's bytes from `span[0]` up to but not including `span[1]`."""
        doing = f"read object {path!r} at {ref!r} of repository {repository!r}"
        return bytes(self._gateway.retry(doing, lambda: self._gateway.get_range(repository, ref, path, span)))

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Upload files to a branch."""
        uploader = Uploader(
            self._gateway, self._direct_sink, self._budget, self._options, (repository, branch)
        )
        done: list[Upload] = []

        def put(file: Upload) -> None:
            uploader.upload(file, progress)
            done.append(file)

        try:
            for_each(files, put, self._options.parallel)
        except StoreUnreachable as problem:
            self._routing.unreachable(problem)
            uploaded = set(done)
            for_each([file for file in files if file not in uploaded], put, self._options.parallel)

    def close(self) -> None:
        """Close the connections."""
        self._gateway.close()
        self._http.close()

    def _fetch(self, downloads: Downloads, where: tuple[str, str], files: Sequence[Download]) -> None:
        """Fetch the objects that were not in the cache."""
        if not files:
            return
        options = self._options
        # Large objects come first, so that no thread is left alone with one at the end. Small ones are sorted by name,
        # like a listing.
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
            urls = PresignedUrls(self._client, *where, names, ahead)
            single_call = needs_single_calls(names)
            helpers = HelperThreads(ranges, hashers)

            def fetcher(source: Source) -> Fetcher:
                return Fetcher(source, self._budget, helpers, options, where, odd=self._odd)

            by_gateway, direct = fetcher(self._gateway), fetcher(PresignedReads(self._http, urls, options))

            def fetch(file: Download) -> None:
                is_direct = self._routing.download_direct(file.entry.size, single_call=single_call)
                downloads.fetch(direct if is_direct else by_gateway, file)

            for_each([*large, *small], fetch, options.parallel)

    def _direct_sink(self, size: int) -> Sink | None:
        """Return the sink for uploading a file of this size directly to the store, or None to use the gateway."""
        in_parts = size > self._options.multipart_bytes
        return self._writes if self._routing.upload_direct(size, in_parts=in_parts) else None
