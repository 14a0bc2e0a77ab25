"""The outcome of an attempt: the only place that turns an error into a result.

    what happened                                           status                        sent
    the transaction settled                                 COMPLETED                     yes
    the input does not fit the contract                     FAILED                        yes
    the same, with PERAGO_WRONG_INPUT=terminal              FAILED_WITH_TERMINAL_ERROR    yes
    a pre check failed, or any exception in one             FAILED_WITH_TERMINAL_ERROR    yes
    the author raised TaskTerminalError                     FAILED_WITH_TERMINAL_ERROR    yes
    Conductor has moved on from this attempt                FAILED                        no
    another execution of this attempt is the publisher      LOST_TO_TWIN                  no
    anything else                                           FAILED                        yes
    its executor died                                       FAILED                        yes
    several did, one after the other, at a row of a map     FAILED                        yes
    it could not be handed to an executor                   FAILED                        yes
    the server will never take the COMPLETED result         FAILED                        yes

The worker or the map reports the last four: the execution no longer can, or never started.
Two outcomes are not sent.  A stale attempt's FAILED could only be ignored, or end an attempt that belongs to another
execution by now.  A loser's FAILED would end the winner's attempt: Conductor keeps the first result it gets.
A TaskFailed raised in a pre check is an ordinary failure; a post check is never terminal, nor is a result that does
not fit.  A missing repository or ref may exist on the next try, and is an ordinary failure.
A wrong input is an ordinary failure too, since the next try may reach a newer worker; in `perago run` and `perago map`,
where every try has the same code, it is terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from perago.errors import (
    PeragoError,
    PreGuardrailViolation,
    StaleAttemptError,
    TaskInputError,
    TaskTerminalError,
)
from perago.protocol.paths import NUL

_CUT = " … "
_JOINER = "\u200d"
_LONGEST_LETTER = 10

WrongInput = Literal["failed", "terminal"]
"""`failed`: an input that does not fit the contract is retried as the TaskDef says; `terminal`: it ends the task."""

Status = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "LOST_TO_TWIN"]


class LostToTwin(PeragoError):
    """Another execution of this attempt holds its claim: send nothing, let it finish."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one execution for the orchestrator; `send` is False if it must not be sent."""

    status: Status
    output: Mapping[str, Any] | None = None
    reason: str | None = None
    send: bool = True


def completed(output: Mapping[str, Any]) -> Outcome:
    """Return the outcome of an attempt that did its work and whose publication is settled."""
    return Outcome("COMPLETED", output=output)


def classify(error: BaseException, wrong_input: WrongInput = "failed") -> Outcome:
    """Return the outcome that `error` means, with a reason for users."""
    reason = describe(error)
    match error:
        case LostToTwin():
            return Outcome("LOST_TO_TWIN", reason=reason, send=False)
        case StaleAttemptError():
            return Outcome("FAILED", reason=reason, send=False)
        case PreGuardrailViolation() | TaskTerminalError():
            return Outcome("FAILED_WITH_TERMINAL_ERROR", reason=reason)
        case TaskInputError() if wrong_input == "terminal":
            return Outcome("FAILED_WITH_TERMINAL_ERROR", reason=reason)
        case _:
            return Outcome("FAILED", reason=reason)


def executor_died(how: str, step: str) -> Outcome:
    """Return the outcome of an attempt whose executor died at `step`."""
    return Outcome("FAILED", reason=f"the executor died with {how} at step {step!r}")


def executors_died(times: int) -> Outcome:
    """Return the outcome of a map row whose executor died `times` times in a row: the row may be the cause."""
    return Outcome(
        "FAILED", reason=f"its executor died {times} times in a row while it ran; its log may say why"
    )


def not_handed_out(error: BaseException) -> Outcome:
    """Return the outcome of an attempt that never reached an executor."""
    return Outcome("FAILED", reason=f"the attempt cannot be handed to an executor: {describe(error)}")


def result_refused(error: BaseException) -> Outcome:
    """Return the outcome to send in place of a result that the server will never accept."""
    return Outcome("FAILED", reason=f"the result was refused: {error}")


def describe(error: BaseException) -> str:
    """Return an error as a reason: Perago's own messages as they are, others after the name of their type."""
    try:
        text = str(error).strip()
    except BaseException:
        # A user's class, whose __str__ may do anything.
        return f"{type(error).__name__} (its text cannot be shown)"
    if isinstance(error, PeragoError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def sendable(outcome: Outcome, mask: Callable[[str], str], limit: int) -> Outcome:
    """Return the outcome as it may leave the worker: its reason without secrets, in valid characters, within `limit`.

    Every outcome passes through here before it is stored or sent.  An output is the user's data and is not changed.
    """
    if outcome.reason is None:
        return outcome
    # A file name that is not UTF-8 brings lone surrogates, which JSON cannot hold.
    valid = without_nul(outcome.reason.encode("utf-8", "backslashreplace").decode())
    # Mask first: half a secret would not be recognized.
    return replace(outcome, reason=shorten(mask(valid), limit))


def without_nul(text: str) -> str:
    r"""Return the text with U+0000 written as \x00: PostgreSQL accepts it in no text, and Conductor then answers 500."""
    return text.replace(NUL, r"\x00")


def shorten(reason: str, limit: int) -> str:
    """Return `reason` within `limit`, cut in the middle: it starts with the cause and ends with the remedy.

    Counted as Conductor counts, where a character beyond the first 65,536 is two.
    """
    if _length(reason) <= limit:
        return reason
    room = max(limit - len(_CUT), 0)
    begin = _count_fitting(reason[:limit], room - room // 2)
    end = _count_fitting(reason[-limit:][::-1], room // 2)
    begin_at = _cut_position(reason, begin, -1, near=begin // 3)
    end_at = _cut_position(reason, len(reason) - end, 1, near=end // 3)
    return f"{reason[:begin_at].rstrip()}{_CUT}{reason[end_at:].lstrip()}"


def _count_fitting(text: str, room: int) -> int:
    """Return how many of the first characters fit into `room`."""
    return sum(used <= room for used in accumulate(map(_length, text)))


def _cut_position(text: str, at: int, step: Literal[-1, 1], *, near: int) -> int:
    """Return where to cut, starting at `at`: between two words if that is near, else at least between two letters."""
    for place in range(at, at + step * near, step):
        if text[place - 1 : place + 1].strip() != text[place - 1 : place + 1]:
            return place
    for place in range(at, at + step * _LONGEST_LETTER, step):
        if place in (0, len(text)) or not _splits_a_letter(text, place):
            return place
    return at


def _splits_a_letter(text: str, at: int) -> bool:
    """Return whether a cut would separate an accent from its letter, or the parts of an emoji."""
    mark = (
        unicodedata.category(text[at]) in {"Mn", "Me", "Mc", "Cf"} or "\U0001f3fb" <= text[at] <= "\U0001f3ff"
    )
    return mark or text[at - 1] == _JOINER


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)
