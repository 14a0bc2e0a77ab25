"""Work that may overlap with other work: begun here, asked for later; what changes anything is always waited for.

A transaction says what may overlap; whether it does is up to who runs it.  An executor gives it threads, so that
servers are waited for at the same time.  By default nothing overlaps: what is begun is done at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Overlap(Protocol):
    """Begins work; its `Future` has the answer.  `ThreadPoolExecutor.submit` is one."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


def at_once(work: Callable[[], T], /) -> Future[T]:
    """Do the work now."""
    done: Future[T] = Future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


def give_up(begun: Future[Any]) -> BaseException | None:
    """Have begun work not done, or wait for its end; returns what it raised, if it was done."""
    return None if begun.cancel() else begun.exception()
