"""Sites for whole workers: the embedded servers or the real ones, with a repository whose main holds one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError

import pytest

from perago.lake.base import Upload
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.workdir import hash_file
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.support.servers.lakefs import lakefs_lake
from tests.support.worlds.worker_world import Site


@contextmanager
def _local(folder: Path) -> Iterator[Site]:
    root = folder / "root"
    with (
        closing(LocalLake(root / "lake")) as lake,
        closing(LocalOrchestrator(root / "orchestrator.db")) as flow,
    ):
        lake.create_repository("songs")
        environ = dict.fromkeys(
            (
                "CONDUCTOR_SERVER_URL",
                "LAKECTL_SERVER_ENDPOINT_URL",
                "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
            ),
            "",
        )
        calls = (flow.requeue, lambda workflow: flow.terminate(workflow, "by the test"))
        yield Site("local", lake, flow, "songs", folder, environ, *calls)


@contextmanager
def _real(lakefs: LakefsServer, conductor: ConductorServer, folder: Path) -> Iterator[Site]:
    # Imported here: the SDK takes a second, and the embedded servers do without.
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

    environ = {
        "CONDUCTOR_SERVER_URL": conductor.url,
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs.secret_access_key,
    }

    def requeue(task_id: str) -> object:
        found = conductor.call("GET", f"/tasks/{task_id}")
        # An update to IN_PROGRESS that does not extend the lease puts the task back into its queue.
        update = {
            "workflowInstanceId": found["workflowInstanceId"],
            "taskId": task_id,
            "status": "IN_PROGRESS",
        }
        return conductor.call("POST", "/tasks", update)

    def terminate(workflow: str) -> object:
        try:
            return conductor.call("DELETE", f"/workflow/{workflow}")
        except HTTPError as error:
            # It is over by now.
            if error.code != HTTPStatus.CONFLICT:
                raise
            return None

    with (
        fresh_repository(lakefs) as repository,
        closing(lakefs_lake(lakefs, folder / "cache")) as lake,
        closing(ConductorOrchestrator(conductor.url)) as flow,
    ):
        yield Site("real", lake, flow, repository, folder, environ, requeue, terminate)


def _open(request: pytest.FixtureRequest, kind: str, folder: Path) -> AbstractContextManager[Site]:
    """The site of that name: `own` is `real` on servers that the test may stop, `production` on the production set."""
    value = request.getfixturevalue
    if kind == "local":
        return _local(folder)
    if kind == "own":
        return _real(value("own_servers").lakefs, value("own_servers").conductor, folder)
    if kind == "production":
        production = value("production_servers")
        return _real(production.lakefs, production.conductor, folder)
    return _real(value("lakefs_server"), value("conductor_server"), folder)


@contextmanager
def filled_site(request: pytest.FixtureRequest, kind: str, folder: Path) -> Iterator[Site]:
    """A site of that kind with one file in the tasks' prefix; its workers are ended afterwards."""
    with _open(request, kind, folder) as made:
        source = folder / "input.txt"
        source.write_text("in")
        state = hash_file(source, made.lake.checksum_algorithm)
        upload = Upload(source, "data/input.txt", state.size, state.checksum or "")
        made.lake.upload(made.repository, "main", [upload])
        made.lake.commit(made.repository, "main", "input", {})
        try:
            yield made
        finally:
            made.close()
