"""What a look found: one line, with what to do about it.

ok     as it should be
warn   works, but not as well or as safely as it could
fail   something that Perago needs does not work
skip   not looked at, and why
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from perago.runtime.observe.masking import Masker

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
