"""A protected branch on the real server: nothing may be written to it, committed on it or reset; merges go in.

One repository for all tests, because the server takes its time to see the rule: every test continues from the head
that it finds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeForbidden
from tests.conftest import LakefsServer
from tests.support.worlds.lakefs_world import a_world, fence, protect
from tests.support.worlds.world import World, abandon, change_nothing, make_task, published_ref

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(lakefs_server: LakefsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    name = f"test-{uuid.uuid4().hex[:16]}"
    wanted = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
    lakefs_server.call("POST", "/repositories", wanted)
    with a_world(lakefs_server, name, tmp_path_factory.mktemp("protected")) as made:
        fence(made)
        protect(lakefs_server, made)
        yield made
    lakefs_server.call("DELETE", f"/repositories/{name}?force=true")


@pytest.fixture(autouse=True)
def one_workflow_at_a_time(world: World) -> Iterator[None]:
    """Empty the queue, so that a test does not leave attempts to the next one."""
    yield
    for run in world.orchestrator.workflows(100):
        if run.status == "RUNNING":
            world.orchestrator.terminate_workflow(run.id, "the test is over")


def write(text: str) -> Any:
    """A body that writes this."""

    def body(workspace: Path, params: Any) -> Any:
        (workspace / "result.txt").write_text(text)
        return change_nothing(workspace, params)

    return body


@pytest.mark.parametrize("policy", ["replace", "supersede", "reuse"])
def test_a_first_publication_goes_in_by_merge(world: World, policy: str) -> None:
    a = world.head().id
    c = published_ref(world.run(make_task(write(f"first of {policy}"), on_abandoned=policy)))
    assert world.history()[:2] == [c, a]


@pytest.mark.parametrize("policy", ["supersede", "reuse"])
def test_new_bytes_are_published_on_top_of_the_abandoned_publication(world: World, policy: str) -> None:
    first = make_task(write(f"abandoned {policy}"), on_abandoned=policy)
    second = make_task(write(f"new {policy}"), on_abandoned=policy, version="2")
    a, tagged, workflow = world.head().id, world.replaced(), world.start(first)
    h = abandon(world, first)
    c = published_ref(world.execute(second, world.retry(second), fence="hard"))
    assert world.history()[:3] == [c, h, a]
    assert world.head().metadata["perago.supersedes"] == h
    assert world.head().metadata["perago.fence"] == "hard"
    assert world.files()["data/result.txt"] == f"new {policy}"
    assert world.workflow(workflow).output == {"ref": c}
    assert (world.replaced(), world.leftovers()) == (tagged, [])


@pytest.mark.parametrize("policy", ["supersede", "reuse"])
def test_equal_bytes_complete_with_the_head_and_commit_nothing(world: World, policy: str) -> None:
    first = make_task(write(f"equal {policy}"), on_abandoned=policy)
    second = make_task(write(f"equal {policy}"), on_abandoned=policy, version="2")
    workflow = world.start(first)
    h = abandon(world, first)
    assert published_ref(world.execute(second, world.retry(second), fence="hard")) == h
    assert world.head().id == h
    assert world.workflow(workflow).output == {"ref": h}
    assert world.leftovers() == []


@pytest.mark.parametrize("policy", ["supersede", "reuse"])
def test_nothing_changed_brings_the_inputs_tree_back_on_top(world: World, policy: str) -> None:
    first = make_task(write(f"unwanted {policy}"), on_abandoned=policy)
    second = make_task(change_nothing, on_abandoned=policy, version="2")
    a, files, workflow = world.head().id, world.files(), world.start(first)
    h = abandon(world, first)
    assert world.files() != files
    c = published_ref(world.execute(second, world.retry(second), fence="hard"))
    assert world.history()[:3] == [c, h, a]
    assert world.files() == files
    assert world.workflow(workflow).output == {"ref": c}


@pytest.mark.parametrize("changed", [True, False])
def test_replace_cannot_move_the_branch_and_says_what_to_declare(world: World, changed: bool) -> None:
    definition = make_task(write(f"replaced {changed}"))
    world.start(definition)
    h = abandon(world, definition)
    retry = make_task(write("by the retry") if changed else change_nothing)
    settled = world.execute(retry, world.retry(retry))
    assert (settled.outcome.status, settled.refused) == ("FAILED", True)
    assert 'declare on_abandoned="supersede"' in (settled.outcome.reason or "")
    assert world.head().id == h
    assert world.leftovers() == []


def test_no_write_passes_the_protection(world: World) -> None:
    with pytest.raises(LakeForbidden):
        world.put({"data/by-hand.txt": "x"})
