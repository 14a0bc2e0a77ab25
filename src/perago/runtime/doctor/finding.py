"""Findings of `perago doctor`, each one line with a remedy, and a time limit for checks.

ok     works as it should
warn   works, but not as well or as safely as it could
fail   something that Perago needs does not work
skip   not checked; the finding says why
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from perago.runtime.observe.sanitize import Masker

T = TypeVar("T")
Level = Literal["ok", "warn", "fail", "skip"]
LONGEST = 30.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.  `remedy` says what to do, often as a command."""

    part: str
    level: Level
    says: str
    remedy: str = ""

    def masked(self, mask: Masker) -> Finding:
        """Return the finding on a single line, with secrets masked, because it may quote a server."""
        return replace(self, says=_line(mask(self.says)), remedy=_line(mask(self.remedy)))


def is_broken(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is a failure: something that Perago needs does not work."""
    return any(finding.level == "fail" for finding in findings)


def _line(text: str) -> str:
    return " ".join(text.split())


def call_with_time_limit(seconds: float, check: Callable[[], T], otherwise: T) -> T:
    """Return the result of `check`, or `otherwise` if it exceeds the time limit.  Re-raises an exception from `check`.

    Without a limit, a server that sends a byte now and then could block a call forever.  Use this only for checks that
    need no cleanup: the thread of a check that takes too long is abandoned.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(check())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="perago-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else otherwise
