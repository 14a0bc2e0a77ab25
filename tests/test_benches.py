"""The benches are run by hand, on a quiet machine: a test sees to it that each can begin."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import bench
from bench.kinds import BOTH, TRIAL


@pytest.mark.slow
@pytest.mark.parametrize("name", [found.name for found in pkgutil.iter_modules(bench.__path__)])
def test_a_bench_can_be_imported(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")

    if name in bench.BENCHES:
        assert module.NAME
        assert callable(module.run)
        assert isinstance(module.SERVERS, bool)
        assert set(getattr(module, "KINDS", (TRIAL,))) <= set(BOTH)


def test_every_bench_of_the_list_is_there() -> None:
    assert set(bench.BENCHES) <= {found.name for found in pkgutil.iter_modules(bench.__path__)}
