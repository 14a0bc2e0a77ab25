"""`perago retry`, `resume`, `pause` and `terminate` as a user runs them, and the command that `show` says comes next."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perago.backend import open_conductor, open_local_orchestrator
from perago.cli import app
from perago.orchestrator.base import Orchestrator
from perago.protocol.outcome import Outcome
from perago.runtime.root.state_dir import locked_root
from perago.runtime.worker.in_flight import InFlightFiles, in_flight_of
from perago.settings import LAKEFS_NAMES, load_settings
from tests.conftest import ConductorServer
from tests.support.worlds.clock import eventually

TASK = """
@task(owner_email="a@example.com", controls=TaskControls(retry=RetryPolicy(count=0)))
def make(params: Params) -> Result:
    if not Path("fixed").exists():
        raise TaskFailed("told to fail")
    return Result(rows=len(params.stem))
"""


def perago(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=answer)


@dataclass
class Flows:
    """Workflows of one step on an orchestrator, and the options that make a command use it."""

    orchestrator: Orchestrator
    where: tuple[str, ...]
    name: str
    root: Path

    def with_root(self) -> tuple[str, ...]:
        return () if "--root" in self.where else ("--root", str(self.root))

    def start(self) -> str:
        taskdef = {"name": self.name, "ownerEmail": "a@example.com", "retryCount": 0}
        times = {"responseTimeoutSeconds": 600, "timeoutSeconds": 0}
        self.orchestrator.register_taskdefs([{**taskdef, **times}])
        step = {"name": self.name, "taskReferenceName": "one", "type": "SIMPLE"}
        step["inputParameters"] = {"workspace": "${workflow.input.workspace}"}  # type: ignore[assignment]
        about = {"name": self.name, "version": 1, "schemaVersion": 2, "ownerEmail": "a@example.com"}
        limits = {"timeoutSeconds": 0, "timeoutPolicy": "ALERT_ONLY"}
        self.orchestrator.register_workflow({**about, **limits, "tasks": [step]})
        given = {"n": 1, "workspace": {"repository": "songs", "branch": "main", "ref": "x"}}
        return self.orchestrator.start_workflow(self.name, input=given)

    def end(self, outcome: Outcome) -> None:
        (taken,) = self.orchestrator.poll(self.name, worker_id="me", count=1, wait_seconds=5)
        assert self.orchestrator.complete(taken.attempt, outcome, worker_id="me")

    def fail(self, reason: str = "broken") -> str:
        workflow_id = self.start()
        self.end(Outcome("FAILED", reason=reason))
        return workflow_id

    def status(self, workflow_id: str) -> str:
        return self.orchestrator.workflow(workflow_id).status

    def run(self, command: str, *arguments: str) -> Result:
        yes = ["--yes"] if "--remote" in self.where and command != "show" else []
        return perago(command, *arguments, *self.where, *yes)


@pytest.fixture(params=["local", pytest.param("conductor", marks=pytest.mark.servers)])
def flows(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flows]:
    name = f"control_{uuid.uuid4().hex[:10]}"
    monkeypatch.chdir(tmp_path)
    if request.param == "local":
        for variable in ("CONDUCTOR_SERVER_URL", *LAKEFS_NAMES):
            monkeypatch.delenv(variable, raising=False)
        with closing(open_local_orchestrator(load_settings({}, root=tmp_path / "root"))) as flow:
            yield Flows(flow, ("--root", str(tmp_path / "root")), name, tmp_path / "root")
        return
    server: ConductorServer = request.getfixturevalue("conductor_server")
    with closing(open_conductor(load_settings({"CONDUCTOR_SERVER_URL": server.url}, remote=True))) as flow:
        yield Flows(flow, ("--remote",), name, tmp_path / "root")


def test_a_failed_workflow_is_retried(flows: Flows) -> None:
    workflow_id = flows.fail()

    done = flows.run("retry", workflow_id)

    assert (done.exit_code, done.stdout) == (
        0,
        f"workflow {flows.name} ({workflow_id}) is RUNNING, was FAILED\n",
    )
    assert f"workflow {flows.name} ({workflow_id}): FAILED\nfailed: one: broken\n" in done.stderr
    flows.end(Outcome("COMPLETED", output={}))
    assert flows.status(workflow_id) == "COMPLETED"


def test_a_workflow_is_paused_resumed_and_terminated(flows: Flows) -> None:
    workflow_id = flows.start()
    for command, was, status in (
        ("pause", "RUNNING", "PAUSED"),
        ("resume", "PAUSED", "RUNNING"),
        ("terminate", "RUNNING", "TERMINATED"),
    ):
        done = flows.run(command, workflow_id, "--json")

        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert told == {
            "action": command,
            "run": None,
            "workflow_id": workflow_id,
            "workflow": flows.name,
            "was": was,
            "status": status,
        }
    assert flows.orchestrator.workflow(workflow_id).reason == "terminated by `perago terminate`"


def test_terminate_takes_a_reason(flows: Flows) -> None:
    workflow_id = flows.start()

    assert flows.run("terminate", workflow_id, "--reason", "wrong day & year").exit_code == 0

    assert flows.orchestrator.workflow(workflow_id).reason == "wrong day & year"


def test_a_change_that_does_not_fit_names_the_one_that_does(flows: Flows) -> None:
    workflow_id = flows.start()
    for command in ("retry", "resume"):
        refused = flows.run(command, workflow_id)
        assert refused.exit_code == 1
        assert (
            f"cannot {command} workflow {workflow_id}: it is RUNNING; next: `perago pause" in refused.stderr
        )
    flows.end(Outcome("COMPLETED", output={}))
    for command in ("retry", "resume", "pause", "terminate"):
        refused = flows.run(command, workflow_id)
        assert refused.exit_code == 1
        assert f"error: cannot {command} workflow {workflow_id}: it is COMPLETED\n" in refused.stderr


def test_show_says_which_command_comes_next(flows: Flows) -> None:
    workflow_id = flows.start()

    def next_of() -> list[str]:
        done = flows.run("show", workflow_id, "--json")
        found: list[str] = json.loads(done.stdout)["next"]
        text = flows.run("show", workflow_id).stderr
        assert [line for line in text.splitlines() if line.startswith("next: ")] == [
            f"next: {one}" for one in found
        ]
        return [" ".join(one.split()[:3]) for one in found]

    assert next_of() == [f"perago pause {workflow_id}", f"perago terminate {workflow_id}"]
    flows.run("pause", workflow_id)
    assert next_of() == [f"perago resume {workflow_id}", f"perago terminate {workflow_id}"]
    flows.run("resume", workflow_id)
    flows.end(Outcome("FAILED", reason="broken"))
    assert next_of() == [f"perago retry {workflow_id}"]


def test_show_advises_a_new_workflow_if_retrying_is_useless(flows: Flows) -> None:
    workflow_id = flows.fail("the branch moved; retrying is useless: start a new workflow")

    (command,) = json.loads(flows.run("show", workflow_id, "--json").stdout)["next"]

    assert command.startswith(f"perago submit {flows.name} --workspace songs@main --input '{{\"n\": 1}}'")


def test_show_advises_a_new_workflow_if_a_check_refused_the_data_and_then_a_retry(flows: Flows) -> None:
    workflow_id = flows.start()
    flows.end(
        Outcome(
            "FAILED_WITH_TERMINAL_ERROR", reason="pre check require_file('a.csv') failed: it is not there"
        )
    )

    new_start, retry = json.loads(flows.run("show", workflow_id, "--json").stdout)["next"]

    assert new_start.startswith(f"perago submit {flows.name} --workspace songs@main --input '{{\"n\": 1}}'")
    assert retry.startswith(f"perago retry {workflow_id}")


def test_show_tells_the_lease_and_a_worker_that_is_known_to_be_gone(flows: Flows, tmp_path: Path) -> None:
    workflow_id = flows.start()
    (taken,) = flows.orchestrator.poll(flows.name, worker_id="host:1", count=1, wait_seconds=5)
    workspaces = load_settings(os.environ, root=flows.root).workspace_root

    def lease() -> tuple[dict[str, Any], str]:
        shown = flows.run("show", workflow_id, *flows.with_root()).stdout
        line = next(line for line in shown.splitlines() if line.startswith("lease of one: last extended "))
        (found,) = json.loads(flows.run("show", workflow_id, "--json", *flows.with_root()).stdout)["leases"]
        return found, line

    found, line = lease()
    assert found["runs_out"] == found["extended"] + 600
    assert (found["worker"], found["worker_gone"]) == ("host:1", False)
    assert "gone" not in line
    record = in_flight_of("e" * 16, taken, "host:1", may_publish=False)
    InFlightFiles(workspaces, flows.orchestrator.address).put(record)
    found, line = lease()
    assert found["worker_gone"]
    assert line.endswith(" UTC; its worker host:1 is gone")
    with locked_root(workspaces):
        assert not lease()[0]["worker_gone"]
    # Another worker has polled the task since: the record says nothing about it.
    InFlightFiles(workspaces, flows.orchestrator.address).put(replace(record, worker_id="host:2"))
    assert not lease()[0]["worker_gone"]
    flows.orchestrator.terminate_workflow(workflow_id, "by the test")
    assert json.loads(flows.run("show", workflow_id, "--json", *flows.with_root()).stdout)["leases"] == []


@pytest.mark.servers
def test_an_unknown_id_on_conductor_gets_a_suggestion(
    conductor_server: ConductorServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = load_settings({"CONDUCTOR_SERVER_URL": conductor_server.url}, remote=True)
    with closing(open_conductor(settings)) as conductor:
        workflow_id = Flows(conductor, (), f"control_{uuid.uuid4().hex[:10]}", tmp_path).start()
        eventually(
            lambda: workflow_id in [one.id for one in conductor.workflows(100)], "the index has the workflow"
        )
        typo = workflow_id[:-1] + ("0" if workflow_id[-1] != "0" else "1")

        missing = perago("retry", typo, "--remote", "--yes", "--root", str(tmp_path))

        assert missing.exit_code == 1
        assert f"error: no workflow {typo!r} there; did you mean {workflow_id!r}?\n" in missing.stderr
        conductor.terminate_workflow(workflow_id, "by the test")


@pytest.mark.parametrize("command", ["retry", "resume", "pause", "terminate"])
def test_text_that_is_no_id_is_refused(flows: Flows, command: str) -> None:
    for bad in ("", "../x", "a b", "a%2Fb", "x\n"):
        refused = flows.run(command, bad)
        assert refused.exit_code == 1
        assert "is not the id of a workflow or a run; `perago runs` lists them" in refused.stderr
    missing = flows.run(command, "no-such-id")
    assert missing.exit_code == 1
    assert "'no-such-id'" in missing.stderr


def test_without_a_terminal_a_change_on_the_servers_needs_yes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", "http://127.0.0.1:9/api")
    for command in ("retry", "resume", "pause", "terminate"):
        refused = perago(command, "some-id", "--remote", "--root", str(tmp_path))
        assert refused.exit_code == 2
        assert "add --yes" in refused.stderr


def test_a_run_is_continued_by_retry_and_by_resume(
    module: Callable[[str, str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_ROOT", str(tmp_path / "root"))
    target = module("own_tasks.py", TASK)
    step = {"name": "make", "taskReferenceName": "one", "type": "SIMPLE"}
    step["inputParameters"] = {"params": {"stem": "abc"}}  # type: ignore[assignment]
    (tmp_path / "flow.json").write_text(json.dumps({"name": "flow", "version": 1, "tasks": [step]}))
    failed = perago("run", "flow.json", "--tasks", target, "--json")
    assert failed.exit_code == 1, failed.output
    run_id = json.loads(failed.stdout)["run"]

    paused = perago("pause", run_id)
    assert f"cannot pause run {run_id}: it is FAILED; next: `perago run --resume {run_id}" in paused.stderr
    ended = perago("terminate", run_id)
    assert f"cannot terminate run {run_id}: it is FAILED" in ended.stderr
    again = perago("resume", run_id, "--json")
    assert again.exit_code == 1
    (tmp_path / "fixed").touch()
    done = perago("retry", run_id, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "COMPLETED"
    for command in ("retry", "resume"):
        refused = perago(command, run_id)
        assert refused.exit_code == 1
        assert f"cannot {command} run {run_id}: it is COMPLETED" in refused.stderr
