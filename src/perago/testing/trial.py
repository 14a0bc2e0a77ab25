"""One attempt of one task, tried on the embedded lake and orchestrator."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.connect import Embedded, max_result_bytes, short_lived
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import TaskDefinitionError
from perago.lake.base import Lake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.runtime.attempt.inline import Executor
from perago.runtime.attempt.surroundings import Surroundings
from perago.runtime.folder_import import folder_uploads
from perago.runtime.observe.masking import Masker, secrets_of
from perago.runtime.servers import opened
from perago.settings import load_settings

Files = Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Trial:
    """How an attempt ended; `files` are the objects of the prefix afterwards, by path below it."""

    status: str
    reason: str | None
    result: Mapping[str, Any] | None
    files: Mapping[str, bytes]
    published: bool


def try_task(
    function: Callable[..., Any], files: Files | None = None, *, params: Mapping[str, Any], root: Path
) -> Trial:
    """Run one attempt of a task on a workspace whose prefix holds `files`; state is kept below `root`."""
    task = getattr(function, "__perago_task__", None)
    if not isinstance(task, TaskDefinition):
        raise TaskDefinitionError(f"{function!r} is no task: decorate it with @perago.task")
    servers = Embedded(short_lived(load_settings({}, root=root / secrets.token_hex(4))))
    with opened(servers) as (lake, orchestrator):
        return _Bench(task, lake, orchestrator, servers).attempt(files or {}, params)


@dataclass(frozen=True, slots=True)
class _Bench:
    task: TaskDefinition
    lake: Lake
    orchestrator: Orchestrator
    servers: Embedded

    def attempt(self, files: Files, params: Mapping[str, Any]) -> Trial:
        payload: dict[str, Any] = {"params": params}
        before = ""
        if self.task.workspace is not None:
            before = self._fill(files)
            payload["workspace"] = {
                "repository": "trial",
                "branch": "main",
                "ref_type": "commit",
                "ref": before,
            }
        around = Surroundings(
            self.lake,
            self.orchestrator,
            self.servers.settings.workspace_root,
            max_result_bytes=max_result_bytes(),
            open_place=self.servers.open_places([self.task]),
        )
        executor = Executor(
            {self.task.name: self.task}, around, "trial", mask=Masker(secrets_of(self.servers.settings))
        )
        settled = executor.execute(self._assignment(payload))
        outcome = settled.outcome
        return Trial(
            outcome.status,
            outcome.reason,
            None if outcome.output is None else outcome.output["result"],
            self._files(),
            self.task.workspace is not None and self.lake.head("trial", "main").id != before,
        )

    def _fill(self, files: Files) -> str:
        folder = self.servers.settings.root / "input"
        folder.mkdir(parents=True)
        for path, content in files.items():
            file = folder / self._prefix / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        uploads = folder_uploads(
            folder, self.lake.checksum_algorithm, leave_out=self.servers.settings.workspace_root
        )
        self.lake.create_repository("trial", uploads, "the files of the trial")
        return self.lake.head("trial", "main").id

    def _assignment(self, payload: Mapping[str, Any]) -> Assignment:
        name = self.task.name
        step = {"name": name, "taskReferenceName": "trial", "type": "SIMPLE"}
        inputs = {"inputParameters": {key: f"${{workflow.input.{key}}}" for key in payload}}
        self.orchestrator.register_taskdefs([build_taskdef(self.task)])
        self.orchestrator.register_workflow(
            {"name": "trial", "version": 1, "schemaVersion": 2, "tasks": [{**step, **inputs}]}
        )
        self.orchestrator.start_workflow("trial", input=payload)
        return self.orchestrator.poll(name, worker_id="trial", count=1, wait_seconds=0)[0]

    def _files(self) -> dict[str, bytes]:
        if self.task.workspace is None:
            return {}
        return {
            entry.path.removeprefix(self._prefix): b"".join(self.lake.read("trial", "main", entry.path))
            for entry in self.lake.list("trial", "main", self._prefix)
        }

    @property
    def _prefix(self) -> str:
        return self.task.workspace.object_prefix if self.task.workspace is not None else ""
