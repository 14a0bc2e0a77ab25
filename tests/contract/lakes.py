"""The lakes that the contract suite runs on.

A lake joins by an entry in `LAKES`: a name, how to open it, and a mark where it needs a real server.  No test changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from perago.lake.base import Lake
from perago.lake.local.lake import LocalLake
from tests.conftest import fresh_repository
from tests.support.servers.lakefs import lakefs_lake


@dataclass(frozen=True, slots=True)
class OpenLake:
    """A lake to test, and a fresh repository in it whose branch `main` has one empty commit."""

    lake: Lake
    repository: str


@dataclass(frozen=True, slots=True)
class LakeUnderTest:
    """A kind of lake and how to open it; `request` reaches the fixtures it depends on."""

    open: Callable[[pytest.FixtureRequest], AbstractContextManager[OpenLake]]
    marks: tuple[pytest.MarkDecorator, ...] = ()


@contextmanager
def _local(request: pytest.FixtureRequest) -> Iterator[OpenLake]:
    folder: Path = request.getfixturevalue("tmp_path")
    lake = LocalLake(folder / "lake")
    lake.create_repository("contract")
    yield OpenLake(lake, "contract")
    assert lake.fsck() == []
    lake.close()


@contextmanager
def _lakefs(request: pytest.FixtureRequest) -> Iterator[OpenLake]:
    server = request.getfixturevalue("lakefs_server")
    folder: Path = request.getfixturevalue("tmp_path")
    with closing(lakefs_lake(server, folder / "cache")) as lake:
        yield OpenLake(lake, request.getfixturevalue("lakefs_repository"))


@contextmanager
def _production(request: pytest.FixtureRequest) -> Iterator[OpenLake]:
    """lakeFS on PostgreSQL and S3, where all bytes go past lakeFS."""
    server = request.getfixturevalue("production_servers").lakefs
    folder: Path = request.getfixturevalue("tmp_path")
    with (
        fresh_repository(server) as repository,
        closing(lakefs_lake(server, folder / "cache", transfer="presigned")) as lake,
    ):
        yield OpenLake(lake, repository)


LAKES: dict[str, LakeUnderTest] = {
    "local": LakeUnderTest(_local),
    "lakefs": LakeUnderTest(_lakefs, (pytest.mark.servers,)),
    "production": LakeUnderTest(_production, (pytest.mark.servers,)),
}
