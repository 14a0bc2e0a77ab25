"""How a slot reaches its executor, whatever that is: a process over a pipe, or a process that an engine hosts elsewhere.

The rule for every link: what an executor says is passed on before the news that it is gone, and that news comes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perago.runtime.observe.masking import Masker
from perago.runtime.worker.messages import Answer, Request
from perago.runtime.worker.output import Sink


@dataclass(frozen=True, slots=True)
class Departure:
    """How an executor ended; where it was not `heard` to the end, it may have got further than its last word."""

    how: str
    heard: bool = True


@dataclass(frozen=True, slots=True)
class Ears:
    """Where a link tells what it hears; all of it may be called from any thread."""

    answered: Callable[[Answer], None]
    gone: Callable[[Departure], None]
    printed: Sink
    output_ended: Callable[[str], None]
    mask: Masker


class Link(Protocol):
    """One executor, from its start to its departure."""

    def send(self, request: Request) -> None:
        """Ask something of it; what cannot be sent at all raises, and an executor that is gone says so by itself."""

    def kill(self) -> None:
        """End it and everything it has started, without waiting for that."""

    def close(self) -> None:
        """Let go of what is left of the link, once the executor is gone."""


class Launch(Protocol):
    """Makes executors of one kind."""

    def start(self, number: int, ears: Ears) -> Link:
        """Start one; where there is no room for it this raises, and nothing is left of the try."""
