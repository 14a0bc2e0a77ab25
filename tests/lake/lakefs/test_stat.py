"""Reading one object's metadata: only lakeFS's own answer means that it does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.errors import LakeError, LakeNotFound, LakeUnavailable
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.lake import LakeFSLake
from tests.support.servers.scripted_server import NGINX, Answer, scripted


def stat_answered(answer: Answer, folder: Path) -> LakeError:
    """Return what the lake reports of an object when the server answers like this."""
    with (
        scripted(lambda _request: answer) as server,
        LakeFSLake(
            server.url.removesuffix("/api"),
            access_key_id="key",
            secret_access_key="secret",
            cache_dir=folder,
            cache_bytes=0,
            options=Options(tries=1),
        ) as lake,
        pytest.raises(LakeError) as caught,
    ):
        lake.stat("songs", "main", "plays")
    return caught.value


def test_lakefs_own_404_is_an_object_that_is_not_there(tmp_path: Path) -> None:
    assert isinstance(stat_answered((404, {"message": "not found"}), tmp_path), LakeNotFound)


@pytest.mark.parametrize(
    "answer",
    [
        (404, NGINX.format("404 Not Found")),
        (200, {"status": "ok"}),
        (200, ["a list"]),
        (503, {"message": "busy"}),
    ],
)
def test_any_other_answer_leaves_it_open(answer: Answer, tmp_path: Path) -> None:
    error = stat_answered(answer, tmp_path)

    assert isinstance(error, LakeUnavailable)
    assert "look for 'plays' at 'main' of repository 'songs'" in str(error)
