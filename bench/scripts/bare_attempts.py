"""The limit in the worker bench: the server calls that the protocol needs for one attempt, and nothing else.

A process runs one attempt at a time, and the bench starts as many processes as the workers have slots.  Perago is not
involved: urllib3 makes the API calls, and obstore moves the bytes.  The calls of one attempt, in order (C is Conductor,
the others are lakeFS):

    1  C poll for one task                 11  create the claim branch
    2  read the head: it is the input      12  read the head
    3  list the branches of the step       13  C read the task: second fence
    4  list the prefix                     14  read the head: a soft fence checks it right before the merge
    5  get the one object                  15  merge
    6  look for the fence file on the      16  read the new commit: its parent is checked
       input commit                        17  drop the staging branch
    7  C read the task: first fence        18  C send the result
    8  create the staging branch           19  C read the task back
    9  put the one object                  20  drop the claim branch
    10 commit it
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any
from urllib.parse import quote

import urllib3
from obstore.store import S3Store

LAKE = os.environ["LAKECTL_SERVER_ENDPOINT_URL"]
KEYS = (
    os.environ["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
    os.environ["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
)
CONDUCTOR = os.environ["CONDUCTOR_SERVER_URL"]
FENCE = "_lakefs_actions/perago-fence.yaml"
IDLE_SECONDS = 1.0


class Bare:
    """Makes the calls to both servers."""

    def __init__(self, repository: str) -> None:
        self._http = urllib3.PoolManager(maxsize=4)
        self._login = urllib3.make_headers(basic_auth=":".join(KEYS))
        self._at = f"{LAKE}/api/v1/repositories/{repository}"
        self._store = S3Store(
            repository,
            endpoint=LAKE,
            access_key_id=KEYS[0],
            secret_access_key=KEYS[1],
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def poll(self, task: str) -> list[dict[str, Any]]:
        found = self._http.request(
            "GET", f"{CONDUCTOR}/tasks/poll/batch/{task}?count=1&timeout=100&workerid=bare"
        )
        return [] if found.status == 204 else json.loads(found.data)

    def attempt(self, task: dict[str, Any]) -> None:
        given, step = task["inputData"]["workspace"], f"{task['workflowInstanceId']}-step"
        branch, ref = given["branch"], given["ref"]
        self._newest(f"{branch}@")
        self._lake("GET", f"/branches?prefix=perago-staging-{step}&show_hidden=true&amount=1000")
        [one] = self._lake("GET", f"/refs/{ref}/objects/ls?prefix=data/&amount=1000")["results"]
        self._store.get(f"{ref}/{one['path']}").bytes()
        self._fenced(ref)
        self._task(task)
        staging, claim = (
            f"perago-staging-{step}-{task['taskId']}",
            f"perago-staging-{step}-claim-{task['taskId']}",
        )
        self._lake("POST", "/branches", {"name": staging, "source": ref, "hidden": True})
        self._store.put(f"{staging}/{one['path']}", f"number {task['taskId']}".encode(), use_multipart=False)
        said = {"perago.task_id": task["taskId"]}
        self._lake("POST", f"/branches/{staging}/commits", {"message": "stage", "metadata": said})
        self._lake("POST", "/branches", {"name": claim, "source": ref, "hidden": True})
        self._newest(f"{branch}@")
        self._task(task)
        self._newest(f"{branch}@")
        wanted = {"message": "publish", "metadata": said, "squash_merge": True}
        merged = self._lake("POST", f"/refs/{staging}/merge/{branch}", wanted)["reference"]
        self._newest(merged)
        self._lake("DELETE", f"/branches/{staging}")
        self._complete(task, {"workspace": {**given, "ref": merged}, "result": {"began": time.time()}})
        self._lake("DELETE", f"/branches/{claim}")

    def _newest(self, ref: str) -> None:
        self._lake("GET", f"/refs/{quote(ref)}/commits?amount=1&limit=true&first_parent=true")

    def _fenced(self, ref: str) -> None:
        try:
            self._store.get(f"{ref}/{FENCE}").bytes()
        except FileNotFoundError:
            return

    def _task(self, task: dict[str, Any]) -> None:
        self._conductor("GET", f"/tasks/{task['taskId']}")

    def _complete(self, task: dict[str, Any], output: dict[str, Any]) -> None:
        body = {
            "workflowInstanceId": task["workflowInstanceId"],
            "taskId": task["taskId"],
            "status": "COMPLETED",
            "outputData": output,
        }
        self._conductor("POST", "/tasks", body)
        self._task(task)

    def _lake(self, method: str, path: str, body: object = None) -> Any:
        return self._call(method, self._at + path, body, self._login)

    def _conductor(self, method: str, path: str, body: object = None) -> Any:
        return self._call(method, CONDUCTOR + path, body, {})

    def _call(self, method: str, address: str, body: object, headers: dict[str, str]) -> Any:
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        answer = self._http.request(
            method, address, body=None if body is None else json.dumps(body), headers=headers
        )
        if answer.status >= 300:
            raise SystemExit(f"{method} {address}: {answer.status} {answer.data!r}")
        return json.loads(answer.data) if answer.data[:1] in (b"{", b"[") else None


def main() -> None:
    what = json.loads(sys.argv[1])
    bare = Bare(what["repository"])
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < IDLE_SECONDS:
        for task in bare.poll(what["task"]):
            bare.attempt(task)
            idle_since = time.monotonic()


main()
