"""Executions that move one port call at a time, as the test says.

Each runs on a thread of its own and stops before every call to a port.  The test then lets the call happen, loses
its answer, lets it land late, or kills the execution.  A killed one never reaches a port again, whatever its
`finally` blocks try.

On a lake with a server's order a publish request stops twice: before it is sent, and as `swap`, when the server has
resolved its source and not yet moved the branch.  Whoever is killed or hangs up there leaves a request in flight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

from perago.errors import LakeUnavailable, OrchestratorUnavailable
from tests.support.ports import Wrapped

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
        self._granted: Grant | None = None
        self._turn = threading.Condition()
        self._ports = (Wrapped(lake, self._gate), Wrapped(orchestrator, self._gate))
        self._begin = getattr(lake, "begin", None)
        self._thread = threading.Thread(target=self._main, args=(run,), daemon=True)
        self._thread.start()
        self._settle()

    @property
    def active(self) -> bool:
        return not self.ended and not self.dead

    def grant(self, how: Grant) -> None:
        """Let the pending call go ahead in one of three ways, and wait for the next one."""
        with self._turn:
            self._granted = how
            self.waiting = None
            self._turn.notify_all()
        self._settle()

    def kill(self) -> None:
        """End the execution where it stands."""
        with self._turn:
            self.dead = True
            self._turn.notify_all()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _settle(self) -> None:
        with self._turn:
            assert self._turn.wait_for(lambda: self.waiting is not None or self.ended, timeout=30)

    def _main(self, run: Callable[[Any, Any], object]) -> None:
        try:
            self.result = run(*self._ports)
        except Died:
            pass
        except OrchestratorUnavailable:
            pass  # the answer to `complete` was lost: to a worker without an outbox that is the end
        finally:
            with self._turn:
                self.ended = True
                self._turn.notify_all()

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
        self._stop(name)
        self.late = self._begin(name, arguments)
        how = self._stop(SWAP)
        if how == "late":
            raise LakeUnavailable(f"{name}: no answer, and the request is in flight")
        swap, self.late = self.late, None
        return self._answered(name, how, swap())

    def _stop(self, name: str) -> Grant:
        """Wait until the test lets this call go ahead; it says how."""
        with self._turn:
            if self.dead:
                raise Died
            self.waiting = name
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._granted is not None or self.dead)
            if self.dead or self._granted is None:
                raise Died
            how, self._granted = self._granted, None
        return how

    @staticmethod
    def _answered(name: str, how: Grant, answer: Any) -> Any:
        if how == "lose" and name in LOSABLE:
            error = OrchestratorUnavailable if name == "complete" else LakeUnavailable
            raise error(f"{name}: it happened, and the answer was lost")
        return answer
