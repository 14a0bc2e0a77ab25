"""Running the suite in parallel and on a busy machine: the promises of `tests/conftest.py` and the running order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, settings

from tests.support.processes.running_order import (
    GROUPS,
    HEAVY,
    HEAVY_AT_ONCE,
    LONG,
    LONGEST,
    QUICK,
    group_of,
    is_heavy,
)
from tests.support.processes.xdist_scheduler import Groups

CHECKOUT = Path(__file__).parents[1]


def test_no_property_fails_for_being_slow() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_every_name_in_the_order_of_the_tests_is_there() -> None:
    """A file that is moved takes its place in the order with it."""
    paths = [name.split("::")[0] for name in (*LONGEST, *GROUPS, QUICK, *LONG, *HEAVY)]

    assert [path for path in paths if not (CHECKOUT / path).exists()] == []


def test_tests_that_share_a_session_are_one_group_and_others_are_alone() -> None:
    shared = ["tests/spark/test_branch_place.py::test_one", "tests/spark/test_job_group.py::test_two[x]"]
    alone = ["tests/spark/test_killed.py::test_one", "tests/lake/lakefs/test_cache.py::test_one"]

    assert [group_of(nodeid) for nodeid in shared] == ["sessions", "sessions"]
    assert [group_of(nodeid) for nodeid in alone] == alone


def test_a_group_is_heavy_as_a_whole_or_not_at_all() -> None:
    """The scheduler goes by the first of its tests."""
    shared = {name: [path for path, of in GROUPS.items() if of == name] for name in GROUPS.values()}

    assert {name: {is_heavy(path) for path in paths} for name, paths in shared.items() if len(paths) > 1} == {
        "standalone": {True}
    }


class Worker:
    """A worker of the runner, as far as handing out tests goes."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Options:
    """The runner's, as on the command line: so many workers, tests in the order in which they were collected."""

    option = SimpleNamespace(loadscopereorder=False)

    def getvalue(self, name: str) -> object:
        return {"tx": ["4*popen"]}.get(name)


def test_while_enough_heavy_tests_are_under_way_a_worker_is_given_a_light_one() -> None:
    heavy = [f"tests/spark/test_map.py::test_{number}" for number in range(HEAVY_AT_ONCE + 1)]
    light = [f"tests/lake/test_{number}.py::test_it" for number in range(8)]
    workers = [Worker() for _ in range(4)]
    runner: Any = Groups(Options())  # type: ignore[arg-type]
    for worker in workers:
        runner.add_node(worker)
        runner.add_node_collection(worker, [*heavy, *light])

    runner.schedule()

    given = [index for worker in workers for index in worker.given]
    assert sorted(index for index in given if index < len(heavy)) == list(range(HEAVY_AT_ONCE))
    [first] = [worker for worker in workers if 0 in worker.given]
    runner.mark_test_complete(first, 0)
    assert len(heavy) - 1 in first.given, "a heavy one that is over makes room for the next"
