"""The two ends of what may overlap in an attempt: what is begun is done at once, or only when it is asked for.

With threads, revoking and claiming happen somewhere in between.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from perago.runtime.attempt.context import run_inline


class WhenAsked(Future):
    """Work that is put off until somebody wants its answer."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        self._do()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._do()
        return super().exception(timeout)

    def _do(self) -> None:
        if self.done():
            return
        try:
            self.set_result(self._work())
        except Exception as error:
            self.set_exception(error)


ORDERS = {"revoke and claim first": run_inline, "revoke and claim last": WhenAsked}
