"""Publish requests in flight on the real server: the next attempt stops them, or reports that it could not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

from perago.errors import LakeNotFound, LakeUnavailable
from perago.protocol.names import claim_branch_name
from tests.conftest import LakefsServer
from tests.support.faults.ports import before
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.worlds.lakefs_world import a_world, fence, opened
from tests.support.worlds.world import World, change_nothing, impatient, make_task, published_ref

HELD_SECONDS = 3
HOLD = f"""\
name: hold
on:
  pre-merge:
    branches: [main]
hooks:
  - id: hold
    type: lua
    properties:
      script: |
        local time = require("time")
        time.sleep({HELD_SECONDS * 10**9})
"""
MERGE = r"POST .*/refs/[^/]+/merge/main"
BARRIER = r"POST .*/refs/perago-barrier-[^/]+/merge/main"
DROP = r"DELETE .*/branches/"
NGINX = "<html><head><title>404 Not Found</title></head></html>"
GATEWAY = '{"message":"Not Found"}'
SPRING = '{"timestamp":"2026-11-16","status":404,"error":"Not Found","message":"branch not found","path":"/"}'


@pytest.fixture
def world(lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        yield made


def held(world: World) -> None:
    """From now on a merge into main that grew from its head is in flight for some seconds."""
    world.commit({"_lakefs_actions/hold.yaml": HOLD})


@pytest.mark.slow
@pytest.mark.parametrize("fenced", [True, False], ids=["hard", "soft"])
@pytest.mark.parametrize("policy", ["supersede", "replace", "reuse"])
def test_a_merge_that_was_given_up_does_not_land_after_the_retry(
    world: World, policy: str, fenced: bool
) -> None:
    if fenced:
        fence(world)
    held(world)
    a = world.head().id
    definition = impatient(make_task(on_abandoned=policy))
    workflow = world.start(definition)
    began = time.monotonic()
    first = world.execute(definition, world.poll(definition))
    assert first.outcome.status == "FAILED"
    assert "was not moved" in (first.outcome.reason or "")
    retry = world.execute(make_task(change_nothing, on_abandoned=policy), world.poll(definition))
    assert published_ref(retry) == a
    # The server holds the merge that long; only then could it land.
    time.sleep(max(0.0, began + HELD_SECONDS + 2 - time.monotonic()))
    assert world.head().id == a == world.workflow(workflow).output["ref"]
    assert world.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("fenced", [True, False], ids=["hard", "soft"])
def test_a_merge_of_an_attempt_that_timed_out_meanwhile_is_stopped_by_its_retry(
    world: World, fenced: bool
) -> None:
    if fenced:
        fence(world)
    held(world)
    a, definition = world.head().id, make_task(on_abandoned="supersede")
    workflow = world.start(definition)
    assignment, sent = world.poll(definition), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(world.execute, definition, assignment, lake=before(world.lake, "merge", sent.set))
        assert sent.wait(30)
        time.sleep(1)
        retry = world.execute(make_task(change_nothing, on_abandoned="supersede"), world.retry(definition))
        assert published_ref(retry) == a
        assert late.result().outcome.status == "FAILED"
    assert world.head().id == a == world.workflow(workflow).output["ref"]


@pytest.mark.slow
def test_no_hard_reset_lands_behind_a_barrier(
    world: World, lakefs_server: LakefsServer, tmp_path: Path
) -> None:
    """A reset to `<branch>~300` resolves three hundred parents between reading the record and swapping it."""
    repository, base, depth = world.repository, world.head().id, 300
    world.lake.create_branch(repository, "deep", "main")
    for number in range(depth + 1):
        commit = {"message": str(number), "allow_empty": True}
        lakefs_server.call("POST", f"/repositories/{repository}/branches/deep/commits", commit)
    top = world.head("deep").id
    with ThreadPoolExecutor(24) as pool:
        for number in range(5):
            source, targets = f"source-{number}", [f"target-{number}-{n}" for n in range(24)]
            world.lake.create_branch(repository, source, top)
            for target in targets:
                world.lake.create_branch(repository, target, base)
            ref = f"{source}~{depth - 1}"
            resets = [pool.submit(_hard_reset, lakefs_server, repository, target, ref) for target in targets]
            time.sleep(0.002 * number)
            world.lake.drop_branch(repository, source)
            for target in targets:
                world.lake.barrier(repository, target, 30)
            settled = [world.head(target).id for target in targets]
            wait(resets)
            assert [world.head(target).id for target in targets] == settled


def _hard_reset(server: LakefsServer, repository: str, branch: str, ref: str) -> None:
    # Its source may be gone: that is the other ending of the race.
    with suppress(HTTPError):
        server.call("PUT", f"/repositories/{repository}/branches/{branch}/hard_reset?ref={ref}")


class TestOnlyTheServersOwnAnswerCounts:
    @pytest.mark.parametrize("text", [NGINX, GATEWAY, SPRING], ids=["nginx", "gateway", "spring"])
    def test_a_proxys_404_drops_nothing(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path, text: str
    ) -> None:
        world.lake.create_branch(world.repository, "side", "main")
        faults = Fault("answer", DROP, times=1000, status=404, text=text)
        with (
            fault_proxy(lakefs_server.url, faults) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url) as lake,
            pytest.raises(LakeUnavailable, match="something before lakeFS answered 404"),
        ):
            lake.drop_branch(world.repository, "side")

    def test_a_proxys_200_drops_nothing(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        with (
            fault_proxy(lakefs_server.url, Fault("answer", DROP, status=200, text=NGINX)) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url) as lake,
            pytest.raises(LakeUnavailable, match="lakeFS would say 204"),
        ):
            lake.drop_branch(world.repository, "side")

    def test_a_proxys_200_makes_no_branch(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        with (
            fault_proxy(
                lakefs_server.url, Fault("answer", r"POST .*/branches$", status=200, text="ok")
            ) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url) as lake,
            pytest.raises(LakeUnavailable, match="lakeFS would say 201"),
        ):
            lake.create_branch(world.repository, "claim", "main")

    def test_a_barrier_is_sent_until_the_server_itself_answers(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        faults = [
            Fault("answer", BARRIER, status=404, text=NGINX),
            Fault("answer", BARRIER, status=404, text=GATEWAY),
            Fault("answer", BARRIER, status=200, text="{}"),
            Fault("cut after", BARRIER),
            Fault("answer", BARRIER, status=503),
        ]
        with (
            fault_proxy(lakefs_server.url, *faults) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url) as lake,
        ):
            lake.barrier(world.repository, "main", 30)
            assert proxy.count(BARRIER) == 6
        assert all(fault.times == 0 for fault in faults)

    def test_a_barrier_into_a_branch_with_uncommitted_objects_is_not_confirmed(self, world: World) -> None:
        world.put({"data/uncommitted": "x"})
        with pytest.raises(LakeUnavailable, match=r"not confirmed within 0\.3 s.*dirty branch"):
            world.lake.barrier(world.repository, "main", 0.3)

    def test_a_barrier_into_a_branch_that_is_gone_has_nothing_to_stop(self, world: World) -> None:
        with pytest.raises(LakeNotFound):
            world.head("gone")
        world.lake.barrier(world.repository, "gone", 30)

    def test_a_retry_that_cannot_stop_a_dead_attempts_request_fails_and_keeps_the_claim(
        self, world: World, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        definition, a = impatient(make_task(on_abandoned="supersede")), world.head().id
        world.start(definition)
        dead = world.poll(definition).attempt
        claim = claim_branch_name(dead, "main")
        world.lake.create_branch(world.repository, claim, a)
        fault = Fault("answer", BARRIER, times=1000, status=404, text=NGINX)
        with (
            fault_proxy(lakefs_server.url, fault) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url, sleep=time.sleep) as lake,
        ):
            failed = world.execute(definition, world.retry(definition), lake=lake)
        assert failed.outcome.status == "FAILED"
        assert "may still be in flight" in (failed.outcome.reason or "")
        assert world.leftovers() == [claim]
        retry = world.execute(definition, world.poll(definition))
        assert published_ref(retry) == world.head().id
        assert world.leftovers() == []
