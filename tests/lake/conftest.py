"""The real lakeFS, as the tests of its adapter take it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.lakes import Work

if TYPE_CHECKING:
    from perago.lake.lakefs.lake import LakeFSLake
    from tests.conftest import LakefsServer

OpenLakeFS = Callable[..., "LakeFSLake"]


@pytest.fixture
def open_lakefs(lakefs_server: LakefsServer, tmp_path: Path) -> Iterator[OpenLakeFS]:
    """Open a lake on the real server or on a proxy before it, without waits between retries; closed at the end."""
    from perago.lake.lakefs.client import Options
    from perago.lake.lakefs.lake import LakeFSLake

    with ExitStack() as stack:

        def make(url: str | None = None, *, cache_bytes: int = 10**9, **options: Any) -> LakeFSLake:
            chosen = Options(**{"sleep": lambda _: None, "random": random.Random(1), **options})
            lake = LakeFSLake(
                url or lakefs_server.url,
                access_key_id=lakefs_server.access_key_id,
                secret_access_key=lakefs_server.secret_access_key,
                cache_dir=tmp_path / "cache",
                cache_bytes=cache_bytes,
                options=chosen,
            )
            stack.callback(lake.close)
            return lake

        yield make


@pytest.fixture
def lakefs(open_lakefs: OpenLakeFS) -> LakeFSLake:
    """A lake on the real server."""
    return open_lakefs()


@pytest.fixture
def lakefs_work(lakefs: LakeFSLake, lakefs_repository: str, tmp_path: Path) -> Work:
    """The contract suite's moves, on a fresh repository of the real server."""
    return Work(lakefs, lakefs_repository, tmp_path / "files")
