"""Random histories: executions interleaved call by call, with twins, crashes, lost and late answers, dead leases
and, in one machine, commits by others.

What holds at every moment: whatever was once the head can still be found, and what Conductor accepted is on the
branch.  What holds in the end: the workflow completes, with its result at the head.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perago.declare.task import TaskDefinition
from perago.errors import LakeError
from perago.orchestrator.base import Assignment
from perago.protocol.policies import POLICIES, PolicyName
from tests.support.faults.gates import Gated, Grant
from tests.support.worlds.histories import close_world, copied_world, fresh_world
from tests.support.worlds.world import Made, make_task

RETRIES = 10
CRITICAL = [
    "merge",
    "swap",
    "swap",
    "barrier",
    "relocate",
    "complete",
    "complete",
    "current",
    "head",
    "create_branch",
    "the end",
]


class History(RuleBasedStateMachine):
    """A workflow step with up to three executions at once."""

    policy: PolicyName = "replace"
    others_write = False
    begun: Path
    """The world that every history of a test begins in, closed."""

    @initialize(changing=st.booleans())
    def begin(self, changing: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perago-history-", dir=self.begun.parent))
        self.world = copied_world(self.begun, self.folder)
        self.a = self.world.head().id
        self.changing, self.bodies = changing, itertools.count()
        self.task = make_task(self._body, on_abandoned=self.policy, retries=RETRIES)
        self.workflow = self.world.start(self.task)
        self.current: Assignment | None = None
        self.executions: list[Gated] = []
        self.heads = [self.a]
        self.foreign: list[str] = []
        self.accepted: str | None = None

    def _body(self, workspace: Path, params: object) -> Made:
        said = f"body {next(self.bodies)}"
        if self.changing:
            (workspace / "result.txt").write_text(said)
        return Made(said=said)

    # --- what may happen -------------------------------------------------------------------------------------

    @rule()
    def deliver(self) -> None:
        """The current attempt reaches a worker, perhaps for the second or third time."""
        polled = self.world.orchestrator.poll("make", worker_id="w", count=1, wait_seconds=0)
        if polled:
            self.current = polled[0]
        if self.current is not None and len(self._active()) < 3:
            self._execute(self.task, self.current)

    @precondition(lambda self: self._active())
    @rule(data=st.data(), how=st.sampled_from(["do", "do", "do", "do", "lose", "late"]))
    def step(self, data: st.DataObject, how: Grant) -> None:
        data.draw(st.sampled_from(self._active())).grant(how)

    @precondition(lambda self: self._active())
    @rule(data=st.data(), stop=st.sampled_from(CRITICAL))
    def run_up_to(self, data: st.DataObject, stop: str) -> None:
        """Run on to the next call of a name: the dangerous moments are right before and right after these."""
        execution = data.draw(st.sampled_from(self._active()))
        while execution.active:
            execution.grant("do")
            self._look()
            if execution.waiting == stop:
                break

    @rule(data=st.data(), trouble=st.sampled_from(["crash", "lease runs out", "none", "none"]))
    def trouble(self, data: st.DataObject, trouble: str) -> None:
        """Now and then a worker dies, or the lease of the current attempt runs out under it."""
        if trouble == "crash" and self._active():
            data.draw(st.sampled_from(self._active())).kill()
        if trouble == "lease runs out":
            self.world.orchestrator.time_out_in_progress("the lease ran out")

    @precondition(lambda self: any(execution.late for execution in self.executions))
    @rule()
    def a_late_request_lands(self) -> None:
        for execution in self.executions:
            if execution.late is not None:
                late, execution.late = execution.late, None
                with contextlib.suppress(LakeError):
                    late()
                return

    @precondition(lambda self: self.others_write and len(self.foreign) < 2)
    @rule()
    def someone_else_commits(self) -> None:
        self.foreign.append(self.world.commit({f"data/by-hand-{len(self.foreign)}.txt": "x"}))

    # --- what holds ------------------------------------------------------------------------------------------

    @invariant()
    def nothing_that_was_visible_is_lost(self) -> None:
        if hasattr(self, "world"):
            self._look()
            kept = set(self.world.history())
            for tagged in self.world.replaced():
                kept |= set(self.world.history(tagged))
            assert set(self.heads) <= kept

    @invariant()
    def a_commit_made_by_hand_stays_on_the_branch_unless_the_policy_may_replace_it(self) -> None:
        if hasattr(self, "world") and not POLICIES[self.policy].replaces_unsigned:
            assert set(self.foreign) <= set(self.world.history())

    @invariant()
    def what_was_accepted_is_on_the_branch(self) -> None:
        if not hasattr(self, "world"):
            return
        state = self.world.workflow(self.workflow)
        if state.status != "COMPLETED":
            return
        ref, said = state.output["ref"], state.tasks[-1].output["result"]["said"]
        assert ref in self.world.history()
        if self.changing:
            assert self.world.files(ref)["data/result.txt"] == said
        else:
            assert "data/result.txt" not in self.world.files(ref)
        if not self.foreign:
            assert ref == self.world.head().id

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self._finish()
        finally:
            for execution in self.executions:
                execution.kill()
            self.world.orchestrator.close()
            self.world.lake.close()
            shutil.rmtree(self.folder)

    def _finish(self) -> None:
        """All workers die, requests in flight land, and one healthy worker does the rest."""
        for execution in self.executions:
            execution.kill()
        for execution in self.executions:
            self.a_late_request_lands() if execution.late else None
        for _ in range(RETRIES + 1):
            if not self.world.workflow(self.workflow).running:
                break
            self.world.orchestrator.time_out_in_progress("dead")
            polled = self.world.orchestrator.poll("make", worker_id="w", count=1, wait_seconds=0)
            if polled:
                self.world.execute(self.task, polled[0])
        self.nothing_that_was_visible_is_lost()
        self.what_was_accepted_is_on_the_branch()
        state = self.world.workflow(self.workflow)
        retries_ran_out = len(state.tasks) == RETRIES + 1
        assert state.status == "COMPLETED" or self.foreign or retries_ran_out, state
        assert self.world.lake.fsck() == []  # type: ignore[attr-defined]

    # --- small parts -----------------------------------------------------------------------------------------

    def _active(self) -> list[Gated]:
        return [execution for execution in getattr(self, "executions", []) if execution.active]

    def _execute(self, task: TaskDefinition, assignment: Assignment) -> None:
        def run(lake: object, orchestrator: object) -> object:
            return self.world.execute(task, assignment, lake=lake, orchestrator=orchestrator)

        self.executions.append(Gated(run, self.world.lake, self.world.orchestrator))

    def _look(self) -> None:
        head = self.world.head().id
        if head != self.heads[-1]:
            self.heads.append(head)


def _machine(policy: PolicyName, *, others_write: bool, begun: Path) -> type[History]:
    name = f"{policy}_{'with_others' if others_write else 'alone'}"
    return type(name, (History,), {"policy": policy, "others_write": others_write, "begun": begun})


CASES = [(policy, others) for policy in POLICIES for others in (False, True)]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    folder = tmp_path / "begun"
    world = fresh_world(folder)
    world.commit({"other.txt": "other"})
    close_world(world)
    return folder


def _run(policy: PolicyName, others_write: bool, begun: Path, examples: int) -> None:
    case = _machine(policy, others_write=others_write, begun=begun).TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    case("runTest").runTest()


@pytest.mark.parametrize(("policy", "others_write"), CASES)
@pytest.mark.slow
def test_a_few_random_histories_keep_the_promises(
    begun: Path, policy: PolicyName, others_write: bool
) -> None:
    _run(policy, others_write, begun, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "others_write"), CASES)
def test_many_random_histories_keep_the_promises(begun: Path, policy: PolicyName, others_write: bool) -> None:
    _run(policy, others_write, begun, 40)
