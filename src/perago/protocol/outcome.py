"""How an attempt ends: the only place that turns an error into a result.

    what happened                                           status                        sent
    the transaction settled                                 COMPLETED                     yes
    a pre check failed, or any exception in one             FAILED_WITH_TERMINAL_ERROR    yes
    the author raised TaskTerminalError                     FAILED_WITH_TERMINAL_ERROR    yes
    Conductor has moved on from this attempt                FAILED                        no
    another execution of this attempt is the publisher      LOST_TO_TWIN                  no
    anything else                                           FAILED                        yes

Two endings are not sent.  A stale attempt's FAILED could only be ignored, or end an attempt that is someone
else's by now.  A loser's FAILED would end the winner's attempt: Conductor keeps the first result it gets.
A TaskFailed raised in a pre check is an ordinary failure; a post check is never terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perago.errors import (
    PeragoError,
    PreGuardrailViolation,
    StaleAttemptError,
    TaskTerminalError,
)

Status = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "LOST_TO_TWIN"]


class LostToTwin(PeragoError):
    """Another execution of this very attempt holds its claim: send nothing, let it finish."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one execution has to say to the orchestrator; `send` is False where it must keep silent."""

    status: Status
    output: Mapping[str, Any] | None = None
    reason: str | None = None
    send: bool = True


def completed(output: Mapping[str, Any]) -> Outcome:
    """The attempt did its work, and what it published is settled."""
    return Outcome("COMPLETED", output=output)


def classify(error: BaseException) -> Outcome:
    """The ending that `error` means, with a reason for people."""
    reason = describe(error)
    match error:
        case LostToTwin():
            return Outcome("LOST_TO_TWIN", reason=reason, send=False)
        case StaleAttemptError():
            return Outcome("FAILED", reason=reason, send=False)
        case PreGuardrailViolation() | TaskTerminalError():
            return Outcome("FAILED_WITH_TERMINAL_ERROR", reason=reason)
        case _:
            return Outcome("FAILED", reason=reason)


def describe(error: BaseException) -> str:
    """An error as one reason: Perago's own texts stand alone, others are led by their type."""
    try:
        text = str(error).strip()
    except BaseException:
        # An author's class, whose __str__ may do anything.
        return f"{type(error).__name__} (its text cannot be shown)"
    if isinstance(error, PeragoError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shorten(reason: str, limit: int) -> str:
    """`reason` within `limit` characters, cut at a whole line where there is one."""
    if len(reason) <= limit:
        return reason
    tail = " …"
    cut = reason[: limit - len(tail)]
    whole = cut.rpartition("\n")[0]
    return (whole or cut).rstrip() + tail
