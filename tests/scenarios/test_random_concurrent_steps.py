"""Random histories of three steps on one branch, two of which see the same, interleaved call by call.

Executions crash, answers are lost or come late, leases run out, attempts are delivered twice, and others commit inside and
outside of what the steps see.  What holds at every moment: nothing that was visible is lost.  What holds in the end is the
verdict of the enumerated histories: no publication builds on what its step had not seen, and what was accepted is on the
branch.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perago.errors import LakeError
from tests.support.faults.gates import Gated, Grant
from tests.support.worlds.concurrent_steps import EVENTS, Side, a_side, a_world, finish, violations

STOPS = ["merge", "swap", "swap", "barrier", "complete", "current", "head", "create_branch", "the end"]
MOST = 4
"""So many executions at once."""


class Sides(RuleBasedStateMachine):
    """Two steps apart from each other, and one that sees what the first one sees."""

    policy = "supersede"
    worlds: Path
    """Where the worlds of a test's histories are, and what they have in common."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perago-sides-", dir=self.worlds))
        self.world = a_world(self.folder)
        self.a = self.world.head().id
        self.sides: list[Side] = [
            a_side(self.world, name, policy=self.policy, sees=sees)
            for name, sees in (("left", "left"), ("right", "right"), ("again", "left"))
        ]
        self.heads = [self.a]
        self.events = 0

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """An attempt reaches a worker, perhaps not for the first time."""
        if len(self._active()) < MOST:
            data.draw(st.sampled_from(self.sides)).gated()

    @precondition(lambda self: self._active())
    @rule(data=st.data(), how=st.sampled_from(["do", "do", "do", "do", "lose", "late"]))
    def step(self, data: st.DataObject, how: Grant) -> None:
        data.draw(st.sampled_from(self._active())).grant(how)

    @precondition(lambda self: self._active())
    @rule(data=st.data(), stop=st.sampled_from(STOPS))
    def run_up_to(self, data: st.DataObject, stop: str) -> None:
        execution = data.draw(st.sampled_from(self._active()))
        while execution.active:
            execution.grant("do")
            self._look()
            if execution.waiting == stop:
                break

    @rule(data=st.data(), trouble=st.sampled_from(["crash", "lease runs out", "none"]))
    def trouble(self, data: st.DataObject, trouble: str) -> None:
        if trouble == "crash" and self._active():
            data.draw(st.sampled_from(self._active())).kill()
        side = data.draw(st.sampled_from(self.sides))
        if trouble == "lease runs out" and self.world.workflow(side.workflow).running:
            side.retry()

    @precondition(lambda self: any(execution.late for execution in self._all()))
    @rule()
    def a_late_request_lands(self) -> None:
        for execution in self._all():
            # An execution that waits at its swap is not late: its answer follows.
            if execution.late is not None and not (execution.active and execution.waiting == "swap"):
                late, execution.late = execution.late, None
                with contextlib.suppress(LakeError):
                    late()
                return

    @precondition(lambda self: getattr(self, "events", 9) < 3)
    @rule(event=st.sampled_from(sorted(EVENTS)))
    def others(self, event: str) -> None:
        self.events += 1
        EVENTS[event](self.world)
        self._look()

    @invariant()
    def nothing_that_was_visible_is_lost(self) -> None:
        if hasattr(self, "world"):
            self._look()
            assert set(self.heads) <= set(self.world.history())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            for execution in self._all():
                execution.kill()
            while any(execution.late for execution in self._all()):
                self.a_late_request_lands()
            for side in self.sides:
                finish(side)
            assert list(violations(self.world, *self.sides, a=self.a, may_fail=True)) == []
            [right] = [side for side in self.sides if side.prefix == "right/"]
            state = self.world.workflow(right.workflow)
            # No event changes what the right step sees: only exhausted retries may end it.
            assert state.status == "COMPLETED" or len(state.tasks) > 6, state
            assert self.world.lake.fsck() == []  # type: ignore[attr-defined]
        finally:
            for execution in self._all():
                execution.kill()
            self.world.orchestrator.close()
            self.world.lake.close()
            shutil.rmtree(self.folder)

    def _all(self) -> list[Gated]:
        return [execution for side in getattr(self, "sides", []) for execution in side.gates]

    def _active(self) -> list[Gated]:
        return [execution for execution in self._all() if execution.active]

    def _look(self) -> None:
        head = self.world.head().id
        if head != self.heads[-1]:
            self.heads.append(head)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["supersede", "reuse"])
def test_random_histories_of_several_steps_keep_the_promises(tmp_path: Path, policy: str) -> None:
    case = type(f"sides_{policy}", (Sides,), {"policy": policy, "worlds": tmp_path}).TestCase
    case.settings = settings(
        max_examples=30,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    case("runTest").runTest()
