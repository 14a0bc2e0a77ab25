"""Doing something again that failed without a verdict: the one rule of transfers for retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perago.errors import LakeUnavailable
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.errors import translate
from perago.lake.lakefs.transfer.ways import StoreUnreachable

T = TypeVar("T")


def again(options: Options, doing: str, work: Callable[[], T]) -> T:
    """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""
    failures = 0
    while True:
        try:
            return work()
        except StoreUnreachable:
            # There is another way.
            raise
        except Exception as error:
            problem = translate(error, doing)
            failures += 1
            if failures >= options.tries or not isinstance(problem, LakeUnavailable):
                raise problem from error
        options.sleep(options.delay(failures))
