"""The real lakeFS, as the tests of its adapter take it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.servers.lakefs import WITHOUT_WAITING, OpenLakeFS, lakefs_lake
from tests.support.worlds.lake_work import Work

if TYPE_CHECKING:
    from perago.lake.lakefs.lake import LakeFSLake
    from tests.conftest import LakefsServer


@pytest.fixture
def open_lakefs(lakefs_server: LakefsServer, tmp_path: Path) -> Iterator[OpenLakeFS]:
    """Open a lake on the real server or on a proxy before it, without waits between retries; closed at the end."""
    with ExitStack() as stack:

        def make(url: str | None = None, **options: Any) -> LakeFSLake:
            chosen = {**WITHOUT_WAITING, **options}
            return stack.enter_context(lakefs_lake(lakefs_server, tmp_path / "cache", url=url, **chosen))

        yield make


@pytest.fixture
def lakefs(open_lakefs: OpenLakeFS) -> LakeFSLake:
    """A lake on the real server."""
    return open_lakefs()


@pytest.fixture
def lakefs_work(lakefs: LakeFSLake, lakefs_repository: str, tmp_path: Path) -> Work:
    """The contract suite's moves, on a fresh repository of the real server."""
    return Work(lakefs, lakefs_repository, tmp_path / "files")
