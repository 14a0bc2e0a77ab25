"""The two ways of an object's bytes, as downloads and uploads see them.

    gateway      through lakeFS's S3 gateway: lakeFS itself reads and writes the store
    presigned    straight from and to the store, at addresses that lakeFS gives for each object

Both give the same bytes with the same checks; which one is taken is decided in `choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from perago.errors import LakeUnavailable

T = TypeVar("T")
Buffer = bytes | memoryview


class StoreUnreachable(LakeUnavailable):
    """No connection to the object store came about from this machine; the gateway may do."""


@dataclass(frozen=True, slots=True)
class Parts:
    """In parts of which size an object goes, and how many of them are under way at once."""

    size: int
    at_once: int


class Source(Protocol):
    """Where objects are read; every call is finite, and fails as one of Perago's errors."""

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """All bytes of an object, in one request."""

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """An object's bytes from `span[0]` up to, not including, `span[1]`."""

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """An object's bytes in pieces of about `chunk`; a cut stream goes on where it stopped."""

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""


class Sink(Protocol):
    """Where objects are made; an object appears on the branch whole, verified, or not at all."""

    def put(self, repository: str, branch: str, path: str, data: bytes, md5: str) -> None:
        """Make an object of `data`, whose MD5 this is; `LakeUnavailable` if other bytes arrived."""

    def put_parts(
        self, repository: str, branch: str, path: str, content: tuple[Iterator[bytes], Parts], md5: str
    ) -> None:
        """Make an object of pieces in several requests; it appears at the end."""

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""
