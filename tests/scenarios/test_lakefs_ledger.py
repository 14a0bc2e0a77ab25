"""The ledger on the real lakeFS, which also reports objects as changed whose bytes are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perago import changes
from tests.conftest import LakefsServer
from tests.support.worlds.lakefs_world import a_world
from tests.support.worlds.world import Made, Params, World, make_task

pytestmark = pytest.mark.servers


@pytest.fixture
def world(lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        yield made


def list_new(workspace: Path, params: Params) -> Made:
    """Write the names of new files."""
    found = changes(workspace, "raw")
    (workspace / "out").mkdir(exist_ok=True)
    (workspace / "out/new.txt").write_text("\n".join(found.present))
    return Made(said=" ".join(found.present))


def test_other_metadata_of_an_object_is_no_change(world: World, lakefs_server: LakefsServer) -> None:
    task = make_task(list_new, prefix="/", reads=("raw",), writes=("out",), skip_unchanged=True)
    world.commit({"raw/a": "1", "raw/b": "1"})
    world.run(task)
    before = world.head().id
    for path in ("raw/a", "out/new.txt"):
        lakefs_server.call(
            "PUT",
            f"/repositories/{world.repository}/branches/main/objects/stat/user_metadata?path={path}",
            {"set": {"checked": "yes"}},
        )
    world.lake.commit(world.repository, "main", "metadata only", {})
    assert list(world.lake.diff_paths(world.repository, before, "main", [""])) == ["out/new.txt", "raw/a"]

    assert world.run(task).seen.skipped == before
    world.commit({"raw/b": "2"})
    changed = world.run(task)

    assert changed.outcome.output["result"] == {"said": "raw/b"}
