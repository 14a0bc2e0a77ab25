"""The cost of one small change among many objects on the real server, in requests and opened files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from perago.lake.base import Upload
from tests.conftest import LakefsServer
from tests.support.faults.proxy import fault_proxy
from tests.support.processes.processes import OPENED_FILES
from tests.support.worlds.lakefs_world import opened
from tests.support.worlds.world import World, change_nothing, make_task, published_ref

OBJECTS = 10_000
OBJECT_PATH = re.compile(r"(GET|PUT) /test-[^/?]+/[^/?]+/")


def fill(world: World, folder: Path) -> None:
    """Commit that many objects of a few bytes in a hundred folders."""
    folder.mkdir()
    uploads = []
    for number in range(OBJECTS):
        data = b"object %d" % number
        file = folder / str(number)
        file.write_bytes(data)
        path = f"data/{number % 100:02}/{number:05}.txt"
        uploads.append(Upload(file, path, len(data), hashlib.md5(data).hexdigest()))
    world.lake.upload(world.repository, "main", uploads)
    world.lake.commit(world.repository, "main", "many objects", {})


@pytest.mark.slow
def test_one_of_ten_thousand_changed_is_one_object_sent_and_one_file_read(
    lakefs_server: LakefsServer, lakefs_repository: str, on_disk: Path
) -> None:
    definition = make_task(change_nothing)
    with (
        fault_proxy(lakefs_server.url) as proxy,
        opened(lakefs_server, on_disk) as direct,
        opened(lakefs_server, on_disk, url=proxy.url) as counted,
    ):
        world = World(direct, lakefs_repository, on_disk)
        fill(world, on_disk / "many")
        # A first attempt fills the cache, which knows a server by its address.
        world.start(definition)
        published_ref(world.execute(definition, world.poll(definition), lake=counted))
        proxy.seen.clear()

        def change_one(workspace: Path, params: Any) -> Any:
            (workspace / "07" / "00107.txt").write_text("changed")
            OPENED_FILES.start(workspace)
            return change_nothing(workspace, params)

        changing = make_task(change_one)
        world.start(changing)
        with OPENED_FILES.recorded() as files:
            published_ref(world.execute(changing, world.poll(changing), lake=counted))
        moved = [line for line in proxy.seen if OBJECT_PATH.match(line)]
        world.orchestrator.close()
    # The fence file is asked for, and is not there; no byte of an object is fetched again.
    assert [line for line in moved if "_lakefs_actions" not in line] == [
        line
        for line in moved
        if line.startswith("PUT ") and line.split("?")[0].endswith("/data/07/00107.txt")
    ]
    assert sum(line.startswith("PUT ") for line in moved) == 1
    # Once to hash it, once to send it.
    assert files == ["07/00107.txt"] * 2
    assert len(proxy.seen) < 60
