"""The worker that every command and test gets from one place: its servers as a value, its checks and its time-outs."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago import TaskControls, WorkspaceSpec, task
from perago.assembly import assemble_worker, max_result_bytes
from perago.backend import Embedded, Real
from perago.errors import RuntimeConfigError
from perago.settings import Settings, load_settings
from tests.support.worlds.world import Made, Params, a_budget

LAKEFS = {
    "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:9",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "secret",
}
CONDUCTOR = {"CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api"}


def settings(root: Path, **environ: str) -> Settings:
    return load_settings({**LAKEFS, **CONDUCTOR, **environ}, root=root)


def a_task(name: str, completion: int | None = None) -> Any:
    budget = None
    if completion is not None:
        budget = a_budget(conductor_completion_timeout_seconds=completion)

    @task(
        name=name,
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(),
        controls=TaskControls(publish_budget=budget),
    )
    def run(workspace: Path, params: Params) -> Made: ...

    return run.__perago_task__


@pytest.mark.parametrize("kind", [Embedded, Real])
def test_servers_travel_to_another_process(kind: type[Embedded | Real], tmp_path: Path) -> None:
    servers = kind(settings(tmp_path)).of_run("a-run").for_tasks([a_task("a", 7)])

    assert pickle.loads(pickle.dumps(servers)) == servers


def test_a_worker_has_the_longest_completion_time_out_of_its_publish_budgets(tmp_path: Path) -> None:
    tasks = [a_task("a", 7), a_task("b"), a_task("c", 45)]

    plan = assemble_worker(Real(settings(tmp_path)), ["tasks.py"], tasks, slots=2)

    assert plan.spec.servers == Real(settings(tmp_path), completion_seconds=45)
    assert (plan.spec.targets, plan.spec.tasks, plan.slots) == (("tasks.py",), ("a", "b", "c"), 2)
    assert plan.spec.max_result_bytes == max_result_bytes()


@pytest.mark.parametrize("kind", [Embedded, Real])
def test_a_worker_under_a_hard_fence_takes_no_task_that_replaces(
    kind: type[Embedded | Real], tmp_path: Path
) -> None:
    with pytest.raises(RuntimeConfigError, match="PERAGO_FENCE=hard, but task 'a' replaces"):
        assemble_worker(kind(settings(tmp_path, PERAGO_FENCE="hard")), [], [a_task("a")], slots=1)


@pytest.mark.parametrize("kind", [Embedded, Real])
def test_a_wrong_input_ends_a_run_and_is_tried_again_by_other_workers(
    kind: type[Embedded | Real], tmp_path: Path
) -> None:
    servers = kind(settings(tmp_path))

    assert (servers.settings.wrong_input, servers.of_run("a-run").settings.wrong_input) == (
        "failed",
        "terminal",
    )


def test_every_run_has_an_orchestrator_of_its_own_on_one_lake(tmp_path: Path) -> None:
    servers = Embedded(settings(tmp_path))

    for run_id in ("one", "two"):
        with servers.of_run(run_id).opened() as (lake, _):
            lake.create_repository(f"songs-{run_id}", [], "empty")

    with closing(servers.open_ports()[0]) as lake:
        assert sorted(lake.repositories()) == ["songs-one", "songs-two"]
    assert sorted(file.parent.name for file in tmp_path.glob("runs/*/orchestrator.db")) == ["one", "two"]
