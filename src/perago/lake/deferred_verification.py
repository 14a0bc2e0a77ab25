"""Deferred verification: a body may start before every byte of its input is hashed, but no attempt ends before.

A lake that is given a `Verification` may return from `download` with large objects unverified.  They are verified here, on
separate threads, while the caller continues.  The rule: the caller calls `wait` before anything made from the files
counts.  A `Verification` is closed once, with or without `wait`, and then leaves no thread, descriptor or file.
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
"""Limit on deferred objects: each holds one or two descriptors, and a process often has 1024."""

CheckCancelled = Callable[[], None]
"""Raises `GivenUp` once the verification is closed."""


class GivenUp(LakeError):
    """The caller closed the verification before there was a verdict."""


class Unverified(Protocol):
    """An object that was written to its file before its bytes were verified."""

    @property
    def path(self) -> str:
        """The object's path."""

    def verify(self, check_cancelled: CheckCancelled) -> str | None:
        """Return the object's checksum if it differs from the one `download` returned, else None.

        Raises `LakeError` if the bytes are wrong.  Calls `check_cancelled` between pieces of work.
        """

    def drop(self) -> None:
        """Release files and descriptors; called once, whether the object was verified or not."""


class Verification:
    """Verifies the objects that one caller's downloads deferred; usable until it is closed."""

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
        """The number of objects that may still be deferred."""
        return self._most - len(self._started)

    def begin(self, objects: Sequence[Unverified]) -> None:
        """Start verifying these objects in the background."""
        if objects and self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "perago-verify")
        for one in objects:
            self._started.append((one, self._pool.submit(one.verify, self._go_on)))  # type: ignore[union-attr]

    def wait(self) -> dict[str, str]:
        """Wait for all verdicts and close.  Raises the first error; nothing can be started afterwards.

        Returns checksum by object path, for objects whose checksum differs from the one `download` returned.
        """
        try:
            wait([verdict for _, verdict in self._started], return_when=FIRST_EXCEPTION)
            # Before closing, which makes unfinished verifications raise `GivenUp`.
            for _, verdict in self._started:
                if verdict.done() and (bad := verdict.exception()) is not None:
                    raise bad
            return {one.path: checksum for one, verdict in self._started if (checksum := verdict.result())}
        finally:
            self.close()

    def close(self) -> None:
        """Cancel running verifications and release all objects.

        Objects are released only here: closing any descriptor of a file drops the locks that this process, and so the
        body, holds on it.
        """
        self._closed.set()
        if self._pool is None:
            return
        self._pool.shutdown()
        self._pool = None
        for one, _ in self._started:
            one.drop()

    def _go_on(self) -> None:
        if self._closed.is_set():
            raise GivenUp("the download was cancelled before all of it was verified")
