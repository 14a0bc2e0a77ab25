"""The output that a page shows below a command, compared with what the command printed.

`…` is a cut: within a line it stands for anything, alone on a line for any number of lines.  Values that differ between
runs (commits, times, ids, the folder) may be those of any run.  Everything else must match, from the first line to the
last.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

CUT = "…"
VARYING = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\b\d{8}-\d{6}-[0-9a-f]{9}\b", "<run>"),
    (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{8,12}(?:…|\b)", "<commit>"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", "<time>"),
    (r"\b(?:\d+ h )?(?:\d+ min )?\d+(?:\.\d+)? ?s\b", "<seconds>"),
    (r" \(\d+:\d\d:\d\d\)", ""),
    (r"\[[\w.-]+:\d+\]", "<worker>"),
    (r"\S*/\.perago\b", "<root>"),
    (r"[ \t]+", " "),
)
"""Values that differ between runs, in the order in which they are replaced."""
PASSED_BY = re.compile(r"^\S+(?: \(retry \d+\))?: (?:SCHEDULED|IN_PROGRESS)$")
"""Statuses that a quick step may pass through unseen."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and the lines that the page shows below it."""

    line: str
    shown: tuple[str, ...]


def compare(command: Command, actual: str) -> None:
    """Check that the command printed what the page shows, from the first line to the last."""
    shown, printed = _comparable(command.shown), _comparable(actual.splitlines())
    pattern = "".join(_pattern(line) for line in shown)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is None:
        difference = "\n".join(difflib.unified_diff(shown, printed, "the page", "the command", lineterm=""))
        raise AssertionError(f"`{command.line}` prints something else:\n{difference}\n\nas it was:\n{actual}")


def _comparable(lines: Iterable[str]) -> list[str]:
    """Return the lines without values that differ between runs, and without blank lines."""
    result = []
    for line in lines:
        for pattern, name in VARYING:
            line = re.sub(pattern, name, line)  # noqa: PLW2901
        if line.strip() and not PASSED_BY.match(line):
            result.append(line.rstrip())
    return result


def _pattern(shown: str) -> str:
    if shown.strip() == CUT:
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, shown.split(CUT))) + r"\n"
