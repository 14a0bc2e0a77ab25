"""What a download leaves to verify: a body may begin before every byte of its input is hashed, and nothing ends before.

A lake that is given a `Verification` may return from `download` with large objects unverified.  They are verified here, on
threads of their own, while the caller goes on.  The rule: whoever gave it calls `wait` before anything that was made of
the files counts.  It is closed once, with `wait` or without it, and no thread, descriptor or file is left then.
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
"""So many objects may be left: each holds a descriptor or two, and a process often has 1024."""

GoOn = Callable[[], None]
"""Raises `GivenUp` where nobody waits for the verdict any more."""


class GivenUp(LakeError):
    """There is no verdict: the caller has stopped the verification."""


class Unverified(Protocol):
    """An object that was written to its file before its bytes were verified."""

    @property
    def path(self) -> str:
        """The object's path."""

    def verify(self, go_on: GoOn) -> str | None:
        """Its checksum, if that is not the one that `download` returned; `LakeError` if its bytes are wrong.

        Calls `go_on` between pieces of work.
        """

    def drop(self) -> None:
        """Let go of what it holds; called once, whether it was verified or not."""


class Verification:
    """The verdicts on what downloads have left; made for one caller, and usable until it is closed."""

    def __init__(self, threads: int = _CORES, most: int = _MOST) -> None:
        self._threads = threads
        self._most = most
        self._closed = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[tuple[Unverified, Future[str | None]]] = []

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def room(self) -> int:
        """How many more objects may be left."""
        return self._most - len(self._begun)

    def begin(self, objects: Sequence[Unverified]) -> None:
        """Verify these beside whatever else is done."""
        if objects and self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "perago-verify")
        for one in objects:
            self._begun.append((one, self._pool.submit(one.verify, self._go_on)))  # type: ignore[union-attr]

    def wait(self) -> dict[str, str]:
        """Have all verdicts, or the first that is bad, which is raised; nothing can begin any more.

        Returns checksum by object path, for objects whose bytes have another one than `download` returned.
        """
        try:
            wait([verdict for _, verdict in self._begun], return_when=FIRST_EXCEPTION)
            # Before it is closed: who is stopped by that says so as an error, too.
            for _, verdict in self._begun:
                if verdict.done() and (bad := verdict.exception()) is not None:
                    raise bad
            return {one.path: checksum for one, verdict in self._begun if (checksum := verdict.result())}
        finally:
            self.close()

    def close(self) -> None:
        """Stop what is under way, and let go of everything.

        Not sooner: closing any descriptor of a file takes away the locks that this process, and so the body, has on it.
        """
        self._closed.set()
        if self._pool is None:
            return
        self._pool.shutdown()
        self._pool = None
        for one, _ in self._begun:
            one.drop()

    def _go_on(self) -> None:
        if self._closed.is_set():
            raise GivenUp("the download was given up before all of it was verified")
