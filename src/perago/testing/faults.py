"""What a test lets happen to an attempt as one of its steps begins: a crash, a lost lease, a head that moves.

    at={"publish": crash()}              the worker dies there; the lease runs out, and the retry finds what it left
    at={"publish": goes_stale()}         the lease runs out there, and the attempt works on without knowing
    at={"body": head_moves("x.csv")}     somebody else's commit lands there

The rule: an incident that never happens is an error of the test.  A step is named as in `protocol/steps.py`, and what is
to happen at it happens before anything of the step is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perago.errors import TrialError
from perago.protocol.steps import ORDER
from perago.protocol.suggestions import did_you_mean, listed

STEPS = tuple(step.name for step in ORDER)
"""The names of the steps at which something can happen, in the order in which an attempt takes them."""


class Crashed(BaseException):
    """The error of an attempt whose worker was made to crash; not an `Exception`, so that nothing catches it."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker dies; made by `crash()`."""

    tries: int = 1


@dataclass(frozen=True, slots=True)
class LostLease:
    """The attempt goes stale; made by `goes_stale()`."""

    tries: int = 1


@dataclass(frozen=True, slots=True)
class HeadMove:
    """A commit of somebody else's; made by `head_moves()`."""

    path: str
    content: str | bytes | None
    by: str | None = None
    tries: int = 1


Incident = Crash | LostLease | HeadMove
"""What `crash()`, `goes_stale()` and `head_moves()` return."""

At = Mapping[str, Incident]
"""What happens at which step of an attempt, by the step's name."""


def crash(*, tries: int = 1) -> Crash:
    """The worker dies as the step begins, and nothing is cleaned up; its lease runs out, as after a power failure.

    Args:
        tries: How many attempts it happens to, from the first on; 2 crashes the first retry, too.
    """
    return Crash(_positive(tries, "crash"))


def goes_stale(*, tries: int = 1) -> LostLease:
    """Conductor gives up on the attempt as the step begins, and the attempt goes on until a fence stops it.

    Args:
        tries: How many attempts it happens to, from the first on.
    """
    return LostLease(_positive(tries, "goes_stale"))


def head_moves(path: str, content: str | bytes | None = "", *, by: str | None = None) -> HeadMove:
    """Somebody else commits to the target branch as the step of the first attempt begins.

    Args:
        path: The file they commit, below the task's prefix; with a `/` before it, from the root of the repository.
        content: What they write to it; None deletes it.
        by: The name of another task, which has published this in a workflow of its own. Without it, it is a commit that no
            task has signed, such as one made by hand.
    """
    if not isinstance(path, str) or not path.strip("/"):
        raise TrialError(f"head_moves({path!r}): name the file that is committed, such as 'x.csv'")
    if content is not None and not isinstance(content, str | bytes):
        raise TrialError(
            f"head_moves({path!r}, …): the content is {type(content).__name__}; give str, bytes or None"
        )
    return HeadMove(path, content, by)


def checked_at(at: object, *, what: str = "at") -> At:
    """`at` as a test gave it, or one line that says what is wrong with it."""
    if not isinstance(at, Mapping):
        raise TrialError(f'{what} is {type(at).__name__}; give a dict such as {{"publish": crash()}}')
    for step, incident in at.items():
        if step not in STEPS:
            close = did_you_mean(str(step), STEPS, otherwise=f"; the steps are {listed(STEPS[:-4])}, …")
            raise TrialError(f"{what}[{step!r}]: an attempt has no such step{close}")
        if not isinstance(incident, Incident):
            raise TrialError(
                f"{what}[{step!r}] is {type(incident).__name__}; give crash(), goes_stale() or head_moves(…)"
            )
    return at


def _positive(tries: int, what: str) -> int:
    if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
        raise TrialError(f"{what}(tries={tries!r}): give how many attempts it happens to, 1 or more")
    return tries
