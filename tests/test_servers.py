"""The real servers answer, do the one thing everything else depends on, and are what `dev/servers` reports."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from tests.conftest import CONDUCTOR_VERSION, LAKEFS_VERSION, ConductorServer, LakefsServer

CHECKOUT = Path(__file__).parents[1]


def test_lakefs_moves_a_branch_by_a_merge(lakefs_server: LakefsServer, lakefs_repository: str) -> None:
    # given a branch off main with one commit
    repository = f"/repositories/{lakefs_repository}"
    lakefs_server.call("POST", f"{repository}/branches", {"name": "stage", "source": "main", "hidden": True})
    lakefs_server.call("POST", f"{repository}/branches/stage/objects?path=a.txt", "hello")
    commit = lakefs_server.call("POST", f"{repository}/branches/stage/commits", {"message": "one file"})

    # when it is merged
    merged = lakefs_server.call("POST", f"{repository}/refs/stage/merge/main", {"message": "publish"})

    # then main's head is the merge of that commit, and the object is visible there
    main = lakefs_server.call("GET", f"{repository}/branches/main")
    head = lakefs_server.call("GET", f"{repository}/commits/{merged['reference']}")
    assert main["commit_id"] == merged["reference"]
    assert commit["id"] in head["parents"]
    assert lakefs_server.call("GET", f"{repository}/refs/main/objects/stat?path=a.txt")["path"] == "a.txt"


def test_conductor_hands_out_a_task_and_takes_its_result(conductor_server: ConductorServer) -> None:
    # given a workflow of one task
    name = f"smoke_{uuid.uuid4().hex[:8]}"
    controls = {"retryCount": 0, "timeoutSeconds": 60, "responseTimeoutSeconds": 30}
    conductor_server.call(
        "POST", "/metadata/taskdefs", [{"name": name, "ownerEmail": "a@example.com", **controls}]
    )
    step = {"name": name, "taskReferenceName": "only", "type": "SIMPLE", "inputParameters": {}}
    workflow = {
        "name": name,
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "a@example.com",
        "tasks": [step],
    }
    conductor_server.call("POST", "/metadata/workflow", workflow)
    started = conductor_server.call("POST", f"/workflow/{name}", {})

    # when the task is polled and completed
    polled = conductor_server.call("GET", f"/tasks/poll/batch/{name}?count=1&timeout=5000&workerid=smoke")
    result = {"workflowInstanceId": started, "taskId": polled[0]["taskId"], "status": "COMPLETED"}
    conductor_server.call("POST", "/tasks", {**result, "outputData": {"answer": 42}})

    # then the workflow is complete, with the task's output
    seen = conductor_server.call("GET", f"/workflow/{started}?includeTasks=true")
    assert seen["status"] == "COMPLETED"
    assert seen["tasks"][0]["outputData"]["answer"] == 42


def test_status_names_version_address_and_pid_of_both(
    lakefs_server: LakefsServer, conductor_server: ConductorServer
) -> None:
    done = subprocess.run(
        [CHECKOUT / "dev" / "servers", "status"], capture_output=True, text=True, check=False
    )

    lakefs, conductor = done.stdout.splitlines()
    assert done.returncode == 0
    assert lakefs.split()[:4] == ["lakefs", LAKEFS_VERSION, lakefs_server.url, "pid"]
    assert conductor.split()[:4] == [
        "conductor",
        CONDUCTOR_VERSION,
        conductor_server.url.removesuffix("/api"),
        "pid",
    ]


def test_lakectl_of_the_environment_talks_to_the_server(
    lakefs_server: LakefsServer, lakefs_repository: str
) -> None:
    lakectl = os.environ["PERAGO_DEV_LAKECTL"]

    done = subprocess.run([lakectl, "repo", "list"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert lakefs_repository in done.stdout
