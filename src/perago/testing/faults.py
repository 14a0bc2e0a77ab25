"""Faults that a test injects at the start of a step: a crash, a lost lease, a head that moves.

    faults={"publish": crash()}                the worker dies, its lease expires, and the retry finds what it left
    faults={"publish": lose_lease()}           the lease expires, and the attempt continues without noticing
    faults={"body": advance_head("x.csv")}     somebody else's commit lands

A fault that never fires fails the trial.  Steps are named as in `protocol/steps.py`, and a fault fires before its step
does anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from perago.errors import TrialError
from perago.protocol.steps import ORDER, PLAIN_ORDER
from perago.protocol.suggestions import did_you_mean, listed

STEPS = tuple(step.name for step in PLAIN_ORDER)
"""The names of the steps at which a fault can fire in any task, in the order in which an attempt runs them."""
_ALL_STEPS = frozenset(step.name for step in ORDER)


class Crashed(BaseException):
    """Raised in an attempt whose worker is made to crash. It is not an `Exception`, so that nothing catches it."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Fault: the worker dies. Created by `crash()`."""

    tries: int = 1


@dataclass(frozen=True, slots=True)
class LostLease:
    """Fault: the attempt loses its lease. Created by `lose_lease()`."""

    tries: int = 1


@dataclass(frozen=True, slots=True)
class HeadMove:
    """Fault: somebody else commits to the branch. Created by `advance_head()`."""

    path: str
    content: str | bytes | None
    by: str | None = None
    tries: int = 1


Fault = Crash | LostLease | HeadMove
"""A fault to inject, as returned by `crash()`, `lose_lease()` or `advance_head()`."""

Faults = Mapping[str, Fault]
"""The faults for an attempt, keyed by the name of the step at which they fire."""

Given = TypeVar("Given")


def crash(*, tries: int = 1) -> Crash:
    """Kill the worker at the start of the step, without cleanup. Its lease expires, as after a power failure.

    Args:
        tries: The number of attempts that crash, starting with the first. With 2, the first retry crashes too.
    """
    return Crash(_positive(tries, "crash"))


def lose_lease(*, tries: int = 1) -> LostLease:
    """At the start of the step, make Conductor give up on the attempt. The attempt continues until a fence stops it.

    Args:
        tries: The number of attempts that lose their lease, starting with the first.
    """
    return LostLease(_positive(tries, "lose_lease"))


def advance_head(path: str, content: str | bytes | None = "", *, by: str | None = None) -> HeadMove:
    """Commit to the target branch, as somebody else, when the first attempt reaches the step.

    Args:
        path: The path of the file to commit, relative to the task's prefix, or to the repository if it starts with `/`.
        content: The file's new content. None deletes the file.
        by: The name of the task that appears to have published the commit, in another workflow. Without it, the commit
            is unsigned, as if made by hand.
    """
    if not isinstance(path, str) or not path.strip("/"):
        raise TrialError(f"advance_head({path!r}): name the file that is committed, such as 'x.csv'")
    if content is not None and not isinstance(content, str | bytes):
        raise TrialError(
            f"advance_head({path!r}, …): the content is {type(content).__name__}; give str, bytes or None"
        )
    return HeadMove(path, content, by)


def goes_stale(*, tries: int = 1) -> LostLease:
    """Deprecated: the old name of `lose_lease()`."""
    _warn_renamed("goes_stale()", "lose_lease()")
    return lose_lease(tries=tries)


def head_moves(path: str, content: str | bytes | None = "", *, by: str | None = None) -> HeadMove:
    """Deprecated: the old name of `advance_head()`."""
    _warn_renamed("head_moves()", "advance_head()")
    return advance_head(path, content, by=by)


def renamed_argument(faults: Given | None, at: Given | None) -> Given | None:
    """Return `faults` or, with a deprecation warning, the value passed under its old name `at`.

    Raises `TrialError` if a test passes both.
    """
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
    """Validate and return the faults passed by a test. Raises a one-line `TrialError` if they are invalid."""
    if not isinstance(faults, Mapping):
        raise TrialError(f'{what} is {type(faults).__name__}; give a dict such as {{"publish": crash()}}')
    for step, fault in faults.items():
        if step not in _ALL_STEPS:
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
