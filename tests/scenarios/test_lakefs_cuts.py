"""Whole attempts behind a proxy that loses the server's answers: what the server did counts, not what was heard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.lake.lakefs.client import Options
from tests.conftest import LakefsServer
from tests.support.faults.proxy import Fault, FaultProxy, fault_proxy
from tests.support.worlds.lakefs_world import a_world, fence, opened
from tests.support.worlds.world import World, abandon, change_nothing, make_task, published_ref, write_result

FOR_EVER = 1000
TRIES = Options().tries
POLICIES = ["replace", "replace-signed", "supersede", "reuse"]
BRANCH = r"POST .*/branches$"
MERGE = r"POST .*/refs/perago-staging-[^/]+/merge/main"
PARENT = r"GET .*/refs/[0-9a-f]{64}/commits"
COMMIT = r"POST .*/branches/[^/]+/commits"
RESET = r"PUT .*/branches/main/hard_reset"
TAG = r"POST .*/tags$"
DROP = r"DELETE .*/branches/"
# Through the gateway, or the link of what went past it.
PUT = r"PUT (/test-[^/]+/perago-staging-|.*/branches/perago-staging-[^/]+/staging/backing)"
GET = r"GET /test-[^/]+/"


@pytest.fixture
def world(lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        yield made


Behind = Callable[..., Any]


@pytest.fixture
def behind(lakefs_server: LakefsServer, tmp_path: Path) -> Behind:
    """A lake that goes through a proxy with these faults, and the proxy."""

    @contextmanager
    def make(*faults: Fault) -> Iterator[tuple[Any, FaultProxy]]:
        with (
            fault_proxy(lakefs_server.url, *faults) as proxy,
            opened(lakefs_server, tmp_path / "behind", url=proxy.url) as lake,
        ):
            yield lake, proxy
            # A fault that did not strike tests nothing.
            assert all(fault.times == 0 or fault.times > FOR_EVER / 2 for fault in proxy.faults)

    return make


def check_completed(world: World, workflow: str, a: str, ref: str) -> None:
    """Check that one commit on A is the head and the accepted result, and that nothing is left."""
    assert world.history()[:2] == [ref, a]
    assert world.workflow(workflow).status == "COMPLETED"
    assert world.workflow(workflow).output == {"ref": ref}
    assert world.files()["data/result.txt"] == "made"
    assert world.leftovers() == []
    assert world.workdirs() == []


class TestAnswersLostAfterTheServerDidIt:
    @pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "soft"])
    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_merge(self, world: World, behind: Behind, policy: str, fenced: bool) -> None:
        if fenced:
            fence(world)
        definition, a = make_task(on_abandoned=policy), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut after", MERGE)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.poll(definition), lake=lake))
            assert proxy.count(MERGE) == 1
        check_completed(world, workflow, a, ref)

    def test_a_merge_whose_answer_is_cut_short(self, world: World, behind: Behind) -> None:
        definition, a = make_task(on_abandoned="supersede"), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut body", MERGE, keep=10)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.poll(definition), lake=lake))
            assert proxy.count(MERGE) == 1
        check_completed(world, workflow, a, ref)

    @pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "soft"])
    def test_a_merge_whose_parent_cannot_be_read_is_settled_like_one_without_an_answer(
        self, world: World, behind: Behind, fenced: bool
    ) -> None:
        if fenced:
            fence(world)
        definition, a = make_task(on_abandoned="supersede"), world.head().id
        workflow = world.start(definition)
        with behind(Fault("answer", PARENT, times=TRIES)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.poll(definition), lake=lake))
            assert (proxy.count(MERGE), proxy.count("POST .*/merge/main")) == (1, 2)
        check_completed(world, workflow, a, ref)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_commit(self, world: World, behind: Behind, policy: str) -> None:
        definition, a = make_task(on_abandoned=policy), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut after", COMMIT)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.poll(definition), lake=lake))
            assert proxy.count(COMMIT) == 1
        check_completed(world, workflow, a, ref)

    def test_an_upload(self, world: World, behind: Behind) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut after", PUT, times=3)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.poll(definition), lake=lake))
            assert proxy.count(PUT) == 4
        check_completed(world, workflow, a, ref)

    def test_a_hard_reset(self, world: World, behind: Behind) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        abandoned = abandon(world, make_task(other_bytes))
        with behind(Fault("cut after", RESET)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.retry(definition), lake=lake))
            assert proxy.count(RESET) == 1
        assert ref != abandoned
        assert world.replaced() == [abandoned]
        check_completed(world, workflow, a, ref)

    def test_a_hard_reset_back_to_the_input(self, world: World, behind: Behind) -> None:
        definition, a = make_task(change_nothing), world.head().id
        workflow = world.start(definition)
        abandoned = abandon(world, make_task())
        with behind(Fault("cut after", RESET)) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.retry(definition), lake=lake))
            assert proxy.count(RESET) == 1
        assert ref == a == world.head().id == world.workflow(workflow).output["ref"]
        assert world.replaced() == [abandoned]
        assert world.leftovers() == []

    @pytest.mark.parametrize("where", [DROP, GET])
    def test_a_drop_and_a_read(self, world: World, behind: Behind, where: str) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut after", where, times=2)) as (lake, _):
            ref = published_ref(world.execute(definition, world.poll(definition), lake=lake))
        check_completed(world, workflow, a, ref)

    @pytest.mark.parametrize("nth", [1, 2], ids=["the staging branch", "the claim"])
    def test_a_branch_in_doubt_fails_the_attempt_and_the_retry_completes(
        self, world: World, behind: Behind, nth: int
    ) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        with behind(LaterFault("cut after", BRANCH, passes=nth - 1)) as (lake, _):
            settled = world.execute(definition, world.poll(definition), lake=lake)
        assert (settled.outcome.status, settled.outcome.send) == ("FAILED", True)
        assert world.head().id == a
        check_completed(world, workflow, a, published_ref(world.execute(definition, world.poll(definition))))

    def test_a_tag_in_doubt_fails_the_attempt_and_the_retry_completes(
        self, world: World, behind: Behind
    ) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        abandoned = abandon(world, make_task(other_bytes))
        with behind(Fault("cut after", TAG)) as (lake, proxy):
            settled = world.execute(definition, world.retry(definition), lake=lake)
            assert proxy.count(RESET) == 0
        assert settled.outcome.status == "FAILED"
        assert world.head().id == abandoned
        ref = published_ref(world.execute(definition, world.poll(definition)))
        assert set(world.replaced()) == {abandoned}
        check_completed(world, workflow, a, ref)


class TestRequestsThatNeverArrive:
    @pytest.mark.parametrize("where", [MERGE, COMMIT])
    def test_nothing_moves_and_the_retry_completes(self, world: World, behind: Behind, where: str) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut before", where)) as (lake, proxy):
            settled = world.execute(definition, world.poll(definition), lake=lake)
            assert proxy.count(where) == 1
        assert (settled.outcome.status, world.head().id) == ("FAILED", a)
        check_completed(world, workflow, a, published_ref(world.execute(definition, world.poll(definition))))

    def test_a_server_that_goes_dark_after_the_merge_fails_closed_and_the_retry_finds_the_commit(
        self, world: World, behind: Behind
    ) -> None:
        definition, a = make_task(on_abandoned="reuse"), world.head().id
        workflow = world.start(definition)
        with behind(Fault("cut after", MERGE)) as (lake, proxy):
            # All that settling asks for is lost as well: the branch's log, and every try at it.
            proxy.faults.append(Fault("cut before", r"GET .*/refs/main/commits", times=FOR_EVER))
            settled = world.execute(definition, world.poll(definition), lake=lake)
        assert settled.outcome.status == "FAILED"
        assert "decides by the head" in (settled.outcome.reason or "")
        published = world.head().id
        ref = published_ref(world.execute(definition, world.poll(definition)))
        assert ref == published
        check_completed(world, workflow, a, ref)


class TestABusyServer:
    @pytest.mark.parametrize("status", [423, 429])
    def test_a_storm_on_every_call_that_changes_something_is_survived(
        self, world: World, behind: Behind, status: int
    ) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        abandoned = abandon(world, make_task(other_bytes))
        storm = [
            Fault("answer", where, times=5, status=status) for where in (BRANCH, COMMIT, TAG, RESET, DROP)
        ]
        with behind(*storm) as (lake, proxy):
            ref = published_ref(world.execute(definition, world.retry(definition), lake=lake))
            assert proxy.count(RESET) == 6
        assert world.replaced() == [abandoned]
        check_completed(world, workflow, a, ref)

    def test_a_storm_on_the_merge_is_survived_and_one_commit_is_made(
        self, world: World, behind: Behind
    ) -> None:
        fence(world)
        definition, a = make_task(on_abandoned="supersede"), world.head().id
        workflow = world.start(definition)
        with behind(Fault("answer", MERGE, times=5, status=423), Fault("cut after", MERGE)) as (lake, proxy):
            settled = world.execute(definition, world.poll(definition), lake=lake, fence="hard")
            assert proxy.count(MERGE) == 6
        check_completed(world, workflow, a, published_ref(settled))

    def test_a_storm_that_does_not_end_fails_the_attempt_and_moves_nothing(
        self, world: World, behind: Behind
    ) -> None:
        definition, a = make_task(), world.head().id
        workflow = world.start(definition)
        with behind(Fault("answer", MERGE, times=FOR_EVER, status=423)) as (lake, _):
            settled = world.execute(definition, world.poll(definition), lake=lake)
        assert (settled.outcome.status, world.head().id) == ("FAILED", a)
        assert "busy" in (settled.outcome.reason or "")
        check_completed(world, workflow, a, published_ref(world.execute(definition, world.poll(definition))))


@dataclass(slots=True)
class LaterFault(Fault):
    """A fault that lets the first `passes` requests through."""

    passes: int = 0

    def takes(self, line: str) -> bool:
        if self.passes and re.search(self.where, line):
            self.passes -= 1
            return False
        return Fault.takes(self, line)


def other_bytes(workspace: Path, params: Any) -> Any:
    """Not what the retry will write."""
    (workspace / "other.txt").write_text("of a dead attempt")
    return write_result(workspace, params)
