"""What a look found: one line, with what to do about it.

ok     as it should be
warn   works, but not as well or as safely as it could
fail   something that Perago needs does not work
skip   not looked at, and why

Looks that end, whatever a server does: one that sends a byte now and then would keep a plain call for ever.

Only for looks that leave nothing to tidy up: the thread of one that took too long is left to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from perago.runtime.observe.sanitize import Masker

Level = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer; `remedy` is what to do, often a command."""

    part: str
    level: Level
    says: str
    remedy: str = ""

    def masked(self, mask: Masker) -> Finding:
        """The same without secrets, on one line: it may quote a server."""
        return replace(self, says=_line(mask(self.says)), remedy=_line(mask(self.remedy)))


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether something that Perago needs does not work."""
    return any(finding.level == "fail" for finding in findings)


def _line(text: str) -> str:
    return " ".join(text.split())


T = TypeVar("T")

LONGEST = 30.0


def within(seconds: float, look: Callable[[], T], otherwise: T) -> T:
    """What `look` returns, or `otherwise` if it takes longer; what it raises is raised here."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(look())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="perago-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else otherwise
