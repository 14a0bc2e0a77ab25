"""The cost of a task with reads and writes on the real server: nothing outside its view is listed or fetched."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.conftest import LakefsServer
from tests.support.faults.proxy import fault_proxy
from tests.support.worlds.lakefs_world import opened
from tests.support.worlds.world import Made, Params, World, make_task, published_ref

OBJECT = re.compile(r"(GET|PUT|HEAD) /test-[^/?]+/[^/?]+/")
FILES = {
    **{f"data/plays/{number}.csv": f"play {number}" for number in range(12)},
    **{f"data/plays-old/{number}.csv": f"old {number}" for number in range(40)},
    **{f"data/other/{number}.csv": f"other {number}" for number in range(40)},
    "data/songs": "a file",
    "data/sessions/1.csv": "session",
    "data/sessions/2.csv": "session",
}


def body(workspace: Path, params: Params) -> Made:
    (workspace / "sessions" / "1.csv").write_text("changed")
    (workspace / "sessions" / "2.csv").unlink()
    return Made(said="made")


def test_a_task_with_reads_and_writes_fetches_its_view_and_sends_what_changed(
    lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
) -> None:
    task = make_task(body, reads=("plays", "songs"), writes=("sessions",))
    with (
        fault_proxy(lakefs_server.url) as proxy,
        opened(lakefs_server, tmp_path / "direct") as direct,
        opened(lakefs_server, tmp_path / "counted", url=proxy.url) as counted,
    ):
        world = World(direct, lakefs_repository, tmp_path)
        world.commit(FILES)
        world.start(task)
        ref = published_ref(world.execute(task, world.poll(task), lake=counted))
        seen = list(proxy.seen)
        after = world.files(ref)
        world.orchestrator.close()

    listed = [parse_qs(urlsplit(line.split()[1]).query) for line in seen if "/objects/ls?" in line]
    assert sorted(asked["prefix"][0] for asked in listed if asked["prefix"] != ["_lakefs_actions/"]) == [
        "data/plays/",
        "data/sessions/",
        "data/songs/",
    ]
    moved = [
        line.split("?")[0].split() for line in seen if OBJECT.match(line) and "_lakefs_actions" not in line
    ]
    got = sorted(path.split("/", 3)[3] for method, path, *_ in moved if method == "GET")
    put = [path.split("/", 3)[3] for method, path, *_ in moved if method == "PUT"]
    assert got == sorted(
        path for path in FILES if path.startswith(("data/plays/", "data/songs", "data/sessions/"))
    )
    assert put == ["data/sessions/1.csv"]
    assert after == {
        path: text
        for path, text in {**FILES, "data/sessions/1.csv": "changed"}.items()
        if "sessions/2" not in path
    }
