"""Which server calls one attempt of a plain one-file task makes, counted by name in front of the real servers.

The calls of lakeFS's API, of its S3 gateway and of Conductor are counted by proxies, not in a client.  What they saw is
compared with the table in docs/publication.md, so that neither the calls nor the page change unnoticed.
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

import pytest

from perago.lake.lakefs.fence import Fence
from tests.support.faults.proxy import FaultProxy, fault_proxy
from tests.support.servers.server_calls import FENCES, LAST, calls, named, on_the_page, sum_on_the_page
from tests.support.worlds.clock import eventually
from tests.support.worlds.lake_work import Work
from tests.support.worlds.worker_world import WorkerWorld

REAL_ONLY = pytest.mark.parametrize(
    "world", [pytest.param("real", marks=[pytest.mark.servers, pytest.mark.slow])], indirect=True
)


def count_one_attempt(world: WorkerWorld, lakefs: FaultProxy, conductor: FaultProxy) -> Counter[str]:
    """The calls of a worker's second attempt, on an input that it has not seen; the first is for what it asks once."""
    work = Work(world.lake, world.repository, world.folder / "inputs")
    work.stage("second", work.head(), {"data/input.txt": b"another input"})
    # No lease is due while the attempt runs: extending one is not a call of every attempt.
    world.response_seconds = 900
    worker = world.start_worker(
        slots=1, LAKECTL_SERVER_ENDPOINT_URL=lakefs.url, CONDUCTOR_SERVER_URL=f"{conductor.url}/api"
    )
    world.finished(world.start_workflow({"text": "first"}))
    eventually(
        lambda: set(calls([*lakefs.answered, *conductor.answered])) >= LAST, "the first attempt is cleaned up"
    )
    for proxy in (lakefs, conductor):
        proxy.answered.clear()
    done = world.finished(world.start_workflow({"text": "second"}, branch="second"))
    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert worker.drain() == 0
    assert world.branches() == []
    return calls([*lakefs.answered, *conductor.answered])


@REAL_ONLY
@pytest.mark.parametrize("kind", FENCES)
def test_an_attempt_makes_the_calls_that_the_page_shows(world: WorkerWorld, kind: str) -> None:
    if kind == "proven":
        Fence(world.lake).install(world.repository, "main")
    address = urlsplit(world.environ["CONDUCTOR_SERVER_URL"])
    with (
        fault_proxy(world.environ["LAKECTL_SERVER_ENDPOINT_URL"]) as lakefs,
        fault_proxy(f"{address.scheme}://{address.netloc}") as conductor,
    ):
        seen = count_one_attempt(world, lakefs, conductor)
    assert seen == on_the_page(kind)
    assert seen.total() == sum_on_the_page(kind)


@pytest.mark.parametrize("kind", FENCES)
def test_the_pages_sum_is_that_of_its_rows(kind: str) -> None:
    assert on_the_page(kind).total() == sum_on_the_page(kind) > 0


def test_a_path_that_has_no_name_is_seen_as_it_is() -> None:
    assert named("GET /api/v1/config?x=1") == "GET /api/v1/config"
