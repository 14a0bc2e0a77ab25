"""Faults that a test injects as a step of an attempt begins: a crash, a lost lease, a head that moves.

    faults={"publish": crash()}                the worker dies; its lease runs out, and the retry finds what it left
    faults={"publish": lose_lease()}           the lease runs out, and the attempt continues without knowing
    faults={"body": advance_head("x.csv")}     somebody else's commit lands

The rule: a fault that never fires fails the trial.  Steps are named as in `protocol/steps.py`; a fault fires before the
step does anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from perago.errors import TrialError
from perago.protocol.steps import ORDER
from perago.protocol.suggestions import did_you_mean, listed

STEPS = tuple(step.name for step in ORDER)
"""The names of the steps at which a fault can fire, in the order in which an attempt takes them."""


class Crashed(BaseException):
    """The error of an attempt whose worker was made to crash; not an `Exception`, so that nothing catches it."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker dies; made by `crash()`."""

    tries: int = 1


@dataclass(frozen=True, slots=True)
class LostLease:
    """The attempt goes stale; made by `lose_lease()`."""

    tries: int = 1


@dataclass(frozen=True, slots=True)
class HeadMove:
    """Somebody else's commit; made by `advance_head()`."""

    path: str
    content: str | bytes | None
    by: str | None = None
    tries: int = 1


Fault = Crash | LostLease | HeadMove
"""A value that `crash()`, `lose_lease()` or `advance_head()` returns."""

Faults = Mapping[str, Fault]
"""The faults of an attempt, by the name of the step at which they fire."""

Given = TypeVar("Given")


def crash(*, tries: int = 1) -> Crash:
    """Kill the worker as the step begins, without cleanup; its lease runs out, as after a power failure.

    Args:
        tries: The number of attempts that crash, from the first on; 2 crashes the first retry, too.
    """
    return Crash(_positive(tries, "crash"))


def lose_lease(*, tries: int = 1) -> LostLease:
    """Let Conductor give up on the attempt as the step begins; the attempt continues until a fence stops it.

    Args:
        tries: The number of attempts that lose their lease, from the first on.
    """
    return LostLease(_positive(tries, "lose_lease"))


def advance_head(path: str, content: str | bytes | None = "", *, by: str | None = None) -> HeadMove:
    """Commit to the target branch, as somebody else, when the step of the first attempt begins.

    Args:
        path: The file to commit, below the task's prefix; with a leading `/`, from the root of the repository.
        content: The file's new content; None deletes the file.
        by: The name of another task that publishes the commit in another workflow. Without it the commit is unsigned,
            like one made by hand.
    """
    if not isinstance(path, str) or not path.strip("/"):
        raise TrialError(f"advance_head({path!r}): name the file that is committed, such as 'x.csv'")
    if content is not None and not isinstance(content, str | bytes):
        raise TrialError(
            f"advance_head({path!r}, …): the content is {type(content).__name__}; give str, bytes or None"
        )
    return HeadMove(path, content, by)


def goes_stale(*, tries: int = 1) -> LostLease:
    """Return `lose_lease()`, under its old name."""
    _warn_renamed("goes_stale()", "lose_lease()")
    return lose_lease(tries=tries)


def head_moves(path: str, content: str | bytes | None = "", *, by: str | None = None) -> HeadMove:
    """Return `advance_head()`, under its old name."""
    _warn_renamed("head_moves()", "advance_head()")
    return advance_head(path, content, by=by)


def renamed_argument(faults: Given | None, at: Given | None) -> Given | None:
    """Return `faults`, or `at`, its old name, with a warning.  Raises `TrialError` if a test passes both."""
    if at is None:
        return faults
    if faults is not None:
        raise TrialError("give faults=…, and leave out at=…, which is its old name")
    _warn_renamed("at=", "faults=", stacklevel=4)
    return at


def _warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    text = f"perago.testing: {old} is now called {new}; the old name goes with the next version"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def checked_faults(faults: object, *, what: str = "faults") -> Faults:
    """Return the faults that a test gave.  Raises `TrialError` with one line if they make no sense."""
    if not isinstance(faults, Mapping):
        raise TrialError(f'{what} is {type(faults).__name__}; give a dict such as {{"publish": crash()}}')
    for step, fault in faults.items():
        if step not in STEPS:
            close = did_you_mean(str(step), STEPS, otherwise=f"; the steps are {listed(STEPS[:-4])}, …")
            raise TrialError(f"{what}[{step!r}]: an attempt has no such step{close}")
        if not isinstance(fault, Fault):
            raise TrialError(
                f"{what}[{step!r}] is {type(fault).__name__}; give crash(), lose_lease() or advance_head(…)"
            )
    return faults


def _positive(tries: int, what: str) -> int:
    if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
        raise TrialError(f"{what}(tries={tries!r}): give the number of attempts it happens to, 1 or more")
    return tries
