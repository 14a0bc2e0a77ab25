"""Executions that advance one port call at a time, under the test's control.

Each runs in a greenlet, which takes a fraction of a thread's time to switch to, and stops before every call to a port.
The test then lets the call happen, loses its answer, lets it land late, or kills the execution.  A killed one never
reaches a port again, whatever its `finally` blocks try.

On a lake with a server's order a publish request stops twice: before it is sent, and as `swap`, when the server has
resolved its source and not yet moved the branch.  An execution that is killed there leaves a request in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from greenlet import getcurrent, greenlet

from perago.errors import LakeUnavailable, OrchestratorUnavailable
from perago.runtime.attempt.context import run_inline
from tests.support.faults.ports import Wrapped

Grant = Literal["do", "lose", "late"]
LOSABLE = frozenset(
    {
        "merge",
        "relocate",
        "commit",
        "create_branch",
        "create_tag",
        "upload",
        "drop_branch",
        "barrier",
        "complete",
    }
)
LATE = frozenset({"merge", "relocate"})
SWAP = "swap"


class Died(BaseException):
    """The execution's process is gone."""


class Gated:
    """One execution that stops before every port call."""

    def __init__(self, run: Callable[[Any, Any], object], lake: Any, orchestrator: Any) -> None:
        self.waiting: str | None = None
        self.ended = False
        self.dead = False
        self.result: object = None
        self.late: Callable[[], object] | None = None
        self._ports = (Wrapped(lake, self._gate), Wrapped(orchestrator, self._gate))
        self._begin = getattr(lake, "begin", None)
        self._check = getattr(lake, "check", None)
        self._run = greenlet(self._main)
        self._resume(run)

    @property
    def active(self) -> bool:
        return not self.ended and not self.dead

    def grant(self, how: Grant) -> None:
        """Run the pending call in one of three ways, and stop before the next one."""
        assert self.waiting is not None
        self.waiting = None
        self._resume(how)

    def kill(self) -> None:
        """Kill the execution where it waits."""
        self.dead = True
        if not self.ended:
            self._resume(None)
        assert self.ended

    def _resume(self, given: object) -> None:
        # It switches back to the caller that resumed it, which need not be the one that started it.
        self._run.parent = getcurrent()
        self._run.switch(given)

    def _main(self, run: Callable[[Any, Any], object]) -> None:
        try:
            self.result = run(*self._ports)
        except Died:
            pass
        except OrchestratorUnavailable:
            pass  # the answer to `complete` was lost: a worker without an outbox ends here
        finally:
            self.ended = True

    def _gate(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in LATE and self._begin is not None:
            return self._publish(name, arguments)
        how = self._stop(name)
        if how == "late" and name in LATE:
            self.late = lambda: call(*arguments)
            raise LakeUnavailable(f"{name}: no answer, and the request is still on its way")
        return self._answered(name, how, call(*arguments))

    def _publish(self, name: str, arguments: tuple[Any, ...]) -> Any:
        assert self._begin is not None
        assert self._check is not None
        self._stop(name)
        self.late = self._begin(name, arguments)
        how = self._stop(SWAP)
        if how == "late":
            raise LakeUnavailable(f"{name}: no answer, and the request is in flight")
        swap, self.late = self.late, None
        return self._check(name, arguments, self._answered(name, how, swap()))

    def _stop(self, name: str) -> Grant:
        """Wait until the test grants this call, and return how."""
        if self.dead:
            raise Died
        self.waiting = name
        how: Grant = self._run.parent.switch()
        if self.dead:
            raise Died
        return how

    @staticmethod
    def _answered(name: str, how: Grant, answer: Any) -> Any:
        if how == "lose" and name in LOSABLE:
            error = OrchestratorUnavailable if name == "complete" else LakeUnavailable
            raise error(f"{name}: it happened, and the answer was lost")
        return answer


# --- background work ---------------------------------------------------------------------------------------------------


class LazyFuture(Future):
    """Work that is deferred until its result is requested."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        self._run_now()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._run_now()
        return super().exception(timeout)

    def _run_now(self) -> None:
        if self.done():
            return
        try:
            self.set_result(self._work())
        except Exception as error:
            self.set_exception(error)


# Background work of an attempt, at its two extremes: done at once, or only when its result is needed.  With threads,
# revoking and claiming happen somewhere in between.
ORDERS = {"revoke and claim first": run_inline, "revoke and claim last": LazyFuture}
