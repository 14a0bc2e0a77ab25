"""Access to lakeFS's S3 gateway: one pooled store for all repositories, exact object names, bounded retries.

The key of an object is `<repository>/<ref>/<path>`.  The store treats the gateway's root as a bucket, so even a
thousand repositories share one connection pool.  Objects whose names the S3 library cannot express (control characters,
empty or dotted parts, a trailing slash) go through lakeFS's API instead.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from obstore.store import S3Store

from perago.errors import LakeError, LakeUnavailable
from perago.lake.lakefs import api
from perago.lake.lakefs.checksums import SMALLEST_PART
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.lake.lakefs.errors import translate
from perago.lake.lakefs.listing import MD5_METADATA
from perago.lake.lakefs.transfer.concurrency import retry
from perago.lake.lakefs.transfer.routing import LOCAL_HOSTS, Buffer, Parts

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig

T = TypeVar("T")

# An empty or dotted segment, or a character that the library rejects in any segment.
_NOT_S3_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_FEW_RETRIES = 3

# The library's threads do not survive a fork: a call in the child would hang.
_owner: int | None = None


def is_s3_key(path: str) -> bool:
    """Return whether the S3 library can express this path exactly."""
    return not _NOT_S3_KEY.search(path)


class Gateway:
    """Reads and writes single objects. Every call has a time limit and raises only Perago's errors."""

    def __init__(self, endpoint: str, keys: tuple[str, str], client: LakeFSClient, options: Options) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._client = client
        self._options = options
        self._lock = threading.Lock()
        self._plain: S3Store | None = None
        self._parts: S3Store | None = None

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """Return all bytes of an object in one request."""
        if not is_s3_key(path):
            return self._api_get(repository, ref, path, None)
        return _buffer(self._store().get(f"{repository}/{ref}/{path}").bytes())

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """Return an object's bytes from `span[0]` up to but not including `span[1]`."""
        if not is_s3_key(path):
            return self._api_get(repository, ref, path, f"bytes={span[0]}-{span[1] - 1}")
        return _buffer(self._store().get_range(f"{repository}/{ref}/{path}", start=span[0], end=span[1]))

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """Stream an object's bytes in pieces of about `chunk`. A broken stream resumes where it stopped."""
        if not is_s3_key(path):
            yield self._api_get(repository, ref, path, None)
            return
        doing, key = (
            f"read object {path!r} at {ref!r} of repository {repository!r}",
            f"{repository}/{ref}/{path}",
        )
        at, failures = 0, 0
        while True:
            span: GetOptions = {"range": {"offset": at}} if at else {}
            found = self.retry(doing, partial(self._get, key, span))
            try:
                for piece in found.stream(min_chunk_size=chunk):
                    at += len(piece)
                    yield _buffer(piece)
                return
            except Exception as error:
                failures += 1
                problem = translate(error, doing)
                if failures >= self._options.tries or not isinstance(problem, LakeUnavailable):
                    raise problem from error
            self._options.sleep(self._options.delay(failures))

    def put(self, repository: str, branch: str, path: str, data: bytes, md5: str) -> None:
        """Write an object in one request. If it is large enough for a multipart upload, its MD5 is stored as metadata.

        Raises `LakeUnavailable` if the server received different bytes.
        """
        attributes = {MD5_METADATA: md5} if len(data) > SMALLEST_PART else None
        result = self._store().put(
            f"{repository}/{branch}/{path}", data, use_multipart=False, attributes=attributes
        )
        got = (result["e_tag"] or "").strip('"')
        if got != md5:
            raise LakeUnavailable(f"upload object {path!r}: the server received other bytes (MD5 {got})")

    def put_parts(
        self, repository: str, branch: str, path: str, content: tuple[Iterator[bytes], Parts], md5: str
    ) -> None:
        """Write an object by multipart upload. It appears when the last part has arrived."""
        pieces, parts = content
        try:
            self._store(parts=True).put(
                f"{repository}/{branch}/{path}",
                pieces,
                use_multipart=True,
                chunk_size=parts.size,
                max_concurrency=parts.parallel,
                attributes={MD5_METADATA: md5},
            )
        except FileNotFoundError as error:
            if "uploadId=" not in str(error):
                raise
            # The upload no longer exists: it was completed, the answer was lost, and the library tried to complete it
            # again.
            raise LakeUnavailable(f"the multipart upload of {path!r} ended without an answer") from error

    def put_by_api(self, repository: str, branch: str, path: str, source: Path) -> None:
        """Upload a file through the API, which accepts any name. The file is read into memory."""
        self._client.call(
            f"upload object {path!r} to branch {branch!r} of repository {repository!r}",
            api.upload_object(repository, branch, path, source.read_bytes()),
            repeat=Repeat.ALWAYS,
        )

    def retry(self, doing: str, work: Callable[[], T]) -> T:
        """Run the idempotent `work` until it succeeds, fails permanently, or runs out of tries."""
        return retry(self._options, doing, work)

    def close(self) -> None:
        """Close the connections."""
        self._plain = self._parts = None

    def _get(self, key: str, span: GetOptions) -> GetResult:
        return self._store().get(key, options=span)

    def _api_get(self, repository: str, ref: str, path: str, span: str | None) -> bytes:
        answer: bytes = self._client.call(
            f"read object {path!r} at {ref!r} of repository {repository!r}",
            api.get_object(repository, ref, path, range=span),
            repeat=Repeat.ALWAYS,
        )
        return answer

    def _store(self, *, parts: bool = False) -> S3Store:
        global _owner
        if _owner != os.getpid():
            if _owner is not None:
                raise LakeError(
                    "this process was forked from one that had moved objects, which the S3 library does not "
                    "survive: start processes by spawn"
                )
            _owner = os.getpid()
        found = self._parts if parts else self._plain
        if found is None:
            with self._lock:
                if parts:
                    # Parts are hashed on both sides. A single put is checked against the MD5 in the answer.
                    found = self._parts = self._parts or self._new(retries=_FEW_RETRIES, unsigned=False)
                else:
                    found = self._plain = self._plain or self._new(retries=0, unsigned=True)
        return found

    def _new(self, *, retries: int, unsigned: bool) -> S3Store:
        options = self._options
        return S3Store(
            "gateway",
            # Set both spellings, and even defaults: the library reads every missing option from AWS_* variables.
            endpoint=self._endpoint,
            aws_endpoint_url_s3=self._endpoint,
            virtual_hosted_style_request=True,
            access_key_id=self._keys[0],
            secret_access_key=self._keys[1],
            region="us-east-1",
            unsigned_payload=unsigned,
            skip_signature=False,
            s3_express=False,
            request_payer=False,
            client_options=_client_options(self._endpoint, options),
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=options.object_timeout),
                "backoff": {
                    "init_backoff": timedelta(seconds=options.backoff_seconds),
                    "max_backoff": timedelta(seconds=options.backoff_longest),
                    "base": 2,
                },
            },
        )


def _client_options(endpoint: str, options: Options) -> ClientConfig:
    chosen: ClientConfig = {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=options.connect_timeout),
        "read_timeout": timedelta(seconds=options.read_timeout),
        "timeout": timedelta(seconds=options.object_timeout),
    }
    if urlsplit(endpoint).hostname in LOCAL_HOSTS:
        # API calls ignore HTTP_PROXY. Setting any proxy here makes the S3 library ignore it, too.
        chosen["proxy_url"] = "http://unused.invalid"
        chosen["proxy_excludes"] = ",".join(LOCAL_HOSTS)
    return chosen


def _buffer(data: object) -> memoryview:
    return memoryview(data)  # type: ignore[arg-type]
