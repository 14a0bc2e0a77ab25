"""What a check found when it looked: whether it holds, and its figures in words.

A check that measures something has a `finding(tree)`; one that only says what is wrong has a `violation(tree)`, or raises.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perago.declare.file_tree import Tree


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` has the figures of a check that holds, or what is wrong where it does not."""

    text: str = ""
    passed: bool = True

    @property
    def wrong(self) -> str | None:
        """What is wrong, or None."""
        return None if self.passed else self.text


def wrong(text: str) -> Finding:
    """What a check that does not hold has found."""
    return Finding(text, passed=False)


@runtime_checkable
class Measuring(Protocol):
    """A check that says what it found, whether it holds or not."""

    def finding(self, tree: Tree) -> Finding:
        """What it found in the tree."""


def counted(things: Sized | int, one: str, many: str = "") -> str:
    """A number with its noun: "1 path", "3 paths", "no paths"."""
    number = things if isinstance(things, int) else len(things)
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"
