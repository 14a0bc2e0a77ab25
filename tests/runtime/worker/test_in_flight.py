"""Attempts that a dead worker left in flight: the next worker on its root reports them, but only if that is safe."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeUnavailable
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.names import claim_branch_name, staging_branch_name
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import PendingResult
from perago.runtime.worker.executor_exit import DeadExecutorCleanup
from perago.runtime.worker.in_flight import InFlight, InFlightFiles, ReportJob, in_flight_of, without_result
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import WorkerWorld

DEAD = "host:11"


@dataclass
class Scene:
    """An attempt that a dead worker has polled, and the worker that starts on its root."""

    root: Path
    lake: LocalLake
    flow: LocalOrchestrator
    taken: Assignment
    record: InFlight
    reported: list[PendingResult] = field(default_factory=list)

    @property
    def claim(self) -> str:
        return claim_branch_name(self.taken.attempt, "main")

    def run(self, **changed: Any) -> float | None:
        files = InFlightFiles(self.root, self.flow.address)
        files.put(replace(self.record, **changed))
        (left,) = without_result(files.read(), (), lambda _: False)
        clean = DeadExecutorCleanup(self.root, self.lake).clean_left_behind
        job = ReportJob(left, self.flow, self.lake, clean, self.reported.append, files.drop)
        return job()

    def branches(self) -> list[str]:
        return [branch.name for branch in self.lake.branches("songs", "perago-")]

    def records(self) -> list[str]:
        return [file.name for file in (self.root / "in-flight").iterdir()]

    def make_branch(self, name: str) -> None:
        self.lake.create_branch("songs", name, self.record.ref)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with (
        closing(LocalLake(tmp_path / "lake")) as lake,
        closing(LocalOrchestrator(tmp_path / "orchestrator.db")) as flow,
    ):
        lake.create_repository("songs")
        ref = lake.head("songs", "main").id
        flow.register_taskdefs([{"name": "make", "retryCount": 1, "responseTimeoutSeconds": 600}])
        step = {"name": "make", "taskReferenceName": "one", "type": "SIMPLE"}
        step["inputParameters"] = {"workspace": "${workflow.input.workspace}"}  # type: ignore[assignment]
        flow.register_workflow({"name": "flow", "version": 1, "tasks": [step]})
        workspace = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": ref}
        flow.start_workflow("flow", input={"workspace": workspace})
        (taken,) = flow.poll("make", worker_id=DEAD, count=1, wait_seconds=0)
        record = in_flight_of("e" * 16, taken, DEAD, may_publish=True)
        yield Scene(tmp_path, lake, flow, taken, record)


class TestReporting:
    def test_an_attempt_is_reported_with_its_staging_dropped_and_its_claim_taken(self, scene: Scene) -> None:
        scene.make_branch(staging_branch_name(scene.taken.attempt, scene.record.execution_id))

        assert scene.run() is None

        (pending,) = scene.reported
        assert (pending.attempt, pending.outcome.status) == (scene.taken.attempt, "FAILED")
        assert pending.outcome.reason is not None
        assert f"the worker {DEAD} died" in pending.outcome.reason
        # No twin can publish until the orchestrator has answered; then the sender drops the claim.
        assert scene.branches() == [scene.claim]
        assert pending.claim is not None
        assert pending.claim.branch == scene.claim

    def test_a_claim_whose_publish_may_be_in_flight_stays_after_the_report(self, scene: Scene) -> None:
        scene.make_branch(scene.claim)

        scene.run(claimed=True)

        (pending,) = scene.reported
        assert pending.claim is None
        assert scene.branches() == [scene.claim]

    def test_an_attempt_without_a_workspace_needs_no_claim(self, scene: Scene) -> None:
        scene.record = in_flight_of("e" * 16, scene.taken, DEAD, may_publish=False)

        scene.run()

        (pending,) = scene.reported
        assert pending.claim is None
        assert scene.branches() == []

    def test_a_lake_that_does_not_answer_is_asked_again(self, scene: Scene) -> None:
        class Away(LocalLake):
            def create_branch(self, repository: str, name: str, ref: str) -> None:
                raise LakeUnavailable("away")

        with closing(Away(scene.root / "lake")) as away:
            here, scene.lake = scene.lake, away
            assert scene.run() is not None
            scene.lake = here
        assert scene.reported == []
        assert scene.records() != []
        assert scene.run() is None
        assert len(scene.reported) == 1


class TestSilence:
    """Each condition by itself keeps the worker from reporting, and what the lake holds stays."""

    def test_a_twin_that_holds_the_claim(self, scene: Scene) -> None:
        scene.make_branch(scene.claim)

        assert scene.run() is None

        assert (scene.reported, scene.records()) == ([], [])
        assert scene.branches() == [scene.claim]
        assert scene.flow.current(scene.taken.attempt).status == "IN_PROGRESS"

    def test_another_worker_that_has_polled_the_task_since(self, scene: Scene) -> None:
        scene.flow.requeue(scene.taken.attempt.task_id)
        scene.flow.poll("make", worker_id="host:22", count=1, wait_seconds=0)

        assert scene.run() is None

        assert (scene.reported, scene.records(), scene.branches()) == ([], [], [])

    def test_a_task_that_waits_to_be_polled_again(self, scene: Scene) -> None:
        scene.flow.requeue(scene.taken.attempt.task_id)

        scene.run()

        assert (scene.reported, scene.branches()) == ([], [])

    def test_a_task_that_is_over(self, scene: Scene) -> None:
        scene.flow.complete(scene.taken.attempt, Outcome("FAILED", reason="x"), worker_id=DEAD)

        scene.run()

        assert (scene.reported, scene.records(), scene.branches()) == ([], [], [])

    @pytest.mark.parametrize("name", ["retry_count", "scheduled_time"])
    def test_a_task_that_was_retried_or_rerun_under_its_id(self, scene: Scene, name: str) -> None:
        other = replace(scene.taken.attempt, **{name: getattr(scene.taken.attempt, name) + 1})

        scene.run(attempt=other)

        assert (scene.reported, scene.records(), scene.branches()) == ([], [], [])

    def test_a_task_that_the_orchestrator_does_not_know(self, scene: Scene) -> None:
        scene.run(attempt=replace(scene.taken.attempt, task_id="gone"))

        assert (scene.reported, scene.records()) == ([], [])

    def test_a_poll_between_the_claim_and_the_report_gives_the_claim_back(self, scene: Scene) -> None:
        class Polled(LocalLake):
            def create_branch(self, repository: str, name: str, ref: str) -> None:
                super().create_branch(repository, name, ref)
                scene.flow.requeue(scene.taken.attempt.task_id)

        with closing(Polled(scene.root / "lake")) as lake:
            scene.lake = lake
            scene.run()
            assert (scene.reported, scene.branches()) == ([], [])


class TestFiles:
    def test_a_result_in_the_outbox_is_sent_instead(self, scene: Scene) -> None:
        other = replace(scene.record, execution_id="f" * 16)
        both = [scene.record, other]

        assert without_result(both, {scene.taken.attempt.task_id}, lambda _: False) == []
        assert without_result(both, (), lambda one: one == scene.record.execution_id) == [other]
        # Of two executions of an attempt, the one with the claim decides.
        claimed = replace(other, claimed=True)
        assert without_result([scene.record, claimed], (), lambda _: False) == [claimed]

    def test_records_for_another_orchestrator_and_unreadable_ones_stay(self, scene: Scene) -> None:
        InFlightFiles(scene.root, "elsewhere").put(scene.record)
        folder = scene.root / "in-flight"
        for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"attempt": {}}')):
            (folder / name).write_text(text)

        assert list(InFlightFiles(scene.root, scene.flow.address).read()) == []

        assert len(scene.records()) == 4

    def test_a_record_with_fields_of_a_later_version_is_read(self, scene: Scene) -> None:
        files = InFlightFiles(scene.root, scene.flow.address)
        files.put(scene.record)
        (file,) = (scene.root / "in-flight").iterdir()
        data = json.loads(file.read_text())
        file.write_text(json.dumps({**data, "new": 1, "attempt": {**data["attempt"], "newer": 2}}))

        assert list(files.read()) == [replace(scene.record, server=scene.flow.address)]

    def test_a_folder_that_cannot_be_written_does_not_stop_the_worker(self, scene: Scene) -> None:
        (scene.root / "in-flight").write_text("a file")
        files = InFlightFiles(scene.root, scene.flow.address)

        files.put(scene.record)
        files.drop(scene.record.execution_id)

        assert list(files.read()) == []


@pytest.mark.slow
class TestRestart:
    """Whole workers on both kinds of servers.  The lease is so long that only a report can end the attempt."""

    def test_the_next_worker_on_the_root_reports_the_attempt_and_the_retry_runs(
        self, world: WorkerWorld
    ) -> None:
        world.response_seconds = 3600
        first = world.start_worker()
        workflow_id = world.start_workflow({"text": "slow", "seconds": 3600})
        world.body("slow")
        first.signal(signal.SIGKILL)
        first.wait()

        world.start_worker()

        def failed() -> bool:
            return world.workflow(workflow_id).tasks[0].status != "IN_PROGRESS"

        eventually(failed, "the attempt is reported")
        task = world.workflow(workflow_id).tasks[0]
        assert task.status == "FAILED"
        assert task.reason is not None
        assert "died while it ran this attempt; reported by the next worker on its root" in task.reason
        eventually(lambda: len(world.noted("body")) == 2, "the retry runs")
        world.terminate(workflow_id)

    def test_a_twin_that_another_worker_polled_keeps_its_attempt(self, world: WorkerWorld) -> None:
        world.response_seconds = 3600
        first = world.start_worker(slots=1)
        workflow_id = world.start_workflow({"text": "slow", "seconds": 3600})
        world.body("slow")
        (task,) = world.workflow(workflow_id).tasks
        world.requeue(task.task_id)
        world.start_worker(name="other")

        def polled_again() -> bool:
            (now,) = world.workflow(workflow_id).tasks
            return now.status == "IN_PROGRESS" and now.worker not in (None, task.worker)

        eventually(polled_again, "the twin is polled")
        first.signal(signal.SIGKILL)
        first.wait()

        self.start_and_see_silence(world, workflow_id)

    def test_a_twin_that_holds_the_claim_keeps_its_attempt(self, world: WorkerWorld) -> None:
        world.response_seconds = 3600
        first = world.start_worker()
        workflow_id = world.start_workflow({"text": "slow", "seconds": 3600})
        world.body("slow")
        first.signal(signal.SIGKILL)
        first.wait()
        files = InFlightFiles(world.folder / "root" / "workspaces", world.orchestrator.address)
        (record,) = files.read()
        assert record.claim is not None
        world.lake.create_branch(world.repository, record.claim.branch, record.ref)

        self.start_and_see_silence(world, workflow_id)

        assert world.branches() == [record.claim.branch]

    def start_and_see_silence(self, world: WorkerWorld, workflow_id: str) -> None:
        again = world.start_worker()
        eventually(
            lambda: "not reporting an attempt of a dead worker" in again.said(), "the worker has decided"
        )
        assert [task.status for task in world.workflow(workflow_id).tasks] == ["IN_PROGRESS"]
        world.terminate(workflow_id)
