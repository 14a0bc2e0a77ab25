"""Background work of an attempt: revoking beside the download, claiming beside staging."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perago.errors import LakeUnavailable
from perago.protocol.names import claim_branch_name
from perago.runtime.attempt.context import Submit
from tests.support.faults.gates import ORDERS, LazyFuture
from tests.support.faults.ports import Wrapped, recording, refusing
from tests.support.worlds.world import World, change_nothing, make_task, published_ref


@pytest.fixture
def threads() -> Iterator[Submit]:
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def holding(port: Any, held: Callable[[str, tuple[Any, ...]], bool], until: threading.Event) -> Any:
    """A port on which some calls are put off until something has happened."""

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if held(name, arguments):
            assert until.wait(60), f"{name} was waited for before it was let go"
        return call(*arguments)

    return Wrapped(port, around)


def is_claim(name: str, arguments: tuple[Any, ...]) -> bool:
    return name == "create_branch" and "-claim-task-id-" in arguments[1]


def setting(port: Any, name: str, event: threading.Event) -> Any:
    """A port that says when a call of a name has been made."""

    def around(called: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        answer = call(*arguments)
        if called == name:
            event.set()
        return answer

    return Wrapped(port, around)


def test_staging_continues_while_the_claim_is_on_its_way(world: World, threads: Submit) -> None:
    definition, staged = make_task(), threading.Event()
    world.start(definition)
    lake = setting(holding(world.lake, is_claim, staged), "commit", staged)
    settled = world.execute(definition, world.poll(definition), lake=lake, overlap=threads)
    assert published_ref(settled) == world.head().id
    assert world.leftovers() == []


def test_the_input_comes_while_dead_attempts_are_revoked(world: World, threads: Submit) -> None:
    definition, downloaded = make_task(), threading.Event()
    world.start(definition)
    lake = holding(world.lake, lambda name, _: name == "branches", downloaded)
    settled = world.execute(
        definition, world.poll(definition), lake=setting(lake, "download", downloaded), overlap=threads
    )
    assert published_ref(settled) == world.head().id


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ["replace", "supersede", "reuse"])
def test_the_head_that_decides_is_read_after_revoke_and_claim(world: World, order: str, policy: str) -> None:
    definition, calls = make_task(on_abandoned=policy), []
    world.start(definition)
    lake = recording(world.lake, calls)
    # A soft worker trusts no lake to compare.
    settled = world.execute(
        definition, world.poll(definition), lake=lake, overlap=ORDERS[order], fence="soft"
    )
    decided = len(calls) - 1 - calls[::-1].index("head")
    assert published_ref(settled) == world.head().id
    assert max(n for n, call in enumerate(calls) if call in ("create_branch", "branches")) < decided


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ["replace", "supersede", "reuse"])
def test_the_merge_that_has_the_lake_compare_comes_after_revoke_and_claim(
    world: World, order: str, policy: str
) -> None:
    definition, calls = make_task(on_abandoned=policy), []
    world.start(definition)
    lake = recording(world.lake, calls)
    settled = world.execute(definition, world.poll(definition), lake=lake, overlap=ORDERS[order])
    assert published_ref(settled) == world.head().id
    assert max(n for n, call in enumerate(calls) if call in ("create_branch", "branches")) < calls.index(
        "merge"
    )


def test_a_twin_whose_staging_fails_keeps_silent_all_the_same(world: World) -> None:
    definition = make_task()
    workflow = world.start(definition)
    assignment = world.poll(definition)
    world.lake.create_branch(world.repository, claim_branch_name(assignment.attempt, "main"), world.head().id)
    lake = refusing(world.lake, "upload", error=LakeUnavailable("upload: cut"))
    settled = world.execute(definition, assignment, lake=lake)
    assert settled.outcome.status == "LOST_TO_TWIN"
    assert world.workflow(workflow).running


def test_a_publisher_whose_staging_fails_says_so_and_gives_its_claim_back(world: World) -> None:
    definition = make_task()
    world.start(definition)
    lake = refusing(world.lake, "upload", error=LakeUnavailable("upload: cut"))
    settled = world.execute(definition, world.poll(definition), lake=lake)
    assert settled.outcome.status == "FAILED"
    assert "upload: cut" in (settled.outcome.reason or "")
    assert settled.claim is not None
    assert world.leftovers() == []


def test_a_claim_that_has_not_begun_when_staging_fails_is_not_made(world: World) -> None:
    definition, calls = make_task(), []
    world.start(definition)
    lake = recording(refusing(world.lake, "upload", error=LakeUnavailable("upload: cut")), calls)
    settled = world.execute(definition, world.poll(definition), lake=lake, overlap=LazyFuture)
    assert (settled.outcome.status, settled.claim) == ("FAILED", None)
    assert calls.count("create_branch") == 1


def test_a_failed_revoke_fails_the_attempt_before_its_body(world: World) -> None:
    ran: list[bool] = []

    def body(workspace: Any, params: Any) -> Any:
        ran.append(True)
        return change_nothing(workspace, params)

    definition = make_task(body)
    world.start(definition)
    lake = refusing(world.lake, "branches", error=LakeUnavailable("branches: cut"))
    settled = world.execute(definition, world.poll(definition), lake=lake)
    assert (settled.outcome.status, ran) == ("FAILED", [])


def test_a_soft_worker_never_asks_for_the_fence_and_says_soft(world: World) -> None:
    definition = make_task()
    world.start(definition)
    lake = refusing(world.lake, "fence_level")
    settled = world.execute(definition, world.poll(definition), lake=lake, fence="soft")
    assert published_ref(settled) == world.head().id
    assert settled.fence_level == "soft"
    assert world.head().metadata["perago.fence"] == "soft"
