"""What lets the suite run side by side, and on a busy machine: `tests/conftest.py` keeps its own promises."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.conftest import GROUPS, LONG, LONGEST, QUICK, group_of

CHECKOUT = Path(__file__).parents[1]


def test_no_property_fails_for_being_slow() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_every_name_in_the_order_of_the_tests_is_there() -> None:
    """A file that is moved takes its place in the order with it."""
    paths = [name.split("::")[0] for name in (*LONGEST, *GROUPS, QUICK, *LONG)]

    assert [path for path in paths if not (CHECKOUT / path).exists()] == []


def test_tests_that_share_a_session_are_one_group_and_others_are_alone() -> None:
    shared = ["tests/spark/test_branch_place.py::test_one", "tests/spark/test_job_group.py::test_two[x]"]
    alone = ["tests/spark/test_killed.py::test_one", "tests/lake/lakefs/test_cache.py::test_one"]

    assert [group_of(nodeid) for nodeid in shared] == ["sessions", "sessions"]
    assert [group_of(nodeid) for nodeid in alone] == alone
