"""Lineage: what the events of a worker report, and that no receiver is in an attempt's way."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from openlineage.client.serde import Serde
from pydantic import BaseModel

from perago import SparkWorkspace, WorkspaceSpec, require_columns, require_file, task
from perago.declare.task import TaskDefinition
from perago.errors import install_extra
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import CheckRecord
from perago.protocol.outcome import Outcome, completed
from perago.protocol.provenance import Provenance
from perago.runtime.execution_result import (
    BytesMoved,
    ExecutionResult,
    Observations,
    PendingResult,
    pending_result_of,
)
from perago.runtime.observe.events import Event, Kind
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.lineage import THREAD, LineageListener, ReportQueue, RunReport, is_configured
from perago.runtime.worker.openlineage_sender import EventBuilder, parent_run_id, run_id, silence_retries
from tests.support.servers.lineage_receiver import judged

COMMIT, PUBLISHED, CODE = "a" * 64, "b" * 64, "c" * 40


class Params(BaseModel):
    day: str = "1"


class Made(BaseModel):
    rows: int = 0


@task(
    name="clean",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(
        prefix="/lake",
        reads=("raw/day={day}", "songs"),
        writes=("plays",),
        pre=(require_file("songs/all.csv"),),
        post=(require_columns("plays", {"id": "bigint"}),),
    ),
)
def clean(workspace: SparkWorkspace, params: Params) -> Made:
    return Made()


CLEAN: TaskDefinition = clean.__perago_task__
ATTEMPT = Attempt("flow-1", "task-1", "step__2", "clean", 0, 1, 2, workflow_name="flow")
GIVEN = Assignment(
    ATTEMPT,
    {"workspace": {"repository": "songs", "branch": "main", "ref": COMMIT}, "params": {"day": "2 key-9876"}},
)


def ended_with(outcome: Outcome) -> ExecutionResult:
    checks = (
        CheckRecord("pre", "require_file('songs/all.csv')", "1 file with key-9876"),
        CheckRecord("post", "require_columns('plays', {'id': 'bigint'})", "1 column"),
        CheckRecord("post", "no_doubles", "none", level="warn"),
    )
    seen = Observations(checks=checks, changed=3, made_with=Provenance(code=f"{CODE}+dirty"))
    return ExecutionResult(outcome, moved=BytesMoved(uploaded=50), seen=seen)


def published(ref: str = PUBLISHED) -> ExecutionResult:
    workspace = {"repository": "songs", "branch": "main", "ref": ref}
    return ended_with(completed({"workspace": workspace, "result": {"rows": 3}}))


def reported(*events: Event) -> list[Any]:
    """Return the OpenLineage events for the events of a worker, judged and as JSON values."""
    reports: list[RunReport] = []
    listener = LineageListener({"clean": CLEAN}, reports.append)
    for event in events:
        listener(event)
    listener.close()
    builder = EventBuilder(
        "lakefs://lake:8000", Masker(["key-9876"]), repository_url=lambda _: "https://git/x"
    )
    return [judged(Serde.to_dict(builder.event(report))) for report in reports]


def polled(execution_id: str = "one") -> Event:
    return Event("polled", ATTEMPT, execution_id, assignment=GIVEN)


def ended(result: ExecutionResult, execution_id: str = "one") -> Event:
    return Event("ended", ATTEMPT, execution_id, result=result)


def answered(kind: Kind, result: ExecutionResult) -> Event:
    pending = pending_result_of("one", GIVEN, result)
    return Event(kind, ATTEMPT, "one", result=result, pending=pending, text="the task is over")


def states(events: list[Any]) -> list[str]:
    return [event["eventType"] for event in events]


def test_a_publication_is_a_complete_run_with_inputs_outputs_and_facets() -> None:
    start, complete = reported(polled(), ended(published()), answered("accepted", published()))

    assert states([start, complete]) == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"] == run_id("one")
    assert start["job"]["name"] == "flow.step"
    assert start["outputs"] == []
    parent = complete["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == parent_run_id("flow-1")
    assert parent["job"]["name"] == "flow"
    assert complete["job"]["facets"]["sourceCodeLocation"]["version"] == f"{CODE}+dirty"
    raw, songs = complete["inputs"]
    assert {raw["namespace"], songs["namespace"]} == {"lakefs://lake:8000/songs"}
    assert (raw["name"], songs["name"]) == ("main/lake/raw/day=2 ***", "main/lake/songs")
    assert raw["facets"]["version"]["datasetVersion"] == COMMIT
    assert raw["inputFacets"] == {}
    (found,) = songs["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (found["success"], found["actual"]) == (True, "1 file with ***")
    (plays,) = complete["outputs"]
    assert plays["name"] == "main/lake/plays"
    assert plays["facets"]["version"]["datasetVersion"] == PUBLISHED
    assert plays["facets"]["schema"]["fields"][0] | {"fields": []} == {
        "name": "id",
        "type": "bigint",
        "fields": [],
    }
    severities = [one["severity"] for one in plays["facets"]["dataQualityAssertions"]["assertions"]]
    assert severities == ["error", "warn"]
    statistics = plays["outputFacets"]["outputStatistics"]
    assert (statistics["size"], statistics["fileCount"]) == (50, 3)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((answered("accepted", ended_with(Outcome("FAILED", reason="no key-9876"))),), "FAIL"),
        ((ended(ended_with(Outcome("FAILED", reason="stale key-9876", send=False))),), "ABORT"),
        ((ended(ended_with(Outcome("LOST_TO_TWIN", reason="twin", send=False))),), "ABORT"),
        ((ended(published()), answered("not-accepted", published())), "ABORT"),
        ((Event("stopped", ATTEMPT, "one", text="timed out"),), "ABORT"),
        ((), "ABORT"),
    ],
    ids=["failed", "stale", "twin", "not accepted", "stopped", "killed at the end"],
)
def test_what_is_not_published_and_accepted_has_no_outputs_and_says_why(
    events: tuple[Event, ...], state: str
) -> None:
    start, end = reported(polled(), *events)

    assert states([start, end]) == ["START", state]
    assert end["outputs"] == []
    assert end["run"]["facets"]["errorMessage"]["message"]
    assert "key-9876" not in str(end)


def test_a_losing_twin_is_a_run_of_its_own() -> None:
    lost = ended_with(Outcome("LOST_TO_TWIN", send=False))
    _, _, twin, winner = reported(
        polled(), polled("two"), ended(lost, "two"), ended(published()), answered("accepted", published())
    )

    assert states([twin, winner]) == ["ABORT", "COMPLETE"]
    assert twin["run"]["runId"] == run_id("two") != winner["run"]["runId"]


def test_an_unchanged_branch_is_no_output() -> None:
    _, complete = reported(
        polled(), ended(published(ref=COMMIT)), answered("accepted", published(ref=COMMIT))
    )

    assert (complete["eventType"], complete["outputs"]) == ("COMPLETE", [])


def test_a_result_that_waits_in_the_outbox_is_reported_by_the_worker_that_sends_it() -> None:
    assert states(reported(polled(), ended(published()))) == ["START"]
    failed = PendingResult("one", ATTEMPT, Outcome("FAILED", reason="the worker died"))
    assert states(reported(Event("accepted", ATTEMPT, "one", pending=failed))) == ["FAIL"]


def test_params_that_do_not_fit_leave_datasets_out() -> None:
    wrong = Assignment(ATTEMPT, {"workspace": 3, "params": {"day": [1]}})

    (start, _) = reported(Event("polled", ATTEMPT, "one", assignment=wrong))

    assert start["inputs"] == []


def test_a_workflow_id_that_is_a_uuid_is_the_parents_run_id() -> None:
    workflow = str(uuid4())

    assert parent_run_id(workflow) == workflow
    assert UUID(parent_run_id("flow-1")).version == UUID(run_id("one")).version == 5


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OPENLINEAGE_URL": "http://localhost:5000"}, True),
        ({"OPENLINEAGE_URL": "http://localhost:5000", "OPENLINEAGE_DISABLED": "True"}, False),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "file"}, True),
        ({"OPENLINEAGE_CONFIG": "nowhere.yml"}, False),
        ({"OPENLINEAGE_NAMESPACE": "team"}, False),
    ],
)
def test_the_clients_own_configuration_switches_it_on(
    tmp_path: Path, environ: dict[str, str], expected: bool
) -> None:
    assert is_configured(environ, tmp_path, tmp_path) is expected


@pytest.mark.parametrize("place", ["openlineage.yml", ".openlineage/openlineage.yml"])
def test_a_file_of_the_client_switches_it_on(tmp_path: Path, place: str) -> None:
    (tmp_path / ".openlineage").mkdir()
    (tmp_path / place).write_text("transport: {type: console}\n")

    assert is_configured({}, tmp_path, tmp_path)


class Stub:
    """A sender that waits, or raises."""

    def __init__(self, *, hold: bool = False, error: Exception | None = None) -> None:
        self.error, self.gate, self.sent = error, threading.Event(), 0
        if not hold:
            self.gate.set()

    def send(self, report: RunReport) -> None:
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        self.sent += 1

    def close(self) -> None:
        """Nothing is left to send."""


def put(sender: Any, count: int, *, seconds: float = 5, most: int = 10) -> ReportQueue:
    reports = ReportQueue(sender, most)
    for _ in range(count):
        reports.put(RunReport("START", "one", ATTEMPT))
    reports.close(seconds)
    return reports


def test_waiting_reports_are_sent_at_the_end() -> None:
    sender = Stub()

    assert put(lambda: sender, 5).lost == 0
    assert sender.sent == 5


def test_a_sender_that_hangs_costs_its_reports_and_no_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "perago.lineage")
    sender, began = Stub(hold=True), time.monotonic()

    reports = put(lambda: sender, 25, seconds=0.2)

    assert time.monotonic() - began < 2
    assert reports.lost == 25
    assert [record.getMessage() for record in caplog.records] == [
        "lineage events are lost, attempts go on: 10 events are waiting already",
        "lineage events that were lost: 25",
    ]
    sender.gate.set()


def no_client() -> Stub:
    raise ImportError("openlineage")


def test_the_end_says_that_a_receiver_was_too_slow(caplog: pytest.LogCaptureFixture) -> None:
    sender = Stub(hold=True)

    put(lambda: sender, 2, seconds=0.1)

    (record,) = caplog.records
    assert record.getMessage() == "lineage events that were lost: 2; the receiver did not take them in time"
    sender.gate.set()


@pytest.mark.parametrize(
    ("sender", "text"),
    [
        (lambda: Stub(error=ValueError("http://user:key-9876@lake")), "ValueError from the receiver"),
        (no_client, f"the client is missing: {install_extra('lineage')}"),
    ],
)
def test_losses_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture, sender: Any, text: str) -> None:
    caplog.set_level(logging.WARNING, "perago.lineage")

    assert put(sender, 5).lost == 5
    first, last = [record.getMessage() for record in caplog.records]
    assert first == f"lineage events are lost, attempts go on: {text}"
    assert last == "lineage events that were lost: 5"


def test_the_clients_retries_are_not_logged_and_those_of_others_are(caplog: pytest.LogCaptureFixture) -> None:
    http = logging.getLogger("urllib3.connectionpool")
    silence_retries()

    retry = threading.Thread(target=http.warning, args=("Retrying the receiver",), name=THREAD)
    retry.start()
    retry.join()
    http.warning("Retrying the lake")

    assert [record.getMessage() for record in caplog.records] == ["Retrying the lake"]


def test_the_client_is_not_imported_without_a_configuration() -> None:
    code = "import sys, perago.runtime.worker.supervisor; sys.exit('openlineage' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
