"""A lakeFS whose operator has switched actions off: the fence file is there, and the server does not compare."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import HeadMoved, LakeError
from perago.lake.base import Merge
from perago.lake.lakefs.errors import FENCE_MARK
from perago.lake.lakefs.fence import Fence
from perago.lake.lakefs.fence_probe import KEPT_SECONDS
from perago.settings import FenceMode
from tests.conftest import LakefsServer
from tests.support.faults.ports import before, recording
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.worlds.lakefs_world import a_world, fence, opened
from tests.support.worlds.world import Made, World, make_task, published_ref, write_result

PROOF = "POST .*/merge/perago-fence-"
FILES = {"data/by-someone-else.txt": "x"}


@pytest.fixture
def unfenced(lakefs_without_actions: LakefsServer, tmp_path: Path) -> Iterator[World]:
    """A world on that server, with the fence file on main."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    wanted = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
    lakefs_without_actions.call("POST", "/repositories", wanted)
    with a_world(lakefs_without_actions, name, tmp_path) as world:
        fence(world)
        yield world


def test_the_attempt_says_soft_in_commit_and_metric_and_one_warning_says_why(
    unfenced: World, caplog: pytest.LogCaptureFixture
) -> None:
    definition = make_task(on_abandoned="supersede")
    settled = unfenced.run(definition, text="one")
    unfenced.run(definition, text="two")
    assert (settled.outcome.status, settled.fence_level) == ("COMPLETED", "soft")
    assert unfenced.head().metadata["perago.fence"] == "soft"
    assert unfenced.lake.branches(unfenced.repository, "perago-") == []
    # The install has read the level already, so the one warning came then.
    said = [record.getMessage() for when in ("setup", "call") for record in caplog.get_records(when)]
    assert ["actions.enabled" in text for text in said if "count as soft" in text] == [True]


def test_the_file_alone_saves_no_call(unfenced: World) -> None:
    definition, calls = make_task(on_abandoned="supersede"), []
    unfenced.start(definition)
    lake = recording(unfenced.lake, calls)
    published_ref(unfenced.execute(definition, unfenced.poll(definition), lake=lake))
    # The head is read for the input and to decide by.
    assert calls.count("head") == 2


def test_a_head_that_moved_before_the_merge_is_seen(unfenced: World) -> None:
    definition = make_task(on_abandoned="supersede")
    unfenced.start(definition)
    theirs: list[str] = []
    lake = before(unfenced.lake, "merge", lambda: theirs.append(unfenced.commit(FILES)))
    settled = unfenced.execute(definition, unfenced.poll(definition), lake=lake)
    assert settled.refused
    assert unfenced.head().id == theirs[0]


def test_the_adapter_compares_by_itself_where_nobody_told_it_the_level(unfenced: World) -> None:
    a = unfenced.head().id
    unfenced.lake.create_branch(unfenced.repository, "side", a)
    unfenced.commit({"data/late.txt": "late"}, branch="side")
    theirs = unfenced.commit(FILES)
    with pytest.raises(HeadMoved):
        unfenced.lake.merge(unfenced.repository, Merge("side", "main", a, "late", {}, 60))
    assert unfenced.head().id == theirs


def test_hard_refuses_to_publish_and_says_what_to_switch_on(unfenced: World) -> None:
    definition, a = make_task(on_abandoned="supersede"), unfenced.head().id
    unfenced.start(definition)
    settled = unfenced.execute(definition, unfenced.poll(definition), fence="hard")
    reason = settled.outcome.reason or ""
    assert settled.refused
    assert "PERAGO_FENCE=hard" in reason
    assert "actions.enabled: true" in reason
    assert "perago fence install" not in reason
    assert unfenced.head().id == a


@pytest.mark.parametrize("mode", ["auto", "hard"])
def test_a_merge_that_lands_on_another_head_after_the_proof_is_not_accepted(
    unfenced: World, lakefs_without_actions: LakefsServer, tmp_path: Path, mode: FenceMode
) -> None:
    """Actions that were switched off since the server was last seen to compare: the proxy answers the proof."""
    a, theirs = unfenced.head().id, []

    def body(workspace: Path, params: Any) -> Made:
        theirs.append(unfenced.commit({"data/input.txt": "new"}))
        return write_result(workspace, params)

    proof = Fault("answer", PROOF, status=412, text=json.dumps({"message": f"{FENCE_MARK} expected head …"}))
    definition = make_task(body, on_abandoned="supersede")
    unfenced.start(definition)
    with (
        fault_proxy(lakefs_without_actions.url, proof) as proxy,
        opened(lakefs_without_actions, tmp_path / "behind", url=proxy.url) as lake,
    ):
        settled = unfenced.execute(definition, unfenced.poll(definition), lake=lake, fence=mode)
        assert proof.times == 0
        # What it was seen to do is forgotten: the server has to show it again.
        assert lake.fence_level(unfenced.repository, a) == "soft"
    made, reason = unfenced.head(), settled.outcome.reason or ""
    assert (settled.outcome.status, settled.refused, settled.fence_level) == ("FAILED", True, "soft")
    assert (made.metadata["perago.fence"], made.first_parent) == ("hard", theirs[0])
    assert f"commit {made.id} landed on {theirs[0]}, not on the expected head {a}" in reason
    assert "actions.enabled" in reason
    assert unfenced.leftovers() == []


def test_prove_says_that_it_does_not_hold_and_install_that_it_is_there(unfenced: World) -> None:
    proving = Fence(unfenced.lake)
    assert not proving.install(unfenced.repository, "main").changed
    with pytest.raises(LakeError, match=r"does not hold.*actions\.enabled"):
        proving.prove(unfenced.repository, "main")
    assert unfenced.leftovers() == []


class TestWhereActionsRun:
    """The proof on a server that compares: once, and then it costs nothing."""

    @pytest.fixture
    def world(self, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
        with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
            fence(made)
            yield made

    def test_only_the_first_fenced_attempt_of_a_process_proves(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        definition = make_task(on_abandoned="supersede")
        with (
            fault_proxy(lakefs_server.url) as proxy,
            opened(lakefs_server, tmp_path / "counted", url=proxy.url) as lake,
        ):
            proofs = []
            for text in ("one", "two"):
                proxy.seen.clear()
                world.start(definition, text=text)
                settled = world.execute(definition, world.poll(definition), lake=lake)
                published_ref(settled)
                assert settled.fence_level == "hard"
                proofs.append(sum("perago-fence-" in line for line in proxy.seen))
        assert proofs == [2, 0]

    def test_without_permission_for_the_proof_the_level_is_soft_until_it_is_asked_for_again(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        forbidden = Fault("answer", "POST .*/merge/perago-fence-", status=403)
        with (
            fault_proxy(lakefs_server.url, forbidden) as proxy,
            opened(lakefs_server, tmp_path / "other", url=proxy.url, clock=world.clock) as lake,
        ):
            head = world.head().id
            levels = [lake.fence_level(world.repository, head) for _ in range(2)]
            assert (levels, proxy.count("merge/perago-fence-")) == (["soft", "soft"], 1)
            assert "403" in lake.fence_gap(world.repository, head, "main")
            world.clock.sleep(KEPT_SECONDS)
            assert lake.fence_level(world.repository, head) == "hard"
            assert lake.fence_gap(world.repository, world.history()[1], "main").startswith("does not carry")
        assert world.leftovers() == []
        assert sum("count as soft" in record.getMessage() for record in caplog.records) == 1

    def test_a_proof_that_got_no_answer_is_asked_for_again_at_once(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        cut = Fault("cut after", "POST .*/merge/perago-fence-")
        with (
            fault_proxy(lakefs_server.url, cut) as proxy,
            opened(lakefs_server, tmp_path / "other", url=proxy.url) as lake,
        ):
            head = world.head().id
            assert [lake.fence_level(world.repository, head) for _ in range(2)] == ["soft", "hard"]
        assert world.leftovers() == []
