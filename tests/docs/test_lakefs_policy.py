"""examples/deploy/lakefs-policy.json is enough for a worker, and nothing in it is too much; a real lakeFS enforces it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeForbidden, LakeUnauthenticated, PeragoError
from perago.runtime.worker.plan import check_lake
from tests.conftest import LakefsServer
from tests.support.servers.lakefs import lakefs_lake
from tests.support.servers.own_lakefs import ADMIN, WORKER, PolicedLakefs, policed_lakefs
from tests.support.worlds.lakefs_world import a_world, fence
from tests.support.worlds.world import Made, Params, World, abandon, make_task, published_ref, write_result

POLICY = Path(__file__).parents[2] / "examples" / "deploy" / "lakefs-policy.json"
STATEMENT: list[dict[str, Any]] = json.loads(POLICY.read_text())["statement"]
RIGHTS = [(number, action) for number, one in enumerate(STATEMENT) for action in one["action"]]
EXAMPLE = "repository/songs"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def policed(lakefs_server: LakefsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicedLakefs]:
    """Run a lakeFS for this module; skipped where no servers are configured."""
    with policed_lakefs(tmp_path_factory.mktemp("policed"), []) as made:
        yield made


@pytest.fixture
def admin(policed: PolicedLakefs, tmp_path: Path) -> Iterator[World]:
    """A fenced repository, as its owner sees it."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    server = policed.as_user(ADMIN)
    server.call(
        "POST",
        "/repositories",
        {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"},
    )
    (tmp_path / "admin").mkdir()
    with a_world(server, name, tmp_path / "admin") as world:
        fence(world)
        yield world


def without(number: int, action: str) -> list[dict[str, Any]]:
    """The policy with one right less."""
    return [
        {**one, "action": [right for right in one["action"] if (index, right) != (number, action)]}
        for index, one in enumerate(STATEMENT)
        if (index, one["action"]) != (number, [action])
    ]


def grant(policed: PolicedLakefs, statement: list[dict[str, Any]], repository: str) -> None:
    text = json.dumps(statement).replace(EXAMPLE, f"repository/{repository}")
    policed.statement = json.loads(text)


def clear_and_write(workspace: Path, params: Params) -> Made:
    (workspace / "deep" / "old.txt").unlink(missing_ok=True)
    return write_result(workspace, params)


def work(policed: PolicedLakefs, admin: World, folder: Path) -> None:
    """Everything that a worker asks of lakeFS: its check, a publication, and a retry under each policy."""
    with closing(lakefs_lake(policed.as_user(WORKER), folder / "cache", tries=1)) as lake:
        check_lake(lake)
        folder.mkdir(exist_ok=True)
        world = World(lake, admin.repository, folder)
        try:
            for on_abandoned in ("replace", "supersede", "reuse"):
                step = make_task(clear_and_write, on_abandoned=on_abandoned)
                published_ref(world.run(step, text=f"first of {on_abandoned}"))
                assert admin.head().metadata["perago.fence"] == "hard"
                world.start(step, text=f"second of {on_abandoned}")
                abandon(world, step)
                published_ref(world.execute(step, world.retry(step)))
        finally:
            world.orchestrator.close()
    assert admin.leftovers() == []
    assert len(admin.replaced()) == 1


def test_a_worker_with_the_policy_does_all_its_work(
    policed: PolicedLakefs, admin: World, tmp_path: Path
) -> None:
    grant(policed, STATEMENT, admin.repository)

    work(policed, admin, tmp_path / "worker")


@pytest.mark.parametrize(("number", "action"), RIGHTS)
def test_without_any_one_of_its_rights_it_does_not(
    policed: PolicedLakefs, admin: World, tmp_path: Path, number: int, action: str
) -> None:
    grant(policed, without(number, action), admin.repository)

    with pytest.raises((PeragoError, AssertionError)):
        work(policed, admin, tmp_path / "worker")


def test_a_right_that_is_missing_is_not_taken_for_keys_that_lakefs_does_not_know(
    policed: PolicedLakefs, admin: World, tmp_path: Path
) -> None:
    grant(policed, without(0, "fs:ListBranches"), admin.repository)

    with (
        closing(lakefs_lake(policed.as_user(WORKER), tmp_path / "cache", tries=1)) as lake,
        pytest.raises(LakeForbidden, match="fs:ListBranches") as caught,
    ):
        lake.branches(admin.repository, "perago-")

    assert not isinstance(caught.value, LakeUnauthenticated)
    assert "LAKECTL_CREDENTIALS" not in str(caught.value)
