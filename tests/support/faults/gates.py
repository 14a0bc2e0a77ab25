"""Executions that move one port call at a time, as the test says.

Each runs in a greenlet, which takes a fraction of a thread's time to switch to, and stops before every call to a port.
The test then lets the call happen, loses its answer, lets it land late, or kills the execution.  A killed one never
reaches a port again, whatever its `finally` blocks try.

On a lake with a server's order a publish request stops twice: before it is sent, and as `swap`, when the server has
resolved its source and not yet moved the branch.  Whoever is killed or hangs up there leaves a request in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from greenlet import getcurrent, greenlet

from perago.errors import LakeUnavailable, OrchestratorUnavailable
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
    """One execution behind a gate."""

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
        self._go_on(run)

    @property
    def active(self) -> bool:
        return not self.ended and not self.dead

    def grant(self, how: Grant) -> None:
        """Let the pending call go ahead in one of three ways, and wait for the next one."""
        assert self.waiting is not None
        self.waiting = None
        self._go_on(how)

    def kill(self) -> None:
        """End the execution where it stands."""
        self.dead = True
        if not self.ended:
            self._go_on(None)
        assert self.ended

    def _go_on(self, given: object) -> None:
        # It comes back to whoever lets it go on, which need not be who began it.
        self._run.parent = getcurrent()
        self._run.switch(given)

    def _main(self, run: Callable[[Any, Any], object]) -> None:
        try:
            self.result = run(*self._ports)
        except Died:
            pass
        except OrchestratorUnavailable:
            pass  # the answer to `complete` was lost: to a worker without an outbox that is the end
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
        """Wait until the test lets this call go ahead; it says how."""
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
