"""Deferred verification: a body may start before its whole input has been hashed, but an attempt ends only afterwards.

A lake that is passed a `Verification` may return from `download` with large objects unverified.  They are verified
here, on separate threads, while the caller continues.  The rule: the caller must call `wait` before it uses any result
derived from the files.  Every `Verification` is closed once, whether or not `wait` was called, and leaves no thread,
descriptor or file behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Protocol

from perago.errors import LakeError

_CORES = os.cpu_count() or 1
_MOST = 128
"""The maximum number of deferred objects.

Each keeps one or two descriptors open, and a process is often limited to 1024.
"""

CheckCancelled = Callable[[], None]
"""A function that raises `VerificationCancelled` once the verification has been closed."""


class VerificationCancelled(LakeError):
    """Raised if the caller closed the verification before it was complete."""


class Unverified(Protocol):
    """An object that was written to its file before its bytes were verified."""

    @property
    def path(self) -> str:
        """The object's path."""

    def verify(self, check_cancelled: CheckCancelled) -> str | None:
        """Verify the bytes in the file.  Raises `LakeError` if they are not the object's bytes.

        Returns their checksum if `download` returned a different one, such as a multipart checksum, and None otherwise.
        Calls `check_cancelled` regularly.
        """

    def drop(self) -> None:
        """Release files and descriptors.  Called once, whether the object was verified or not."""


class Verification:
    """Verifies the objects deferred by one caller's downloads.  It cannot be used once it is closed."""

    def __init__(self, threads: int = _CORES, most: int = _MOST) -> None:
        self._threads = threads
        self._most = most
        self._closed = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._started: list[tuple[Unverified, Future[str | None]]] = []

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def room(self) -> int:
        """The number of further objects whose verification can be deferred."""
        return self._most - len(self._started)

    def begin(self, objects: Sequence[Unverified]) -> None:
        """Start verifying these objects in the background."""
        if objects and self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "perago-verify")
        for one in objects:
            self._started.append((one, self._pool.submit(one.verify, self._check_cancelled)))  # type: ignore[union-attr]

    def wait(self) -> dict[str, str]:
        """Wait until everything is verified, then close.  If a verification fails, close at once and raise its error.

        Returns the checksums, by object path, of the objects for which `download` returned a different one.
        """
        try:
            wait([verdict for _, verdict in self._started], return_when=FIRST_EXCEPTION)
            # This must come before closing, which makes unfinished verifications raise `VerificationCancelled`.
            for _, verdict in self._started:
                if verdict.done() and (bad := verdict.exception()) is not None:
                    raise bad
            return {one.path: checksum for one, verdict in self._started if (checksum := verdict.result())}
        finally:
            self.close()

    def close(self) -> None:
        """Cancel running verifications and release all objects.

        Objects are released only here, because closing any descriptor of a file releases all locks that this process,
        and therefore the body, has on the file.
        """
        self._closed.set()
        if self._pool is None:
            return
        self._pool.shutdown()
        self._pool = None
        for one, _ in self._started:
            one.drop()

    def _check_cancelled(self) -> None:
        if self._closed.is_set():
            raise VerificationCancelled("the download was cancelled before all of it was verified")
