"""Times the download and stage of perago 0.6.1, in its venv, and prints one JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from lakefs import Client

from perago.lakefs_runtime import LakeFSWorkspaceRuntime
from perago.models import WorkspaceInput, WorkspaceSpec


def main() -> None:
    what = json.loads(sys.argv[1])
    client = Client(
        host=os.environ["LAKECTL_SERVER_ENDPOINT_URL"],
        username=os.environ["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
        password=os.environ["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
    )
    runtime = LakeFSWorkspaceRuntime(client=client)
    spec = WorkspaceSpec(prefix="/" + what["prefix"].rstrip("/"))
    given = WorkspaceInput.model_validate(
        {"repository": what["repository"], "branch": "main", "refType": "commit", "ref": what["ref"]}
    )
    folder = Path(what["folder"])
    folder.mkdir()
    start = time.perf_counter()
    runtime.download_workspace(given, spec, folder)
    times = {"download": time.perf_counter() - start}
    if what.get("change"):
        (folder / what["change"]).write_bytes(os.urandom(10_240))
        attempt = SimpleNamespace(
            workflow_instance_id="bench",
            reference_task_name="stage",
            seq=1,
            iteration=0,
            task_id="t",
            retry_count=0,
            execution_id="e",
        )
        start = time.perf_counter()
        runtime.stage_workspace(folder, given, spec, attempt)
        times["stage"] = time.perf_counter() - start
    print(json.dumps(times))


main()
