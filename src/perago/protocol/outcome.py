"""The outcome of an attempt.  This is the only place that converts an error into a result.

    event                                                   status                        sent
    the transaction settled                                 COMPLETED                     yes
    the input does not fit the contract                     FAILED                        yes
    the same, with PERAGO_WRONG_INPUT=terminal              FAILED_WITH_TERMINAL_ERROR    yes
    a pre check failed, or any exception in one             FAILED_WITH_TERMINAL_ERROR    yes
    the author raised TaskTerminalError                     FAILED_WITH_TERMINAL_ERROR    yes
    Conductor has moved on from this attempt                FAILED                        no
    another execution of this attempt is the publisher      LOST_TO_TWIN                  no
    anything else                                           FAILED                        yes
    its executor died                                       FAILED                        yes
    its worker died, and another started on the same root   FAILED                        yes
    several executors in a row died while running a map row FAILED                        yes
    it could not be handed to an executor                   FAILED                        yes
    the server will never accept the COMPLETED result       FAILED                        yes

The last five are reported by the worker or the map, because the execution can no longer report anything or never
started.  Two outcomes are not sent.  A stale attempt's FAILED would at best be ignored, and at worst end an attempt
that now belongs to another execution.  The FAILED of an execution that lost to its twin would end the winner's
attempt, because Conductor keeps the first result that it gets.

A TaskFailed raised in a pre check is an ordinary failure.  A failed post check is never terminal, nor is a result that
does not fit the contract.  A missing repository or ref is an ordinary failure, because it may exist by the next try.
An invalid input is an ordinary failure too, because the next try may reach a newer worker.  In `perago run` and
`perago map`, where every try runs the same code, it is terminal.  A refused publication is an ordinary failure even if
no later head could let the attempt publish, and so is a task's output that somebody else has changed.  The reason then
says so, and `perago run` does not retry it (`final`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from perago.errors import (
    OutputRewritten,
    PeragoError,
    PreGuardrailViolation,
    PublishFenceError,
    StaleAttemptError,
    TaskInputError,
    TaskTerminalError,
)
from perago.protocol.paths import NUL
from perago.protocol.refusal import DETAILS

_CUT = " … "
_LEAST_DETAILS = 40
"""Details that would be shorter than this after the cut are left out."""
_JOINER = "\u200d"
_LONGEST_LETTER = 10

WrongInput = Literal["failed", "terminal"]
"""The treatment of an input that does not fit the contract.

`failed` allows retries, as configured in the TaskDef.  `terminal` allows none.
"""

Status = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "LOST_TO_TWIN"]


class LostToTwin(PeragoError):
    """Raised if another execution of this attempt holds the claim.

    This execution then sends nothing and lets its twin finish.
    """


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one execution, for the orchestrator.  `send` is False if it must not be sent.

    `final` is True if every retry would fail in the same way, although the status allows retries.
    """

    status: Status
    output: Mapping[str, Any] | None = None
    reason: str | None = None
    send: bool = True
    final: bool = False


def completed(output: Mapping[str, Any]) -> Outcome:
    """Return the outcome of an attempt that finished its work and whose publication is settled."""
    return Outcome("COMPLETED", output=output)


def classify(error: BaseException, wrong_input: WrongInput = "failed") -> Outcome:
    """Return the outcome for an attempt that ended with `error`, with a human-readable reason."""
    reason = describe(error)
    match error:
        case LostToTwin():
            return Outcome("LOST_TO_TWIN", reason=reason, send=False)
        case StaleAttemptError():
            return Outcome("FAILED", reason=reason, send=False)
        case PublishFenceError(final=True):
            return Outcome("FAILED", reason=reason, final=True)
        case OutputRewritten():
            return Outcome("FAILED", reason=reason, final=True)
        case PreGuardrailViolation() | TaskTerminalError():
            return Outcome("FAILED_WITH_TERMINAL_ERROR", reason=reason)
        case TaskInputError() if wrong_input == "terminal":
            return Outcome("FAILED_WITH_TERMINAL_ERROR", reason=reason)
        case _:
            return Outcome("FAILED", reason=reason)


def executor_died(how: str, step: str) -> Outcome:
    """Return the outcome of an attempt whose executor died at `step`."""
    return Outcome("FAILED", reason=f"the executor died with {how} at step {step!r}")


def worker_died(worker_id: str) -> Outcome:
    """Return the outcome of an attempt whose whole worker died.  The next worker on the same root reports it."""
    return Outcome(
        "FAILED",
        reason=f"the worker {worker_id} died while it ran this attempt; reported by the next worker on its root",
    )


def executors_died(times: int) -> Outcome:
    """Return the outcome of a map row whose executor died `times` times in a row.  The row itself may be the cause."""
    return Outcome(
        "FAILED", reason=f"its executor died {times} times in a row while it ran; its log may say why"
    )


def dispatch_failed(error: BaseException) -> Outcome:
    """Return the outcome of an attempt that never reached an executor."""
    return Outcome("FAILED", reason=f"the attempt cannot be handed to an executor: {describe(error)}")


def result_refused(error: BaseException) -> Outcome:
    """Return the outcome to send instead of a result that the server will never accept."""
    return Outcome("FAILED", reason=f"the result was refused: {error}")


def describe(error: BaseException) -> str:
    """Return the reason to report for an error: its message, prefixed with its type unless it is a Perago error."""
    try:
        text = str(error).strip()
    except BaseException:
        # __str__ of a user-defined class may do anything.
        return f"{type(error).__name__} (its text cannot be shown)"
    if isinstance(error, PeragoError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def prepare_for_sending(outcome: Outcome, mask: Callable[[str], str], limit: int) -> Outcome:
    """Return the outcome with a reason that is safe to send: without secrets, in valid Unicode, and within `limit`.

    Every outcome passes through this function before it is stored or sent.  The output is the user's data and is not
    changed.
    """
    if outcome.reason is None:
        return outcome
    # A file name that is not valid UTF-8 contains lone surrogates, which JSON cannot represent.
    valid = without_nul(outcome.reason.encode("utf-8", "backslashreplace").decode())
    # Mask first: a truncated secret would not be recognised.
    return replace(outcome, reason=shorten(mask(valid), limit))


def without_nul(text: str) -> str:
    r"""Return the text with U+0000 written as \x00.  PostgreSQL rejects NUL in text, and Conductor would return 500."""
    return text.replace(NUL, r"\x00")


def shorten(reason: str, limit: int) -> str:
    """Return `reason`, shortened to `limit` if necessary.

    It is cut in the middle, because it starts with the cause and ends with the remedy.  Details at the end of a refusal
    are cut first.  The length is counted as Conductor does, in UTF-16 code units: a character above U+FFFF counts as
    two.
    """
    if _length(reason) <= limit:
        return reason
    main, mark, details = reason.partition(DETAILS)
    if mark:
        room = limit - _length(main + mark) - len(_CUT)
        if room < _LEAST_DETAILS:
            return shorten(main, limit)
        kept = _count_fitting(details, room)
        return f"{main}{mark}{details[: _cut_position(details, kept, -1, near=kept // 3)].rstrip()}{_CUT.rstrip()}"
    room = max(limit - len(_CUT), 0)
    begin = _count_fitting(reason[:limit], room - room // 2)
    end = _count_fitting(reason[-limit:][::-1], room // 2)
    begin_at = _cut_position(reason, begin, -1, near=begin // 3)
    end_at = _cut_position(reason, len(reason) - end, 1, near=end // 3)
    return f"{reason[:begin_at].rstrip()}{_CUT}{reason[end_at:].lstrip()}"


def _count_fitting(text: str, room: int) -> int:
    """Return how many leading characters fit into `room` UTF-16 code units."""
    return sum(used <= room for used in accumulate(map(_length, text)))


def _cut_position(text: str, at: int, step: Literal[-1, 1], *, near: int) -> int:
    """Return a good position at which to cut the text, searching from `at`.

    Prefers a nearby position between two words.  Otherwise avoids separating a character from its combining marks.
    """
    for place in range(at, at + step * near, step):
        if text[place - 1 : place + 1].strip() != text[place - 1 : place + 1]:
            return place
    for place in range(at, at + step * _LONGEST_LETTER, step):
        if place in (0, len(text)) or not _splits_a_letter(text, place):
            return place
    return at


def _splits_a_letter(text: str, at: int) -> bool:
    """Return whether a cut would separate an accent from its letter, or split an emoji."""
    mark = (
        unicodedata.category(text[at]) in {"Mn", "Me", "Mc", "Cf"} or "\U0001f3fb" <= text[at] <= "\U0001f3ff"
    )
    return mark or text[at - 1] == _JOINER


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)
