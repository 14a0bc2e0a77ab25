"""Fixtures of the lakeFS adapter's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.worlds.cache_fixture import CacheFixture


@pytest.fixture
def cached(tmp_path: Path) -> CacheFixture:
    return CacheFixture(tmp_path)
