"""The failure table from the body's end on: what cannot be published, cannot be staged, or cannot be cleaned up."""

from __future__ import annotations

import os
import socket

import pytest

from perago.errors import LakeError, LakeUnavailable
from tests.support.faults.ports import refusing
from tests.support.worlds.world import Made, World, change_nothing, fails, make_task, write_result


def _symlink(workspace):
    (workspace / "link").symlink_to("/etc/hostname")


def _symlinked_folder(workspace):
    (workspace / "deep" / "loop").symlink_to(workspace)


def _fifo(workspace):
    os.mkfifo(workspace / "pipe")


def _socket(workspace):
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(workspace)
        made.bind("sock")


def _marker(workspace):
    (workspace / ".perago-attempt.json").write_text("mine now")


def _nested_marker(workspace):
    (workspace / "deep" / ".perago-attempt.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_symlink, "workspace publication does not support symlinks: link"),
        (_symlinked_folder, "workspace publication does not support symlinks: deep/loop"),
        (_fifo, "pipe"),
        (_socket, "sock"),
        (_marker, ".perago-attempt.json"),
        (_nested_marker, "deep/.perago-attempt.json"),
    ],
)
def test_a_file_that_cannot_be_published_is_refused_by_name(world: World, spoil, text: str) -> None:
    here = os.getcwd()

    def body(workspace, params):
        spoil(workspace)
        os.chdir(here)
        return write_result(workspace, params)

    definition = make_task(body)
    world.start(definition)
    fails(world, definition, "FAILED", text)


def test_the_actions_folder_is_out_of_reach(world: World) -> None:
    world.commit({"_lakefs_actions/other.yaml": "name: other"})

    def body(workspace, params):
        assert not (workspace / "_lakefs_actions").exists()
        (workspace / "_lakefs_actions").mkdir()
        (workspace / "_lakefs_actions" / "evil.yaml").write_text("x")
        return Made(said="x")

    definition = make_task(body, prefix="/")
    world.start(definition)
    fails(world, definition, "FAILED", "_lakefs_actions/evil.yaml")


@pytest.mark.parametrize("call", ["create_branch", "upload", "delete", "commit", "head", "merge"])
def test_a_failing_lake_call_fails_the_attempt_and_publishes_nothing(world: World, call: str) -> None:
    def body(workspace, params):
        (workspace / "input.txt").unlink()
        return write_result(workspace, params)

    definition = make_task(body)
    world.start(definition)
    lake = refusing(world.lake, call, error=LakeUnavailable(f"{call} is down"))
    fails(world, definition, "FAILED", f"{call} is down", lake=lake)


def test_a_staging_that_cannot_be_dropped_keeps_the_result_and_not_the_workdir(world: World, caplog) -> None:
    definition = make_task()
    workflow = world.start(definition)
    lake = refusing(world.lake, "drop_branch", error=LakeError("not today"))
    settled = world.execute(definition, world.poll(definition), lake=lake)
    assert settled.outcome.status == "COMPLETED"
    assert world.workflow(workflow).status == "COMPLETED"
    assert "failed to clean staging workspace" in caplog.text
    assert world.workdirs() == []
    assert len(world.leftovers()) == 2


def test_a_workdir_that_cannot_be_removed_keeps_the_result(world: World, caplog) -> None:
    def body(workspace, params):
        # The folder that holds the workdir is gone by the time of the cleanup: nothing is left to remove.
        os.rename(workspace, workspace.with_name("moved"))
        os.symlink("/nowhere", workspace)
        return Made(said="x")

    definition = make_task(body, read_only=True)
    world.start(definition)
    settled = world.execute(definition, world.poll(definition))
    assert settled.outcome.status == "COMPLETED"


def test_a_body_that_makes_its_folders_read_only_is_cleaned_up(world: World) -> None:
    def body(workspace, params):
        (workspace / "deep").chmod(0o500)
        workspace.chmod(0o500)
        return change_nothing(workspace, params)

    definition = make_task(body)
    world.start(definition)
    assert world.execute(definition, world.poll(definition)).outcome.status == "COMPLETED"
    assert world.workdirs() == []


def test_a_result_that_is_no_unicode_fails_before_anything_is_published(world: World) -> None:
    def body(workspace, params):
        (workspace / "result.txt").write_text("x")
        return Made.model_construct(said="caf\udce9.csv")

    a = world.head().id
    settled = world.run(make_task(body))
    assert settled.outcome.status == "FAILED"
    assert 'not valid Unicode, near \'{"said": "caf\\udce9\'' in (settled.outcome.reason or "")
    assert world.head().id == a
