"""The trace of a run, as a collector receives it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import run_perago
from tests.support.servers.otlp_receiver import Collector, Received, collecting

TASKS = """
import os, signal
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task


class Params(BaseModel):
    kill: str = ""


class Result(BaseModel):
    said: str = ""


CONTROLS = TaskControls(retry=RetryPolicy(count=2, delay_seconds=0))


@task(name="make", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/data"), controls=CONTROLS)
def make(workspace: Path, params: Params) -> Result:
    flag = Path(params.kill or "none")
    if params.kill and not flag.exists():
        flag.write_text("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    (workspace / f"made{params.kill and 2}.txt").write_text("made")
    return Result(said=str("opentelemetry" in __import__("sys").modules))
"""
FLOW = ("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs", "--import", "songs=in")
STEPS = [
    *("input", "revoke", "reuse", "workdir", "download", "pre checks", "body", "result", "post checks"),
    *("verify", "changes", "first fence", "stage", "claim", "publish", "hand over"),
]
OFF = ("PERAGO_", "LAKECTL_", "CONDUCTOR_", "OTEL_")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "in" / "data").mkdir(parents=True)
    (tmp_path / "in" / "data" / "input.txt").write_text("input")
    first = step("first", "${workflow.input.workspace}", {})
    second = step("second", "${first.output.workspace}", {"kill": str(tmp_path / "killed")})
    flow = {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": [first, second]}
    flow["outputParameters"] = {"first": "${first.output.result.said}"}
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    return tmp_path


def step(reference: str, workspace: str, params: dict[str, str]) -> dict[str, Any]:
    given = {"workspace": workspace, "params": params}
    return {"name": "make", "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}


def run(folder: Path, **environ: str) -> dict[str, Any]:
    """Run the workflow, and return what the command says about it."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith(OFF)}
    said = run_perago((*FLOW, "--json"), folder=folder, environ={**usual, **environ})
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    assert found["status"] == "COMPLETED"
    return found


def traced(folder: Path, collector: Collector, **environ: str) -> dict[str, Any]:
    return run(folder, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **environ)


def names(spans: list[Received]) -> list[str]:
    return [span.name for span in spans]


@pytest.mark.slow
def test_a_run_is_one_trace_also_across_a_killed_executor(folder: Path) -> None:
    with collecting() as collector:
        ended = traced(folder, collector, PERAGO_LOG_ROOT=str(folder / "logs"), PERAGO_LOG_FORMAT="json")

    trace = hashlib.sha256(workflow_id(folder).encode()).digest()[:16].hex()
    assert {span.trace for span in collector.spans} == {trace}
    [root] = [span for span in collector.spans if not span.parent]
    assert (root.name, root.failed) == ("workflow flow", False)
    ids = [span.id for span in collector.spans]
    assert len(set(ids)) == len(ids)
    assert {span.parent for span in collector.spans} <= {"", *ids}

    attempts = collector.below(root)
    assert names(attempts) == ["attempt make"] * 3
    told = [
        (a.attributes["perago.reference"], a.attributes["perago.retry"], a.attributes["perago.status"])
        for a in attempts
    ]
    assert told[0] == ("first", 0, "COMPLETED")
    assert told[1] == ("second", 0, "DIED")
    assert told[2] == ("second", 1, "COMPLETED")
    assert [attempt.failed for attempt in attempts] == [False, True, False]
    assert [attempt.attributes["perago.task"] for attempt in attempts] == [
        task["task_id"] for task in ended["tasks"]
    ]

    whole, killed, _ = (collector.below(attempt) for attempt in attempts)
    assert set(names(whole)) == set(STEPS)
    assert names(killed)[-1] == "body"
    assert [one.failed for one in killed] == [False] * (len(killed) - 1) + [True]
    for span in whole:
        assert attempts[0].began <= span.began <= span.ended <= attempts[0].ended
    [publish] = [span for span in whole if span.name == "publish"]
    assert {"lake.merge"} <= {call.name for call in collector.below(publish)}
    calls = {call.name for one in whole for call in collector.below(one)}
    assert any(name.startswith("orchestrator.") for name in calls)
    # The executor that made all this has not loaded the SDK.
    assert ended["output"]["first"] == "False"

    lines = [
        json.loads(line) for file in (folder / "logs").iterdir() for line in file.read_text().splitlines()
    ]
    about = {(line["trace_id"], line["span_id"]) for line in lines if "execution" in line}
    assert about
    assert about <= {(trace, attempt.id) for attempt in attempts}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["absent", "refuses", "slow"])
def test_a_collector_that_takes_nothing_costs_a_run_a_moment_and_one_line(folder: Path, way: str) -> None:
    (folder / "killed").write_text("already")
    with collecting(status=503 if way == "refuses" else 200, seconds=60 if way == "slow" else 0) as collector:
        url = "http://127.0.0.1:9" if way == "absent" else collector.url
        began = time.monotonic()
        run(folder, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{url}/v1/traces", OTEL_BSP_SCHEDULE_DELAY="50")
        seconds = time.monotonic() - began

    assert seconds < 30, "an ordinary run takes two seconds here, and a machine may be busy"
    [log] = (folder / ".perago" / "runs").glob("*/run.log")
    assert log.read_text().count("spans are lost") == 1
    assert "opentelemetry" not in log.read_text()


@pytest.mark.slow
def test_nothing_is_imported_where_no_collector_is_configured(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import perago.runtime.worker.executor, perago.runtime.worker.supervisor\n"
        "from perago.runtime.observe.traces import open_traces\n"
        "from perago.settings import load_settings\n"
        "with open_traces({}, load_settings({}), worker_id='w') as traces:\n"
        "    assert not traces.on\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 0


def workflow_id(folder: Path) -> str:
    [record] = (folder / ".perago" / "runs").glob("*/run.json")
    return str(json.loads(record.read_text())["workflow_id"])
