"""The S3 gateway as the transfer uses it: one pooled store for all repositories, names made exact, bounded retries.

The key of an object is `<repository>/<ref>/<path>`; the store takes the gateway's root for a bucket of its own, so
that a thousand repositories share one connection pool.  Names that the S3 library cannot say (control characters,
empty or dotted parts, a slash at the end) go through lakeFS's API instead.
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
from perago.lake.lakefs.checksums import SMALLEST_PART
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.lake.lakefs.errors import translate
from perago.lake.lakefs.listing import MD5_METADATA
from perago.lake.lakefs.transfer.concurrency import again
from perago.lake.lakefs.transfer.routing import Buffer, Parts

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig

T = TypeVar("T")

# A segment that is empty or made of dots, or a character that the library refuses in any segment.
_UNSAYABLE = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_HERE = ("127.0.0.1", "localhost", "::1")
_FEW_RETRIES = 3

# The library's threads do not survive a fork: a call in the child would wait for ever.
_owner: int | None = None


def is_sayable(path: str) -> bool:
    """Whether the S3 library can name an object of this path exactly."""
    return not _UNSAYABLE.search(path)


class Stores:
    """Gets and puts of single objects; every call is finite, and fails as one of Perago's errors."""

    def __init__(self, endpoint: str, keys: tuple[str, str], client: LakeFSClient, options: Options) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._client = client
        self._options = options
        self._lock = threading.Lock()
        self._plain: S3Store | None = None
        self._parts: S3Store | None = None

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """All bytes of an object, in one request."""
        if not is_sayable(path):
            return self._api_get(repository, ref, path, None)
        return _buffer(self._store().get(f"{repository}/{ref}/{path}").bytes())

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """An object's bytes from `span[0]` up to, not including, `span[1]`."""
        if not is_sayable(path):
            return self._api_get(repository, ref, path, f"bytes={span[0]}-{span[1] - 1}")
        return _buffer(self._store().get_range(f"{repository}/{ref}/{path}", start=span[0], end=span[1]))

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """An object's bytes in pieces of about `chunk`."""
        if not is_sayable(path):
            yield self._api_get(repository, ref, path, None)
            return
        doing, key = (
            f"read object {path!r} at {ref!r} of repository {repository!r}",
            f"{repository}/{ref}/{path}",
        )
        at, failures = 0, 0
        while True:
            # A cut stream goes on where it stopped.
            span: GetOptions = {"range": {"offset": at}} if at else {}
            found = self.again(doing, partial(self._get, key, span))
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
        """Make an object of `data`, whose MD5 this is, in one request; noted where parts might have been used."""
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
        """Make an object of pieces in several requests; it appears at the end."""
        pieces, parts = content
        try:
            self._store(parts=True).put(
                f"{repository}/{branch}/{path}",
                pieces,
                use_multipart=True,
                chunk_size=parts.size,
                max_concurrency=parts.at_once,
                attributes={MD5_METADATA: md5},
            )
        except FileNotFoundError as error:
            if "uploadId=" not in str(error):
                raise
            # The upload itself is gone: its end was done, the answer lost, and the end asked for again.
            raise LakeUnavailable(f"the multipart upload of {path!r} ended without an answer") from error

    def put_by_api(self, repository: str, branch: str, path: str, source: Path) -> None:
        """Make an object of a file through the API, which can say any name; its bytes pass through memory."""
        self._client.call(
            f"upload object {path!r} to branch {branch!r} of repository {repository!r}",
            lambda apis, limit: apis.objects.upload_object(
                repository, branch, path, content=str(source), _request_timeout=limit
            ),
            repeat=Repeat.ALWAYS,
        )

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""
        return again(self._options, doing, work)

    def close(self) -> None:
        """Let go of the connections."""
        self._plain = self._parts = None

    def _get(self, key: str, span: GetOptions) -> GetResult:
        return self._store().get(key, options=span)

    def _api_get(self, repository: str, ref: str, path: str, span: str | None) -> bytes:
        return bytes(
            self._client.call(
                f"read object {path!r} at {ref!r} of repository {repository!r}",
                lambda apis, limit: apis.objects.get_object(
                    repository, ref, path, range=span, _request_timeout=limit
                ),
                repeat=Repeat.ALWAYS,
            )
        )

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
                    # Parts are hashed on both sides; a single put is checked by the MD5 that comes back.
                    found = self._parts = self._parts or self._new(retries=_FEW_RETRIES, unsigned=False)
                else:
                    found = self._plain = self._plain or self._new(retries=0, unsigned=True)
        return found

    def _new(self, *, retries: int, unsigned: bool) -> S3Store:
        options = self._options
        return S3Store(
            "gateway",
            # Said under both names, and so is what is the default: what is not said comes from AWS_* variables.
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
    if urlsplit(endpoint).hostname in _HERE:
        # API calls do not follow HTTP_PROXY; naming any proxy makes the library leave the environment's alone.
        chosen["proxy_url"] = "http://unused.invalid"
        chosen["proxy_excludes"] = ",".join(_HERE)
    return chosen


def _buffer(data: object) -> memoryview:
    return memoryview(data)  # type: ignore[arg-type]
