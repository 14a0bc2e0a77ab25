"""What lets the suite run side by side, and on a busy machine: `tests/conftest.py` keeps its own promises."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.conftest import GROUPS, LONG, LONGEST, QUICK

CHECKOUT = Path(__file__).parents[1]


def test_no_property_fails_for_being_slow() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_every_name_in_the_order_of_the_tests_is_there() -> None:
    """A file that is moved takes its place in the order with it."""
    files = [name.split("::")[0] for name in (*LONGEST, QUICK, *LONG) if not name.startswith("@")]
    groups = [name.removeprefix("@") for name in LONGEST if name.startswith("@")]

    assert [name for name in files if not (CHECKOUT / name).is_file()] == []
    assert set(groups) <= set(GROUPS.values())
