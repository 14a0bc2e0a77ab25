"""Someone else moves the branch while an attempt publishes, on the real server; and what a missing fence means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.lake.lakefs.errors import FENCE_MARK
from perago.lake.lakefs.fence import FENCE_PATH, FENCE_TEXT
from perago.runtime.execution_result import ExecutionResult
from tests.conftest import LakefsServer
from tests.support.faults.ports import before, recording
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.worlds.lakefs_world import a_world, action_runs, fence, merge_by_hand, opened
from tests.support.worlds.world import World, abandon, change_nothing, make_task, published_ref, write_result

POLICIES = ["replace", "replace-signed", "supersede", "reuse"]
FILES = {"data/by-someone-else.txt": "x"}
Move = Callable[[World], str]


@pytest.fixture
def world(lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        yield made


@pytest.fixture(params=["commit", "merge"])
def someone_else(request: pytest.FixtureRequest, lakefs_server: LakefsServer) -> Move:
    """Another's commit, or merge, onto main; returns the new head."""
    if request.param == "commit":
        return lambda world: world.commit(FILES)
    return lambda world: merge_by_hand(lakefs_server, world, FILES)


def refused(world: World, settled: ExecutionResult, theirs: str) -> str:
    """The attempt failed at the fence and theirs is the head; returns the reason."""
    assert (settled.outcome.status, settled.refused) == ("FAILED", True), settled.outcome
    assert world.head().id == theirs
    assert world.files()["data/by-someone-else.txt"] == "x"
    assert world.leftovers() == []
    assert world.replaced() == []
    return settled.outcome.reason or ""


class TestBeforeTheHeadIsRead:
    """The publisher sees the other's commit, and decides by the table."""

    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    def test_the_attempt_is_refused_and_the_others_commit_stays(
        self, world: World, someone_else: Move, policy: str
    ) -> None:
        fence(world)
        definition = make_task(on_abandoned=policy)
        world.start(definition)
        assignment, theirs = world.poll(definition), someone_else(world)
        reason = refused(world, world.execute(definition, assignment), theirs)
        assert f"head {theirs}" in reason
        assert "Start a new workflow from the current head" in reason

    def test_under_replace_an_unsigned_direct_child_is_replaced_and_kept_under_a_tag(
        self, world: World, someone_else: Move
    ) -> None:
        definition, a = make_task(on_abandoned="replace"), world.head().id
        world.start(definition)
        assignment, theirs = world.poll(definition), someone_else(world)
        c = published_ref(world.execute(definition, assignment))
        assert world.history()[:2] == [c, a]
        assert world.replaced() == [theirs]
        assert "data/by-someone-else.txt" not in world.files()
        assert world.files(theirs)["data/by-someone-else.txt"] == "x"

    def test_with_unsigned_refuse_the_commit_stays_and_its_committer_is_named(
        self, world: World, someone_else: Move
    ) -> None:
        definition = make_task(unsigned="refuse")
        world.start(definition)
        assignment, theirs = world.poll(definition), someone_else(world)
        reason = refused(world, world.execute(definition, assignment), theirs)
        assert reason.startswith(f"{world.head().committer!r}, not a Perago task, moved branch 'main' of ")
        assert world.head().committer
        assert (world.replaced(), world.files()["data/by-someone-else.txt"]) == ([], "x")

    def test_under_replace_a_head_that_names_another_task_stays(self, world: World) -> None:
        definition = make_task(on_abandoned="replace")
        world.start(definition)
        assignment = world.poll(definition)
        theirs = world.commit(FILES, metadata={"perago.logical_task_key": "another-workflow/step"})
        assert "another-workflow/step" in refused(world, world.execute(definition, assignment), theirs)


class TestAfterTheHeadWasRead:
    """The publisher has decided, and the branch moves under it."""

    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    def test_behind_the_fence_the_server_refuses_the_merge(
        self, world: World, lakefs_server: LakefsServer, someone_else: Move, policy: str
    ) -> None:
        fence(world)
        definition, theirs = make_task(on_abandoned=policy), []
        world.start(definition)
        lake = before(world.lake, "merge", lambda: theirs.append(someone_else(world)))
        settled = world.execute(definition, world.poll(definition), lake=lake)
        assert f"head {theirs[0]}" in refused(world, settled, theirs[0])
        assert action_runs(lakefs_server, world.repository).count("failed") == 1

    def test_behind_the_fence_replace_goes_by_the_head_that_it_reads_after_the_refusal(
        self, world: World, lakefs_server: LakefsServer, someone_else: Move
    ) -> None:
        a = fence(world)
        definition, theirs = make_task(on_abandoned="replace"), []
        world.start(definition)
        lake = before(world.lake, "merge", lambda: theirs.append(someone_else(world)))
        c = published_ref(world.execute(definition, world.poll(definition), lake=lake))
        assert world.history()[:2] == [c, a]
        assert world.replaced() == theirs
        assert action_runs(lakefs_server, world.repository).count("failed") == 1

    @pytest.mark.parametrize("policy", POLICIES)
    def test_without_a_fence_a_move_before_the_call_is_still_seen(
        self, world: World, someone_else: Move, policy: str
    ) -> None:
        definition, theirs = make_task(on_abandoned=policy), []
        world.start(definition)
        lake = before(world.lake, "merge", lambda: theirs.append(someone_else(world)))
        settled = world.execute(definition, world.poll(definition), lake=lake)
        assert "expected head" in refused(world, settled, theirs[0])

    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    def test_a_concurrent_change_of_the_same_object_is_refused_too(self, world: World, policy: str) -> None:
        fence(world)
        definition, theirs = make_task(on_abandoned=policy), []
        world.start(definition)
        mine = {**FILES, "data/result.txt": "theirs"}
        lake = before(world.lake, "merge", lambda: theirs.append(world.commit(mine)))
        settled = world.execute(definition, world.poll(definition), lake=lake)
        assert f"head {theirs[0]}" in refused(world, settled, theirs[0])
        assert world.files()["data/result.txt"] == "theirs"

    def test_under_replace_a_head_that_moved_after_it_was_read_is_not_replaced(
        self, world: World, someone_else: Move
    ) -> None:
        definition, a = make_task(on_abandoned="replace"), world.head().id
        world.start(definition)
        abandoned = abandon(world, definition)
        theirs: list[str] = []
        lake = before(world.lake, "relocate", lambda: theirs.append(someone_else(world)))
        settled = world.execute(definition, world.retry(definition), lake=lake)
        assert (settled.outcome.status, settled.refused) == ("FAILED", True)
        assert world.history()[:3] == [theirs[0], abandoned, a]

    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    def test_a_restaged_result_is_fenced_by_the_head_it_was_staged_on(
        self, world: World, someone_else: Move, policy: str
    ) -> None:
        fence(world)
        first = make_task(change_more, on_abandoned=policy)
        second = make_task(on_abandoned=policy, version="2")
        world.start(first)
        abandon(world, first)
        theirs: list[str] = []
        lake = before(world.lake, "merge", lambda: theirs.append(someone_else(world)))
        settled = world.execute(second, world.retry(second), lake=lake)
        assert FENCE_MARK in refused(world, settled, theirs[0])


class TestInTheWindowOfASoftFence:
    """Changes between the adapter's last check and the server's move: documented, and reported when they happen."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_merge_that_landed_on_another_head_is_told_as_failed_and_nothing_is_rolled_back(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path, policy: str
    ) -> None:
        definition, a, theirs = make_task(on_abandoned=policy), world.head().id, []
        world.start(definition)
        on_the_wire = Meanwhile(
            "cut before", r"POST .*/merge/main", action=lambda: theirs.append(world.commit(FILES))
        )
        with (
            fault_proxy(lakefs_server.url, on_the_wire) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url) as lake,
        ):
            settled = world.execute(definition, world.poll(definition), lake=lake)
        mine = world.head().id
        assert world.history()[:3] == [mine, theirs[0], a]
        assert (settled.outcome.status, settled.refused) == ("FAILED", True)
        said = f"commit {mine} landed on {theirs[0]}, not on the expected head {a}"
        assert said in (settled.outcome.reason or "")
        assert "perago fence install" in (settled.outcome.reason or "")


@dataclass(slots=True)
class Meanwhile(Fault):
    """No fault: something else happens while the request is on its way, once."""

    action: Callable[[], object] = print

    def takes(self, line: str) -> bool:
        if Fault.takes(self, line):
            self.action()
        return False


class TestAMissingFence:
    """`PERAGO_FENCE=hard` on a branch that does not carry the exact file."""

    @pytest.mark.parametrize("file", [None, FENCE_TEXT.replace("~=", "==")])
    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    def test_hard_refuses_to_publish_and_says_what_to_run(
        self, world: World, policy: str, file: str | None
    ) -> None:
        if file is not None:
            world.commit({FENCE_PATH: file})
        definition, a, calls = make_task(on_abandoned=policy), world.head().id, []
        world.start(definition)
        settled = world.execute(
            definition,
            world.poll(definition),
            lake=recording(world.lake, calls),
            fence="hard",
        )
        assert (settled.outcome.status, settled.refused) == ("FAILED", True)
        assert f"perago fence install {world.repository} main" in (settled.outcome.reason or "")
        assert world.head().id == a
        assert "merge" not in calls
        assert world.leftovers() == []

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_workflow_from_before_the_fence_is_refused_and_the_fence_stays(
        self, world: World, policy: str
    ) -> None:
        definition = make_task(on_abandoned=policy)
        world.start(definition)
        assignment, head = world.poll(definition), fence(world)
        settled = world.execute(definition, assignment)
        assert settled.refused
        assert "perago-fence" in (settled.outcome.reason or "")
        assert world.head().id == head

    def test_hard_does_not_replace_by_moving_the_branch(self, world: World) -> None:
        fence(world)
        definition = make_task(on_abandoned="replace")
        world.start(definition)
        abandoned = abandon(world, definition)
        settled = world.execute(definition, world.retry(definition), fence="hard")
        assert settled.refused
        assert world.head().id == abandoned
        assert world.replaced() == []

    def test_with_the_file_the_commit_says_hard_and_without_it_soft(self, world: World) -> None:
        definition = make_task(on_abandoned="supersede")
        assert world.run(definition, text="one").fence_level == "soft"
        assert world.head().metadata["perago.fence"] == "soft"
        fence(world)
        assert world.run(definition, text="two").fence_level == "hard"
        assert world.head().metadata["perago.fence"] == "hard"

    @pytest.mark.parametrize("body", [write_result, change_nothing], ids=["changed", "no-op"])
    def test_a_relocation_is_soft_behind_the_fence_too_and_its_commit_says_so(
        self, world: World, body: Any
    ) -> None:
        a = fence(world)
        world.start(make_task())
        abandoned = abandon(world, make_task(version="0"))
        assert world.head().metadata["perago.fence"] == "hard"
        settled = world.execute(make_task(body), world.retry(make_task()))
        assert world.replaced() == [abandoned]
        assert (published_ref(settled), settled.fence_level) == (world.head().id, "soft")
        if body is write_result:
            assert (world.head().first_parent, world.head().metadata["perago.fence"]) == (a, "soft")

    def test_the_fence_survives_a_task_on_the_whole_repository_that_deletes_everything(
        self, world: World
    ) -> None:
        def delete_everything(workspace: Path, params: object) -> object:
            for path in list(workspace.rglob("*")):
                if path.is_file() and not path.name.startswith(".perago"):
                    path.unlink()
            return change_nothing(workspace, params)  # type: ignore[arg-type]

        fence(world)
        definition = make_task(delete_everything, prefix="/", on_abandoned="supersede")  # type: ignore[arg-type]
        published_ref(world.run(definition))
        assert world.files() == {FENCE_PATH: FENCE_TEXT}


def change_more(workspace: Path, params: object) -> object:
    """Other bytes than the usual body's."""
    (workspace / "more.txt").write_text("of the first attempt")
    return change_nothing(workspace, params)  # type: ignore[arg-type]
