"""Verdicts on downloads that a test writes, and a lake that leaves them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from perago.lake.base import Download, Lake, Verification
from perago.lake.deferred_verification import GoOn


class Verdict:
    """One object that is left: its verdict comes once `gate` is set, and is `checksum` or `error`."""

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
        """Whether the verdict was found."""
        return self.done.is_set()

    def verify(self, go_on: GoOn) -> str | None:
        while self._gate is not None and not self._gate.wait(0.01):
            go_on()
        go_on()
        self.done.set()
        if self._error is not None:
            raise self._error
        return self._checksum

    def drop(self) -> None:
        self.drops += 1


class LeavingLake:
    """A lake whose downloads leave the given verdicts, if they are allowed to leave anything."""

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
